"""Welford's sums against NumPy's mean and standard deviation."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minipw.online.standardize import Standardizer


def fed(x, cuts, **options):
    standardizer = Standardizer(x.shape[1], 1e9, **options)
    bounds = [0, *sorted(cuts), len(x)]
    for start, stop in pairwise(bounds):
        if stop > start:
            standardizer.update(x[start:stop])
    return standardizer


@settings(max_examples=50, deadline=None)
@given(
    cuts=st.lists(st.integers(0, 40), max_size=40),
    offset=st.sampled_from([0.0, 1.0, -1e8, 1e12]),
    scale=st.sampled_from([1.0, 1e-3, 1e4]),
)
def test_mean_and_deviation(cuts, offset, scale):
    x = scale * np.random.default_rng(0).standard_normal((40, 3)) + offset
    standardizer = fed(x, cuts)
    deviation = np.sqrt(standardizer.squares / 40)
    # float64 holds x to 1e-16 of its size, which is all that is lost.
    accuracy = 1e-15 * max(1.0, abs(offset) / scale)
    np.testing.assert_allclose(standardizer.mean, x.mean(0), rtol=1e-14, atol=1e-14 * scale)
    np.testing.assert_allclose(deviation, x.std(0), rtol=1e-13 + 10 * accuracy)


@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, -1e8 / 3, 1e-300])
@pytest.mark.parametrize("cuts", [[], range(30), [7, 20]])
def test_a_constant_feature_is_zero(value, cuts):
    x = np.full((30, 2), value)
    assert not fed(x, list(cuts)).transform(x).any()


def test_the_first_sample_is_zero_and_the_limit_holds():
    standardizer = Standardizer(1, 3.0)
    standardizer.update(np.array([[5.0]]))
    assert standardizer.transform(np.array([[5.0], [9.0]])).tolist() == [[0.0], [0.0]]
    for _ in range(99):
        standardizer.update(np.array([[5.0]]))
    standardizer.update(np.array([[6.0]]))
    assert standardizer.transform(np.array([[6.0], [-6.0]])).tolist() == [[3.0], [-3.0]]


@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(st.integers(0, 40), max_size=40), share=st.floats(0, 1))
def test_missing_values_are_left_out(cuts, share):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 3)) + 5
    x[rng.random(x.shape) < share] = np.nan
    standardizer = fed(x, cuts, missing=True)
    for feature, column in enumerate(x.T):
        known = column[~np.isnan(column)]
        assert standardizer.count[feature] == known.size
        if known.size:
            # A few dozen float64 operations on numbers near 5.
            np.testing.assert_allclose(standardizer.mean[feature], known.mean(), rtol=1e-13)
            deviation = np.sqrt(standardizer.squares[feature] / known.size)
            np.testing.assert_allclose(deviation, known.std(), atol=1e-13)
    assert (standardizer.transform(x)[np.isnan(x)] == 0).all()


def test_values_become_deviations_from_the_mean(rng):
    x = rng.normal(5, 2, (6, 3))
    np.testing.assert_allclose(fed(x, [2]).transform(x), (x - x.mean(0)) / x.std(0), rtol=1e-12)
