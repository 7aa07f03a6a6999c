"""Network of the loop references: hand arithmetic and finite differences."""

import math

import numpy as np
import pytest
import reference
from reference_checks import LOG_3, array, assert_far_from_kinks, assert_gradient, assert_hand

# ---- numbers worked by hand


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


@pytest.fixture
def rng():
    return np.random.default_rng(1)


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
