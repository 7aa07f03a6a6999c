"""Every operation of the network as plain loops over indices, in float64.

These functions are slow on purpose: one multiplication a line, no vectorised
array call, no leading axes. They say what the fast code has to compute. Each
gradient takes the derivative `dy` of a scalar loss by the operation's output
and returns the derivatives of the same loss by the operation's inputs.

Letters: B batch, D inputs, H units, K winners, C classes, P pairs.
"""

import math

import numpy as np

TANH_SCALE = math.sqrt(2.0 / math.pi)
TANH_CUBIC = 0.044715


def dense(x, w):
    """Fully connected layer without bias.

        y[b, h] = sum over d of x[b, d] w[d, h]

    Parameters
    ----------
    x : ndarray of shape (B, D)
    w : ndarray of shape (D, H)

    Returns
    -------
    y : ndarray of shape (B, H)
    """
    batch, inputs = x.shape
    units = w.shape[1]
    y = np.zeros((batch, units))
    for b in range(batch):
        for h in range(units):
            for d in range(inputs):
                y[b, h] += x[b, d] * w[d, h]
    return y


def dense_gradient(x, w, dy):
    """Gradient of `dense` by x and w.

    Each term of the forward is a product x[b, d] w[d, h] inside y[b, h], so it
    hands dy[b, h] w[d, h] to x[b, d] and dy[b, h] x[b, d] to w[d, h].

    Parameters
    ----------
    dy : ndarray of shape (B, H)

    Returns
    -------
    dx : ndarray of shape (B, D)
    dw : ndarray of shape (D, H)
    """
    batch, inputs = x.shape
    units = w.shape[1]
    dx = np.zeros((batch, inputs))
    dw = np.zeros((inputs, units))
    for b in range(batch):
        for h in range(units):
            for d in range(inputs):
                dx[b, d] += dy[b, h] * w[d, h]
                dw[d, h] += dy[b, h] * x[b, d]
    return dx, dw


def same_padding(size, kernel, stride):
    """Output length and left padding of one axis under 'SAME' padding.

        length = ceil(size / stride)
        total  = max((length - 1) stride + kernel - size, 0)
        before = floor(total / 2)

    Returns
    -------
    length, before : int
    """
    length = math.ceil(size / stride)
    total = max((length - 1) * stride + kernel - size, 0)
    return length, total // 2


def conv2d(x, w, stride):
    """Convolution (cross-correlation) without bias, channels last, 'SAME' padding.

        y[b, r, c, f] = sum over a, e, m of
            x[b, r stride + a - top, c stride + e - left, m] w[a, e, m, f]

    where x is zero outside the image.

    Parameters
    ----------
    x : ndarray of shape (B, height, width, channels)
    w : ndarray of shape (kernel height, kernel width, channels, filters)
    stride : int
        The same for rows and columns.

    Returns
    -------
    y : ndarray of shape (B, ceil(height / stride), ceil(width / stride), filters)
    """
    batch, height, width, channels = x.shape
    kernel_height, kernel_width, _, filters = w.shape
    rows, top = same_padding(height, kernel_height, stride)
    columns, left = same_padding(width, kernel_width, stride)
    y = np.zeros((batch, rows, columns, filters))
    for b in range(batch):
        for r in range(rows):
            for c in range(columns):
                for a in range(kernel_height):
                    for e in range(kernel_width):
                        row = r * stride + a - top
                        column = c * stride + e - left
                        if not (0 <= row < height and 0 <= column < width):
                            continue
                        for m in range(channels):
                            for f in range(filters):
                                y[b, r, c, f] += x[b, row, column, m] * w[a, e, m, f]
    return y


def conv2d_gradient(x, w, stride, dy):
    """Gradient of `conv2d` by x and w.

    The forward is a sum of products x[b, row, column, m] w[a, e, m, f] inside
    y[b, r, c, f]; as in `dense`, each factor receives dy times the other factor.
    Products with the padding are constant zero by x and add nothing to w.

    Parameters
    ----------
    dy : ndarray of the shape of y

    Returns
    -------
    dx : ndarray of the shape of x
    dw : ndarray of the shape of w
    """
    batch, height, width, channels = x.shape
    kernel_height, kernel_width, _, filters = w.shape
    rows, top = same_padding(height, kernel_height, stride)
    columns, left = same_padding(width, kernel_width, stride)
    dx = np.zeros(x.shape)
    dw = np.zeros(w.shape)
    for b in range(batch):
        for r in range(rows):
            for c in range(columns):
                for a in range(kernel_height):
                    for e in range(kernel_width):
                        row = r * stride + a - top
                        column = c * stride + e - left
                        if not (0 <= row < height and 0 <= column < width):
                            continue
                        for m in range(channels):
                            for f in range(filters):
                                dx[b, row, column, m] += dy[b, r, c, f] * w[a, e, m, f]
                                dw[a, e, m, f] += dy[b, r, c, f] * x[b, row, column, m]
    return dx, dw


def gelu(x, approximate):
    """Gaussian error linear unit.

        exact        y = x Phi(x),  Phi(x) = erfc(-x / sqrt(2)) / 2
        approximate  y = x (1 + tanh u) / 2,  u = sqrt(2 / pi) (x + 0.044715 x^3)

    Parameters
    ----------
    x : ndarray of any shape
    approximate : bool

    Returns
    -------
    y : ndarray of the shape of x
    """
    y = np.zeros(x.shape)
    for index in np.ndindex(x.shape):
        value = float(x[index])
        if approximate:
            u = TANH_SCALE * (value + TANH_CUBIC * value**3)
            y[index] = value * (1.0 + math.tanh(u)) / 2.0
        else:
            y[index] = value * math.erfc(-value / math.sqrt(2.0)) / 2.0
    return y


