"""The pairwise head on a CPU as C symmetric matrices, for many winners.

    y_c = x^T A_c x / 2,   A_c[i_p, j_p] = A_c[j_p, i_p] = w_p  for the pairs of output c

    dx = sum over c of dy_c A_c x
    dw_p = sum over the batch of x[i_p] x[j_p] dy_c = (x^T diag(dy_c) x)[i_p, j_p]

Products with zeros are computed too, but by matrix products, which is the faster
way when much of x is active or pairs are listed many times.
"""

import numpy as np


class MatrixPairs:
    """x (B, H), w (P,), any pairs.

    Attributes
    ----------
    used : int ndarray of shape (U,)
        The units that some pair reads.
    entry : int ndarray of shape (P,)
        Where the gradient of a weight is read from the products (C, U, U), flat.
    matrices : ndarray of shape (C U, U)
        A_c, one below the other, filled at every call.
    """

    def __init__(self, i, j, classes, units):
        self.used = np.union1d(i, j)
        self.classes, width = classes, self.used.size
        rank = np.zeros(units, np.int64)
        rank[self.used] = np.arange(width)
        i, j = np.maximum(rank[i], rank[j]), np.minimum(rank[i], rank[j])
        rows = np.arange(i.size) % classes * width
        entry, mirror = (rows + i) * width + j, (rows + j) * width + i
        self.entry = entry
        # Weights of the same entry add up: one of them stands for all, `first`.
        order = np.argsort(entry, kind="stable")
        starts = np.flatnonzero(np.diff(entry[order], prepend=-1))
        place = np.repeat(np.arange(starts.size), np.diff(starts, append=order.size))
        again = np.ones(order.size, bool)
        again[starts] = False
        self.first = order[starts]
        self.again, self.again_place = order[again], place[again]
        self.first_entry, self.first_mirror = entry[self.first], mirror[self.first]
        self.factor = np.where(i == j, 2, 1)[self.first]  # x_i^2 is on the diagonal, once
        self.matrices = None

    def _fill(self, w):
        """The matrices (C U, U) for weights w.

        The array is kept, since zeroing it costs more than filling it. Threads that
        share a batch call this with the same w and write the same values.
        """
        matrices = self.matrices
        if matrices is None or matrices.dtype != w.dtype:
            width = self.used.size
            self.matrices = matrices = np.zeros((self.classes * width, width), w.dtype)
        flat = matrices.reshape(-1)
        values = w.take(self.first)
        np.add.at(values, self.again_place, w.take(self.again))
        values *= self.factor
        flat[self.first_entry] = values
        flat[self.first_mirror] = values
        return matrices

    def forward(self, x, w, gradient=True):
        a, shared = self._fill(w), np.ascontiguousarray(x[:, self.used])
        ax = (shared @ a.T).reshape(len(x), self.classes, -1)  # (B, C, U)
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
