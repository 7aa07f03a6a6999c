"""Loss, output norm and update rules as plain loops. The letters are those of `reference`."""

import math

import numpy as np


def masked_softmax(logits, allowed, mask_mode):
    """Softmax of one row under a class mask.

    Parameters
    ----------
    logits : sequence of C floats
    allowed : sequence of C bools
    mask_mode : str
        "exclude": softmax over the allowed classes, probability 0 elsewhere.
        "zero": the other logits are multiplied by 0 and stay in the softmax.

    Returns
    -------
    z : list of C floats
        The logits that enter the exponential.
    probabilities : list of C floats
    log_total : float
        Logarithm of the sum of exp(z) over the classes in the softmax.
    """
    if mask_mode not in ("exclude", "zero"):
        raise ValueError(f"unknown mask_mode {mask_mode!r}")
    classes = len(logits)
    z = [float(logits[c]) if allowed[c] else 0.0 for c in range(classes)]
    inside = [c for c in range(classes) if allowed[c] or mask_mode == "zero"]
    largest = max(z[c] for c in inside)  # exp of z - largest cannot overflow
    total = 0.0
    for c in inside:
        total += math.exp(z[c] - largest)
    probabilities = [0.0] * classes
    for c in inside:
        probabilities[c] = math.exp(z[c] - largest) / total
    return z, probabilities, largest + math.log(total)


def sample_mask(classes_mask, b, classes):
    """The class mask of sample b, all classes where `classes_mask` is None."""
    if classes_mask is None:
        return [True] * classes
    if np.ndim(classes_mask) == 2:
        return classes_mask[b]
    return classes_mask


def softmax_cross_entropy(logits, labels, classes_mask=None, mask_mode="exclude"):
    """Softmax cross-entropy, mean over the batch.

        loss = 1/B sum over b of (log(sum over c of exp z[b, c]) - z[b, label[b]])

    Parameters
    ----------
    logits : ndarray of shape (B, C)
    labels : sequence of B ints in [0, C)
    classes_mask : None, sequence of C bools, or B sequences of C bools
        The classes of the task: one mask for the batch, or one for each sample.
        It contains the label.
    mask_mode : str
        "exclude" or "zero", see `masked_softmax`.

    Returns
    -------
    loss : float
    """
    batch, classes = logits.shape
    loss = 0.0
    for b in range(batch):
        allowed = sample_mask(classes_mask, b, classes)
        z, _, log_total = masked_softmax(logits[b], allowed, mask_mode)
        loss += (log_total - z[labels[b]]) / batch
    return loss


def softmax_cross_entropy_gradient(logits, labels, classes_mask=None, mask_mode="exclude"):
    """Gradient of `softmax_cross_entropy` by the logits.

    The derivative of log(sum of exp z) by z[c] is exp z[c] / sum = probability[c],
    that of -z[label] is -1 at the label:

        dz[b, c] = (probability[b, c] - [c = label[b]]) / B

    A masked logit does not enter the loss ("exclude") or enters it as
    z = 0 * logit ("zero"), so its derivative is 0 in both modes.

    Returns
    -------
    dlogits : ndarray of shape (B, C)
    """
    batch, classes = logits.shape
    dlogits = np.zeros((batch, classes))
    for b in range(batch):
        allowed = sample_mask(classes_mask, b, classes)
        _, probabilities, _ = masked_softmax(logits[b], allowed, mask_mode)
        for c in range(classes):
            if allowed[c]:
                dlogits[b, c] = (probabilities[c] - (c == labels[b])) / batch
    return dlogits


def output_norm(logits, reduction="sum"):
    """Squared length of the output, mean over the batch (S-MAS).

        norm = 1/B sum over b, c of logits[b, c]^2        "sum"
        norm = 1/(B C) sum over b, c of logits[b, c]^2    "mean"

    Parameters
    ----------
    logits : ndarray of shape (B, C)
    reduction : str

    Returns
    -------
    norm : float
    """
    batch, classes = logits.shape
    count = {"sum": batch, "mean": batch * classes}[reduction]
    norm = 0.0
    for b in range(batch):
        for c in range(classes):
            norm += logits[b, c] ** 2 / count
    return float(norm)


def output_norm_gradient(logits, reduction="sum"):
    """Gradient of `output_norm`: 2 logits / B, or 2 logits / (B C) for "mean".

    Returns
    -------
    dlogits : ndarray of shape (B, C)
    """
    batch, classes = logits.shape
    count = {"sum": batch, "mean": batch * classes}[reduction]
    dlogits = np.zeros((batch, classes))
    for b in range(batch):
        for c in range(classes):
            dlogits[b, c] = 2.0 * logits[b, c] / count
    return dlogits


def sgd_step(weight, gradient, learning_rate):
    """One array's step of gradient descent: weight - learning_rate * gradient."""
    stepped = np.zeros(weight.shape)
    for index in np.ndindex(weight.shape):
        stepped[index] = weight[index] - learning_rate * gradient[index]
    return stepped


def adagrad_update(gradient):
    """Importance update of Adagrad, u = g^2, g the gradient of the loss."""
    update = np.zeros(gradient.shape)
    for index in np.ndindex(gradient.shape):
        update[index] = gradient[index] ** 2
    return update


def smas_update(norm_gradient):
    """Importance update of S-MAS, u = |g|, g the gradient of `output_norm`."""
    update = np.zeros(norm_gradient.shape)
    for index in np.ndindex(norm_gradient.shape):
        update[index] = abs(norm_gradient[index])
    return update


def streaming_step(weight, importance, gradient, update, learning_rate, lambda_, epsilon=1e-6):
    """One array's step of Algorithm 1, lines 10 and 11.

        Omega <- Omega + lambda u
        theta <- theta - eta g (Omega + epsilon)^(-1/2)

    Parameters
    ----------
    weight, importance, gradient, update : ndarray of one shape
        theta, Omega before the step, g and u.
    learning_rate, lambda_, epsilon : float

    Returns
    -------
    weight, importance : ndarray of that shape
        After the step; the arguments stay as they are.
    """
    weight_after = np.zeros(weight.shape)
    importance_after = np.zeros(weight.shape)
    for index in np.ndindex(weight.shape):
        omega = importance[index] + lambda_ * update[index]
        step = learning_rate * gradient[index] / math.sqrt(omega + epsilon)
        importance_after[index] = omega
        weight_after[index] = weight[index] - step
    return weight_after, importance_after
