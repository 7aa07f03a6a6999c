"""Feature maps that never change: a random layer under k-WTA, and the identity."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from minipw import InputError
from minipw.backend.arrays import array_module, block_size
from minipw.backend.threads import THREADS
from minipw.nn.kwta import kwta_forward


@dataclass(frozen=True)
class RandomFeatures:
    """z = (kwta(x R + b) - shift) scale, called with x of (B, *shape), D numbers each.

    R : float32 ndarray of shape (D, H)
    b, shift, scale : float32 ndarray of shape (H,)
        With few inputs k-WTA takes the length of x away; b brings it back.
    winners : int, K
    """

    R: Any
    b: Any
    winners: int
    shift: Any = 0.0
    scale: Any = 1.0

    @cached_property
    def _double(self):
        return self.R.astype("float64")

    def __call__(self, x):
        """Features of shape (B, H), of x's type: float64 ones depend on no other sample."""
        x, (inputs, features) = x.reshape(len(x), -1), self.R.shape
        R = self._double if x.dtype == "float64" else self.R
        if x.shape[1] != inputs:
            raise InputError(f"samples of {x.shape[1]} numbers: the map was made for {inputs}")
        z = array_module(x).empty((len(x), features), R.dtype)
        rows = max(1, block_size(array_module(x)) // features)  # what stays in the cache

        def fill(start):
            part = slice(start, start + rows)
            inner = x[part].astype(R.dtype, copy=False) @ R + self.b
            z[part] = (kwta_forward(inner, self.winners)[0] - self.shift) * self.scale

        THREADS.map(fill, range(0, len(x), rows))
        return z

    def widened(self, count, rng):
        """The map for `count` inputs more, which do nothing where they are 0."""
        std, features = (2 / self.R.shape[0]) ** 0.5, self.R.shape[1]
        xp = array_module(self.R)
        more = xp.asarray(std * rng.standard_normal((count, features)), "float32")
        return replace(self, R=xp.concatenate([self.R, more]))


def random_features(first, features, rng, density=0.3, weights=None):
    """A random map of standardized samples, scaled by `first`, of shape (B, *shape)."""
    xp, inputs = array_module(first), first[0].size
    std = (2 / inputs) ** 0.5  # He
    R, b = (
        xp.asarray(std * rng.standard_normal(shape), "float32")
        for shape in ((inputs, features), features)
    )
    plain = RandomFeatures(R, b, max(1, int(density * features + 1e-9)))
    shift, scale = unit_scale(plain(first.astype("float64")), weights)
    return replace(plain, shift=shift, scale=scale)


def unit_scale(z, weights=None):
    """The shift and scale that give features z mean 0 and deviation 1; rare ones stay smaller."""
    xp = array_module(z)
    share = xp.ones(len(z)) if weights is None else xp.asarray(weights)
    share = share / share.sum()
    mean = share @ z
    deviation = xp.sqrt(share @ (z - mean) ** 2)
    deviation = xp.where(deviation > 1e-9 * abs(mean), deviation, 0)  # else it is rounding
    least = 0.1 * deviation.mean()
    scale = 1 / xp.maximum(deviation, least if least > 0 else 1)
    return mean.astype("float32"), scale.astype("float32")


def identity(x):
    """The samples themselves, of shape (B, D), as features."""
    return x.reshape(len(x), -1)
