"""Features of a stream's samples that the first of them fix: scales of inputs, then a map."""

import math
import warnings

import numpy as np

from minipw import InputError
from minipw.backend.arrays import channels_first, to_device
from minipw.backend.cuda import known_module
from minipw.backend.threads import share_large
from minipw.network import feature_map as maps
from minipw.online.standardize import Standardizer

SIZES = {"random": 1000, "scales": 3600, "patches": 200}
"""Features, or filters, unless given."""
SMALLEST_IMAGE = 8
"""Pixels on a side from which "auto" takes patches of two scales."""
EXACT = 2048
"""Features up to which learning takes float64: the cut of a stream leaves no trace in the sums."""
LIMIT, IMAGE_LIMIT = 3.0, 10.0
"""Deviations from the mean at which a value is cut; all pixels of a channel share theirs."""


class Features:
    """Features z of samples; called with float64 ndarray (N, *shape), they are (N, H).

    Parameters
    ----------
    kind : {"auto", "random", "scales", "patches", "identity"}
    size : int or None
    shape : tuple of int
        Of a sample: (D,), (height, width) or (height, width, channels).
    missing : bool
        NaN is an unknown value and stands for the mean.
    device : {"cpu", "cuda"}

    Raises
    ------
    InputError
        Where no such map can be made of these samples, or it does not fit in memory.
    """

    def __init__(self, kind, size, shape, missing=False, device="cpu"):
        if channels_first(shape):
            raise InputError(f"images {shape}: channels come last, x.transpose(0, 2, 3, 1)")
        self.image = (*shape, 1) if len(shape) == 2 else shape  # with its channels
        if kind == "identity" and size is not None:
            raise InputError(f"size is {size}, but identity takes the inputs: leave it out")
        if kind == "auto":
            large = len(shape) > 1 and min(shape[:2]) >= SMALLEST_IMAGE
            kind = "scales" if large else "random"
        self.words = kind if kind == "identity" else f"{kind}-{size or SIZES[kind]}"
        self.count, self.device, self.map = maps.feature_count(self.words, self.image), device, None
        limit = LIMIT if len(shape) == 1 else IMAGE_LIMIT
        self.standardizer = Standardizer(self.image[-1], limit, missing)

    def require_memory(self, classes):
        """Raise InputError where the sums, and solving them, do not fit in memory."""
        maps.require_map_memory(self.words, self.image, max(10, classes))

    @property
    def xp(self):
        """The array module; itself it could not be pickled."""
        return known_module(self.device)

    @property
    def width(self):
        """Numbers of 4 bytes that a sample takes at most."""
        return max(2 * math.prod(self.image), self.count)

    def fix(self, x, weights, seed):
        """Fix scales and map by the first samples and their weights; their order is nothing."""
        flat = self._flat(x)
        self.standardizer.begin(flat, np.repeat(weights, len(flat) // len(x)))
        self.standardizer.freeze()
        if self.words.startswith(("pat", "scal")) and self.standardizer.open.all():
            about = f"the first images, {len(x)}, are all uniform: such features tell nothing apart"
            warnings.warn(f"{about}; begin with images that vary", stacklevel=2)
        rng = np.random.default_rng(seed)
        with share_large(math.inf):
            self.map = maps.feature_map(self.words, self._inputs(x), rng, weights)

    def widen(self, inputs, seed):
        """Append inputs to random features; where they are the mean, nothing changes."""
        if not self.words.startswith("random"):
            raise InputError(f"{self.words} features take no more inputs: use random features")
        self.standardizer.add_features(inputs)
        if self.map is not None:
            self.standardizer.freeze()
            rng = np.random.default_rng([seed, self.image[0]])
            self.map = self.map.widened(inputs, rng)
        self.image = (self.image[0] + inputs,)

    def settle(self, x):
        """Scale inputs that were constant; what `Standardizer.settle` returns is for a call."""
        return self.standardizer.settle(self._flat(x))

    def close(self):
        """Let nothing change from here on, so that others can have the same features."""
        self.standardizer.close()

    def __call__(self, x, learning=False, early=None):
        exact = learning and self.count <= EXACT and not self.words.startswith(("pat", "scal"))
        with share_large(len(x) * self.count):
            return self.map(self._inputs(x, np.float64 if exact else np.float32, early))

    def state(self):
        """Arrays and facts: what `restore` needs."""
        facts = {"words": self.words, "fixed": self.map is not None}
        if self.map is None:
            return {}, facts
        arrays, more = maps.map_state(self.map)
        arrays["standardizer"] = self.standardizer.state()
        return {f"map/{name}": array for name, array in arrays.items()}, facts | {"map": more}

    def restore(self, arrays, facts):
        """Go back to what `state` returned."""
        self.words = facts["words"]
        if facts["fixed"]:
            own = {n.removeprefix("map/"): a for n, a in arrays.items() if n.startswith("map/")}
            self.standardizer.restore_frozen(own.pop("standardizer"))
            self.map = maps.map_from_state(self.words, own, facts["map"], self.xp)

    def same(self, other):
        """Whether two give the same features."""
        (ours, facts), (theirs, more) = self.state(), other.state()
        equal = facts == more and ours.keys() == theirs.keys()
        return equal and all(
            np.array_equal(ours[name], theirs[name], equal_nan=True) for name in ours
        )

    def _flat(self, x):
        return x.reshape(-1, self.image[-1])

    def _inputs(self, x, kind=np.float32, early=None):
        """Samples as the map sees them: standardized, on the device."""
        flat = self.standardizer.transform(self._flat(x)).astype(kind)
        if early is not None:
            flat[early.reshape(flat.shape)] = 0
        return to_device(self.xp, flat.reshape(len(x), *self.image))
