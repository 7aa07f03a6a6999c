"""What the tests of the loop references share: hand arithmetic, central differences."""

import math

import numpy as np
import reference

LOG_3 = math.log(3.0)

# The hand-worked numbers need a handful of float64 operations each.
HAND = {"rtol": 1e-14, "atol": 1e-14}


def array(values):
    return np.array(values, dtype=np.float64)


def assert_hand(actual, expected):
    np.testing.assert_allclose(actual, array(expected), **HAND)
    assert np.shape(actual) == np.shape(expected)


def central_differences(function, x, h=1e-5):
    """Derivative of the scalar `function` by every entry of x, changed in place."""
    slope = np.zeros(x.shape)
    for index in np.ndindex(x.shape):
        kept = x[index]
        x[index] = kept + h
        above = function()
        x[index] = kept - h
        below = function()
        x[index] = kept
        slope[index] = (above - below) / (2.0 * h)
    return slope


def project(y, dy):
    """Sum of dy * y: a scalar whose derivative by y is dy."""
    total = 0.0
    for index in np.ndindex(y.shape):
        total += dy[index] * y[index]
    return total


def assert_gradient(function, x, dx):
    # With h = 1e-5 the truncation error is h^2 f''' / 6, near 1e-11, and the rounding
    # error 1e-16 |f| / h, near 1e-10 for the f of order 10 here: 1e-6 relative leaves
    # room for large third derivatives, 1e-9 absolute covers the entries near zero.
    np.testing.assert_allclose(dx, central_differences(function, x), rtol=1e-6, atol=1e-9)


def assert_far_from_kinks(x, winners, threshold):
    """The unit at the threshold keeps its rank when an entry moves by h = 1e-5."""
    for row in x:
        v = reference.kwta_threshold(row, winners, threshold)
        distance = sorted(abs(value - v) for value in row)
        assert distance[1] > 1e-3  # distance[0] is the unit itself
