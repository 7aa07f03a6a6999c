"""Which implementation of the pairwise head a network uses, on a CPU and on a device."""

import math
from dataclasses import replace

import numpy as np

from minipw.backend.arrays import array_module, to_device
from minipw.backend.cuda import has_kernels
from minipw.kernels.pairwise_cpu import (
    WORD,
    ListedPairs,
    WinnerPairs,
    most_repeats,
    used_units,
)
from minipw.kernels.pairwise_matrix import MatrixPairs
from minipw.kernels.pairwise_sparse import SparsePairs
from minipw.nn.pairwise import Pairs

EVALUATION_BATCH = 256
"""Samples that `Network.logits` works on at once on a CPU, at most."""
PRODUCTS_AT_ONCE = 1 << 22
"""Products that it holds for them, where one sample has no more."""
TABLE_LIMIT = 1 << 30
"""Bytes that the tables or matrices of an implementation may take."""
LISTED_COST, MATRIX_COST, FILL_COST = 2.5, 1 / 350, 0.3
"""Measured times over that of a product found by `WinnerPairs`: of one found by
`ListedPairs`, of an entry of the matrices times a sample, of filling in a weight. An
entry costs as much as 32 samples before there is any: it is written and read."""
FORWARD_SHARE = {ListedPairs: 0.75, WinnerPairs: 0.6, MatrixPairs: 0.26}
"""Of the time of forward and backward together, what logits alone take, measured."""
SPARSE_COST, SPARSE_ROW_COST = 1 / 90, 1 / 37
"""Of `SparsePairs`, as above: of a weight times a sample, of a row of its matrix."""


def fastest_implementation(
    i, j, classes, units, winners, batch_size, forward_alone=False, repeats=None
):
    """The class that takes least time for a training step, by counted operations.

    Parameters
    ----------
    i, j : int ndarray of shape (P,)
    classes, units, winners, batch_size : int
        C, H, K and B.
    forward_alone : bool
        Count no backward pass, and consider `SparsePairs` too.
    repeats : int
        `most_repeats`, where it is known.
    """
    used, repeats = used_units(i, j, units).size, repeats or most_repeats(i, j, units)
    costs = implementation_costs(
        i.size, used, repeats, classes, units, winners, batch_size, forward_alone
    )
    if (i == j).any():
        costs.pop(WinnerPairs, None)
    return min(costs, key=costs.get)


def expected_implementation(architecture, batch_size, forward_alone=False):
    """The implementation that a pairwise head will probably get, before its pairs are drawn.

    Returns
    -------
    implementation : class
    cost : float
        Its count: products found by `WinnerPairs` that take as long.
    """
    units, pairs = architecture.units, architecture.pair_weights
    repeats = times_listed(pairs, units)
    used = min(units, math.isqrt(2 * pairs // repeats) + 2) if repeats > 1 else units
    sizes = (architecture.classes, units, architecture.winners, batch_size, forward_alone)
    costs = implementation_costs(pairs, used, repeats, *sizes)
    chosen = min(costs, key=costs.get)
    return chosen, costs[chosen]


def times_listed(pairs, units):
    """How often some pair is listed where `pairs` weights go over all pairs of the units."""
    return -(-pairs // max(units * (units - 1) // 2, 1))


def implementation_costs(
    pairs, used, repeats, classes, units, winners, batch_size, forward_alone=False
):
    """The counted cost of each implementation that fits into memory.

    Parameters
    ----------
    pairs, used, repeats : int
        P, the units in some pair, and how often the most repeated pair is listed.
    classes, units, winners, batch_size, forward_alone : as in `fastest_implementation`

    Returns
    -------
    dict of class to float
    """
    share = winners / units
    # At first the winners are spread over all units, later they gather on the used ones.
    active = min(used, winners * (1 + used / units) / 2)
    costs = {
        ListedPairs: pairs * (-(-batch_size // WORD) + LISTED_COST * batch_size * share**2),
        WinnerPairs: batch_size * repeats * active**2 / 2,
        MatrixPairs: MATRIX_COST * (batch_size + 32) * classes * used**2 + FILL_COST * pairs,
    }
    if forward_alone:
        costs = {chosen: cost * FORWARD_SHARE[chosen] for chosen, cost in costs.items()}
        sample = SPARSE_COST * pairs + SPARSE_ROW_COST * classes * units
        costs[SparsePairs] = batch_size * sample + FILL_COST * pairs
    if 6 * repeats * used**2 > TABLE_LIMIT:
        del costs[WinnerPairs]
    if 8 * classes * used**2 > TABLE_LIMIT:
        del costs[MatrixPairs]
    return costs


def products(implementation, architecture):
    """Products of two units that a class holds for a sample; 0 where it holds none."""
    units, pairs = architecture.units, architecture.pair_weights
    if issubclass(implementation, WinnerPairs):
        return times_listed(pairs, units) * architecture.winners**2 // 2
    if issubclass(implementation, ListedPairs):
        return int(pairs * (architecture.winners / units) ** 2)
    return 0


def evaluation_batch(pairs, architecture):
    """Samples that `Network.logits` works on at once on a CPU.

    pairs : Pairs, or None for a dense head
    """
    implementation = None if pairs is None else pairs.implementation
    held = products(type(implementation), architecture)
    return max(1, min(EVALUATION_BATCH, PRODUCTS_AT_ONCE // max(held, 1)))


def with_implementations(pairs, architecture, batch_size, xp):
    """The pairs of a network, with the implementations for training and for logits alone.

    Parameters
    ----------
    pairs : Pairs
        Of one network or of R stacked ones. An implementation that is there is kept.
    architecture : Architecture
    batch_size : int
        Of the training steps.
    xp : module
        numpy or cupy, of the network's parameters.

    Returns
    -------
    training, evaluation : Pairs
    """
    if pairs.implementation is not None or array_module(pairs.i) is not np:
        return pairs, pairs
    sizes = (pairs.classes, architecture.units, architecture.winners)
    if xp is not np and not has_kernels(xp):
        pairs = replace(pairs, i=to_device(xp, pairs.i), j=to_device(xp, pairs.j))
    elif xp is not np:
        from minipw.kernels.pairwise_gpu import DevicePairs

        pairs = replace(pairs, implementation=DevicePairs(pairs.i, pairs.j, *sizes))
    elif pairs.i.ndim == 1:
        lists = pairs.i, pairs.j
        training = fastest_implementation(*lists, *sizes, batch_size)
        # Large batches without a backward pass may be faster with another one.
        testing = fastest_implementation(*lists, *sizes, EVALUATION_BATCH, forward_alone=True)
        pairs = replace(pairs, implementation=training(*lists, *sizes[:2]))
        if testing is not training:
            return pairs, replace(pairs, implementation=testing(*lists, *sizes[:2]))
    return pairs, pairs


def stacked(pairs, xp):
    """The pairs of R networks as one with a leading axis R; on a CPU the defining form."""
    module = array_module(pairs[0].i)
    i, j = module.stack([p.i for p in pairs]), module.stack([p.j for p in pairs])
    parts = [p.implementation for p in pairs]
    together = None if xp is np or None in parts else type(parts[0]).stack(parts)
    return Pairs(i, j, pairs[0].classes, together)
