"""Every operation of the network as plain loops over indices, in float64.

These functions are slow on purpose: one multiplication a line, no vectorised
array call, no leading axes. They say what the fast code has to compute. Each
gradient takes the derivative `dy` of a scalar loss by the operation's output
and returns the derivatives of the same loss by the operation's inputs.

Letters: B batch, D inputs, H units, K winners, C classes, P pairs.
"""

import numpy as np
from reference_layers import (
    TANH_CUBIC,
    TANH_SCALE,
    conv2d,
    conv2d_gradient,
    dense,
    dense_gradient,
    gelu,
    gelu_gradient,
    same_padding,
)
from reference_loss import (
    adagrad_update,
    masked_softmax,
    output_norm,
    output_norm_gradient,
    sample_mask,
    sgd_step,
    smas_update,
    softmax_cross_entropy,
    softmax_cross_entropy_gradient,
    streaming_step,
)
from reference_pairwise import (
    kwta,
    kwta_gradient,
    kwta_threshold,
    pairwise,
    pairwise_gradient,
)

__all__ = [
    "TANH_CUBIC",
    "TANH_SCALE",
    "adagrad_update",
    "cnn_step",
    "conv2d",
    "conv2d_gradient",
    "dense",
    "dense_gradient",
    "flatten",
    "gelu",
    "gelu_gradient",
    "kwta",
    "kwta_gradient",
    "kwta_threshold",
    "masked_softmax",
    "mlp_step",
    "network_forward",
    "network_gradient",
    "network_step",
    "output_norm",
    "output_norm_gradient",
    "pairwise",
    "pairwise_gradient",
    "same_padding",
    "sample_mask",
    "sgd_step",
    "smas_update",
    "softmax_cross_entropy",
    "softmax_cross_entropy_gradient",
    "streaming_step",
    "unflatten",
]


def flatten(x):
    """Images (B, height, width, channels) as rows (B, D), the channel running fastest."""
    batch, height, width, channels = x.shape
    y = np.zeros((batch, height * width * channels))
    for b, row, column, m in np.ndindex(x.shape):
        y[b, (row * width + column) * channels + m] = x[b, row, column, m]
    return y


def unflatten(x, shape):
    """Rows (B, D) as images of the given shape, the inverse of `flatten`."""
    y = np.zeros(shape)
    _, _, width, channels = shape
    for b, row, column, m in np.ndindex(shape):
        y[b, row, column, m] = x[b, (row * width + column) * channels + m]
    return y


def network_forward(
    x, weights, winners, threshold="k+1", pairs=None, classes=None, strides=None, approximate=False
):
    """Backbone of (layer, GELU) pairs, k-WTA, head.

    Parameters
    ----------
    x : ndarray of shape (B, D), or (B, height, width, channels) with `strides`
    weights : list of ndarray
        One array a backbone layer, then the head: (H, C), or (P,) with `pairs`.
    winners : int
    threshold : str
    pairs : None or (i, j)
        None: a dense head. Otherwise the units of each pair of a pairwise head.
    classes : int
        C of a pairwise head.
    strides : None or sequence of int
        None: dense backbone layers. Otherwise conv2d layers with these strides,
        flattened before k-WTA.
    approximate : bool
        The tanh form of GELU.

    Returns
    -------
    logits : ndarray of shape (B, C)
    saved : tuple (inputs, before, flat, active)
        Each layer's input and its output before GELU, the input of k-WTA and the
        input of the head.
    """
    inputs, before = [], []
    for n in range(len(weights) - 1):
        inputs.append(x)
        if strides is None:
            before.append(dense(x, weights[n]))
        else:
            before.append(conv2d(x, weights[n], strides[n]))
        x = gelu(before[n], approximate)
    flat = x if strides is None else flatten(x)
    active = kwta(flat, winners, threshold)
    if pairs is None:
        logits = dense(active, weights[-1])
    else:
        logits = pairwise(active, weights[-1], pairs[0], pairs[1], classes)
    return logits, (inputs, before, flat, active)