def gelu_gradient(x, dy, approximate):
    """Gradient of `gelu` by x.

    Exact: Phi' = phi, the normal density, so by the product rule

        y' = Phi(x) + x phi(x),  phi(x) = exp(-x^2 / 2) / sqrt(2 pi)

    Approximate: tanh' = 1 - tanh^2 and u' = sqrt(2 / pi) (1 + 3 * 0.044715 x^2), so

        y' = (1 + tanh u) / 2 + x (1 - tanh^2 u) u' / 2

    Returns
    -------
    dx : ndarray of the shape of x
    """
    dx = np.zeros(x.shape)
    for index in np.ndindex(x.shape):
        value = float(x[index])
        if approximate:
            t = math.tanh(TANH_SCALE * (value + TANH_CUBIC * value**3))
            du = TANH_SCALE * (1.0 + 3.0 * TANH_CUBIC * value**2)
            slope = (1.0 + t) / 2.0 + value * (1.0 - t * t) * du / 2.0
        else:
            density = math.exp(-value * value / 2.0) / math.sqrt(2.0 * math.pi)
            slope = math.erfc(-value / math.sqrt(2.0)) / 2.0 + value * density
        dx[index] = dy[index] * slope
    return dx


def kwta_threshold(row, winners, threshold):
    """The value that k-WTA subtracts from one row.

    Parameters
    ----------
    row : sequence of H floats
    winners : int
        K; in [1, H - 1] for "k+1", in [1, H] for "k".
    threshold : str
        "k+1": the (K + 1)-th largest value, K units stay without ties.
        "k": the K-th largest value, K - 1 units stay without ties.

    Returns
    -------
    v : float
    """
    rank = {"k+1": winners + 1, "k": winners}[threshold]  # 1 is the largest
    return sorted(row, reverse=True)[rank - 1]


def kwta(x, winners, threshold="k+1"):
    """k-winners-take-all with subtraction.

        y[b, h] = max(x[b, h] - v[b], 0)

    The winners are the units strictly above v[b], see `kwta_threshold`.

    Parameters
    ----------
    x : ndarray of shape (B, H)
    winners : int
    threshold : str

    Returns
    -------
    y : ndarray of shape (B, H)
    """
    batch, units = x.shape
    y = np.zeros((batch, units))
    for b in range(batch):
        v = kwta_threshold(x[b], winners, threshold)
        for h in range(units):
            if x[b, h] > v:
                y[b, h] = x[b, h] - v
    return y


def kwta_gradient(x, winners, threshold, dy):
    """Gradient of `kwta` by x.

    v is itself one of the inputs, x[b, t]. A winner's y = x[b, h] - x[b, t] has
    the slope 1 by its own input and -1 by x[b, t]; every other output is 0
    nearby. So dx = dy on the winners and dx[b, t] = -(sum of the winners' dy).
    Where several units equal v the derivative does not exist; the lowest index
    among them is taken as t.

    Parameters
    ----------
    dy : ndarray of shape (B, H)

    Returns
    -------
    dx : ndarray of shape (B, H)
    """
    batch, units = x.shape
    dx = np.zeros((batch, units))
    for b in range(batch):
        v = kwta_threshold(x[b], winners, threshold)
        t = 0
        while x[b, t] != v:
            t += 1
        for h in range(units):
            if x[b, h] > v:
                dx[b, h] += dy[b, h]
                dx[b, t] -= dy[b, h]
    return dx


def pairwise(x, w, i, j, classes):
    """Pairwise interaction layer: products of two units, one output each.

        y[b, c] = sum over p with p mod C = c of w[p] x[b, i[p]] x[b, j[p]]

    Parameters
    ----------
    x : ndarray of shape (B, H)
    w : ndarray of shape (P,)
    i, j : sequence of P ints in [0, H)
        Pairs may repeat and share units.
    classes : int
        C

    Returns
    -------
    y : ndarray of shape (B, C)
    """
    batch = x.shape[0]
    y = np.zeros((batch, classes))
    for b in range(batch):
        for p in range(len(w)):
            y[b, p % classes] += w[p] * x[b, i[p]] * x[b, j[p]]
    return y


def pairwise_gradient(x, w, i, j, classes, dy):
    """Gradient of `pairwise` by x and w.

    One term is w x_i x_j inside y_c. Its derivative by w is x_i x_j, by x_i it is
    w x_j, by x_j it is w x_i; each is multiplied by dy_c and added up over the
    terms. A pair of a unit with itself gets both additions: 2 w x_i.

    Parameters
    ----------
    dy : ndarray of shape (B, C)

    Returns
    -------
    dx : ndarray of shape (B, H)
    dw : ndarray of shape (P,)
    """
    batch = x.shape[0]
    dx = np.zeros(x.shape)
    dw = np.zeros(len(w))
    for b in range(batch):
        for p in range(len(w)):
            dz = dy[b, p % classes]
            dw[p] += dz * x[b, i[p]] * x[b, j[p]]
            dx[b, i[p]] += dz * w[p] * x[b, j[p]]
            dx[b, j[p]] += dz * w[p] * x[b, i[p]]
    return dx, dw


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
