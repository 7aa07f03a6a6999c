"""Algorithm 1 on a CPU: the steps of `rules`, block by block, shared by the threads.

What one operation leaves is still in the cache for the next, and one scratch array takes
every intermediate result. The bits are those of the formulas.
"""

import numpy as np

from minipw.backend.arrays import BLOCK
from minipw.backend.threads import THREADS


def update(rule, theta, omega, gradient, epsilon):
    """`rules.update` for a gradient that is an ndarray; epsilon is added to the importance.

    Raises
    ------
    ValueError
        When theta or omega is not contiguous: a flat one would be a copy.
    """
    if not (theta.flags.c_contiguous and omega.flags.c_contiguous):
        raise ValueError("parameters are updated in place and must be contiguous")
    lead = (2,) if rule.needs_output_norm else ()
    flat = theta.reshape(-1), omega.reshape(-1), gradient.reshape(*lead, -1)

    def work(share):
        for start in range(share.start, share.stop, BLOCK):
            block = slice(start, min(start + BLOCK, share.stop))
            _step(rule, *(array[..., block] for array in flat), epsilon)

    THREADS.map(work, THREADS.shares(theta.size, smallest=BLOCK // 2))


def _step(rule, theta, omega, gradient, epsilon):
    """A step of `rules.STEPS` on flat arrays."""
    g, dn = gradient if rule.needs_output_norm else (gradient, None)
    scratch = np.empty_like(theta)
    if rule.name != "sgd":
        # omega += lam * g**2, or lam * abs(dn)
        u = np.multiply(g, g, out=scratch) if dn is None else np.abs(dn, out=scratch)
        u *= rule.importance_lambda
        omega += u
        np.add(omega, epsilon, out=scratch)
        np.sqrt(scratch, out=scratch)
        g = np.divide(g, scratch, out=scratch)
    # theta -= lr * (g / sqrt(omega + epsilon)), or lr * g
    theta -= np.multiply(g, rule.learning_rate, out=scratch)
