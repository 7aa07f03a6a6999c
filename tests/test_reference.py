"""The loop references against hand arithmetic, finite differences and recorded steps.

The recorded steps in `golden/` come from an independent float64 program.
"""

import math
from pathlib import Path

import numpy as np
import pytest
import reference

GOLDEN = Path(__file__).parent / "golden"
GOLDEN_NAMES = sorted(path.stem for path in GOLDEN.glob("*.npz"))
LOG_3 = math.log(3.0)

# The hand-worked numbers need a handful of float64 operations each.
HAND = {"rtol": 1e-14, "atol": 1e-14}


def array(values):
    return np.array(values, dtype=np.float64)


def assert_hand(actual, expected):
    np.testing.assert_allclose(actual, array(expected), **HAND)
    assert np.shape(actual) == np.shape(expected)


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


@pytest.mark.parametrize(
    ("mask", "mode", "loss", "dlogits"),
    [
        # logits [0, ln 3, ln 4], label 1. exp = 1, 3, 4: probabilities 1/8, 3/8, 4/8
        (None, "exclude", math.log(8 / 3), [1 / 8, -5 / 8, 4 / 8]),
        (None, "zero", math.log(8 / 3), [1 / 8, -5 / 8, 4 / 8]),
        # class 2 removed: exp = 1, 3
        ([True, True, False], "exclude", math.log(4 / 3), [1 / 4, -1 / 4, 0]),
        # class 2 stays as exp 0 = 1: probabilities 1/5, 3/5, 1/5, no gradient at class 2
        ([True, True, False], "zero", math.log(5 / 3), [1 / 5, -2 / 5, 0]),
    ],
)
def test_softmax_cross_entropy_by_hand(mask, mode, loss, dlogits):
    logits = array([[0, LOG_3, math.log(4)]])
    assert_hand(reference.softmax_cross_entropy(logits, [1], mask, mode), loss)
    dx = reference.softmax_cross_entropy_gradient(logits, [1], mask, mode)
    assert_hand(dx, [dlogits])


def test_softmax_cross_entropy_is_a_batch_mean():
    # Samples lose ln 4 and ln(4/3): the mean is ln(16/3) / 2, gradients are halved.
    logits = array([[0, LOG_3], [0, LOG_3]])
    assert_hand(reference.softmax_cross_entropy(logits, [0, 1]), math.log(16 / 3) / 2)
    dlogits = reference.softmax_cross_entropy_gradient(logits, [0, 1])
    assert_hand(dlogits, [[-3 / 8, 3 / 8], [1 / 8, -1 / 8]])


def test_softmax_cross_entropy_takes_a_mask_for_each_sample():
    # Masks {0, 1} and {2, 3} of the same logits: exp = 1, 3 and 1, 1.
    logits = array([[0, LOG_3, 7, 7], [0, LOG_3, 7, 7]])
    masks = [[True, True, False, False], [False, False, True, True]]
    loss = reference.softmax_cross_entropy(logits, [0, 2], masks, "exclude")
    assert_hand(loss, (math.log(4) + math.log(2)) / 2)
    dlogits = reference.softmax_cross_entropy_gradient(logits, [0, 2], masks, "exclude")
    assert_hand(dlogits, [[-3 / 8, 3 / 8, 0, 0], [0, 0, -1 / 4, 1 / 4]])


def test_softmax_cross_entropy_does_not_overflow():
    # exp(1000) is no double; with the label at the top the loss is log(1 + e^-1000) = 0.
    logits = array([[1000, 0]])
    assert_hand(reference.softmax_cross_entropy(logits, [0]), 0.0)
    assert_hand(reference.softmax_cross_entropy(logits, [1]), 1000.0)


def test_softmax_cross_entropy_refuses_an_unknown_mask_mode():
    with pytest.raises(ValueError, match="mask_mode 'drop'"):
        reference.softmax_cross_entropy(array([[0, 1]]), [0], None, "drop")


