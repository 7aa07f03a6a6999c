"""Gradients that are mostly zero, and sums of gradients."""

from typing import Any, NamedTuple

import numpy as np

from minipw.backend.arrays import BLOCK
from minipw.backend.threads import THREADS


class Columns(NamedTuple):
    """A gradient that is zero except for some entries of its last axis.

    Few units win in a small batch, so most of a gradient is exactly zero, and no rule
    changes a weight whose gradient is zero.

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


def add_gradients(a, b):
    """a + b, where either may be `Columns`; an ndarray among them is changed in place."""
    if isinstance(a, Columns) and isinstance(b, Columns):
        index = np.union1d(a.index, b.index)
        values = np.zeros((*a.values.shape[:-1], index.size), a.values.dtype)
        for columns in (a, b):
            values[..., np.searchsorted(index, columns.index)] += columns.values
        return Columns(index, values)
    if isinstance(a, Columns):
        a, b = b, a
    if isinstance(b, Columns):
        a[..., b.index] += b.values
        return a
    if not a.flags.c_contiguous:
        return a + b
    sums, terms = a.reshape(-1), b.reshape(-1)

    def work(share):
        sums[share] += terms[share]

    THREADS.map(work, THREADS.shares(sums.size, smallest=BLOCK // 2))
    return a
