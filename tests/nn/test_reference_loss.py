"""Loss, norm and rules of the loop references: hand arithmetic and finite differences."""

import math

import numpy as np
import pytest
import reference
from reference_checks import LOG_3, array, assert_gradient, assert_hand

# ---- numbers worked by hand


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


# ---- gradients against central differences


@pytest.fixture
def rng():
    return np.random.default_rng(1)


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