def test_output_norm_by_hand():
    # Squared lengths 1 + 4 = 5 and 9 + 1 = 10: mean 7.5; over the 2 classes 3.75.
    # Gradient 2 logits / 2 = logits, and half of that.
    logits = array([[1, 2], [3, -1]])
    assert_hand(reference.output_norm(logits), 7.5)
    assert_hand(reference.output_norm(logits, "mean"), 3.75)
    assert_hand(reference.output_norm_gradient(logits), [[1, 2], [3, -1]])
    assert_hand(reference.output_norm_gradient(logits, "mean"), [[0.5, 1], [1.5, -0.5]])


def test_sgd_step_by_hand():
    # 1 - 0.1*0.5 = 0.95, -2 - 0.1*(-5) = -1.5
    assert_hand(reference.sgd_step(array([1, -2]), array([0.5, -5]), 0.1), [0.95, -1.5])


@pytest.mark.parametrize(
    "update",
    [
        reference.adagrad_update(array([0.5])),  # 0.5^2 = 0.25
        reference.smas_update(array([-0.25])),  # |-0.25| = 0.25
    ],
)
def test_streaming_step_by_hand(update):
    # Omega = 0.059999 + 0.4*0.25 = 0.159999; (Omega + 1e-6)^(-1/2) = 1 / 0.4;
    # theta = 1 - 0.1*0.5/0.4 = 0.875
    before = array([1]), array([0.059999])
    weight, importance = reference.streaming_step(*before, array([0.5]), update, 0.1, 0.4)
    assert_hand(importance, [0.159999])
    assert_hand(weight, [0.875])
    assert_hand(before, [[1], [0.059999]])


def test_flatten_runs_over_channels_first():
    # Pixel (row, column, channel) of a 2x2 image with 3 channels: 100 row + 10 column + channel
    x = array([[[0, 1, 2], [10, 11, 12]], [[100, 101, 102], [110, 111, 112]]])[None]
    flat = [[0, 1, 2, 10, 11, 12, 100, 101, 102, 110, 111, 112]]
    assert_hand(reference.flatten(x), flat)
    assert_hand(reference.unflatten(array(flat), x.shape), x)


# One input 10 and three units: before GELU [30, 10, 20], where GELU is the identity.
# The threshold (K = 1) is 20: k-WTA leaves [10, 0, 0].
SMALL_WEIGHT = array([[3, 1, 2]])


def test_network_step_with_dense_head_by_hand():
    # Head row 0 = [0, ln(3)/10]: logits [0, ln 3], label 0, loss ln 4, dlogits [-3/4, 3/4].
    # Head gradient, row 0: 10 dlogits = [-7.5, 7.5]; rows 1 and 2 have no input.
    # Unit 0 receives g = 0.75 ln(3)/10, unit 2 receives -g; times the input 10.
    head = array([[0, LOG_3 / 10], [1, 2], [3, 4]])
    loss, logits, weights, importance = reference.network_step(
        array([[10]]),
        [0],
        [SMALL_WEIGHT, head],
        [None, None],
        rule="sgd",
        learning_rate=0.1,
        winners=1,
    )
    assert_hand(loss, math.log(4))
    assert_hand(logits, [[0, LOG_3]])
    step = 0.1 * 0.75 * LOG_3
    assert_hand(weights[0], [[3 - step, 1, 2 + step]])
    assert_hand(weights[1], [[0.75, LOG_3 / 10 - 0.75], [1, 2], [3, 4]])
    assert importance == [None, None]


