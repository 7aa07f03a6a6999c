"""Which array module an array belongs to, and how it moves between host and device."""

import numpy as np

BLOCK = 1 << 17
"""Elements worked on at a time on a CPU, so that what one pass leaves is still in the
cache for the next one; fewer would be spent on calls, more on memory (measured)."""


def array_module(x):
    """The module, numpy or cupy, whose functions work on `x`."""
    if isinstance(x, np.ndarray | np.generic):
        return np
    import cupy

    return cupy


def normal_distribution(x):
    """Phi(x), the distribution function of the standard normal, of x's type."""
    if array_module(x) is np:
        from scipy.special import ndtr
    else:
        from cupyx.scipy.special import ndtr
    return ndtr(x)


def blocks(part, xp):
    """Slices that cover the slice `part`: cache-sized on a CPU, a single one on a GPU."""
    if xp is not np:
        return [part]
    starts = range(part.start, part.stop, BLOCK)
    return [slice(start, min(start + BLOCK, part.stop)) for start in starts]


def to_device(xp, array):
    """`array`, of NumPy or of `xp`, as an array of `xp`; a copy only from host to device."""
    return array if xp is np else xp.asarray(array)


def to_host(array):
    """A copy of `array` for NumPy; waits for the device that it is on."""
    return array.copy() if isinstance(array, np.ndarray) else array.get()
