"""Layers of the loop references: hand arithmetic and finite differences."""

import numpy as np
import pytest
import reference
from reference_checks import array, assert_far_from_kinks, assert_gradient, assert_hand, project

# ---- numbers worked by hand


def test_dense_by_hand():
    x = array([[1, 2, 3]])
    w = array([[1, 0], [0, 1], [2, -1]])
    # y = [1*1 + 2*0 + 3*2, 1*0 + 2*1 - 3*1] = [7, -1]
    assert_hand(reference.dense(x, w), [[7, -1]])
    # dx = [1*1 + 10*0, 1*0 + 10*1, 1*2 - 10*1] = [1, 10, -8]; dw[d, h] = x[d] dy[h]
    dx, dw = reference.dense_gradient(x, w, array([[1, 10]]))
    assert_hand(dx, [[1, 10, -8]])
    assert_hand(dw, [[1, 10], [2, 20], [3, 30]])


def test_dense_gradient_adds_up_the_batch():
    x = array([[1], [2]])
    # dw = 1*3 + 2*5 = 13; dx = 7 dy
    dx, dw = reference.dense_gradient(x, array([[7]]), array([[3], [5]]))
    assert_hand(dx, [[21], [35]])
    assert_hand(dw, [[13]])


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "length", "before"),
    [
        (28, 7, 4, 7, 1),  # total = 6*4 + 7 - 28 = 3, floor(3 / 2) = 1
        (7, 5, 2, 4, 2),  # total = 3*2 + 5 - 7 = 4
        (32, 7, 4, 8, 1),  # total = 7*4 + 7 - 32 = 3
        (5, 3, 1, 5, 1),  # total = 4*1 + 3 - 5 = 2
        (4, 1, 2, 2, 0),  # total = 1*2 + 1 - 4 = -1, so 0
        (1, 5, 2, 1, 2),  # total = 0*2 + 5 - 1 = 4
    ],
)
def test_same_padding_by_hand(size, kernel, stride, length, before):
    assert reference.same_padding(size, kernel, stride) == (length, before)


def test_conv2d_by_hand():
    # 3x3 image, 2x2 kernel, stride 2: 2 outputs an axis, total padding
    # (2-1)*2 + 2 - 3 = 1, 0 before and 1 after. The windows do not overlap:
    #     1 2 | 3 .
    #     4 5 | 6 .     kernel    1   10
    #     ---------             100 1000
    #     7 8 | 9 .
    #     . . | . .
    x = array([[1, 2, 3], [4, 5, 6], [7, 8, 9]]).reshape(1, 3, 3, 1)
    w = array([[1, 10], [100, 1000]]).reshape(2, 2, 1, 1)
    # 1 + 20 + 400 + 5000, 3 + 600, 7 + 80, 9
    y = reference.conv2d(x, w, 2)
    assert_hand(y[0, :, :, 0], [[5421, 603], [87, 9]])
    # Each pixel lies in one window: dx = dy of its window times its kernel entry.
    # dw: 1*1 + 3*2 + 7*3 + 9*4 = 64, 2*1 + 8*3 = 26, 4*1 + 6*2 = 16, 5*1 = 5
    dy = array([[1, 2], [3, 4]]).reshape(1, 2, 2, 1)
    dx, dw = reference.conv2d_gradient(x, w, 2, dy)
    assert_hand(dx[0, :, :, 0], [[1, 10, 2], [100, 1000, 200], [3, 30, 4]])
    assert_hand(dw[:, :, 0, 0], [[64, 26], [16, 5]])


def test_conv2d_pads_the_smaller_half_before():
    # One row of 4, kernel of 4, stride 1: total padding 3, 1 before and 2 after.
    #     . 1 2 3 -> 10*1 + 100*2 + 1000*3 = 3210
    #     1 2 3 4 -> 1 + 20 + 300 + 4000 = 4321
    #     2 3 4 . -> 2 + 30 + 400 = 432
    #     3 4 . . -> 3 + 40 = 43
    x = array([1, 2, 3, 4]).reshape(1, 1, 4, 1)
    w = array([1, 10, 100, 1000]).reshape(1, 4, 1, 1)
    assert_hand(reference.conv2d(x, w, 1)[0, 0, :, 0], [3210, 4321, 432, 43])


