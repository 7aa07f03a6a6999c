"""Where a network first holds a value that is not finite."""

import numpy as np

from minipw.backend import array_module

UNSCALED = 1e4
"""Inputs beyond this are taken as the reason why values are not finite."""


def first_nonfinite_layer(network, x):
    """Name of the first parameter whose layer gives values that are not finite.

    Parameters
    ----------
    network : Network
    x : ndarray of shape (B, *input_shape), finite
    """
    xp = array_module(x)
    with np.errstate(over="ignore", invalid="ignore"):
        _, caches = network.forward(x)
    for (name, *_), (_, gelu_cache) in zip(network.layers, caches, strict=False):
        if not xp.isfinite(gelu_cache[0]).all():  # the layer's output before its GELU
            return name
    return "head"


def message(what, network, x, step, rule):
    """What is not finite, where it comes from and what to do.

    Parameters
    ----------
    what : str
        "the loss is"
    network, x : as in `first_nonfinite_layer`
    step : int
        From 1.
    rule : Rule
        In use.
    """
    layer = first_nonfinite_layer(network, x)
    smaller = f"begin again with a smaller learning_rate ({rule.learning_rate / 10:g})"
    return f"{what} not finite at step {step}, first in layer {layer}: {advice(x, smaller)}"


def advice(x, otherwise):
    """What to do about it: to scale inputs x that are large, else what `otherwise` says."""
    largest = float(abs(x).max())
    if largest > UNSCALED:
        return f"the inputs reach {largest:.2g}: scale them, to a deviation of 1 or so"
    return otherwise


def nonfinite_parameter(network):
    """Name of the first parameter with a value that is not finite, or None."""
    for name, value in network.parameters.items():
        if not array_module(value).isfinite(value).all():
            return name
    return None
