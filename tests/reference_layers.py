"""Dense layer, convolution and GELU as plain loops. The letters are those of `reference`."""

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
