"""The accuracy matrix and what is computed from it.

A[t, j] is the accuracy on task j after t tasks were learned, in per cent: shape
(T + 1, T), row 0 the untrained network.
"""

import math

import numpy as np
from scipy.special import stdtrit


def average_accuracy(a):
    """Mean over the tasks of the last row, per cent (Lopez-Paz & Ranzato 2017, ACC)."""
    return float(np.mean(a[-1]))


def overall_accuracy(a, test_sizes):
    """Share of all test images that the last row gets right, per cent: the paper's number.

    It differs from the average where tasks differ in size. `test_sizes` holds the number
    of test images of each task.
    """
    return float(np.average(a[-1], weights=test_sizes))


def forgetting(a):
    """Mean over j < T of (max over 0 < t < T of A[t, j]) - A[T, j], in points.

    How far each task but the last fell below its best (Chaudhry et al. 2018). None
    for a single task.
    """
    a = np.asarray(a)
    if len(a) < 3:
        return None
    return float(np.mean(a[1:-1, :-1].max(0) - a[-1, :-1]))


def backward_transfer(a):
    """Mean over j < T of A[T, j] - A[j, j], in points (Lopez-Paz & Ranzato 2017, BWT).

    None for a single task.
    """
    a = np.asarray(a)
    if len(a) < 3:
        return None
    learned = np.diagonal(a[1:])  # A[j, j]: row j is after task j
    return float(np.mean(a[-1, :-1] - learned[:-1]))


def forward_transfer(a):
    """Mean over j > 1 of A[j - 1, j] - A[0, j], in points (Lopez-Paz & Ranzato 2017, FWT).

    None for a single task.
    """
    a = np.asarray(a)
    if len(a) < 3:
        return None
    before = np.diagonal(a[1:-1], offset=1)  # A[j - 1, j]
    return float(np.mean(before - a[0, 1:]))


def online_accuracy(correct, seen):
    """Share of samples that were predicted correctly before they were learned, per cent.

    Test-then-train, or prequential, accuracy (Gama, Sebastião & Rodrigues 2013), over
    the whole stream. Only the first epoch counts: later the samples are known.
    """
    return 100 * correct / seen


def mean_and_interval(values):
    """Mean, standard error and half-width of the 95 % t-interval.

    The last two are None for a single value.
    """
    mean, n = float(np.mean(values)), len(values)
    if n < 2:
        return mean, None, None
    standard_error = float(np.std(values, ddof=1)) / math.sqrt(n)
    return mean, standard_error, float(stdtrit(n - 1, 0.975)) * standard_error