def test_network_step_with_pairwise_head_by_hand():
    # K = 2: the threshold is 10, k-WTA leaves [20, 0, 10]; two products of units 0 and 2,
    # z = 200, for the outputs 0 and 1. w = [0, ln(3)/200]: logits [0, ln 3], label 1,
    # dlogits [1/4, -1/4], dw = [50, -50]. S-MAS, "sum": d norm/d logits = [0, 2 ln 3],
    # so u = [0, 400 ln 3] on w.
    # With lambda = 0.01 and epsilon = 1: Omega = [0, 4 ln 3], step = g / sqrt(Omega + 1).
    w = array([0, LOG_3 / 200])
    zeros = [np.zeros((1, 3)), np.zeros(2)]
    loss, logits, weights, importance = reference.network_step(
        array([[10]]),
        [1],
        [SMALL_WEIGHT, w],
        zeros,
        rule="s-mas",
        learning_rate=0.1,
        lambda_=0.01,
        epsilon=1.0,
        winners=2,
        pairs=([0, 2], [2, 0]),
        classes=2,
    )
    assert_hand(loss, math.log(4 / 3))
    assert_hand(logits, [[0, LOG_3]])
    assert_hand(importance[1], [0, 4 * LOG_3])
    assert_hand(weights[1], [-5, LOG_3 / 200 + 5 / math.sqrt(1 + 4 * LOG_3)])
    # Units: dx0 = -1/4 * ln(3)/200 * 10 = -ln(3)/80, dx2 = twice that (partner 20), and
    # unit 1 pays 3 ln(3)/80; times the input 10: g = ln(3)/8 * [-1, 3, -2].
    # The norm's gradient is the same with 2 ln 3 for -1/4, a factor -8 ln 3:
    # u = ln(3)^2 * [1, 3, 2].
    omega = 0.01 * LOG_3**2 * array([1, 3, 2])
    assert_hand(importance[0], [omega])
    gradient = LOG_3 / 8 * array([-1, 3, -2])
    assert_hand(weights[0], [array([3, 1, 2]) - 0.1 * gradient / np.sqrt(1 + omega)])


def test_network_step_refuses_an_unknown_rule():
    with pytest.raises(ValueError, match="rule 'adam'"):
        reference.network_step(
            array([[10]]),
            [0],
            [SMALL_WEIGHT, np.zeros((3, 2))],
            [None, None],
            rule="adam",
            learning_rate=0.1,
            winners=1,
        )


# ---- gradients against central differences


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


@pytest.mark.parametrize("mode", ["exclude", "zero"])
@pytest.mark.parametrize(
    "mask",
    [
        None,
        [True, True, False, True],
        [[True, True, False, False], [False, False, True, True], [True, False, True, True]],
    ],
)
def test_softmax_cross_entropy_gradient(rng, mask, mode):
    logits, labels = 2.0 * rng.normal(size=(3, 4)), [0, 3, 0]
    dlogits = reference.softmax_cross_entropy_gradient(logits, labels, mask, mode)
    assert_gradient(
        lambda: reference.softmax_cross_entropy(logits, labels, mask, mode), logits, dlogits
    )


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_output_norm_gradient(rng, reduction):
    logits = rng.normal(size=(3, 5))
    dlogits = reference.output_norm_gradient(logits, reduction)
    assert_gradient(lambda: reference.output_norm(logits, reduction), logits, dlogits)


def network_case(rng, kind):
    """Input, weights and settings of a tiny network, the weights of He's size."""

    def draw(*shape):
        return rng.normal(size=shape) * math.sqrt(2.0 / math.prod(shape[:-1]))

    if kind == "mlp-dense":
        x, weights = rng.normal(size=(3, 5)), [draw(5, 7), draw(7, 6), draw(6, 3)]
        return x, weights, {"winners": 2, "approximate": True}
    pairs = rng.integers(0, 6, size=(2, 9))
    settings = {"winners": 3, "pairs": pairs, "classes": 3}
    if kind == "mlp-pairwise":
        return rng.normal(size=(3, 5)), [draw(5, 4), draw(4, 6), draw(9)], settings
    # 5x4 pixels, then 3x2 and 3x2 with strides 2 and 1: 3 * 2 * 4 = 24 units
    settings["winners"], settings["threshold"], settings["strides"] = 12, "k", (2, 1)
    settings["pairs"] = rng.integers(0, 24, size=(2, 30))
    return rng.normal(size=(2, 5, 4, 2)), [draw(3, 3, 2, 3), draw(2, 2, 3, 4), draw(30)], settings


@pytest.mark.parametrize("seed", ["loss", "norm"])
@pytest.mark.parametrize("kind", ["mlp-dense", "mlp-pairwise", "cnn-pairwise"])
def test_network_gradient(rng, kind, seed):
    x, weights, settings = network_case(rng, kind)
    labels = [2, 0, 1][: len(x)]

    def scalar():
        logits, _ = reference.network_forward(x, weights, **settings)
        if seed == "loss":
            return reference.softmax_cross_entropy(logits, labels)
        return reference.output_norm(logits, "mean")

    logits, saved = reference.network_forward(x, weights, **settings)
    assert_far_from_kinks(saved[2], settings["winners"], settings.get("threshold", "k+1"))
    if seed == "loss":
        dlogits = reference.softmax_cross_entropy_gradient(logits, labels)
    else:
        dlogits = reference.output_norm_gradient(logits, "mean")
    gradients = reference.network_gradient(saved, dlogits, weights, **settings)
    for weight, gradient in zip(weights, gradients, strict=True):
        assert np.any(gradient)
        assert_gradient(scalar, weight, gradient)


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


