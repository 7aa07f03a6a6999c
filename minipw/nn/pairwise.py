"""The pairwise head (section 3.2, figure 2c).

Each weight multiplies the product of two units and feeds one output:

    z_p = x[i_p] x[j_p],    y_c = sum over p with p mod C = c of w_p z_p

The product rule gives the backward pass. With g_p = dy_c, c = p mod C:

    dL/dw_p   = z_p g_p
    dL/dx[i_p] += w_p g_p x[j_p]        (z_p by its first factor)
    dL/dx[j_p] += w_p g_p x[i_p]        (and by its second)

The two functions below are that text on either array module: they are the
specification. They hold B * P products at once. After k-WTA nearly all of those
are zero, and `kernels/` has implementations that compute only the others.
"""

from dataclasses import dataclass
from typing import Any

from minipw.backend.arrays import array_module, as_float


@dataclass(frozen=True)
class Pairs:
    """Which two units each pair weight joins; pair p feeds output p mod `classes`.

    i, j : int ndarray of shape (..., P)
        Any list of units, repeats included.
    classes : int
        C, a divisor of P.
    implementation : object or None
        Computes the same faster for these pairs (`kernels/pairwise_*.py`).
    """

    i: Any
    j: Any
    classes: int
    implementation: Any = None


def pairwise_forward(x, w, pairs, gradient=True):
    """Weighted products of pairs of units, each feeding one output.

    Parameters
    ----------
    x : ndarray of shape (..., B, H)
    w : ndarray of shape (..., P)
    pairs : Pairs
        With an implementation, the open axes are those of `pairs.i`: none, or R.
    gradient : bool
        False when no backward will follow: an implementation may then keep less.

    Returns
    -------
    y : ndarray of shape (..., B, C)
    cache : tuple (pairs, what the implementation keeps)
    """
    x = as_float(x)
    if pairs.implementation is not None:
        y, cache = pairs.implementation.forward(x, w, gradient)
        return y, (pairs, cache)
    xi, xj = _gather(x, pairs.i), _gather(x, pairs.j)  # (..., B, P)
    terms = w[..., None, :] * (xi * xj)
    y = terms.reshape(*terms.shape[:-1], -1, pairs.classes).sum(-2)  # (..., B, C)
    return y, (pairs, (xi, xj, w, x.shape[-1]))


def pairwise_backward(dy, cache):
    """Gradients of `pairwise_forward`; the derivation is at the top of the file.

    Parameters
    ----------
    dy : ndarray of shape (..., B, C)
    cache : tuple from the forward

    Returns
    -------
    dx : ndarray of shape (..., B, H)
        An implementation may leave units with x = 0 at zero: k-WTA passes them no gradient.
    dw : ndarray of shape (..., P), or Columns
    """
    pairs, cache = cache
    if pairs.implementation is not None:
        return pairs.implementation.backward(dy, cache)
    xp = array_module(dy)
    xi, xj, w, units = cache
    g = xp.tile(dy, w.shape[-1] // pairs.classes)  # (..., B, P), g_p = dy[p mod C]
    # y_c += w_p z_p
    dw = (xi * xj * g).sum(-2)
    dz = w[..., None, :] * g
    # z_p = x[i_p] x[j_p]
    dx = xp.zeros((*dz.shape[:-1], units), dz.dtype)
    _scatter_add(dx, pairs.i, dz * xj)
    _scatter_add(dx, pairs.j, dz * xi)
    return dx, dw


def _gather(x, index):
    """x[..., b, index[..., p]] for every row b, of shape (..., B, P)."""
    if index.ndim == 1:
        return x[..., index]
    return array_module(x).take_along_axis(x, index[..., None, :], -1)


def _scatter_add(x, index, values):
    """x[..., b, index[..., p]] += values[..., b, p], in place."""
    xp = array_module(x)
    index = xp.broadcast_to(index[..., None, :], values.shape).reshape(-1, values.shape[-1])
    rows = xp.broadcast_to(xp.arange(len(index))[:, None], index.shape)
    xp.add.at(x.reshape(-1, x.shape[-1]), (rows, index), values.reshape(index.shape))
