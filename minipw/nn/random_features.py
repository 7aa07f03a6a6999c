"""Feature maps that never change: a random layer under k-WTA, and the identity."""

from dataclasses import dataclass
from typing import Any

from minipw import InputError
from minipw.backend.arrays import BLOCK, array_module
from minipw.backend.threads import THREADS
from minipw.nn.kwta import kwta_forward


@dataclass(frozen=True)
class RandomFeatures:
    """z = (kwta(((x - mean) / deviation) R + b) - shift) scale, called with x of (B, D).

    mean, deviation : ndarray of shape (D,)
    R : float32 ndarray of shape (D, H)
    b, shift, scale : float32 ndarray of shape (H,)
        With few inputs k-WTA takes the length of x away; b brings it back.
    winners : int, K
    """

    mean: Any
    deviation: Any
    R: Any
    b: Any
    winners: int
    shift: Any = 0.0
    scale: Any = 1.0

    def __call__(self, x):
        """Features of shape (B, H), float32."""
        xp, (inputs, features) = array_module(x), self.R.shape
        if x.ndim != 2 or x.shape[1] != inputs:
            raise InputError(f"samples of shape {x.shape[1:]}: the map was made for ({inputs},)")
        z = xp.empty((len(x), features), self.R.dtype)
        rows = max(1, BLOCK // features)  # what stays in the cache

        def fill(start):
            part = slice(start, start + rows)
            inner = ((x[part] - self.mean) / self.deviation).astype(z.dtype) @ self.R + self.b
            z[part] = (kwta_forward(inner, self.winners)[0] - self.shift) * self.scale

        THREADS.map(fill, range(0, len(x), rows))
        return z


def random_features(first, features, rng, density=0.3):
    """A random map, scaled by the first samples (`first`, of shape (B, D)).

    A constant input gets the deviation of all inputs together: it may move later.
    """
    xp, first = array_module(first), first.astype("float64")
    variance = first.var(0)
    deviation = xp.sqrt(xp.where(variance > 0, variance, variance.mean() or 1.0))
    std = (2 / first.shape[1]) ** 0.5  # He
    R, b = (
        xp.asarray(std * rng.standard_normal(shape), "float32")
        for shape in ((first.shape[1], features), features)
    )
    plain = RandomFeatures(first.mean(0), deviation, R, b, max(1, int(density * features + 1e-9)))
    return RandomFeatures(*list(vars(plain).values())[:5], *unit_scale(plain(first)))


def unit_scale(z):
    """The shift and scale that give features z mean 0 and deviation 1; rare ones stay smaller."""
    xp, deviation = array_module(z), z.std(0)
    least = 0.1 * deviation.mean()
    return z.mean(0), 1 / xp.maximum(deviation, least if least > 0 else 1)


def identity(x):
    """The samples themselves, of shape (B, D), as features."""
    return x.reshape(len(x), -1)
