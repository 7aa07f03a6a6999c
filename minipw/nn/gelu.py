"""GELU, exact and in the tanh approximation (Hendrycks & Gimpel)."""

import math

from minipw.backend.arrays import array_module, as_float, normal_distribution
from minipw.backend.cuda import has_kernels
from minipw.kernels import gelu_gpu

LINEAR = math.sqrt(2 / math.pi)
CUBIC = 0.044715 * LINEAR
"""Of u = LINEAR x + CUBIC x^3, which the tanh form takes the tanh of."""
DENSITY_AT_ZERO = 1 / math.sqrt(2 * math.pi)
"""Of the standard normal."""


def gelu_forward(x, approximate=False):
    """Gaussian error linear unit.

        y = x s(x)
        exact:        s(x) = Phi(x) = (1 + erf(x / sqrt 2)) / 2
        approximate:  s(x) = (1 + tanh(u)) / 2,  u = sqrt(2 / pi) (x + 0.044715 x^3)

    Parameters
    ----------
    x : ndarray of any shape
    approximate : bool
        True takes the tanh form.

    Returns
    -------
    y : ndarray of x's shape
    cache : tuple (x, s, approximate)
        s is kept because it holds the expensive function.
    """
    xp, x = array_module(x), as_float(x)
    if has_kernels(xp):
        return gelu_gpu.forward(x, approximate)
    if approximate:
        u = x * (LINEAR + CUBIC * x**2)
        s = 0.5 * (1 + xp.tanh(u))
    else:
        s = normal_distribution(x)
    return x * s, (x, s, approximate)


def gelu_backward(dy, cache):
    """Gradient of `gelu_forward`.

        dx = dy (s + x s')

    Parameters
    ----------
    dy : ndarray of shape (..., *x.shape)
    cache : tuple (x, s, approximate)

    Returns
    -------
    dx : ndarray of dy's shape

    Notes
    -----
    Exact: s' is the density of the standard normal, exp(-x^2 / 2) / sqrt(2 pi).

    Approximate, with t = tanh(u), so that s = (1 + t) / 2 and t = 2 s - 1:

        s' = (1 - t^2) u' / 2 = (1 - t) (1 + t) u' / 2 = 2 (1 - s) s u'
    """
    xp = array_module(dy)
    if has_kernels(xp):
        return gelu_gpu.backward(dy, cache)
    x, s, approximate = cache
    if approximate:
        # u = LINEAR x + CUBIC x^3
        du = LINEAR + 3 * CUBIC * x**2
        # s = 0.5 (1 + tanh(u))
        ds = 2 * du * s * (1 - s)
    else:
        # s = Phi(x)
        ds = xp.exp(-0.5 * x**2) * DENSITY_AT_ZERO
    # y = x s
    dy_dx = s + x * ds
    return dy * dy_dx