def test_conv2d_with_stride_beyond_the_kernel_skips_pixels():
    # 4 pixels, kernel of 1, stride 2: the padding is never negative, so 0 and 2 are seen.
    x = array([1, 2, 3, 4]).reshape(1, 4, 1, 1)
    w = array([5]).reshape(1, 1, 1, 1)
    assert_hand(reference.conv2d(x, w, 2)[0, :, 0, 0], [5, 15])


def test_conv2d_channels_and_filters():
    # A 1x1 kernel is a dense layer on the channels: [1*1 + 2*3, 1*0 - 2*1] = [7, -2]
    x = array([1, 2]).reshape(1, 1, 1, 2)
    w = array([[1, 0], [3, -1]]).reshape(1, 1, 2, 2)
    assert_hand(reference.conv2d(x, w, 1)[0, 0, 0], [7, -2])


def test_exact_gelu_by_hand():
    # Phi(1) = 0.841344746068543 and phi(1) = 0.241970724519143 from tables:
    # y(1) = Phi(1), y(-1) = -(1 - Phi(1)), y'(1) = Phi(1) + phi(1),
    # y'(-1) = 1 - Phi(1) - phi(1), y'(0) = Phi(0)
    x = array([-1, 0, 1])
    y = reference.gelu(x, approximate=False)
    assert_hand(y, [-0.158655253931457, 0, 0.841344746068543])
    dx = reference.gelu_gradient(x, array([1, 3, 10]), approximate=False)
    assert_hand(dx / array([1, 3, 10]), [-0.083315470587686, 0.5, 1.083315470587686])


def test_tanh_gelu_by_hand():
    # u(1) = 0.7978845608 * 1.044715 = 0.8335619689; e^(2u) = e^1.6671239379 = 5.2969115;
    # tanh u = 4.2969115 / 6.2969115 = 0.6823840; y(1) = 1.6823840 / 2 = 0.8411920
    # u'(1) = 0.7978845608 * (1 + 3 * 0.044715) = 0.9049172;
    # y'(1) = 0.8411920 + (1 - 0.4656479) * 0.9049172 / 2 = 0.8411920 + 0.2417722 = 1.0829642
    # and y(-1) = y(1) - 1, y'(-1) = 1 - y'(1), y'(0) = 1/2 by symmetry.
    x = array([-1, 0, 1])
    # The arithmetic above carries seven digits.
    digits = {"rtol": 0, "atol": 2e-7}
    y = reference.gelu(x, approximate=True)
    np.testing.assert_allclose(y, [-0.1588080, 0, 0.8411920], **digits)
    dx = reference.gelu_gradient(x, array([1, 1, 1]), approximate=True)
    np.testing.assert_allclose(dx, [-0.0829642, 0.5, 1.0829642], **digits)


@pytest.mark.parametrize("approximate", [False, True])
def test_gelu_far_from_zero_is_relu(approximate):
    # Beyond 40 the normal tail and 1 - |tanh u| are below the smallest double.
    x = array([-40, 40])
    assert_hand(reference.gelu(x, approximate), [0, 40])
    assert_hand(reference.gelu_gradient(x, array([2, 2]), approximate), [0, 2])


