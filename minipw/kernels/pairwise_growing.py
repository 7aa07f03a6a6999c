"""The pairwise head on a CPU for outputs that are added one by one."""

import numpy as np

from minipw.kernels.pairwise_cpu import WinnerPairs, used_units


class GrowingPairs(WinnerPairs):
    """`WinnerPairs` to which outputs can be added.

    Where several outputs have a pair, the first layer holds the first of them, the second layer
    the next. So the tables, and every sum, are the same whether the outputs came one by one or
    all at once.

    Parameters
    ----------
    i, j : int64 ndarray of shape (P,), i != j
        No output has a pair twice.
    classes, units : int
        C and H.
    before : GrowingPairs or None
        The implementation for the first of these outputs.
    """

    def __init__(self, i, j, classes, units, before=None):
        self.classes, self.size = classes, i.size
        self.used = used_units(i, j, units)
        output_type = np.int16 if classes < np.iinfo(np.int16).max else np.int32
        first = 0
        if before is None or not np.array_equal(before.used, self.used):
            shape = (1, self.used.size, self.used.size)
            self.weight = np.zeros(shape, np.int32)
            self.output = np.full(shape, classes, output_type)
        else:
            first = before.classes
            # Weight p = r C + c, row r of output c, moves with C; where none is, p is 0.
            self.weight = before.weight // np.int32(first)
            self.weight *= np.int32(classes - first)
            self.weight += before.weight
            self.output = before.output.astype(output_type)
            self.output[self.output == first] = classes
        rank = np.zeros(units, np.int64)
        rank[self.used] = np.arange(self.used.size)
        i, j = (rank[index.reshape(-1, classes)[:, first:]] for index in (i, j))
        for c in range(first, classes):
            self._add(i[:, c - first], j[:, c - first], c)

    def _add(self, i, j, c):
        """Enter output c with its pairs, int64 ndarrays of shape (P / C,)."""
        layer = (self.output[:, i, j] != self.classes).sum(0)
        if layer.max() == len(self.weight):
            self.weight = np.concatenate([self.weight, np.zeros_like(self.weight[:1])])
            free = np.full_like(self.output[:1], self.classes)
            self.output = np.concatenate([self.output, free])
        for a, b in ((i, j), (j, i)):
            self.weight[layer, a, b] = np.arange(i.size) * self.classes + c
            self.output[layer, a, b] = c
