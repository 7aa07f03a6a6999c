"""How the pairs of a head are drawn."""

import numpy as np
import pytest

from minipw import InputError
from minipw.network.initialization import sample_pairs, triangle_pair


def draw(*arguments, seed=0):
    return sample_pairs(np.random.default_rng(seed), *arguments)


def flat(i, j):
    return i * (i - 1) // 2 + j


@pytest.mark.parametrize("sampling", ["distinct", "released"])
@pytest.mark.parametrize(("units", "wanted", "classes"), [(2, 1, 1), (23, 253, 11), (50, 700, 10)])
def test_distinct_pairs_are_distinct(units, wanted, classes, sampling):
    i, j = draw(units, wanted, classes, sampling)
    assert i.dtype == j.dtype == np.int64
    assert i.shape == j.shape == (wanted,)
    assert np.all((j >= 0) & (j < i) & (i < units))
    assert np.unique(flat(i, j)).size == wanted


@pytest.mark.parametrize(("wanted", "classes", "count"), [(109, 10, 100), (90, 10, 90), (8, 3, 6)])
def test_count_is_rounded_down_to_a_multiple_of_the_classes(wanted, classes, count):
    assert draw(30, wanted, classes, "distinct")[0].size == count


@pytest.mark.parametrize(("units", "wanted"), [(50, 700), (12, 700)])
def test_pairs_are_sorted_within_each_output(units, wanted):
    i, j = draw(units, wanted, 10, "released")
    assert np.all(np.diff((j * units + i).reshape(-1, 10), axis=0) >= 0)  # by j, then i


def test_assignment_to_outputs_is_random():
    # Of 1,225 pairs over 5 outputs an output's mean rank is 612 with a deviation of
    # sqrt(1225^2 / 12 / 245) = 22.6: within five of those, and not all alike.
    rank = flat(*draw(50, 1225, 5, "distinct")).reshape(-1, 5).mean(0)
    assert np.all(np.abs(rank - 612) < 5 * 22.6)
    assert np.ptp(rank) > 5


def test_released_pairs_repeat_when_too_few_exist():
    # 700 units form 244,650 pairs, so each would come twice; the list is cut to 250,000,
    # that is to the first 125,000 pairs. Unit 500 begins at 500 * 499 / 2 = 124,750 and
    # unit 501 at 125,250: units 501 to 699, 199 of them, are never read.
    i, j = draw(700, 250_000, 10, "released")
    pairs, times = np.unique(flat(i, j), return_counts=True)
    np.testing.assert_array_equal(pairs, np.arange(125_000))
    np.testing.assert_array_equal(times, 2)
    used = np.union1d(i, j)
    assert 700 - used.size == 199
    assert used.max() == 500


def test_the_seed_decides_the_pairs():
    first, again, other = (draw(30, 200, 10, "released", seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.any(first[0] != other[0])


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        ((700, 250_000, 10, "distinct"), ["250000", "700", "244650", "--pair-weights"]),
        ((10, 9, 10, "released"), ["9 ", "10 ", "at least 10"]),
        ((10, 0, 3, "distinct"), ["0 ", "at least 3"]),
        ((1, 10, 10, "released"), ["1 units", "at least 2"]),
    ],
)
def test_what_cannot_be_drawn_is_refused_with_its_numbers(arguments, numbers):
    with pytest.raises(InputError) as error:
        draw(*arguments)
    message = str(error.value)
    assert "\n" not in message
    for number in numbers:
        assert number in message


def test_the_remedy_of_the_distinct_error_works():
    i, _ = draw(700, 244_650, 10, "distinct")
    assert i.size == 244_650


def test_triangle_pair_counts_the_rows():
    # (1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)
    i, j = triangle_pair(np.arange(6))
    np.testing.assert_array_equal(i, [1, 2, 2, 3, 3, 3])
    np.testing.assert_array_equal(j, [0, 0, 1, 0, 1, 2])


@pytest.mark.parametrize("start", [0, 4_450_000, 100_000_000_000])
def test_triangle_pair_is_the_inverse_of_the_position(start):
    position = np.arange(start, start + 100_000)
    i, j = triangle_pair(position)
    assert np.all((j >= 0) & (j < i))
    np.testing.assert_array_equal(flat(i, j), position)


def test_triangle_pair_at_both_ends_of_every_row():
    # At 10^9 rows the square root rounds the last of a row up into the next.
    row = np.concatenate([np.arange(1, 200_001), np.arange(1_000_000_000, 1_000_001_000)])
    first = row * (row - 1) // 2
    np.testing.assert_array_equal(triangle_pair(first), (row, 0 * row))
    np.testing.assert_array_equal(triangle_pair(first + row - 1), (row, row - 1))