@pytest.mark.parametrize(
    ("row", "winners", "threshold", "y", "dx"),
    [
        # 2nd largest of [3, 1, 2] is 2: unit 0 wins, unit 2 receives -5
        ([3, 1, 2], 1, "k+1", [1, 0, 0], [5, 0, -5]),
        # 3rd largest is 1: units 0 and 2 win, unit 1 receives -(5 + 11)
        ([3, 1, 2], 2, "k+1", [2, 0, 1], [5, -16, 11]),
        # "k" subtracts the 2nd largest: one winner fewer
        ([3, 1, 2], 2, "k", [1, 0, 0], [5, 0, -5]),
        # "k" with K = 1 subtracts the largest: nothing is left
        ([3, 1, 2], 1, "k", [0, 0, 0], [0, 0, 0]),
        # negative values win too
        ([-1, -3, -2], 1, "k+1", [1, 0, 0], [5, 0, -5]),
        # a tie at the threshold 2: one winner instead of two, the lower index pays
        ([1, 2, 2, 3], 2, "k+1", [0, 0, 0, 1], [0, -13, 0, 13]),
        # a tie among the winners is no tie at the threshold
        ([3, 1, 3], 2, "k+1", [2, 0, 2], [5, -16, 11]),
        # all equal: no winner
        ([2, 2, 2], 1, "k+1", [0, 0, 0], [0, 0, 0]),
    ],
)
def test_kwta_by_hand(row, winners, threshold, y, dx):
    x = array([row])
    dy = array([[5, 7, 11, 13][: len(row)]])
    assert_hand(reference.kwta(x, winners, threshold), [y])
    assert_hand(reference.kwta_gradient(x, winners, threshold, dy), [dx])


def test_kwta_rows_are_independent():
    x = array([[3, 1, 2], [0, 5, 9]])
    # thresholds 2 and 5
    assert_hand(reference.kwta(x, 1), [[1, 0, 0], [0, 0, 4]])
    dy = array([[1, 1, 1], [1, 1, 1]])
    assert_hand(reference.kwta_gradient(x, 1, "k+1", dy), [[1, 0, -1], [0, -1, 1]])


def test_pairwise_by_hand():
    # Pairs (0,1), (0,2), (1,2) of x = [2, 3, 5]: z = [6, 10, 15], outputs 0, 1, 0.
    # y = [1*6 - 1*15, 2*10] = [-9, 20]
    x, w = array([[2, 3, 5]]), array([1, 2, -1])
    i, j = [0, 0, 1], [1, 2, 2]
    assert_hand(reference.pairwise(x, w, i, j, 2), [[-9, 20]])
    # With dy = [1, 10] the pairs receive [1, 10, 1]: dw = [6, 100, 15],
    # dx0 = 1*1*3 + 10*2*5 = 103, dx1 = 1*1*2 - 1*1*5 = -3, dx2 = 10*2*2 - 1*1*3 = 37
    dx, dw = reference.pairwise_gradient(x, w, i, j, 2, array([[1, 10]]))
    assert_hand(dx, [[103, -3, 37]])
    assert_hand(dw, [6, 100, 15])


def test_pairwise_with_repeated_pairs_and_two_samples():
    # The pair {0, 1} three times, outputs 0, 1, 0; x = [2, 3] and [1, -1]: z = 6 and -1.
    # y = [(1 + 4) z, 2 z]
    x, w = array([[2, 3], [1, -1]]), array([1, 2, 4])
    i, j = [0, 0, 1], [1, 1, 0]
    assert_hand(reference.pairwise(x, w, i, j, 2), [[30, 12], [-5, -2]])
    # dy = [1, 10] and [100, 0]: dw = [1*6 - 100*1, 10*6 - 0, 1*6 - 100*1]
    # dz/dx factor: 1*1 + 10*2 + 1*4 = 25 and 100*1 + 0 + 100*4 = 500, times the partner
    dx, dw = reference.pairwise_gradient(x, w, i, j, 2, array([[1, 10], [100, 0]]))
    assert_hand(dx, [[75, 50], [-500, 500]])
    assert_hand(dw, [-94, 60, -94])


