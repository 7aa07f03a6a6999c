"""Cholesky's factor and what is solved with it, on the host or on a device."""

import numpy as np
from scipy import linalg

from minipw.backend.arrays import array_module


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
