"""The metrics on a matrix worked by hand."""

import numpy as np
import pytest

from minipw.training.metrics import (
    average_accuracy,
    backward_transfer,
    forgetting,
    forward_transfer,
    mean_and_interval,
    overall_accuracy,
)

# Columns: accuracy on tasks 1, 2, 3. Rows: before learning, after task 1, 2, 3.
MATRIX = [
    [10, 12, 8],
    [90, 20, 11],
    [70, 80, 17],
    [75, 64, 88],
]
# Sums of a few exactly represented integers.
ROUNDING = {"rel": 1e-14}


def test_average_accuracy_by_hand():
    # (75 + 64 + 88) / 3
    assert average_accuracy(MATRIX) == pytest.approx(227 / 3, **ROUNDING)


def test_overall_accuracy_weighs_tasks_by_their_test_images():
    # (75 * 100 + 64 * 200 + 88 * 100) / 400 = 29,100 / 400
    assert overall_accuracy(np.array(MATRIX), [100, 200, 100]) == pytest.approx(72.75, **ROUNDING)
    equal = overall_accuracy(np.array(MATRIX), [5, 5, 5])
    assert equal == pytest.approx(average_accuracy(MATRIX), **ROUNDING)


def test_forgetting_by_hand():
    # Task 1: best of 90 and 70, now 75: 15. Task 2: best of 20 and 80, now 64: 16.
    assert forgetting(MATRIX) == pytest.approx(15.5, **ROUNDING)


def test_forgetting_looks_past_the_untrained_network():
    # Row 0 is not a state that was learned: best of 40, now 50, so 10 points were gained.
    assert forgetting([[99, 99], [40, 30], [50, 60]]) == -10


def test_forgetting_takes_the_best_and_backward_transfer_the_first():
    # Task 1 learned to 60, was best at 80 after task 2, ends at 70. Task 2 stays at 50.
    a = [[0, 0, 0], [60, 0, 0], [80, 50, 0], [70, 50, 40]]
    assert forgetting(a) == pytest.approx((10 + 0) / 2, **ROUNDING)
    assert backward_transfer(a) == pytest.approx((10 + 0) / 2, **ROUNDING)


def test_backward_transfer_by_hand():
    # Task 1: 75 - 90 = -15. Task 2: 64 - 80 = -16.
    assert backward_transfer(MATRIX) == pytest.approx(-15.5, **ROUNDING)


def test_forward_transfer_by_hand():
    # Task 2 before it is learned: 20 against 12 untrained. Task 3: 17 against 8.
    assert forward_transfer(MATRIX) == pytest.approx((8 + 9) / 2, **ROUNDING)


def test_a_single_task_has_no_transfer_and_no_forgetting():
    single = [[10], [95]]
    assert average_accuracy(single) == 95
    assert overall_accuracy(single, [7]) == 95
    assert forgetting(single) is None
    assert backward_transfer(single) is None
    assert forward_transfer(single) is None


def test_results_are_plain_floats():
    for metric in (average_accuracy, forgetting, backward_transfer, forward_transfer):
        assert type(metric(np.array(MATRIX))) is float
    assert type(overall_accuracy(MATRIX, [1, 2, 3])) is float


def test_interval_of_three_numbers_by_hand():
    # Mean 4, squared deviations 4, 0, 4: variance 8 / 2 = 4, standard error 2 / sqrt(3).
    # With 2 degrees of freedom the p-quantile of t is (2 p - 1) / sqrt(2 p (1 - p)): at
    # p = 0.975 that is 0.95 / sqrt(0.04875) = 4.302653.
    mean, error, half_width = mean_and_interval([2, 4, 6])
    assert mean == 4
    assert error == pytest.approx(2 / 3**0.5, **ROUNDING)
    quantile = 0.95 / 0.04875**0.5
    # Some releases of SciPy find the quantile to ten digits only.
    assert half_width == pytest.approx(quantile * 2 / 3**0.5, rel=1e-9)
    assert quantile == pytest.approx(4.302653, abs=5e-7)


@pytest.mark.parametrize(("n", "quantile"), [(2, 12.706), (5, 2.776), (10, 2.262), (30, 2.045)])
def test_interval_takes_the_tabled_quantile(n, quantile):
    _, error, half_width = mean_and_interval([0.0, 1.0] * (n // 2) + [0.0] * (n % 2))
    assert half_width / error == pytest.approx(quantile, abs=5e-4)  # the table's last digit


def test_one_number_has_no_interval():
    assert mean_and_interval([3.5]) == (3.5, None, None)


def test_equal_numbers_have_an_interval_of_zero():
    assert mean_and_interval([2.0, 2.0, 2.0]) == (2.0, 0.0, 0.0)
