"""The pairwise head on a CPU: only the products that are not zero.

After k-WTA a row of x has K of H units above zero, so only a fraction K^2 / H^2 of the
products x[i] x[j] is not zero. There are two ways to find them:

    WinnerPairs   goes through the pairs of winners and looks each up in a table
    ListedPairs   goes through the pairs of the head and asks which samples have both

Both compute `pairwise_forward` and `pairwise_backward`, except that dx stays zero for
units with x = 0, where k-WTA passes no gradient. `pairwise_matrix` is faster where few
products are zero, `pairwise_sparse` where only logits of many samples are wanted.
"""

import numpy as np
from numpy.lib.stride_tricks import as_strided, sliding_window_view

from minipw.backend.sparse_gradient import Columns

WORD = 64
"""Samples that `ListedPairs` handles at once: the bits of a machine word."""
PRODUCTS = 1 << 17
"""That `WinnerPairs` works on at once for logits alone: they stay in the cache (measured)."""
FEW = 8
"""A gradient is returned as `Columns` when less than 1 / FEW of the weights have one."""


def used_units(i, j, units):
    """The units that some pair reads, ascending."""
    return np.flatnonzero(np.bincount(i, minlength=units) + np.bincount(j, minlength=units))


def most_repeats(i, j, units):
    """How often the most repeated pair is listed; (i, j) and (j, i) are the same."""
    key = np.sort(np.maximum(i, j) * units + np.minimum(i, j))
    starts = np.flatnonzero(np.diff(key, prepend=-1))
    return int(np.diff(starts, append=key.size).max())


