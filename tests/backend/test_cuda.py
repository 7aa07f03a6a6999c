"""Training on a device, on a machine without one: over the stand-in for CuPy."""

import json
from dataclasses import replace

import numpy as np
import pytest
from device_stand_in import DeviceArray, counts
from stacked_cases import BASE, CASES, same_facts

from minipw import InputError
from minipw.training.many_seeds import create_runs, run_stack
from minipw.training.stacked_runs import Stack


@pytest.fixture
def data(tiny_dataset):
    return tiny_dataset(train=300, test=80)


# The stand-in refuses what CuPy refuses


@pytest.mark.parametrize(
    "operation",
    [
        lambda xp, x: np.asarray(x),
        lambda xp, x: np.sqrt(x),
        lambda xp, x: np.stack([x, x]),
        lambda xp, x: x + np.ones(3),
        lambda xp, x: np.ones(3) * x,
        lambda xp, x: xp.add(x, np.ones(3)),
        lambda xp, x: xp.stack([x, np.ones(3)]),
        lambda xp, x: x[np.array([0, 1])],
        lambda xp, x: x.__setitem__(0, np.ones(1)),
        lambda xp, x: xp.add(x, x, where=x > 0),
        lambda xp, x: xp.take(x, x, mode="clip", bogus=1),
    ],
)
def test_mixing_is_refused(cupy, operation):
    with pytest.raises(TypeError):
        operation(cupy, cupy.ones(3))


def test_names_that_cupy_lacks_are_refused(cupy):
    assert not hasattr(cupy, "frompyfunc") and not hasattr(cupy, "frombuffer_like")
    assert not hasattr(cupy.ones(3), "newbyteorder")


def test_a_device_number_is_no_index(cupy):
    with pytest.raises(TypeError):
        range(3)[cupy.asarray(1)]


@pytest.mark.parametrize("wait", [bool, int, float, lambda x: x.item(), lambda x: x.get()])
def test_waiting_is_counted(cupy, wait):
    x = cupy.ones((), int)
    before = counts.synchronisations
    x += x * 2 - x.sum()
    assert counts.synchronisations == before
    wait(x)
    assert counts.synchronisations == before + 1


# Training


@pytest.mark.parametrize("changes", CASES, ids=" ".join)
def test_a_stack_on_the_device(cupy, data, changes):
    settings = replace(BASE, **changes)
    runs = create_runs(settings, (1, 2), data, cupy)
    records = run_stack(runs)
    for stacked, record in zip(runs, records, strict=True):
        reference = create_runs(settings, (stacked.seed,), data, np)
        (expected,) = run_stack(reference)
        for name, w in reference[0].network.parameters.items():
            ours = stacked.network.parameters[name]
            assert isinstance(ours, DeviceArray) and ours.dtype == np.float32
            # The defining form adds the products of the head in another order than the CPU's
            # forms; a hundred float32 steps later 1e-3 of the largest weight is left.
            scale = np.abs(w).max()
            np.testing.assert_allclose(ours.get(), w, rtol=0, atol=1e-3 * scale)
        if settings.head == "fc":  # the same operations in the same order
            assert same_facts(record, expected, but=("device", "gpu", "threads", "versions"))
        assert record["device"] == "cuda" and record["gpu"] == "Stand-in device"
        assert record["versions"]["cupy"] == "stand-in" and record["runs_together"] == 2
        assert np.shape(record["accuracy_matrix"]) == np.shape(expected["accuracy_matrix"])
    json.dumps(records)


@pytest.mark.parametrize("changes", CASES, ids=" ".join)
def test_nothing_waits_within_a_stretch(cupy, data, changes):
    settings = replace(BASE, **changes)
    stack = Stack(create_runs(settings, (1, 2), data, cupy))
    plain, waited, stretches = stack._stretch, [], []

    def stretch(tasks, rows, after_step):
        before = counts.synchronisations
        correct = plain(tasks, rows, lambda _: waited.append(counts.synchronisations - before))
        # Once for the correct predictions, once for the steps with a finite loss, and for
        # whether that was all of them nothing, since it is read on the host.
        assert counts.synchronisations - before == 2
        stretches.append(rows.shape[1])
        return correct

    stack._stretch = stretch
    stack.learn(lambda _: None)
    assert len(waited) == sum(stretches) == stack.steps == stack.runs[0].total_steps
    assert set(waited) == {0} and max(stretches) > 5


def test_data_stay_in_their_own_type(cupy, data):
    runs = create_runs(replace(BASE, experiment="permuted"), (1, 2), data, cupy)
    assert runs[0].dataset is runs[1].dataset
    assert runs[0].dataset.x_train.dtype == np.uint8
    assert isinstance(runs[0].dataset.x_test, DeviceArray)


def test_a_run_that_diverges_on_the_device(cupy, data):
    runs = create_runs(replace(BASE, rule="sgd", learning_rate=3e18, head="fc"), (1, 2), data, cupy)
    outcomes = run_stack(runs)
    for seed, outcome in zip((1, 2), outcomes, strict=True):
        assert isinstance(outcome, InputError)
        assert str(outcome).startswith(f"seed {seed}: the loss is not finite at step ")
        assert "first in layer dense0" in str(outcome)