def test_pairwise_of_a_unit_with_itself_is_a_square():
    # y = 5 * 3^2 = 45, dy/dx = 2 * 5 * 3 = 30, dy/dw = 9
    x, w = array([[3]]), array([5])
    assert_hand(reference.pairwise(x, w, [0], [0], 1), [[45]])
    dx, dw = reference.pairwise_gradient(x, w, [0], [0], 1, array([[1]]))
    assert_hand(dx, [[30]])
    assert_hand(dw, [9])


# ---- gradients against central differences


@pytest.fixture
def rng():
    return np.random.default_rng(1)


def test_dense_gradient(rng):
    x, w, dy = rng.normal(size=(3, 5)), rng.normal(size=(5, 4)), rng.normal(size=(3, 4))
    dx, dw = reference.dense_gradient(x, w, dy)

    def loss():
        return project(reference.dense(x, w), dy)

    assert_gradient(loss, x, dx)
    assert_gradient(loss, w, dw)


@pytest.mark.parametrize(
    ("shape", "kernel", "stride"),
    [((5, 4), (3, 2), 2), ((3, 5), (4, 3), 1), ((4, 3), (1, 2), 3), ((2, 2), (5, 5), 2)],
)
def test_conv2d_gradient(rng, shape, kernel, stride):
    x = rng.normal(size=(2, *shape, 2))
    w = rng.normal(size=(*kernel, 2, 3))
    dy = rng.normal(size=reference.conv2d(x, w, stride).shape)
    dx, dw = reference.conv2d_gradient(x, w, stride, dy)

    def loss():
        return project(reference.conv2d(x, w, stride), dy)

    assert_gradient(loss, x, dx)
    assert_gradient(loss, w, dw)


@pytest.mark.parametrize("approximate", [False, True])
def test_gelu_gradient(rng, approximate):
    x, dy = 2.0 * rng.normal(size=(3, 5)), rng.normal(size=(3, 5))
    dx = reference.gelu_gradient(x, dy, approximate)
    assert_gradient(lambda: project(reference.gelu(x, approximate), dy), x, dx)


@pytest.mark.parametrize("threshold", ["k+1", "k"])
@pytest.mark.parametrize("winners", [1, 3, 6])
def test_kwta_gradient(rng, winners, threshold):
    x, dy = rng.normal(size=(3, 7)), rng.normal(size=(3, 7))
    assert_far_from_kinks(x, winners, threshold)
    dx = reference.kwta_gradient(x, winners, threshold, dy)
    assert_gradient(lambda: project(reference.kwta(x, winners, threshold), dy), x, dx)


def test_pairwise_gradient(rng):
    x, w, dy = rng.normal(size=(3, 5)), rng.normal(size=9), rng.normal(size=(3, 2))
    # Pairs 0, 4 and 8 are the same two units; pair 5 is a square.
    i = [0, 0, 1, 2, 1, 3, 4, 4, 0]
    j = [1, 2, 2, 4, 0, 3, 0, 3, 1]
    dx, dw = reference.pairwise_gradient(x, w, i, j, 2, dy)

    def loss():
        return project(reference.pairwise(x, w, i, j, 2), dy)

    assert_gradient(loss, x, dx)
    assert_gradient(loss, w, dw)


def test_the_check_refuses_a_gradient_off_by_a_thousandth(rng):
    x, w, dy = rng.normal(size=(3, 5)), rng.normal(size=(5, 4)), rng.normal(size=(3, 4))
    dx, _ = reference.dense_gradient(x, w, dy)
    with pytest.raises(AssertionError):
        assert_gradient(lambda: project(reference.dense(x, w), dy), x, 1.001 * dx)


def test_the_check_refuses_kwta_without_the_subtracted_unit(rng):
    x, dy = rng.normal(size=(3, 7)), rng.normal(size=(3, 7))
    dx = reference.kwta_gradient(x, 3, "k+1", dy)
    dx[reference.kwta(x, 3) == 0.0] = 0.0
    with pytest.raises(AssertionError):
        assert_gradient(lambda: project(reference.kwta(x, 3), dy), x, dx)
