"""Which form of the pairwise head a network uses, on a CPU and on a device."""

from dataclasses import replace

import numpy as np

from minipw.backend import array_module, has_kernels, to_module
from minipw.kernels.pairwise_cpu import PerRun, choose_form, fastest_form
from minipw.nn.pairwise import Pairs

EVALUATION_BATCH = 256
"""Samples that `Network.logits` works on at once on a CPU."""


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
        return replace(pairs, i=to_module(xp, pairs.i), j=to_module(xp, pairs.j))
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
