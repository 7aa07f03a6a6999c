"""How parameters and pairs are first drawn (appendix B)."""

import numpy as np
from scipy.special import ndtr, ndtri

from minipw import InputError

PAIRWISE_STD = 0.001  # appendix B


def he_normal(rng, shape, dtype):
    """He normal, truncated at two standard deviations (appendix B).

        std = sqrt(2 / fan_in), kept after the truncation

    Parameters
    ----------
    rng : numpy.random.Generator
    shape : tuple of int
        (..., outputs); fan_in is the product of the others.
    """
    fan_in = np.prod(shape[:-1])
    truncated_std = 0.87962566103423978  # of a standard normal cut at +-2
    low, high = ndtr(-2.0), ndtr(2.0)
    standard = ndtri(rng.uniform(low, high, shape))
    return (standard * (np.sqrt(2 / fan_in) / truncated_std)).astype(dtype)


def sample_pairs(rng, units, pair_weights, classes, sampling):
    """Draw the pairs of a head.

    Parameters
    ----------
    rng : numpy.random.Generator
    units, pair_weights, classes : int
        H, the weights wanted, and C. P is the largest multiple of C up to `pair_weights`.
    sampling : {"distinct", "released"}
        "distinct": P different pairs, uniformly (the paper: a product feeds 0 or 1
        outputs). "released": the same while there are enough pairs. Beyond that each pair
        of the lower triangle is repeated and the list is cut to length, so the last units
        reach no output (the released program).

    Returns
    -------
    i, j : int64 ndarray of shape (P,), i > j
        Assigned to the outputs at random. Each output's pairs are sorted by (j, i), which
        keeps look-ups in cache and changes nothing else.
    """
    count = pair_weights // classes * classes
    exist = units * (units - 1) // 2
    if count == 0:
        raise InputError(
            f"{pair_weights} pair weights cannot serve {classes} classes: use at least {classes}"
        )
    if count <= exist:
        flat = rng.choice(exist, count, replace=False)
    elif sampling == "distinct":
        raise InputError(
            f"{count} distinct pairs asked for, but {units} units have only {exist}: "
            f"use --pair-weights {exist // classes * classes} or fewer, or --pairs released"
        )
    elif exist == 0:
        raise InputError(f"{units} units before the head form no pair: use at least 2")
    else:
        repeats = -(-count // exist)
        flat = rng.permutation(np.repeat(np.arange(exist), repeats)[:count])
    i, j = triangle_pair(flat)
    # Each column of (P / C, C) holds the pairs of one output.
    key = np.sort((j * units + i).reshape(-1, classes), axis=0).reshape(-1)
    return key % units, key // units


def triangle_pair(flat):
    """The pair (i, j), i > j, at position `flat` of the row-wise lower triangle.

    flat = i (i - 1) / 2 + j
    """
    i = ((1 + np.sqrt(8.0 * flat + 1)) / 2).astype(np.int64)
    i -= i * (i - 1) // 2 > flat  # the square root may round up
    return i, flat - i * (i - 1) // 2
