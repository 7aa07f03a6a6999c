"""k-winners-take-all with subtraction (section 3.1)."""

from minipw import InputError
from minipw.backend.arrays import array_module, as_float
from minipw.backend.cuda import has_kernels
from minipw.kernels import kwta_gpu


def kwta_forward(x, winners):
    """Subtract the (winners + 1)-th largest value of a row, then ReLU.

        v = the (K + 1)-th largest of x,  y = relu(x - v)

    Parameters
    ----------
    x : ndarray of shape (..., B, H)
    winners : int in [1, H - 1]
        K, the units that stay active.

    Returns
    -------
    y : ndarray of shape (..., B, H)
        Exactly zero but for the winners. With ties at v fewer than K units win.
    cache : tuple (won, threshold_unit)
        won : bool ndarray (..., B, H); threshold_unit : int ndarray (..., B), the
        lowest index whose value is v.

    Raises
    ------
    InputError
        When no unit or every unit would win.
    """
    xp, x, units = array_module(x), as_float(x), x.shape[-1]
    if not 1 <= winners < units:
        raise InputError(f"{winners} winners among {units} units: use 1 to {units - 1}")
    if has_kernels(xp):
        return kwta_gpu.forward(x, winners)
    rank = units - 1 - winners  # of v, counted upwards from the smallest
    v = xp.partition(x, rank, axis=-1)[..., rank, None]  # (..., B, 1)
    threshold_unit = (x == v).argmax(-1)
    y = xp.maximum(x - v, 0)
    return y, (y > 0, threshold_unit)


def kwta_backward(dy, cache):
    """Gradient of `kwta_forward`, through the subtracted unit too.

        dx = dy on the winners;  dx at v = minus the sum of the winners' dy

    Parameters
    ----------
    dy : ndarray of shape (..., B, H)
    cache : tuple (won, threshold_unit)

    Returns
    -------
    dx : ndarray of shape (..., B, H)

    Notes
    -----
    v is itself a unit of the row, x_t. For a winner y_h = x_h - x_t, so dy_h flows to
    x_h with +1 and to x_t with -1. For every other unit relu is flat.
    """
    xp = array_module(dy)
    if has_kernels(xp):
        return kwta_gpu.backward(dy, cache)
    won, threshold_unit = cache
    # y = relu(x - v)
    dx = xp.ascontiguousarray(dy * won)
    # v = x[threshold_unit]
    unit = xp.broadcast_to(threshold_unit, dy.shape[:-1])
    rows = dx.reshape(-1, dx.shape[-1])
    rows[xp.arange(len(rows)), unit.reshape(-1)] = -rows.sum(-1)
    return dx
