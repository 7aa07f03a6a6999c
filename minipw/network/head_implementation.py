"""Which form of the pairwise head a network uses, on a CPU and on a device."""

import math
from dataclasses import replace

import numpy as np

from minipw.backend.arrays import array_module, to_device
from minipw.backend.cuda import has_kernels
from minipw.kernels.pairwise_cpu import (
    WORD,
    ListedPairs,
    PerRun,
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
"""Bytes that the tables or matrices of a form may take."""
LISTED_COST, MATRIX_COST, FILL_COST = 2.5, 1 / 350, 0.3
"""Measured times over that of a product found by `WinnerPairs`: of one found by
`ListedPairs`, of an entry of the matrices times a sample, of filling in a weight. An
entry costs as much as 32 samples before there is any: it is written and read."""
FORWARD_SHARE = {ListedPairs: 0.75, WinnerPairs: 0.6, MatrixPairs: 0.26}
"""Of the time of forward and backward together, what logits alone take, measured."""
SPARSE_COST, SPARSE_ROW_COST = 1 / 90, 1 / 37
"""Of `SparsePairs`, as above: of a weight times a sample, of a row of its matrix."""


def fastest_form(i, j, classes, units, winners, batch_size=64):
    """The form that takes least for a training step, by counted operations.

    Parameters
    ----------
    i, j : int ndarray of shape (P,) or (R, P)
    classes, units, winners, batch_size : int
        C, H, K and B.
    """
    if i.ndim > 1:
        runs = zip(i, j, strict=True)
        return PerRun([fastest_form(*run, classes, units, winners, batch_size) for run in runs])
    chosen = choose_form(i, j, classes, units, winners, batch_size)
    return chosen(i, j, classes, units)


def choose_form(i, j, classes, units, winners, batch_size, forward_alone=False, repeats=None):
    """The class of the form with the lowest count; see `fastest_form`.

    forward_alone : bool
        Count no backward pass, and `SparsePairs` among the forms.
    repeats : int, `most_repeats` where it is known
    """
    used, repeats = used_units(i, j, units).size, repeats or most_repeats(i, j, units)
    costs = form_costs(i.size, used, repeats, classes, units, winners, batch_size, forward_alone)
    if (i == j).any():
        costs.pop(WinnerPairs, None)
    return min(costs, key=costs.get)


def expected_form(architecture, batch_size, forward_alone=False):
    """The form that a pairwise head will probably have, before its pairs are drawn.

    Returns
    -------
    form : class
    cost : float
        Its count: products found by `WinnerPairs` that take as long.
    """
    units, pairs = architecture.units, architecture.pair_weights
    repeats = times_listed(pairs, units)
    used = min(units, math.isqrt(2 * pairs // repeats) + 2) if repeats > 1 else units
    sizes = (architecture.classes, units, architecture.winners, batch_size, forward_alone)
    costs = form_costs(pairs, used, repeats, *sizes)
    form = min(costs, key=costs.get)
    return form, costs[form]


def times_listed(pairs, units):
    """How often some pair is listed where `pairs` weights go over all pairs of the units."""
    return -(-pairs // max(units * (units - 1) // 2, 1))


def form_costs(pairs, used, repeats, classes, units, winners, batch_size, forward_alone=False):
    """The count of each form that can be had.

    Parameters
    ----------
    pairs, used, repeats : int
        P, the units in some pair, and how often the most repeated pair is listed.
    classes, units, winners, batch_size, forward_alone : as in `choose_form`

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
        costs = {form: cost * FORWARD_SHARE[form] for form, cost in costs.items()}
        sample = SPARSE_COST * pairs + SPARSE_ROW_COST * classes * units
        costs[SparsePairs] = batch_size * sample + FILL_COST * pairs
    if 6 * repeats * used**2 > TABLE_LIMIT:
        del costs[WinnerPairs]
    if 8 * classes * used**2 > TABLE_LIMIT:
        del costs[MatrixPairs]
    return costs


def products(form, architecture):
    """Products that a form of this class holds for a sample; 0 where it holds none."""
    units, pairs = architecture.units, architecture.pair_weights
    if issubclass(form, WinnerPairs):
        return times_listed(pairs, units) * architecture.winners**2 // 2
    if issubclass(form, ListedPairs):
        return int(pairs * (architecture.winners / units) ** 2)
    return 0


def evaluation_batch(pairs, architecture):
    """Samples that `Network.logits` works on at once on a CPU.

    pairs : Pairs, or None for a dense head
    """
    form = None if pairs is None else pairs.form
    if isinstance(form, PerRun):
        form = form.forms[0]
    held = products(type(form), architecture)
    return max(1, min(EVALUATION_BATCH, PRODUCTS_AT_ONCE // max(held, 1)))


def with_forms(pairs, architecture, batch_size, xp):
    """The pairs of a network, with the forms that it trains and evaluates with.

    Parameters
    ----------
    pairs : Pairs
        Of one network, or of R stacked ones; one with a form keeps it for training.
    architecture : Architecture
    batch_size : int
        Of the training steps.
    xp : module
        numpy or cupy, of the network's parameters.

    Returns
    -------
    training, evaluation : Pairs
    """
    if xp is not np:
        pairs = on_device(pairs, architecture, xp)
        return pairs, pairs
    sizes = (pairs.classes, architecture.units, architecture.winners)
    if pairs.form is None:
        pairs = replace(pairs, form=fastest_form(pairs.i, pairs.j, *sizes, batch_size))
    if pairs.i.ndim > 1:
        return pairs, pairs
    # Large batches without a backward pass may have another form that is fastest.
    chosen = choose_form(pairs.i, pairs.j, *sizes, EVALUATION_BATCH, forward_alone=True)
    if isinstance(pairs.form, chosen):
        return pairs, pairs
    return pairs, replace(pairs, form=chosen(pairs.i, pairs.j, *sizes[:2]))


def on_device(pairs, architecture, xp):
    """The pairs with the CUDA kernels as their form; without kernels, their indices moved."""
    if pairs.form is not None or array_module(pairs.i) is not np:
        return pairs
    if not has_kernels(xp):
        return replace(pairs, i=to_device(xp, pairs.i), j=to_device(xp, pairs.j))
    from minipw.kernels.pairwise_gpu import DevicePairs

    sizes = (pairs.classes, architecture.units, architecture.winners)
    return replace(pairs, form=DevicePairs(pairs.i, pairs.j, *sizes))


def stacked(pairs, xp):
    """The pairs of R networks as one with a leading axis R, in the forms that they have."""
    module = array_module(pairs[0].i)
    i, j = module.stack([p.i for p in pairs]), module.stack([p.j for p in pairs])
    forms = [p.form for p in pairs]
    if xp is np:
        form = PerRun(forms)
    elif None in forms:
        form = None
    else:
        form = type(forms[0]).stack(forms)
    return Pairs(i, j, pairs[0].classes, form)