# ---- recorded steps


def task_mask(labels):
    """For each sample the two classes of its own task: (0, 1), (2, 3), ..."""
    return [[c // 2 == label // 2 for c in range(10)] for label in labels]


def check_golden(name, make_mask=None, **changes):
    """Repeat the recorded steps, with changed settings where given, and compare."""
    with np.load(GOLDEN / f"{name}.npz") as file:
        recorded = dict(file)
    names = [key.removeprefix("initial/") for key in recorded if key.startswith("initial/")]

    def arrays(group):
        found = [recorded[f"{group}/{key}"] for key in names]
        if "rows" in recorded:  # the head is stored (P / C, C): pair p = (p // C, p mod C)
            found[-1] = found[-1].reshape(-1)
        return found

    settings = {
        "rule": "s-mas" if "smas" in name else "adagrad",
        "learning_rate": float(recorded["learning_rate"]),
        "lambda_": float(recorded["lambda"]),
        "epsilon": float(recorded["epsilon"]),
        "reduction": "mean",
        "mask_mode": "zero",
        "threshold": "k",
        "approximate": True,
    }
    initial = arrays("initial")
    width = initial[-2].shape[-1]
    step = reference.mlp_step
    if name.startswith("cnn"):
        width *= 3 * 3  # 12x12 pixels with stride 4
        step = reference.cnn_step
        settings["strides"] = [4]
    settings["winners"] = int(width * float(recorded["density"]))
    if "rows" in recorded:
        settings["pairs"] = recorded["rows"], recorded["cols"]
        settings["classes"] = 10
    if make_mask is None and "multihead" in name:
        make_mask = task_mask
    settings.update(changes)

    weights = initial
    importance = [np.zeros(weight.shape) for weight in initial]
    for x, labels, loss, logits in zip(
        *(recorded[key] for key in ("x", "y", "loss", "logits")), strict=True
    ):
        mask = None if make_mask is None else make_mask(labels)
        our_loss, our_logits, weights, importance = step(
            x, labels, weights, importance, classes_mask=mask, **settings
        )
        assert_golden(our_loss, loss)
        assert_golden(our_logits, logits)
    for before, ours, theirs in zip(initial, weights, arrays("final"), strict=True):
        assert_golden(ours - before, theirs - before)
    for ours, theirs in zip(importance, arrays("importance"), strict=True):
        assert_golden(ours, theirs)


def assert_golden(ours, theirs):
    # Two float64 programs that add in different orders agree to about 1e-14; entries
    # where larger terms cancel, or where two units tie within one rounding at the k-WTA
    # threshold, do so relative to the largest entry of their array. Weights are compared by
    # their change, a thousandth of them: the stricter test, at the price of three digits.
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11 * np.max(np.abs(theirs)))


def test_there_are_golden_files():
    assert len(GOLDEN_NAMES) == 7


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_golden(name):
    check_golden(name)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("mlp1-pairwise-adagrad", {"approximate": False}),
        ("mlp1-pairwise-adagrad", {"threshold": "k+1"}),
        ("mlp1-pairwise-adagrad", {"rule": "sgd"}),
        ("mlp1-pairwise-smas", {"reduction": "sum"}),
        ("mlp3-fc-smas", {"rule": "adagrad"}),
        ("mlp1-pairwise-multihead-adagrad", {"mask_mode": "exclude"}),
        ("mlp1-pairwise-multihead-adagrad", {"make_mask": lambda labels: None}),
        # one mask for the whole batch: every class of a task that the batch contains
        (
            "mlp1-pairwise-multihead-adagrad",
            {"make_mask": lambda labels: np.any(task_mask(labels), axis=0)},
        ),
    ],
)
def test_golden_tells_the_settings_apart(name, changes):
    with pytest.raises(AssertionError):
        check_golden(name, **changes)
