"""Loss, class masks and output norm: finite differences, naive loops, axes and types."""

import numpy as np
import pytest
import reference

from minipw import InputError
from minipw.gradcheck import check
from minipw.nn.loss import (
    mask_logits,
    output_norm_backward,
    output_norm_forward,
    softmax_cross_entropy_backward,
    softmax_cross_entropy_forward,
)

# Float64 sums of a dozen terms of order 1.
ROUNDING = {"rtol": 1e-12, "atol": 1e-14}

LABELS = np.array([0, 3, 0])
MASKS = {
    "none": None,
    "one for the batch": np.array([True, True, False, True]),
    "one a sample": np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 1]], bool),
}


@pytest.fixture(params=MASKS)
def mask(request):
    return MASKS[request.param]


@pytest.mark.parametrize("masking", ["exclude", "zero"])
def test_cross_entropy_gradient_is_the_finite_difference(rng, mask, masking):
    logits = 2 * rng.standard_normal((3, 4))
    _, cache = softmax_cross_entropy_forward(logits, LABELS, mask, masking)
    gradient = softmax_cross_entropy_backward(cache)
    assert np.any(gradient)
    check(
        lambda z: softmax_cross_entropy_forward(z, LABELS, mask, masking)[0], [logits], [gradient]
    )


@pytest.mark.parametrize("masking", ["exclude", "zero"])
def test_cross_entropy_equals_the_loops(xp, host, rng, mask, masking):
    logits = 3 * rng.standard_normal((3, 4))
    on_device = None if mask is None else xp.asarray(mask)
    loss, cache = softmax_cross_entropy_forward(
        xp.asarray(logits), xp.asarray(LABELS), on_device, masking
    )
    expected = reference.softmax_cross_entropy(logits, LABELS, mask, masking)
    np.testing.assert_allclose(host(loss), expected, **ROUNDING)
    expected = reference.softmax_cross_entropy_gradient(logits, LABELS, mask, masking)
    np.testing.assert_allclose(host(softmax_cross_entropy_backward(cache)), expected, **ROUNDING)


@pytest.mark.parametrize("masking", ["exclude", "zero"])
def test_masked_classes_receive_no_gradient(rng, masking):
    logits = rng.standard_normal((3, 4))
    for mask in (MASKS["one for the batch"], MASKS["one a sample"]):
        _, cache = softmax_cross_entropy_forward(logits, LABELS, mask, masking)
        gradient = softmax_cross_entropy_backward(cache)
        inside = np.broadcast_to(mask, gradient.shape)
        np.testing.assert_array_equal(gradient[~inside], 0)
        assert np.all(gradient[inside] != 0)


def test_the_two_maskings_are_different_losses():
    # Logits (0, 0), the second class masked, label 0: excluded, the softmax is 1 and the
    # loss 0; as a zero logit it stays, and the loss is log 2.
    logits, mask = np.zeros((1, 2)), np.array([True, False])
    losses = [
        softmax_cross_entropy_forward(logits, np.array([0]), mask, masking)[0]
        for masking in ("exclude", "zero")
    ]
    np.testing.assert_allclose(losses, [0, np.log(2)], rtol=1e-15)


@pytest.mark.parametrize("masking", ["exclude", "zero"])
def test_cross_entropy_leading_axes_are_separate_runs(xp, host, rng, mask, masking):
    logits = xp.asarray(rng.standard_normal((2, 3, 3, 4)))
    labels = np.broadcast_to(LABELS, (2, 3, 3)).copy()
    labels[1, :, 1] = 3 - labels[1, :, 1] if mask is None else labels[1, :, 1]
    labels = xp.asarray(labels)
    mask = None if mask is None else xp.asarray(mask)
    loss, cache = softmax_cross_entropy_forward(logits, labels, mask, masking)
    gradient = softmax_cross_entropy_backward(cache)
    assert loss.shape == (2, 3)
    for run in np.ndindex(2, 3):
        one, cache = softmax_cross_entropy_forward(logits[run], labels[run], mask, masking)
        np.testing.assert_allclose(host(loss[run]), host(one), **ROUNDING)
        one = softmax_cross_entropy_backward(cache)
        np.testing.assert_allclose(host(gradient[run]), host(one), **ROUNDING)


