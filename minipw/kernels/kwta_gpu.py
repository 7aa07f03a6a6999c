"""k-WTA on a GPU: `nn.kwta` in one pass over memory a direction (kwta.cu)."""

from minipw.backend.arrays import array_module
from minipw.kernels import launcher

COUNTS = 273
"""Integers in shared memory that the search for the threshold needs."""


def forward(x, winners):
    """`kwta_forward`: x (..., B, H); the cache is the same."""
    xp, units = array_module(x), x.shape[-1]
    x = xp.ascontiguousarray(x)
    launcher.expect("x", x, x.shape)
    if not 1 <= winners < units:
        raise ValueError(f"winners = {winners} must be from 1 to {units - 1}, of {units} units")
    y, won = xp.empty_like(x), xp.empty(x.shape, bool)
    threshold_unit = xp.empty(x.shape[:-1], "int64")
    arguments = {"x": x, "y": y, "won": won, "threshold_unit": threshold_unit}
    arguments |= {"units": units, "winners": int(winners)}
    grid = (threshold_unit.size,)
    launcher.launch(("kwta.cu",), "kwta_forward", (x.dtype,), grid, arguments, 4 * COUNTS)
    return y, (won, threshold_unit)


def backward(dy, cache):
    """`kwta_backward`: dy (..., B, H), with any axes in front of the forward's."""
    xp = array_module(dy)
    won, threshold_unit = cache
    dy = xp.ascontiguousarray(dy)
    launcher.expect("dy", dy, (*dy.shape[: dy.ndim - won.ndim], *won.shape))
    launcher.expect("won", won, won.shape, bool)
    launcher.expect("threshold_unit", threshold_unit, won.shape[:-1], "int64")
    dx, units = xp.empty_like(dy), dy.shape[-1]
    arguments = {"dy": dy, "won": won, "threshold_unit": threshold_unit, "dx": dx}
    arguments |= {"units": units, "rows": threshold_unit.size}
    shared = launcher.BLOCK * dy.itemsize
    grid = (dy.size // units,)
    launcher.launch(("kwta.cu",), "kwta_backward", (dy.dtype,), grid, arguments, shared)
    return dx
