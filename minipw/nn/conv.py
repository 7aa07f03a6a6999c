"""Two-dimensional convolution as a matrix product over patches."""

from minipw.backend.arrays import array_module


def same_padding(size, kernel, stride):
    """Output size and padding of one axis under 'SAME' padding.

        output = ceil(size / stride)
        total  = max((output - 1) stride + kernel - size, 0), the smaller half before

    Returns
    -------
    output, before, after : int
    """
    output = -(-size // stride)
    total = max((output - 1) * stride + kernel - size, 0)
    return output, total // 2, total - total // 2


def im2col(x, kernel, stride):
    """The patch under each position of the kernel, as rows.

    Parameters
    ----------
    x : ndarray of shape (..., B, height, width, channels)
    kernel : (int, int), rows and columns
    stride : int, the same along both axes

    Returns
    -------
    columns : ndarray of shape (..., B * out_height * out_width, rows * columns * channels)
    """
    xp = array_module(x)
    *lead, batch, height, width, channels = x.shape
    rows, columns = kernel
    out_height, top, bottom = same_padding(height, rows, stride)
    out_width, left, right = same_padding(width, columns, stride)
    pad = [(0, 0)] * (x.ndim - 3) + [(top, bottom), (left, right), (0, 0)]
    x = xp.pad(x, pad)
    *outer, down, across, deep = x.strides
    patches = xp.lib.stride_tricks.as_strided(
        x,
        (*lead, batch, out_height, out_width, rows, columns, channels),
        (*outer, down * stride, across * stride, down, across, deep),
    )
    return patches.reshape(*lead, batch * out_height * out_width, rows * columns * channels)


def col2im(columns, shape, kernel, stride):
    """The transpose of `im2col`: adds each patch back where it was read.

    Parameters
    ----------
    columns : ndarray of shape (..., B * out_height * out_width, rows * columns * channels)
    shape : (int, int, int, int)
        B, height, width and channels of the image.
    kernel, stride : as in `im2col`

    Returns
    -------
    x : ndarray of shape (..., B, height, width, channels)
    """
    xp = array_module(columns)
    batch, height, width, channels = shape
    rows, cols = kernel
    out_height, top, bottom = same_padding(height, rows, stride)
    out_width, left, right = same_padding(width, cols, stride)
    lead = columns.shape[:-2]
    patches = columns.reshape(*lead, batch, out_height, out_width, rows, cols, channels)
    padded = (*lead, batch, top + height + bottom, left + width + right, channels)
    x = xp.zeros(padded, columns.dtype)
    for a in range(rows):
        for b in range(cols):
            down = slice(a, a + stride * (out_height - 1) + 1, stride)
            across = slice(b, b + stride * (out_width - 1) + 1, stride)
            x[..., down, across, :] += patches[..., a, b, :]
    return x[..., top : top + height, left : left + width, :]


def conv2d_forward(x, w, stride):
    """Convolution, channels last, 'SAME' padding, no bias.

        columns = im2col(x),  y = columns w

    Parameters
    ----------
    x : ndarray of shape (..., B, height, width, channels)
    w : ndarray of shape (..., rows, columns, channels, filters)
    stride : int

    Returns
    -------
    y : ndarray of shape (..., B, out_height, out_width, filters)
    cache : tuple (columns, w, shape of x, stride)
        The patches are kept: dw needs them and gathering them again costs a pass.
    """
    *lead, batch, height, width, channels = x.shape
    *outer, rows, cols, _, filters = w.shape
    columns = im2col(x, (rows, cols), stride)
    y = columns @ w.reshape(*outer, rows * cols * channels, filters)
    out_height = same_padding(height, rows, stride)[0]
    out_width = same_padding(width, cols, stride)[0]
    y = y.reshape(*lead, batch, out_height, out_width, filters)
    return y, (columns, w, (batch, height, width, channels), stride)


def conv2d_backward(dy, cache, input_gradient=True):
    """Gradients of `conv2d_forward`.

        dw = columns^T dy,  dx = col2im(dy w^T)

    Parameters
    ----------
    dy : ndarray of shape (..., B, out_height, out_width, filters)
    cache : tuple from the forward
    input_gradient : bool
        False leaves dx out (None).

    Returns
    -------
    dx : ndarray of shape (..., B, height, width, channels), or None
    dw : ndarray of shape (..., rows, columns, channels, filters)
    """
    xp = array_module(dy)
    columns, w, shape, stride = cache
    *outer, rows, cols, channels, filters = w.shape
    dy = dy.reshape(*dy.shape[:-4], columns.shape[-2], filters)  # (..., B * positions, filters)
    # y = columns @ w
    dw = xp.swapaxes(xp.swapaxes(dy, -1, -2) @ columns, -1, -2)  # CuPy copies what is swapped
    dw = dw.reshape(*dw.shape[:-2], rows, cols, channels, filters)
    if not input_gradient:
        return None, dw
    w = w.reshape(*outer, rows * cols * channels, filters)
    # columns = im2col(x)
    dx = col2im(dy @ xp.swapaxes(w, -1, -2), shape, (rows, cols), stride)
    return dx, dw
