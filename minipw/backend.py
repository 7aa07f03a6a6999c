"""The array modules: which one an array belongs to, and how the host is used well.

The only file that may import cupy.
"""

import ctypes
import sys
from typing import Any, NamedTuple

import numpy as np

BLOCK = 32768
"""Elements worked on at a time on a CPU: a few such arrays stay in the L2 cache."""


def array_module(x):
    """The module, numpy or cupy, whose functions work on `x`."""
    if isinstance(x, np.ndarray | np.generic):
        return np
    import cupy

    return cupy


def blocks(size, xp):
    """Slices that cover range(size): cache-sized on a CPU, a single one on a GPU."""
    step = BLOCK if xp is np else max(size, 1)
    return [slice(start, start + step) for start in range(0, size, step)]


def keep_freed_memory():
    """Let the C library keep freed arrays for the next step instead of the system.

    A training step frees and allocates the same megabytes again and again. By
    default glibc returns them to the system each time, and the page faults that
    follow cost more than the arithmetic: the pairwise head alone goes from 15 to
    3 ms. Other C libraries ignore the call or do not have it.
    """
    if not sys.platform.startswith("linux"):
        return
    trim_threshold, mmap_threshold = -1, -3  # malloc.h: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(mmap_threshold, 32 << 20)  # the largest value that every glibc accepts
        mallopt(trim_threshold, 512 << 20)


class Columns(NamedTuple):
    """The entries of a gradient along its last axis that are not zero.

    Few units win in a small batch, so most of a gradient is exactly zero and the
    update of a zero gradient does nothing under any rule.

    index : int ndarray of shape (n,), ascending, without repeats
    values : ndarray of shape (..., n)
    """

    index: Any
    values: Any


def to_dense(gradient, size):
    """The ndarray of shape (..., size) that a `Columns` (or an ndarray) stands for."""
    if not isinstance(gradient, Columns):
        return gradient
    dense = np.zeros((*gradient.values.shape[:-1], size), gradient.values.dtype)
    dense[..., gradient.index] = gradient.values
    return dense
