"""GELU on a GPU: `nn.gelu` in one pass over memory a direction (gelu.cu)."""

import numpy as np

from minipw.backend.arrays import array_module
from minipw.kernels import launcher


def forward(x, approximate):
    """`gelu_forward`: x of any shape; the cache is the same."""
    xp = array_module(x)
    x = xp.ascontiguousarray(x)
    launcher.expect("x", x, x.shape)
    y, s = xp.empty_like(x), xp.empty_like(x)
    width = launcher.pack_width(x.size, x, y, s)
    arguments = {"x": x, "y": y, "s": s, "packs": np.int64(x.size // width)}
    _launch("gelu_forward", (x.dtype, width, bool(approximate)), arguments)
    return y, (x, s, approximate)


def backward(dy, cache):
    """`gelu_backward`: dy (..., *x.shape)."""
    xp = array_module(dy)
    x, s, approximate = cache
    dy = xp.ascontiguousarray(dy)
    launcher.expect("dy", dy, (*dy.shape[: dy.ndim - x.ndim], *x.shape), x.dtype)
    launcher.expect("s", s, x.shape, x.dtype)
    dx = xp.empty_like(dy)
    width = launcher.pack_width(x.size, dy, x, s, dx)
    arguments = {"dy": dy, "x": x, "s": s, "dx": dx, "packs": np.int64(x.size // width)}
    arguments["gradients"] = dy.size // max(x.size, 1)
    _launch("gelu_backward", (x.dtype, width, bool(approximate)), arguments)
    return dx


def _launch(kernel, template, arguments):
    grid = (-(-int(arguments["packs"]) // launcher.BLOCK),)
    launcher.launch(("pack.cu", "gelu.cu"), kernel, template, grid, arguments)