def network_gradient(
    saved,
    dlogits,
    weights,
    winners,
    threshold="k+1",
    pairs=None,
    classes=None,
    strides=None,
    approximate=False,
):
    """Gradient of `network_forward` by every weight array.

    The chain rule: the forward's passes in reverse order, each receiving the
    gradient by its output from the pass after it.

    Parameters
    ----------
    saved : tuple
        From `network_forward`.
    dlogits : ndarray of shape (B, C)

    Returns
    -------
    gradients : list of ndarray
        In the order and shapes of `weights`.
    """
    inputs, before, flat, active = saved
    gradients = [None] * len(weights)
    if pairs is None:
        dx, gradients[-1] = dense_gradient(active, weights[-1], dlogits)
    else:
        i, j = pairs
        dx, gradients[-1] = pairwise_gradient(active, weights[-1], i, j, classes, dlogits)
    dx = kwta_gradient(flat, winners, threshold, dx)
    if strides is not None:
        dx = unflatten(dx, before[-1].shape)
    for n in reversed(range(len(weights) - 1)):
        dx = gelu_gradient(before[n], dx, approximate)
        if strides is None:
            dx, gradients[n] = dense_gradient(inputs[n], weights[n], dx)
        else:
            dx, gradients[n] = conv2d_gradient(inputs[n], weights[n], strides[n], dx)
    return gradients


def network_step(
    x,
    labels,
    weights,
    importance,
    rule,
    learning_rate,
    lambda_=0.0,
    epsilon=1e-6,
    reduction="sum",
    classes_mask=None,
    mask_mode="exclude",
    **network,
):
    """One step of Algorithm 1 for the whole network.

    Parameters
    ----------
    x, weights : see `network_forward`
    labels : sequence of B ints
    importance : list of ndarray
        In the shapes of `weights`.
    rule : str
        "sgd", "adagrad" or "s-mas".
    learning_rate, lambda_, epsilon : float
    reduction : str
        Of `output_norm`, for S-MAS. The class mask does not apply to it.
    classes_mask, mask_mode : see `softmax_cross_entropy`
    network :
        The other arguments of `network_forward`.

    Returns
    -------
    loss : float
        Before the step.
    logits : ndarray of shape (B, C)
        Before the step, not masked.
    weights, importance : list of ndarray
        After the step.
    """
    logits, saved = network_forward(x, weights, **network)
    loss = softmax_cross_entropy(logits, labels, classes_mask, mask_mode)
    dlogits = softmax_cross_entropy_gradient(logits, labels, classes_mask, mask_mode)
    gradients = network_gradient(saved, dlogits, weights, **network)
    if rule == "sgd":
        stepped = []
        for n in range(len(weights)):
            stepped.append(sgd_step(weights[n], gradients[n], learning_rate))
        return loss, logits, stepped, importance
    if rule == "adagrad":
        updates = [adagrad_update(gradient) for gradient in gradients]
    elif rule == "s-mas":
        dnorm = output_norm_gradient(logits, reduction)
        norm_gradients = network_gradient(saved, dnorm, weights, **network)
        updates = [smas_update(gradient) for gradient in norm_gradients]
    else:
        raise ValueError(f"unknown rule {rule!r}")
    stepped, accumulated = [], []
    for n in range(len(weights)):
        weight, omega = streaming_step(
            weights[n], importance[n], gradients[n], updates[n], learning_rate, lambda_, epsilon
        )
        stepped.append(weight)
        accumulated.append(omega)
    return loss, logits, stepped, accumulated


def mlp_step(x, labels, weights, importance, **settings):
    """`network_step` of a dense backbone on images (B, height, width, channels)."""
    return network_step(flatten(x), labels, weights, importance, **settings)


def cnn_step(x, labels, weights, importance, strides, **settings):
    """`network_step` of a conv2d backbone on images (B, height, width, channels)."""
    return network_step(x, labels, weights, importance, strides=strides, **settings)
