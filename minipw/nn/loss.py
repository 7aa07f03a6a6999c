"""What is minimised, and what S-MAS measures: scalars of the logits."""

import numpy as np

from minipw import InputError, parameters
from minipw.backend.arrays import array_module, as_float
from minipw.backend.cuda import has_kernels
from minipw.kernels import loss_gpu


def softmax_cross_entropy_forward(logits, labels, mask=None, masking="exclude"):
    """Mean softmax cross-entropy, optionally over the classes of a task alone.

        loss = mean over B of (log sum_c exp(z_c) - z_label)

    Parameters
    ----------
    logits : ndarray of shape (..., B, C)
    labels : int ndarray of shape (..., B), in [0, C)
    mask : bool ndarray that broadcasts to (..., B, C), or None
        The classes of the samples' task (multi-head): (C,), or a row a sample.
    masking : {"exclude", "zero"}
        "exclude" leaves the other classes out of the softmax (the paper); "zero"
        multiplies their logits by 0 and keeps them (the released program).

    Returns
    -------
    loss : ndarray of shape (...)
    cache : tuple (probabilities, labels, mask)

    Raises
    ------
    InputError
        For a label that is no class. On a device none is looked for, which would wait for it.
    """
    xp = array_module(logits)
    if xp is np:
        require_labels(labels, logits.shape[-1])
    z = mask_logits(as_float(logits), mask, masking)
    if has_kernels(xp):
        return loss_gpu.forward(z, labels, mask)
    z = z - z.max(-1, keepdims=True)
    e = xp.exp(z)
    total = e.sum(-1, keepdims=True)  # (..., B, 1)
    z_label = xp.take_along_axis(z, labels[..., None], -1)
    loss = (xp.log(total) - z_label)[..., 0].mean(-1)
    return loss, (e / total, labels, mask)


def require_labels(labels, classes):
    """Raise InputError for labels (...) of the host that are not in [0, classes)."""
    if labels.size and labels.astype(np.uint64).max() >= classes:  # a negative one wraps
        place = np.unravel_index(((labels < 0) | (labels >= classes)).argmax(), labels.shape)
        raise InputError(
            f"label {labels[place]} of sample {place[-1]}: use the numbers 0 to {classes - 1}"
        )


def softmax_cross_entropy_backward(cache):
    """Gradient of `softmax_cross_entropy_forward` by the logits.

        dz = (softmax(z) - one_hot(label)) / B

    Returns
    -------
    dlogits : ndarray of shape (..., B, C)

    Notes
    -----
    d/dz_c of log sum exp(z) is softmax_c. Under a mask both forms of masking leave no
    path to the other classes: a factor 0, or a term that is not in the sum.
    """
    xp = array_module(cache[0])
    if has_kernels(xp):
        return loss_gpu.backward(cache)
    probabilities, labels, mask = cache
    batch, classes = probabilities.shape[-2:]
    dz = probabilities - (labels[..., None] == xp.arange(classes))
    if mask is not None:
        dz = dz * mask
    return (dz / batch).astype(probabilities.dtype, copy=False)


def mask_logits(logits, mask, masking):
    """The logits that a multi-head loss and prediction see; see the forward above."""
    if mask is None:
        return logits
    parameters.check(class_mask=masking)
    xp = array_module(logits)
    outside = -xp.inf if masking == "exclude" else 0.0
    return xp.where(mask, logits, xp.asarray(outside, logits.dtype))


def output_norm_forward(logits, reduction="sum"):
    """What S-MAS differentiates: the mean squared output norm (UpdateRuleSMAS).

        norm = mean over B of |f(x)|^2

    Parameters
    ----------
    logits : ndarray of shape (..., B, C)
    reduction : {"sum", "mean"}
        Over the classes: "sum" is the squared norm of the paper, "mean" divides it
        by C as the released program does.

    Returns
    -------
    norm : ndarray of shape (...)
    cache : tuple (logits, reduction)
    """
    logits = as_float(logits)
    return getattr(logits * logits, reduction)(-1).mean(-1), (logits, reduction)


def output_norm_backward(cache):
    """Gradient of `output_norm_forward` by the logits: 2 f / B, or 2 f / (B C).

    Returns
    -------
    dlogits : ndarray of shape (..., B, C)
    """
    logits, reduction = cache
    batch, classes = logits.shape[-2:]
    return logits * (2 / (batch * (classes if reduction == "mean" else 1)))
