"""What is wrong with a network: values that are not finite, units that do nothing."""

import numpy as np

from minipw.backend.arrays import array_module, to_host
from minipw.kernels.pairwise_cpu import used_units

UNSCALED = 1e4
"""Inputs beyond this size are taken as the reason why values are not finite."""


def divergence(network, x, step, remedy, what="the loss is"):
    """What is not finite, where it comes from and what to do.

    Parameters
    ----------
    network : Network
    x : ndarray of shape (B, *input_shape)
    step : int
        From 1.
    remedy : str
        What to do when the inputs are not the reason.
    what : str
        Subject and verb of the message.
    """
    if not array_module(x).isfinite(x).all():
        return f"step {step}: the input holds values that are not finite: clean the data"
    layer, largest = first_nonfinite_layer(network, x), float(abs(x).max())
    if largest > UNSCALED:
        remedy = f"the inputs reach {largest:.2g}: scale them, to a deviation of 1 or so"
    return f"{what} not finite at step {step}, first in layer {layer}: {remedy}"


def first_nonfinite_layer(network, x):
    """Name of the first layer whose output is not finite for a batch that is."""
    with np.errstate(over="ignore", invalid="ignore"):
        _, (layer_caches, _, _) = network.forward(x)
    for layer, (_, (before_gelu, *_)) in zip(network.layers, layer_caches, strict=True):
        if not array_module(x).isfinite(before_gelu).all():
            return layer.name
    return "head"


def nonfinite_parameter(network):
    """Name of the first parameter with a value that is not finite, or None."""
    for name, value in network.parameters.items():
        if not array_module(value).isfinite(value).all():
            return name
    return None


def frozen_parameter(importance):
    """Which parameter has weights of infinite importance, which never change, or None."""
    for name, omega in importance.items():
        if share := 1 - float(array_module(omega).isfinite(omega).mean()):
            what = f"{100 * share:.2g} % of layer {name} has infinite importance and is frozen"
            return what + " (scale the inputs, or use a smaller importance lambda)"
    return None


def unused_units(network, importance, rule):
    """Count the units that never won and those that no output reads.

    Parameters
    ----------
    network : Network
    importance : dict of str to ndarray
    rule : Rule
        The rule that trained the network.

    Returns
    -------
    dict
        "units": H. "unread": units that are in no pair. "never_won": other units whose
        weights, or whose whole filter, have no importance because no step changed them;
        None for SGD, which keeps no importance, and where no step changed any. A unit at the
        threshold of k-WTA counts as a winner: it has a gradient.
    """
    units, pairs = network.architecture.units, network.pairs
    read = np.ones(units, bool)
    if pairs is not None:
        read[:] = False
        read[used_units(to_host(pairs.i), to_host(pairs.j), units)] = True
    name, shape, *_ = network.layers[-1]
    changed = to_host(importance[name]).reshape(-1, shape[-1]).any(0)  # by unit or filter
    idle = read & ~np.tile(changed, units // shape[-1])  # (H,); filters are the last axis
    return {
        "units": units,
        "never_won": None if rule.name == "sgd" or not changed.any() else int(idle.sum()),
        "unread": int((~read).sum()),
    }


def unused_lines(unused):
    """A sentence for each kind of unused unit that is over a tenth of the units.

    unused : dict from `unused_units`, or None for a record without one
    """
    if unused is None:
        return
    units = unused["units"]
    if 10 * unused["unread"] > units:
        yield f"{unused['unread']} of {units} units before the head are in no pair"
    if 10 * (unused["never_won"] or 0) > units:
        yield f"{unused['never_won']} of {units} units before the head never won"
