"""Fully connected layer."""

from minipw.backend.arrays import array_module


def dense_forward(x, w):
    """Fully connected layer without bias.

        y = x w

    Parameters
    ----------
    x : ndarray of shape (..., B, D)
    w : ndarray of shape (..., D, H)

    Returns
    -------
    y : ndarray of shape (..., B, H)
    cache : tuple (x, w)
    """
    return x @ w, (x, w)


def dense_backward(dy, cache, input_gradient=True):
    """Gradients of `dense_forward`.

        dx = dy w^T,  dw = x^T dy

    Parameters
    ----------
    dy : ndarray of shape (..., B, H)
    cache : tuple (x, w)
    input_gradient : bool
        False leaves dx out (None): the first layer has no use for it.

    Returns
    -------
    dx : ndarray of shape (..., B, D), or None
    dw : ndarray of shape (..., D, H)
    """
    xp = array_module(dy)
    x, w = cache
    # y = x @ w
    dx = dy @ xp.swapaxes(w, -1, -2) if input_gradient else None
    dw = xp.swapaxes(x, -1, -2) @ dy
    return dx, dw
