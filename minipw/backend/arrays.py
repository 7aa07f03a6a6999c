"""Which array module an array belongs to, and how it moves between host and device."""

import numpy as np

BLOCK = 1 << 17
"""Elements that a CPU works on at a time, so that what one pass leaves is still in the
cache for the next; with fewer the calls cost more, with more the memory (measured)."""

DEVICE_BLOCK = 1 << 26
"""The same on a device, where a block is worth its launches: 256 MB in float32."""


def block_size(xp):
    """`BLOCK`, or `DEVICE_BLOCK` where the module is not NumPy."""
    return BLOCK if xp is np else DEVICE_BLOCK


def array_module(x):
    """The module, numpy or cupy, whose functions work on `x`."""
    if isinstance(x, np.ndarray | np.generic):
        return np
    import cupy

    return cupy


def as_float(x):
    """`x`, whole numbers and booleans as float64."""
    return x if x.dtype.kind == "f" else x.astype(np.float64)


def normal_distribution(x):
    """Phi(x), the distribution function of the standard normal, of x's type."""
    if array_module(x) is np:
        from scipy.special import ndtr
    else:
        from cupyx.scipy.special import ndtr
    return ndtr(x)


def to_device(xp, array):
    """`array`, of NumPy or of `xp`, as an array of `xp`; a copy only from host to device."""
    return array if xp is np else xp.asarray(array)


def to_host(array):
    """A copy of `array` for NumPy; waits for the device that it is on."""
    return array.copy() if isinstance(array, np.ndarray) else array.get()


def channels_first(shape):
    """Whether a sample of this shape looks like an image with channels first.

    (3, 32, 32) does, and (1, 28, 28): few channels, more pixels in both directions.
    """
    return len(shape) == 3 and shape[0] <= 4 < min(shape[1:])
