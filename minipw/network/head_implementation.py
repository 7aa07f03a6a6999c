"""Which implementation of the pairwise head a network uses, on a CPU and on a device."""

import math
from dataclasses import replace

import numpy as np

from minipw.backend.arrays import array_module, to_device
from minipw.backend.cuda import has_kernels
from minipw.kernels.pairwise_cpu import WORD, ListedPairs, WinnerPairs, most_repeats, used_units
from minipw.kernels.pairwise_matrix import MatrixPairs
from minipw.kernels.pairwise_sparse import SparsePairs
from minipw.nn.pairwise import Pairs

EVALUATION_BATCH = 256
"""The most samples that `Network.logits` works on at once on a CPU."""
WINNER_BATCH = 512
"""The same for `WinnerPairs`."""
PRODUCTS_AT_ONCE = 1 << 22
"""The most products that it holds for them, unless a single sample has more."""
TABLE_LIMIT = 1 << 30
"""Bytes that the tables or matrices of an implementation may take."""
LISTED_COST, MATRIX_COST, FILL_COST = 2.5, 1 / 350, 0.3
"""Measured times, in units of a product that `WinnerPairs` finds: of a product that
`ListedPairs` finds, of an entry of the matrices times a sample, of a weight filled in.
Writing and reading an entry costs as much as 32 samples."""
FORWARD_SHARE = {ListedPairs: 0.75, WinnerPairs: 0.6, MatrixPairs: 0.26}
"""Measured time of logits alone, as a share of forward and backward together."""
SPARSE_COST, SPARSE_ROW_COST = 1 / 90, 1 / 37
"""The same for `SparsePairs`: of a weight times a sample, of a row of its matrix."""


def fastest_implementation(i, j, architecture, batch_size, forward_alone=False, repeats=None):
    """The class that takes least time for a training step, by counted operations.

    forward_alone : bool
        Count no backward pass, and consider `SparsePairs` too.
    repeats : int or None
        `most_repeats` of the pairs, where it is known.
    """
    units = architecture.units
    used, repeats = used_units(i, j, units).size, repeats or most_repeats(i, j, units)
    costs = implementation_costs(architecture, i.size, used, repeats, batch_size, forward_alone)
    if (i == j).any():
        costs.pop(WinnerPairs, None)
    return min(costs, key=costs.get)


def expected_implementation(architecture, batch_size, forward_alone=False):
    """The class that a head will probably get, before its pairs are drawn, and its cost."""
    units, pairs = architecture.units, architecture.pair_weights
    repeats = times_listed(pairs, units)
    used = min(units, math.isqrt(2 * pairs // repeats) + 2) if repeats > 1 else units
    costs = implementation_costs(architecture, pairs, used, repeats, batch_size, forward_alone)
    chosen = min(costs, key=costs.get)
    return chosen, costs[chosen]


def times_listed(pairs, units):
    """How often some pair is listed where `pairs` weights go over all pairs of the units."""
    return -(-pairs // max(units * (units - 1) // 2, 1))


def implementation_costs(architecture, pairs, used, repeats, batch_size, forward_alone=False):
    """The cost of each class whose tables fit into memory, in products that `WinnerPairs` finds.

    pairs, used, repeats : int
        P, the units in some pair, and how often the most repeated pair is listed.
    """
    classes, units, winners = architecture.classes, architecture.units, architecture.winners
    # At first the winners are spread over all units, later they gather on the used ones.
    active = min(used, winners * (1 + used / units) / 2)
    words, listed_products = -(-batch_size // WORD), batch_size * (winners / units) ** 2
    costs = {
        ListedPairs: pairs * (words + LISTED_COST * listed_products),
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


def cpu_evaluation_batch(pairs, architecture):
    """Samples that `Network.logits` works on at once on a CPU; pairs is None for a dense head."""
    implementation = None if pairs is None else pairs.implementation
    if isinstance(implementation, WinnerPairs):  # it cuts them itself, its tables serve all
        return WINNER_BATCH
    held = products(type(implementation), architecture)
    return max(1, min(EVALUATION_BATCH, PRODUCTS_AT_ONCE // max(held, 1)))


def with_implementations(pairs, architecture, batch_size, xp):
    """The pairs of a network, with the implementations for training and for logits alone.

    Parameters
    ----------
    pairs : Pairs
        Of one network or of R stacked ones. An implementation that they have stays.
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
        training = fastest_implementation(*lists, architecture, batch_size)
        # Large batches without a backward pass may be faster with another one.
        testing = fastest_implementation(*lists, architecture, EVALUATION_BATCH, forward_alone=True)
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