class WinnerPairs:
    """Finds the products through the winners: x (B, H), w (P,), no pair with i = j.

    Two tables of U x U entries, U the units in use, hold the weight p and the output c of
    each pair of units. A pair that is listed twice has an entry in a second layer of tables.
    Where there is no weight, p is 0 and the output is C, one past the last: its dy is zero,
    so such an entry adds nothing to any gradient.
    """

    def __init__(self, i, j, classes, units):
        self.used = used_units(i, j, units)
        self.classes, self.size = classes, i.size
        rank = np.zeros(units, np.int64)
        rank[self.used] = np.arange(self.used.size)
        i, j = rank[i], rank[j]
        key = np.maximum(i, j) * self.used.size + np.minimum(i, j)
        order = np.argsort(key, kind="stable")
        first = np.flatnonzero(np.diff(key[order], prepend=-1))
        layer = np.arange(key.size) - np.repeat(first, np.diff(first, append=key.size))
        shape = (int(layer.max()) + 1, self.used.size, self.used.size)
        output_type = np.int16 if classes < np.iinfo(np.int16).max else np.int32
        self.weight = np.zeros(shape, np.int32)
        self.output = np.full(shape, classes, output_type)
        for a, b in ((i, j), (j, i)):
            self.weight[layer, a[order], b[order]] = order
            self.output[layer, a[order], b[order]] = order % classes

    def forward(self, x, w, gradient=True):
        if gradient:
            return self._forward(x, self.weight, w)
        winners, tables = max(1, int((x != 0).sum(1).max())), self.weight
        if len(x) * winners**2 > tables.size:  # they pay for tables of w: one look-up less
            tables, w = w.take(tables), None  # without a weight it ends in column C
        size = max(1, 2 * PRODUCTS // winners**2)
        parts = (x[start : start + size] for start in range(0, len(x), size))
        return np.concatenate([self._forward(part, tables, w)[0] for part in parts]), None

    def _forward(self, x, tables, w=None):
        """Logits and cache; without w the tables hold its values themselves."""
        unit, value, width, where = self._winners(x)
        half = width // 2
        # Winner k with the `half` winners after it, in a circle of odd length K, is
        # every pair of winners exactly once. The views copy nothing.  (B, K, K // 2)
        partner = sliding_window_view(unit[:, 1:], half, axis=1)
        partner_value = sliding_window_view(value[:, 1:], half, axis=1)
        position = unit[:, :width, None] * self.used.size + partner
        own_value = value[:, :width, None]
        z = own_value * partner_value
        bins = self.classes + 1
        row = (np.arange(len(x)) * bins)[:, None, None]
        y, layers = np.zeros(len(x) * bins), []
        for table, output in zip(tables, self.output, strict=True):
            c = output.reshape(-1).take(position) + row  # into (B, C + 1), flat
            w_p = p = table.reshape(-1).take(position)
            if w is not None:
                w_p = w.take(p)
                layers.append((p, c, w_p))
            y += np.bincount(c.reshape(-1), (w_p * z).reshape(-1), y.size)
        y = y.reshape(len(x), bins)[:, :-1].astype(x.dtype)
        return y, (x.shape, where, own_value, partner_value, z, layers)

    def _winners(self, x):
        """The units of each row that are not zero.

        Returns
        -------
        units, values : ndarray of shape (B, width + width // 2)
            The first half of the winners is repeated behind the last. Shorter rows are
            filled up with unit 0 at value 0.
        width : int, odd, at least 3
        where : tuple of row, column and unit of each winner
        """
        shared = x if self.used.size == x.shape[1] else x[:, self.used]
        won = shared != 0
        count = won.sum(1)
        width = max(int(count.max()), 3) | 1
        row, unit = np.nonzero(won)
        column = np.arange(row.size) - np.repeat(count.cumsum() - count, count)
        units = np.zeros((len(x), width + width // 2), np.int64)
        values = np.zeros(units.shape, x.dtype)
        units[row, column], values[row, column] = unit, shared[row, unit]
        units[:, width:], values[:, width:] = units[:, : width // 2], values[:, : width // 2]
        return units, values, width, (row, column, self.used[unit])

    def backward(self, dy, cache):
        shape, (row, column, unit), own_value, partner_value, z, layers = cache
        lead, (batch, width, half) = dy.shape[:-2], z.shape
        with_column_c = np.zeros((*dy.shape[:-1], self.classes + 1), z.dtype)
        with_column_c[..., :-1] = dy
        dy = _join(with_column_c.reshape(-1, batch * (self.classes + 1)))
        dx = np.zeros((len(dy), *shape), dy.dtype)
        dw = np.zeros((len(dy), self.size), dy.dtype)
        # slid[b, k, s] lies in column k + s + 1 of circle[b, k]: the column of the partner.
        circle = np.zeros((batch, width, width + half), dy.dtype)
        outer, inner, item = circle.strides
        slid = as_strided(circle[:, :, 1:], z.shape, (outer, inner + item, item))
        for s, dy_flat in enumerate(dy):
            dz = np.zeros(z.shape, dy.dtype)
            for p, c, w_p in layers:
                g = dy_flat.take(c)
                # y_c += w_p z_p
                np.add.at(dw[s], p.reshape(-1), (g * z).reshape(-1))
                g *= w_p
                dz += g
            # z = own_value partner_value
            d_own = (dz * partner_value).sum(-1)
            np.multiply(dz, own_value, out=slid)
            d_partner = circle.sum(1)
            d_own += d_partner[:, :width]
            d_own[:, :half] += d_partner[:, width:]
            dx[s, row, unit] = d_own[row, column]
        reached = [p for p, _, _ in layers]
        dw = _split(dw).reshape(*lead, -1)
        return _split(dx).reshape(*lead, *shape), _columns_if_few(dw, reached)


class ListedPairs:
    """Finds the products through the list of pairs: x (B, H), w (P,), any pairs.

    Each unit gets a word with one bit a sample, set where the unit won. The bitwise "and" of
    the words of i and j marks the samples whose product is not zero. Clearing the lowest bit
    of every word again and again lists them.
    """

    def __init__(self, i, j, classes, units):
        self.i, self.j, self.classes = i, j, classes
        self.output = np.arange(i.size) % classes

    def forward(self, x, w, gradient=True):
        sample, p = self._active(x)
        first = sample * x.shape[1]
        at_i, at_j = first + self.i.take(p), first + self.j.take(p)  # into x.reshape(-1)
        xi, xj = x.reshape(-1).take(at_i), x.reshape(-1).take(at_j)
        c = sample * self.classes + self.output.take(p)
        w_p, z = w.take(p), xi * xj
        y = np.bincount(c, w_p * z, len(x) * self.classes).astype(x.dtype)
        return y.reshape(len(x), self.classes), (x.shape, p, c, at_i, at_j, xi, xj, w_p, z)

    def _active(self, x):
        """The (sample, pair) with both units above zero, as two int arrays (n,)."""
        samples, pairs = [], []
        for start in range(0, len(x), WORD):
            won = (x[start : start + WORD] != 0).T  # (H, up to WORD)
            won = np.pad(won, ((0, 0), (0, WORD - won.shape[1])))
            word = np.packbits(won, axis=1, bitorder="little").reshape(-1).view("<u8")
            both = word.take(self.i) & word.take(self.j)
            pair = np.flatnonzero(both)
            both = both.take(pair)
            while pair.size:
                lowest = both & -both
                samples.append(start + _exponent(lowest))
                pairs.append(pair)
                both ^= lowest
                left = np.flatnonzero(both)
                pair, both = pair.take(left), both.take(left)
        if not pairs:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        return np.concatenate(samples), np.concatenate(pairs)

    def backward(self, dy, cache):
        shape, p, c, at_i, at_j, xi, xj, w_p, z = cache
        lead = dy.shape[:-2]
        dy = _join(dy.reshape(-1, shape[0] * self.classes))
        dx = np.zeros((len(dy), shape[0] * shape[1]), dy.dtype)
        dw = np.zeros((len(dy), self.i.size), dy.dtype)
        for s, dy_flat in enumerate(dy):
            g = dy_flat.take(c)
            # y_c += w_p z_p
            np.add.at(dw[s], p, g * z)
            dz = w_p * g
            # z_p = x[i_p] x[j_p]
            np.add.at(dx[s], at_i, dz * xj)
            np.add.at(dx[s], at_j, dz * xi)
        dw = _split(dw).reshape(*lead, -1)
        return _split(dx).reshape(*lead, *shape), _columns_if_few(dw, [p])


def _join(dy):
    """Two gradients as real and imaginary part of one; any other number stays as it is.

    The backward pass is linear in dy with real factors, so the parts do not mix, and one
    look-up serves both.
    """
    return (dy[0] + 1j * dy[1])[None] if len(dy) == 2 else dy


def _split(gradient):
    """Undo `_join`: the two gradients, of shape (2, ...)."""
    if not np.iscomplexobj(gradient):
        return gradient
    return np.concatenate([gradient.real, gradient.imag])


def _exponent(power_of_two):
    """log2 of uint64 powers of two: the exponent field of the double of that value."""
    return (power_of_two.astype(np.float64).view(np.int64) >> 52) - 1023


def _columns_if_few(dw, reached):
    """dw as `Columns` where the lists `reached` of pairs with a gradient are short."""
    if sum(p.size for p in reached) * FEW > dw.shape[-1]:
        return dw
    marked = np.zeros(dw.shape[-1], bool)  # to sort the numbers takes longer
    for p in reached:
        marked[p.reshape(-1)] = True
    return Columns(index := np.flatnonzero(marked), dw.take(index, axis=-1))
