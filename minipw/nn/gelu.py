"""GELU, exact and in the tanh approximation (Hendrycks & Gimpel)."""

import math

from minipw.backend.arrays import array_module, blocks, normal_distribution
from minipw.backend.cuda import has_kernels
from minipw.kernels import gelu_gpu

TANH_SCALE = math.sqrt(2 / math.pi)
TANH_CUBIC = 0.044715


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
    xp = array_module(x)
    if has_kernels(xp):
        return gelu_gpu.forward(x, approximate)
    x = xp.ascontiguousarray(x)
    y, s = xp.empty_like(x), xp.empty_like(x)
    xf, yf, sf = x.reshape(-1), y.reshape(-1), s.reshape(-1)
    for block in blocks(slice(0, x.size), xp):
        xb, sb = xf[block], sf[block]
        if approximate:
            xp.multiply(xb, xb, out=sb)
            sb *= TANH_SCALE * TANH_CUBIC
            sb += TANH_SCALE
            sb *= xb
            xp.tanh(sb, out=sb)
            sb += 1
            sb *= 0.5
        else:
            sb[...] = normal_distribution(xb)
        xp.multiply(xb, sb, out=yf[block])
    return y, (x, s, approximate)


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
    Exact: s' is the normal density, exp(-x^2 / 2) / sqrt(2 pi).

    Approximate, with t = tanh(u) = 2 s - 1:

        s' = (1 - t^2) u' / 2 = 2 s (1 - s) u'
        u' = sqrt(2 / pi) (1 + 3 * 0.044715 x^2)
    """
    xp = array_module(dy)
    if has_kernels(xp):
        return gelu_gpu.backward(dy, cache)
    x, s, approximate = cache
    slope = xp.empty_like(x)
    xf, sf, slopef = x.reshape(-1), s.reshape(-1), slope.reshape(-1)
    for block in blocks(slice(0, x.size), xp):
        xb, sb, d = xf[block], sf[block], slopef[block]
        xp.multiply(xb, xb, out=d)
        if approximate:
            d *= 3 * TANH_SCALE * TANH_CUBIC
            d += TANH_SCALE
            d *= 2 * sb
            d *= 1 - sb
        else:
            d *= -0.5
            xp.exp(d, out=d)
            d *= 1 / math.sqrt(2 * math.pi)
        # y = x s(x)
        d *= xb
        d += sb
    return dy * slope
