"""The kernels of loss and batch, compiled for the host, against what they stand for."""

from dataclasses import replace

import numpy as np
import pytest
from stacked_cases import BASE

from minipw.backend.cuda import without_kernels
from minipw.kernels import loss_gpu
from minipw.nn.loss import softmax_cross_entropy_backward, softmax_cross_entropy_forward
from minipw.training.many_seeds import create_runs
from minipw.training.stacked_runs import Stack


@pytest.fixture(autouse=True)
def host(on_host):
    return on_host()


def loss_and_gradient(logits, labels, mask, masking):
    loss, cache = softmax_cross_entropy_forward(logits, labels, mask, masking)
    return loss, softmax_cross_entropy_backward(cache)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("masking", [None, "exclude", "zero"])
@pytest.mark.parametrize("lead, batch, classes", [((), 1, 2), ((3,), 33, 10), ((2, 2), 70, 1)])
def test_loss_equals_the_specification(rng, lead, batch, classes, masking, dtype):
    logits = (5 * rng.standard_normal((*lead, batch, classes))).astype(dtype)
    labels, mask = rng.integers(0, classes, (*lead, batch)), None
    if masking:
        mask = (np.arange(classes) >= classes // 2) & np.ones((*lead, 1, classes), bool)
        labels = np.maximum(labels, classes // 2)
    given = logits, labels, mask, masking or "exclude"
    with without_kernels():
        expected = loss_and_gradient(*given)
    found = loss_and_gradient(*given)
    for ours, reference in zip(found, expected, strict=True):
        # sums of up to 70 losses of at most 40, softmax below 1: other orders, other functions
        close = {"rtol": 100 * np.finfo(dtype).eps, "atol": 10 * np.finfo(dtype).eps}
        np.testing.assert_allclose(ours, reference, **close)
        assert ours.dtype == dtype and ours.shape == reference.shape
    again = loss_and_gradient(*given)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(found, again, strict=True))


def test_a_loss_that_is_not_finite_shows(rng):
    logits = rng.standard_normal((4, 3, 5))
    logits[0, 1, 2], logits[1, 0, 0], logits[2, 2, 4] = np.nan, np.inf, -np.inf
    loss, (dz, _) = loss_gpu.forward(logits, np.zeros((4, 3), int), None)
    assert np.isfinite(loss).tolist() == [False, False, True, True] and np.isfinite(dz[2:]).all()


@pytest.mark.parametrize("shape", [(8, 8, 1), (4, 4, 3), (7,)])
@pytest.mark.parametrize("experiment", ["split", "permuted"])
def test_batches_and_counts_equal_the_plain_ones(tiny_dataset, shape, experiment):
    data = tiny_dataset(shape=shape)
    if len(shape) == 1:
        data = replace(data, x_train=data.x_train / np.float32(7), mean=(0.0,), std=(1.0,))
    settings = replace(BASE, experiment=experiment, tasks=2)
    stack = Stack(create_runs(settings, (0, 1, 2), data, np))
    tasks = [run.tasks[0] for run in stack.runs]
    stack.load(tasks, np.stack([task.train[:20].reshape(2, 10) for task in tasks]))
    z = np.random.default_rng(1).standard_normal((3, 10, 4)).astype(np.float32)
    loss = np.array([1, np.nan, np.inf], np.float32)
    stack.network.loss_gradients = lambda x, labels, *_: (loss, z, {})
    for position in range(2):
        ours = stack._batch()
        with without_kernels():
            expected = stack._batch()
        np.testing.assert_array_equal(ours[1], expected[1])
        np.testing.assert_allclose(ours[0], expected[0], rtol=1e-6, atol=1e-6)  # may be fused
        assert ours[0].dtype == np.float32 and ours[0].shape == (3, 10, *shape)
        stack.step()
        counted = stack.correct.copy(), stack.finite.copy(), stack.finite_steps.copy()
        stack.rewind()
        with without_kernels():
            for _ in range(position + 1):
                stack.step()
        plain = stack.correct, stack.finite, stack.finite_steps
        for a, b in zip(counted, plain, strict=True):
            np.testing.assert_array_equal(a, b)
        assert stack.position == position + 1


def test_a_wrong_loss_is_found(on_host, rng):
    on_host(change=lambda text: text.replace("- T(label)", "- 2 * T(label)"), level="-O0")
    with pytest.raises(AssertionError):
        test_loss_equals_the_specification(rng, (3,), 33, 10, None, np.float64)
