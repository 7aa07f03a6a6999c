"""Where a network first holds a value that is not finite."""

import numpy as np

from minipw.backend import array_module


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
    return (
        f"{what} not finite at step {step}, first in layer {first_nonfinite_layer(network, x)}: "
        f"begin again, or from a saved model, with a smaller learning_rate "
        f"({rule.learning_rate / 10:g})"
    )


def nonfinite_parameter(network):
    """Name of the first parameter with a value that is not finite, or None."""
    for name, value in network.parameters.items():
        if not array_module(value).isfinite(value).all():
            return name
    return None
