"""The closed form: sums over a stream, and scores of the classes that follow from them.

Three heads read the same features z:

    ridge   ridge regression, lambda from the sums (`minipw.ridge`)
    lda     discriminant analysis: class means m, one shrunk covariance (Hayes & Kanan 2020)
            S = (1 - e) (G - sum_c n_c m_c m_c^T) / N + e I,  score = m^T S^-1 (z - m / 2)
    ncm     the nearest class mean: the same with S = I
"""

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from minipw.ridge import Statistics, solve

SHRINKAGE = 1e-4
"""e, as published."""


@dataclass
class ClassSums:
    """Statistics without G.

    counts : float64 ndarray of shape (C,)
    M : float64 ndarray of shape (H, C), sum z y^T
    """

    counts: np.ndarray
    M: np.ndarray

    @classmethod
    def empty(cls, features, classes):
        """Statistics of no samples."""
        return cls(np.zeros(classes), np.zeros((features, classes)))

    def add(self, z, labels):
        """Learn samples z (B, H) with labels (B,)."""
        y = labels[:, None] == np.arange(len(self.counts))
        self.counts += y.sum(0)
        self.M += z.T @ y.astype(z.dtype)


def ridge(sums):
    """A function that scores the classes for features (B, H), and facts for the record."""
    solution = solve(sums)
    solution.factor = None  # (H, H)
    return solution.scores, {"lambda": float(solution.lam), "freedom": float(solution.freedom)}


def discriminant(sums):
    """As `ridge`."""
    means = sums.M / np.maximum(sums.counts, 1)
    S = sums.G - means @ sums.M.T
    S *= (1 - SHRINKAGE) / sums.counts.sum()
    S.flat[:: len(S) + 1] += SHRINKAGE
    factor = linalg.cholesky(S.T, overwrite_a=True, check_finite=False)  # G is a lower triangle
    return linear(means, linalg.cho_solve((factor, False), means), sums.counts), {}


def nearest_mean(sums):
    """As `ridge`."""
    means = sums.M / np.maximum(sums.counts, 1)
    return linear(means, means, sums.counts), {}


def linear(means, directions, counts):
    """The function z -> directions^T (z - means / 2), -inf for classes without samples."""
    constants = np.where(counts > 0, -(means * directions).sum(0) / 2, -np.inf)
    return lambda z: z @ directions.astype(z.dtype) + constants


HEADS = {
    "ridge": (Statistics.empty, ridge),
    "lda": (Statistics.empty, discriminant),
    "ncm": (ClassSums.empty, nearest_mean),
}
"""What a head sums up, and how its scores follow from that."""
