"""A run that resumes from its checkpoint ends as if it had never stopped."""

import os
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from minipw import InputError
from minipw.training import checkpoint
from minipw.training.checkpoint import Checkpointer, Stopped, load, save
from minipw.training.record import result
from minipw.training.run import Run, train
from minipw.training.settings import Settings

BASE = Settings(
    experiment="split",
    dataset="tiny",
    backbone="mlp-20-1",
    head="pairwise",
    rule="adagrad",
    multi_head=False,
    learning_rate=0.002,
    density=0.3,
    importance_lambda=0.8,
    batch_size=10,
    epochs=2,
    pair_weights=100,
    evaluate_every=7,
)
# Calls of after_step in a run of BASE: 2 while the untrained network is tested, 12 steps
# (two epochs of 6), 2 tests, and 12 steps and 2 tests for the second task.
CALLS = 2 + 2 * (12 + 2)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "made" / "c.npz")


@pytest.fixture
def data(tiny_dataset):
    return tiny_dataset(train=120)


def stop_at(number):
    """A stop that says yes at the call of that number, counted from 1."""
    calls = iter(range(1, number + 1))
    return lambda: next(calls) == number


def learn(settings, data, checkpointer=None):
    """A run from its checkpoint, if any, to its end."""
    state = Run(settings, 3, data)
    if checkpointer:
        checkpointer.resume(state)
    state.learn(lambda state: checkpointer and checkpointer.after_step(state, 0.0))
    return state


def assert_equal(a, b):
    """Two finished runs are the same, bit for bit."""
    for one, other in (
        (a.network.parameters, b.network.parameters),
        (a.importance, b.importance),
    ):
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])
    assert result(a, 0.0) == result(b, 0.0)


@pytest.mark.parametrize("rule", ["adagrad", "s-mas"])
@pytest.mark.parametrize("batch_size", [10, 5])
def test_a_run_stopped_anywhere_ends_the_same(data, path, rule, batch_size):
    settings = replace(BASE, rule=rule, batch_size=batch_size)
    whole = learn(settings, data)
    assert len(whole.curve) == 24 * 10 // batch_size // 7
    assert all(omega.any() for omega in whole.importance.values())
    numbers = range(1, CALLS + 1) if batch_size == 10 else (3, 10, 26, 27, 28, 29, 52, 54)
    for number in numbers:
        with pytest.raises(Stopped):
            learn(settings, data, Checkpointer(path, "k", stop_at(number)))
        assert_equal(learn(settings, data, Checkpointer(path, "k")), whole)
        os.remove(path)


@pytest.mark.parametrize("experiment", ["split", "permuted", "iid"])
def test_a_run_stopped_again_and_again_ends_the_same(data, path, experiment, rng):
    settings = replace(BASE, experiment=experiment, tasks=3)
    stops, state = 0, None
    while state is None:
        try:
            state = learn(settings, data, Checkpointer(path, "k", stop_at(rng.integers(1, 8))))
        except Stopped:
            stops += 1
    assert stops > 2
    assert_equal(state, learn(settings, data))


def test_the_record_of_a_resumed_run(data, path):
    whole = train(BASE, 3, data)
    with pytest.raises(Stopped):
        train(BASE, 3, data, checkpointer=Checkpointer(path, "k", stop_at(20)))
    arrays, facts = load(path)
    assert facts["run"]["steps"] == 16 and 0 < facts["seconds"] < 60
    save(path, arrays, {**facts, "seconds": 1000.0})
    record = train(BASE, 3, data, checkpointer=Checkpointer(path, "k"))
    assert 1000 < record["seconds"] < 1060
    assert {**record, "seconds": 0} == {**whole, "seconds": 0}
    assert not os.path.exists(path)


# The checkpointer


def test_interval(data, path, monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(checkpoint, "time", SimpleNamespace(monotonic=lambda: clock.now))
    checkpointer, state = Checkpointer(path, "k", interval=30.0), Run(BASE, 0, data)
    written = []
    for state.steps, clock.now in enumerate((0, 29, 31, 40, 60, 62, 100)):
        checkpointer.after_step(state, clock.now)
        if os.path.exists(path):
            written.append(load(path)[1]["seconds"])
            os.remove(path)
    assert written == [31, 62, 100]


def test_without_a_path_nothing_is_saved(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    state = Run(BASE, 0, data)
    checkpointer = Checkpointer(None, "k", interval=-1.0)
    assert checkpointer.resume(state) == 0
    checkpointer.after_step(state, 0.0)
    with pytest.raises(Stopped):
        Checkpointer(None, "k", stop_at(1)).after_step(state, 0.0)
    checkpointer.finish()
    assert os.listdir(tmp_path) == []


def test_the_checkpoint_of_another_run_is_refused(data, path):
    Checkpointer(path, "one", interval=-1.0).after_step(Run(BASE, 0, data), 0.0)
    with pytest.raises(InputError, match="is the checkpoint of another run; delete it"):
        train(BASE, 0, data, checkpointer=Checkpointer(path, "other"))
    assert load(path)[1]["key"] == "one"


def test_finish_removes(data, path):
    checkpointer = Checkpointer(path, "k", interval=-1.0)
    checkpointer.after_step(Run(BASE, 0, data), 0.0)
    checkpointer.finish()
    assert os.listdir(os.path.dirname(path)) == []
    checkpointer.finish()
