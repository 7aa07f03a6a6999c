"""The pairwise head on a GPU: only the products that are not zero.

After k-WTA only a fraction K^2 / H^2 of the products x[i] x[j] is not zero. For 32 samples
and a unit a mask says in which of them the unit is not zero, and its values there are stored
side by side (active.cu). The thread of a pair computes the samples that are set in both masks
(pairwise_forward.cu, pairwise_backward.cu). For dx a warp computes the samples in which its
unit is not zero.

The results are those of `pairwise_forward` and `pairwise_backward`, except that dx stays zero
for units with x = 0, where k-WTA passes no gradient.
"""

from copy import copy
from typing import NamedTuple

import numpy as np

from minipw import InputError
from minipw.backend.arrays import array_module, to_device
from minipw.kernels import launcher

WORD = 32
"""Samples that a mask has bits for."""
ROUNDS = 32
"""Pairs of a thread; the order of the forward's sums depends on it."""
SAMPLES = 16
"""Sums of a thread of the dx kernel, 8 or 16."""
SPARSE = 8
"""From this ratio of H^2 to P on, the pairs of a unit are so far apart that only those
x of the dx kernel are read that are not zero."""
LARGE_BLOCK = 1024
NARROW = 1 << 16
"""Units that a uint16 can name."""
FORWARD, BACKWARD = ("active.cu", "pairwise_forward.cu"), ("active.cu", "pairwise_backward.cu")


class Tables(NamedTuple):
    """The pairs as the kernels read them, of R runs; `index` is uint16 or int32.

    pairs : index ndarray of shape (R, P, 2)
    starts : int32 ndarray of shape (R, H + 1)
        The pairs of unit u, with i = u or j = u, are entries starts[u] to starts[u + 1] of
        the other two, by the other unit: neighbouring lanes of dx read neighbouring x.
    partner : index ndarray of shape (R, 2 P)
        The other unit.
    weight : int32 ndarray of shape (R, 2 P)
        Its p as p // C * 2^n + p % C, with the least n for which C is at most 2^n.
    """

    pairs: np.ndarray
    starts: np.ndarray
    partner: np.ndarray
    weight: np.ndarray

    def share(self, r):
        """A view of the tables of run r."""
        return Tables(*(table[r : r + 1] for table in self))


def class_bits(classes):
    """The bits that name one of the classes."""
    return (classes - 1).bit_length()


def build_tables(i, j, units, classes):
    """`Tables` of the pairs i, j : int ndarray of shape (R, P), units below `units`."""
    index = np.uint16 if units <= NARROW else np.int32
    runs, size = i.shape
    pairs = np.stack([i, j], -1).astype(index)
    starts = np.zeros((runs, units + 1), np.int32)
    partner = np.empty((runs, 2 * size), index)
    weight = np.empty((runs, 2 * size), np.int32)
    for r in range(runs):
        unit, other = pairs[r].T.reshape(-1), pairs[r, :, ::-1].T.reshape(-1)  # i, then j
        order = np.argsort(other, kind="stable")
        order = order[np.argsort(unit[order], kind="stable")]
        starts[r, 1:] = np.cumsum(np.bincount(unit, minlength=units))
        partner[r] = other[order]
        row, c = np.divmod(order % size, classes)
        weight[r] = row << class_bits(classes) | c
    return Tables(pairs, starts, partner, weight)