def test_cross_entropy_of_huge_logits_is_finite():
    # Label 0: log(e^1000 + e^-1000) - 1000 = 0. Label 1: 1000 - -1000 = 2000. Mean 1000.
    logits = np.array([[1000.0, -1000.0], [1000.0, -1000.0]])
    loss, cache = softmax_cross_entropy_forward(logits, np.array([0, 1]))
    assert loss == 1000.0
    expected = [[0, 0], [0.5, -0.5]]
    np.testing.assert_array_equal(softmax_cross_entropy_backward(cache), expected)


@pytest.mark.parametrize("masking", ["exclude", "zero"])
def test_cross_entropy_keeps_float32(xp, rng, mask, masking):
    logits = xp.asarray(rng.standard_normal((2, 3, 4)).astype(np.float32))
    labels = xp.asarray(np.stack([LABELS, LABELS]))
    mask = None if mask is None else xp.asarray(mask)
    loss, cache = softmax_cross_entropy_forward(logits, labels, mask, masking)
    assert loss.dtype == np.float32
    assert softmax_cross_entropy_backward(cache).dtype == np.float32
    assert mask_logits(logits, mask, masking).dtype == np.float32


def test_masked_logits_by_hand():
    logits, mask = np.array([[1.0, -2.0, 3.0]]), np.array([True, True, False])
    np.testing.assert_array_equal(mask_logits(logits, mask, "exclude"), [[1, -2, -np.inf]])
    np.testing.assert_array_equal(mask_logits(logits, mask, "zero"), [[1, -2, 0]])
    assert mask_logits(logits, None, "zero") is logits


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_output_norm_gradient_is_the_finite_difference(rng, reduction):
    logits = rng.standard_normal((3, 5))
    _, cache = output_norm_forward(logits, reduction)
    gradient = output_norm_backward(cache)
    check(lambda z: output_norm_forward(z, reduction)[0], [logits], [gradient])


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_output_norm_equals_the_loops(xp, host, rng, reduction):
    logits = rng.standard_normal((2, 3, 5))
    norm, cache = output_norm_forward(xp.asarray(logits), reduction)
    gradient = output_norm_backward(cache)
    assert norm.shape == (2,)
    for run in range(2):
        expected = reference.output_norm(logits[run], reduction)
        np.testing.assert_allclose(host(norm[run]), expected, **ROUNDING)
        expected = reference.output_norm_gradient(logits[run], reduction)
        np.testing.assert_allclose(host(gradient[run]), expected, **ROUNDING)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_output_norm_keeps_float32(xp, rng, reduction):
    logits = xp.asarray(rng.standard_normal((3, 5)).astype(np.float32))
    norm, cache = output_norm_forward(logits, reduction)
    assert norm.dtype == np.float32
    assert output_norm_backward(cache).dtype == np.float32


def test_output_norm_by_hand():
    # (1 + 4 + 9 + 16) / 2 = 15 with the sum over two classes, half of it with the mean.
    logits = np.array([[1.0, -2.0], [3.0, 4.0]])
    assert output_norm_forward(logits)[0] == 15
    assert output_norm_forward(logits, "mean")[0] == 7.5


@pytest.mark.parametrize("label", [-1, -128, 3, 127])
@pytest.mark.parametrize("dtype", [np.int8, np.int64])
def test_a_label_that_is_no_class_is_refused(label, dtype):
    labels = np.array([[0, 1, 2], [2, label, 0]], dtype)
    with pytest.raises(InputError, match=rf"label {label} of sample 1: use the numbers 0 to 2"):
        softmax_cross_entropy_forward(np.zeros((2, 3, 3)), labels)


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.uint8, bool])
@pytest.mark.parametrize("masking", ["exclude", "zero"])
def test_whole_numbers_give_what_floats_give(dtype, masking):
    logits = np.array([[200, 1, 0], [3, 100, 2]]).astype(dtype)
    for mask in (None, np.array([True, True, False])):
        given = np.array([1, 0]), mask, masking
        loss, cache = softmax_cross_entropy_forward(logits, *given)
        expected, expected_cache = softmax_cross_entropy_forward(logits.astype(float), *given)
        assert loss == expected > 0
        ours, theirs = map(softmax_cross_entropy_backward, (cache, expected_cache))
        np.testing.assert_array_equal(ours, theirs)
    (norm, cache), (expected, _) = map(output_norm_forward, (logits, logits.astype(float)))
    assert norm == expected
    np.testing.assert_array_equal(output_norm_backward(cache), logits.astype(float))  # 2 f / B
