"""Running sums against NumPy's mean and standard deviation, and what bad values do to them."""

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


def moments(standardizer, count):
    """Mean and standard deviation of the values as they are."""
    mean = standardizer.origin + standardizer.mean * standardizer.unit
    return mean, np.sqrt(standardizer.squares / count) * standardizer.unit


@settings(max_examples=50, deadline=None)
@given(
    cuts=st.lists(st.integers(0, 40), max_size=40),
    offset=st.sampled_from([0.0, 1.0, -1e8, 1e12]),
    scale=st.sampled_from([1.0, 1e-3, 1e4]),
)
def test_mean_and_deviation(cuts, offset, scale):
    x = scale * np.random.default_rng(0).standard_normal((40, 3)) + offset
    mean, deviation = moments(fed(x, cuts), 40)
    # float64 holds x to 1e-16 of its size, which is all that is lost.
    accuracy = 1e-15 * max(1.0, abs(offset) / scale)
    np.testing.assert_allclose(mean, x.mean(0), rtol=1e-14, atol=1e-14 * scale)
    np.testing.assert_allclose(deviation, x.std(0), rtol=1e-12 + 10 * accuracy)


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
            mean, deviation = moments(standardizer, known.size)
            np.testing.assert_allclose(mean[feature], known.mean(), rtol=1e-13)
            np.testing.assert_allclose(deviation[feature], known.std(), atol=1e-13)
    assert (standardizer.transform(x)[np.isnan(x)] == 0).all()


def test_values_become_deviations_from_the_mean(rng):
    x = rng.normal(5, 2, (6, 3))
    np.testing.assert_allclose(fed(x, [2]).transform(x), (x - x.mean(0)) / x.std(0), rtol=1e-12)


@pytest.mark.parametrize("bad", [9999.0, -999999.0, 1e6, 1e12, 1e90])
@pytest.mark.parametrize("rows", [[0], [3], [31], [32], [500], [1, 2], [100, 600, 1100]])
def test_a_bad_value_moves_the_sums_little(bad, rows):
    x = np.random.default_rng(0).normal(7, 2, (1200, 2))
    x[rows, 0] = bad
    standardizer = fed(x, range(1, 1200))
    mean, deviation = moments(standardizer, standardizer.count)
    # Three values at 5 to 10 deviations among 1,200 add up to 0.25 to the variance.
    assert abs(mean[0] - 7) < 0.3 and 1.8 < deviation[0] < 2.6
    assert standardizer.cut == len(rows)
    np.testing.assert_allclose(mean[1], x[:, 1].mean(), rtol=1e-12)


@pytest.mark.parametrize("share", [0.02, 0.05, 0.1])
@pytest.mark.parametrize("code", [-999.0, 1e6])
def test_a_code_for_unknown_values_is_no_scale(share, code):
    rng = np.random.default_rng(1)
    x = rng.normal(7, 2, (3000, 1))
    x[rng.random(3000) < share] = code
    standardizer = fed(x, range(3000))
    mean, deviation = moments(standardizer, standardizer.count)
    assert abs(mean[0] - 7) < 0.7 and 1.5 < deviation[0] < 3.5


def test_a_background_is_no_scale():
    """Just under half of the values are 0: their median is 1, and most differ from it by 1."""
    rng = np.random.default_rng(0)
    x = rng.uniform(2, 255, (1000, 2)).round()
    x[:490, 0], x[490:520, 0] = 0, 1
    standardizer = Standardizer(2, 10.0)
    standardizer.begin(x, np.ones(1000))
    mean, deviation = moments(standardizer, standardizer.count)
    np.testing.assert_allclose(mean, x.mean(0), rtol=1e-12)
    np.testing.assert_allclose(deviation, x.std(0), rtol=1e-12)
    x[rng.random(1000) < 0.15, 1] = -9999  # one code counts once, and the others' scale stays
    standardizer.begin(x, np.ones(1000))
    assert moments(standardizer, standardizer.count)[1][1] < 400


@pytest.mark.parametrize("factor", [10.0, 1e3, 1e6])
def test_a_new_scale_is_followed(factor):
    rng = np.random.default_rng(0)
    standardizer = fed(rng.standard_normal((2000, 1)), range(2000))
    new = factor * rng.standard_normal((300, 1))
    for row in new:
        standardizer.update(row[None])
    both = np.sqrt(300 / 2300) * factor  # the deviation of all values together, nearly
    _, deviation = moments(standardizer, standardizer.count)
    assert 0.7 * both < deviation[0] < 1.2 * both


@pytest.mark.parametrize(
    ("scale", "offset"), [(1.0, 1e12), (1e6, 1.7e18), (1e-175, 0.0), (1e90, 0.0), (1e-3, -1e9)]
)
def test_any_offset_and_any_scale(scale, offset):
    x = scale * np.random.default_rng(0).standard_normal((200, 1)) + offset
    z = fed(x, range(200)).transform(x)
    # float64 has 1e-16 of a value: of 1.7e18 steps of 256, which is 3e-4 of a deviation
    np.testing.assert_allclose([z.mean(), z.std()], [0, 1], atol=1e-3)


def test_without_centring_zero_stays_zero():
    rng = np.random.default_rng(0)
    x = np.where(rng.random((300, 4)) < 0.1, rng.normal(20, 5, (300, 4)), 0.0)
    standardizer = fed(x, range(300), centred=False)
    z = standardizer.transform(x)
    assert ((z == 0) == (x == 0)).all()
    for feature, column in enumerate(x.T):
        known = column[column != 0]
        expected = known / np.sqrt((known**2).mean())  # by their root mean square
        np.testing.assert_allclose(z[:, feature][column != 0], expected, rtol=1e-12)
    assert standardizer.transform(np.array([[3.0, 0, 0, 0]]))[0, 1:].tolist() == [0, 0, 0]


def test_what_is_forgotten_counts_half():
    x = np.random.default_rng(0).standard_normal((200, 1))
    standardizer = fed(x, [])
    before = standardizer.transform(x)
    standardizer.forget(0.5)
    np.testing.assert_array_equal(standardizer.transform(x), before)
    assert standardizer.count[0] == 100
    for row in np.full((100, 1), 4.0):
        standardizer.update(row[None])
    mean, _ = moments(standardizer, standardizer.count)
    assert abs(mean[0] - 2) < 0.1  # the mean of 0 and 4: 100 of each count


def test_a_copy_goes_on_bit_for_bit():
    x = np.random.default_rng(0).standard_normal((60, 3))
    for begun in (5, 40):
        one, other = fed(x[:begun], []), Standardizer(3, 1e9)
        other.restore(one.state())
        for standardizer in (one, other):
            standardizer.update(x[begun:])
        np.testing.assert_array_equal(one.transform(x), other.transform(x))


def test_whole_number_weights_are_repeats_in_any_order():
    rng = np.random.default_rng(0)
    x, weights = rng.standard_t(2, (60, 4)), rng.integers(0, 4, 60)
    x[rng.random(x.shape) < 0.2] = np.nan
    for centred in (True, False):
        weighted, repeated = (Standardizer(4, 3.0, True, centred) for _ in range(2))
        order = rng.permutation(60)
        weighted.begin(x[order], 0.5 * weights[order])
        repeated.begin(x.repeat(weights, 0), np.ones(weights.sum()))
        # Sums in another order.
        np.testing.assert_allclose(weighted.transform(x), repeated.transform(x), atol=1e-12)
        np.testing.assert_allclose(2 * weighted.count, repeated.count)
