"""The pairwise head on a CPU as C symmetric matrices, for many winners.

    y_c = x^T A_c x / 2,   A_c[i_p, j_p] = A_c[j_p, i_p] = w_p  for the pairs of output c

    dx = sum over c of dy_c A_c x
    dw_p = sum over the batch of x[i_p] x[j_p] dy_c = (x^T diag(dy_c) x)[i_p, j_p]

This computes products with zeros too, but as matrix products, which is faster when much of
x is not zero or pairs are listed many times.
"""

import threading
from itertools import pairwise

import numpy as np

STRIPES = 5
"""Of a triangle. More stripes skip more products, but the matrices become smaller."""


class Zeros(threading.local):
    """An array of zeros that each thread keeps between calls: zeroing costs more than filling."""

    def __init__(self):
        self.array = None

    def get(self, size, dtype):
        """The array of this thread, (size,), as this thread left it."""
        if self.array is None or self.array.dtype != dtype:
            self.array = np.zeros(size, dtype)
        return self.array


class MatrixPairs:
    """x (B, H), w (P,), any pairs.

    Attributes
    ----------
    used : int ndarray of shape (U,)
        The units that some pair reads.
    entry : int ndarray of shape (P,)
        Where the gradient of a weight is read from the products (C, U, U), flat.
    matrices : Zeros
        A_c, one below the other, filled at every call.
    triangles : LowerTriangles
        The same for logits alone.
    """

    def __init__(self, i, j, classes, units):
        self.used = np.union1d(i, j)
        self.classes, width = classes, self.used.size
        rank = np.zeros(units, np.int64)
        rank[self.used] = np.arange(width)
        i, j = np.maximum(rank[i], rank[j]), np.minimum(rank[i], rank[j])
        output = np.arange(i.size) % classes
        self.entry = (output * width + i) * width + j
        # Weights of the same entry add up: one of them stands for all, `first`.
        order = np.argsort(self.entry, kind="stable")
        starts = np.flatnonzero(np.diff(self.entry[order], prepend=-1))
        place = np.repeat(np.arange(starts.size), np.diff(starts, append=order.size))
        again = np.ones(order.size, bool)
        again[starts] = False
        self.first = order[starts]
        self.again, self.again_place = order[again], place[again]
        i, j, output = i[self.first], j[self.first], output[self.first]
        self.mirror = (output * width + j) * width + i
        self.factor = np.where(i == j, 2, 1)  # x_i^2 is on the diagonal, once
        self.matrices = Zeros()
        self.triangles = LowerTriangles(i, j, output, classes, width)

    def _entries(self, w):
        """The entries at `first`, of the pairs' weights w."""
        values = w.take(self.first)
        np.add.at(values, self.again_place, w.take(self.again))
        return values

    def _fill(self, w):
        """The matrices (C U, U) for weights w."""
        width = self.used.size
        flat = self.matrices.get(self.classes * width**2, w.dtype)
        values = self._entries(w) * self.factor
        flat[self.entry[self.first]] = values
        flat[self.mirror] = values
        return flat.reshape(-1, width)

    def forward(self, x, w, gradient=True):
        shared = np.ascontiguousarray(x[:, self.used])
        if not gradient:
            return self.triangles.logits(shared, self._entries(w)), None
        ax = (shared @ self._fill(w).T).reshape(len(x), self.classes, -1)  # (B, C, U)
        y = (ax @ shared[:, :, None])[:, :, 0] * x.dtype.type(0.5)
        return y, (x.shape, shared, ax)

    def backward(self, dy, cache):
        shape, shared, ax = cache
        lead, dy = dy.shape[:-2], dy.reshape(-1, *dy.shape[-2:])
        dx = np.zeros((len(dy), *shape), ax.dtype)
        dw = np.empty((len(dy), self.entry.size), ax.dtype)
        for s, g in enumerate(dy):
            # y_c = x^T A_c x / 2
            dx[s][:, self.used] = (g[:, None, :] @ ax)[:, 0]
            weighted = g.T[:, :, None] * shared  # (C, B, U)
            products = np.swapaxes(weighted, 1, 2) @ shared  # (C, U, U)
            products.reshape(-1).take(self.entry, out=dw[s])
        return dx.reshape(*lead, *shape), dw.reshape(*lead, -1)


class LowerTriangles:
    """y_c = x^T L_c x, for logits alone.

    L_c is the lower half of the symmetric A_c. It is cut into stripes: that of the rows from
    a to b - 1 has the columns before b only.

    Attributes
    ----------
    edges : list of int
        First row of each stripe, and U.
    place : int ndarray of shape (N,)
        Where entry n of L_c is in the stripes, one behind the other: in stripe s first the
        rows of output 0, then those of output 1, ...
    """

    def __init__(self, i, j, output, classes, width):
        self.classes = classes
        self.edges = sorted({width * s // STRIPES for s in range(STRIPES + 1)})
        self.sizes = [classes * (b - a) * b for a, b in pairwise(self.edges)]
        first, end = np.array(self.edges[:-1]), np.array(self.edges[1:])
        stripe = np.searchsorted(end, i, side="right")
        first, end = first[stripe], end[stripe]
        start = np.concatenate([[0], np.cumsum(self.sizes)])[stripe]
        self.place = start + (output * (end - first) + i - first) * end + j
        self.stripes = Zeros()

    def logits(self, x, entries):
        """y of shape (B, C) for x (B, U) and the entries of L_c; `MatrixPairs._fill`."""
        stripes = self.stripes.get(sum(self.sizes), entries.dtype)
        stripes[self.place] = entries
        y, start = 0, 0
        for (a, b), size in zip(pairwise(self.edges), self.sizes, strict=True):
            stripe = stripes[start : start + size].reshape(-1, b)  # (C (b - a), b)
            lx = (x[:, :b] @ stripe.T).reshape(len(x), self.classes, -1)  # (B, C, b - a)
            y = y + (lx @ x[:, a:b, None])[:, :, 0]
            start += size
        return y
