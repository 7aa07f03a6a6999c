"""Sums of products, Cholesky's factor, what it solves, on any array module; a search of decades."""

import numpy as np
from scipy import linalg

from minipw.backend.arrays import array_module
from minipw.backend.threads import THREADS

ROWS, STRIPE = 4096, 256  # samples to a float32 product; columns to a part of sums (measured)
LOWEST, START, HIGHEST, STEP = -6.0, -2.5, 1.0, 0.5  # decades


def change_triangle(G, z, change):
    """Add z^T z to the lower triangle of G, or subtract it; little more is written.

    G : float64 ndarray of shape (H, H)
    z : ndarray of shape (B, H), multiplied in its own precision
    change : add or subtract of its module
    """

    def stripe(a):
        target = G[a : a + STRIPE, : a + STRIPE]
        change(target, rows[:, a : a + STRIPE].T @ rows[:, : a + STRIPE], out=target)

    for start in range(0, len(z), ROWS):
        rows = z[start : start + ROWS]
        THREADS.map(stripe, range(0, len(G), STRIPE)[::-1])  # longest first


def solve_positive(A, right, probes):
    """The solution of A W = right, and the factor U, with A = U^T U.

    Parameters
    ----------
    A : ndarray of shape (H, H), in Fortran's order; it is overwritten
        Only its upper triangle is read.
    right, probes : ndarray of shape (H, C) and (H, Q), of its module and type

    Returns
    -------
    U : ndarray of shape (H, H), or None where A is not positive definite
    W : ndarray of shape (H, C)
    half : ndarray of shape (H, Q)
        U^-T probes.
    """
    xp = array_module(A)
    try:
        if xp is np:
            U = linalg.cholesky(A, overwrite_a=True, check_finite=False)
            W = linalg.cho_solve((U, False), right, check_finite=False)
            return U, W, linalg.solve_triangular(U, probes, trans=1, check_finite=False)
        U = xp.linalg.cholesky(A.T).T  # of the lower triangle of A.T
    except linalg.LinAlgError:
        return None, None, None
    from cupyx.scipy.linalg import solve_triangular

    half = solve_triangular(U, probes, trans=1)
    W = solve_triangular(U, solve_triangular(U, right, trans=1))
    # By default CuPy raises nothing where there is no factor.
    good = xp.isfinite(W).all() & (U.diagonal() > 0).all()
    return (U, W, half) if good else (None, None, None)


def least_decade(score):
    """Where a function of a decade is least: down hill by half decades, then a parabola.

    Where all scores are infinite, the highest decade.
    """
    tried, new = {}, [START - STEP, START, START + STEP]
    while new:
        tried |= {decade: score(decade) for decade in new}
        best = min(tried, key=lambda decade: (tried[decade], -decade))
        beside = (best - STEP, best + STEP)
        new = [d for d in beside if LOWEST <= d <= HIGHEST and d not in tried]
    left, least, right = (tried.get(best + step, np.inf) for step in (-STEP, 0, STEP))
    bend = left - 2 * least + right
    return best + (STEP / 2 * (left - right) / bend if 0 < bend < np.inf else 0)