class DevicePairs:
    """The head on a device: x (..., B, H) and w (..., P), with the open axes of i and j.

    Parameters
    ----------
    i, j : int ndarray of shape (P,) or (R, P), of NumPy
        Any pairs, repeats included. The first batch moves them to the device.
    classes, units : int
        C and H.
    winners : int or None
        The units of a sample that are not zero; sets how much shared memory is reserved.
        With more of them the result is the same but takes longer.

    Raises
    ------
    ValueError
        When a unit is out of range, or C does not divide P.
    InputError
        For over 1024 classes.
    """

    def __init__(self, i, j, classes, units, winners=None):
        self.lead, size = i.shape[:-1], i.shape[-1]
        if i.shape != j.shape or i.ndim > 2:
            raise ValueError(f"i and j of shapes {i.shape} and {j.shape} are not (P,) or (R, P)")
        if classes > LARGE_BLOCK:
            raise InputError(
                f"{classes} classes, a GPU takes up to {LARGE_BLOCK} with the pairwise head: "
                "use --head fc or --device cpu"
            )
        if classes < 1 or not 0 < size < 1 << 29 or size % classes:
            raise ValueError(f"{size} pair weights cannot serve {classes} classes on a GPU")
        if min(i.min(), j.min()) < 0 or max(i.max(), j.max()) >= units:
            raise ValueError(f"a pair has a unit that is not in [0, {units})")
        self.classes, self.units, self.size = classes, units, size
        self.winners = winners or -(-units // 4)
        rows = (int(np.prod(self.lead)), size)
        self.tables = build_tables(np.reshape(i, rows), np.reshape(j, rows), units, classes)
        self.moved = {"numpy": self.tables}
        self.share_of = None  # the stack that this one is part of, and its place there

    @classmethod
    def stack(cls, singles):
        """R single runs as one; each keeps a view of the joint tables."""
        stacked = copy(singles[0])
        stacked.lead = (len(singles),)
        tables = zip(*(single.tables for single in singles), strict=True)
        stacked.tables = Tables(*map(np.concatenate, tables))
        stacked.moved = {"numpy": stacked.tables}
        for r, single in enumerate(singles):
            single.tables, single.share_of = stacked.tables.share(r), (stacked, r)
        return stacked

    def _tables(self, xp):
        if self.share_of is not None:
            stacked, r = self.share_of
            return stacked._tables(xp).share(r)
        if xp.__name__ not in self.moved:
            self.moved[xp.__name__] = Tables(*(to_device(xp, table) for table in self.tables))
        return self.moved[xp.__name__]

    def forward(self, x, w, gradient=True):
        xp = array_module(x)
        x, w = xp.ascontiguousarray(x), xp.ascontiguousarray(w)
        launcher.expect("x", x, (*self.lead, *x.shape[-2:-1], self.units))
        launcher.expect("w", w, (*self.lead, self.size), x.dtype)
        batch, runs, tables = x.shape[-2], self.tables.pairs.shape[0], self._tables(xp)
        active, values = list_active(x.reshape(runs, batch, self.units))
        index, outputs = tables.pairs.dtype, batch * self.classes
        block = launcher.BLOCK * 4 // x.itemsize  # its sums fit into 32 KB
        while block < self.classes:
            block *= 2
        per_chunk = ROUNDS * (block // self.classes * self.classes)
        chunks = -(-self.size // per_chunk)
        partial = xp.empty((runs, chunks, batch, self.classes), x.dtype)
        arguments = {"pairs": tables.pairs, "w": w, "active": active, "values": values}
        arguments |= {"partial": partial, "pair_count": self.size, "classes": self.classes}
        arguments |= {"units": self.units, "batch": batch, "rounds": ROUNDS}
        arguments["room"], shared = self._room(x, WORD * block, 0, words=1)
        grid = (active.shape[1], chunks, runs)
        template = (x.dtype, index)
        launcher.launch(FORWARD, "pairwise_forward", template, grid, arguments, shared, block)
        y = xp.empty((*self.lead, batch, self.classes), x.dtype)
        arguments = {"partial": partial, "y": y, "total": np.int64(y.size)}
        arguments |= {"outputs": outputs, "chunks": chunks}
        grid = (-(-y.size // launcher.BLOCK),)
        launcher.launch(FORWARD, "pairwise_sum", (x.dtype,), grid, arguments)
        return y, (x, w, active, values)

    def backward(self, dy, cache):
        """`pairwise_backward` for one dy or two stacked ones."""
        xp = array_module(dy)
        x, w, active, values = cache
        shape = x.shape
        dy = xp.ascontiguousarray(dy)
        lead, batch = dy.shape[: dy.ndim - len(shape)], shape[-2]
        launcher.expect("dy", dy, (*lead, *shape[:-1], self.classes), w.dtype)
        gradients = int(np.prod(lead))
        if gradients not in (1, 2):
            raise ValueError(f"dy stacks {gradients} gradients: the kernels take one or two")
        dx, dw = xp.zeros((*lead, *shape), dy.dtype), xp.empty((*lead, *w.shape), dy.dtype)
        sizes = {"pair_count": self.size, "classes": self.classes, "units": self.units}
        sizes["batch"] = batch
        template = (dy.dtype, self.tables.pairs.dtype, gradients)
        lists = {"active": active, "values": values, "dy": dy}
        self._dw(self._tables(xp), template, lists, dw, sizes)
        lists = {"w": w, "active": active, "x": x, "dy": dy}
        self._dx(self._tables(xp), template, lists, dx, sizes)
        return dx, dw

    def _dw(self, tables, template, lists, dw, sizes):
        runs, words = lists["active"].shape[:2]
        extra = template[-1] * sizes["batch"] * self.classes
        room, shared = self._room(dw, 0, extra, words)
        block = launcher.BLOCK  # larger where few blocks fit onto a multiprocessor
        while block < self.classes or (block < LARGE_BLOCK and block * 160 < shared):
            block *= 2
        per_chunk = ROUNDS * (block // self.classes * self.classes)
        arguments = {"pairs": tables.pairs, **lists, "dw": dw, **sizes}
        arguments |= {"rounds": ROUNDS, "room": room}
        grid = (-(-self.size // per_chunk), runs)
        launcher.launch(BACKWARD, "pairwise_dw", template, grid, arguments, shared, block)

    def _dx(self, tables, template, lists, dx, sizes):
        warp = template[-1] * self.classes * (SAMPLES + 1) * dx.itemsize  # its shared memory
        warps = min(max(1, launcher.BLOCK // 32), launcher.shared_memory(dx) // warp)
        if warps < 1:
            self._refuse(warp, launcher.shared_memory(dx))
        arguments = {"starts": tables.starts, "partner": tables.partner, "weight": tables.weight}
        arguments |= {**lists, "dx": dx, **sizes, "class_bits": class_bits(self.classes)}
        template = (*template, SAMPLES, self.units**2 >= SPARSE * self.size)
        grid = (-(-self.units // warps), self.tables.pairs.shape[0])
        shared = warps * warp
        launcher.launch(BACKWARD, "pairwise_dx", template, grid, arguments, shared, 32 * warps)

    def _refuse(self, needed, limit):
        raise InputError(
            f"{self.classes} classes take {needed} bytes of the GPU's shared memory, which "
            f"has {limit}: use --head fc or --device cpu"
        )

    def _room(self, like, sums, extra, words):
        """Room for values in shared memory, or -1 for none, and the bytes to reserve.

        like : ndarray, for the type and the device
        sums, extra : int
            Numbers of that type that are always needed, and those needed beside the lists.
        words : int
            Words of samples whose lists a block reads.
        """
        limit = launcher.shared_memory(like)
        room = words * WORD * min(self.winners, self.units)
        needed = sums * like.itemsize
        if needed > limit:
            self._refuse(needed, limit)
        staged = needed + 8 * words * self.units + (extra + room) * like.itemsize
        # Blocks with sums have few threads: a multiprocessor should hold at least two.
        return (-1, needed) if staged > (limit // 2 if sums else limit) else (room, staged)


def list_active(x):
    """For each word of 32 samples and each unit, where the unit is not zero.

    Parameters
    ----------
    x : contiguous ndarray of shape (R, B, H)

    Returns
    -------
    active : uint32 ndarray of shape (R, W, H, 2), W = ceil(B / 32)
        A mask of samples, and the position of the unit's first value.
    values : ndarray of shape (R, W * 32 * H)
        A word has 32 H of them; those behind its last value are not set.
    """
    xp = array_module(x)
    runs, batch, units = x.shape
    words = -(-batch // WORD)
    if words * WORD * units >= 1 << 31:
        raise ValueError(f"x: {batch} samples of {units} units are too many for one call")
    active = xp.empty((runs, words, units, 2), "uint32")
    values = xp.empty((runs, words * WORD * units), x.dtype)
    arguments = {"x": x, "active": active, "values": values, "batch": batch, "units": units}
    block = min(4 * launcher.BLOCK, LARGE_BLOCK)
    grid = (words, runs)
    launcher.launch(FORWARD, "list_active", (x.dtype,), grid, arguments, 4 * block, block)
    return active, values
