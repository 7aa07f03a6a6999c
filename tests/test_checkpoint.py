"""Checkpoints: written whole or not at all, and a run taken up from one ends the same."""

import errno
import json
import os
import pickle
import signal
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from minipw import InputError, checkpoint
from minipw.checkpoint import Keeper, Stopped, StopRequest, load, path_for, save
from minipw.settings import Settings
from minipw.train import Run, result, run

ARRAYS = {"parameter/a": np.arange(12.0, dtype=np.float32).reshape(3, 4), "b": np.array(7)}
FACTS = {"key": "[1]", "run": {"steps": 3, "state": 2**127 + 1, "matrix": [[0.1, 100 / 3]]}}

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


def same(loaded):
    """Whether `load` gave what was saved."""
    arrays, facts = loaded
    kinds = [(a.dtype, a.shape) for a in arrays.values()]
    values = all(np.array_equal(arrays[name], ARRAYS[name]) for name in ARRAYS)
    return facts == FACTS and kinds == [(a.dtype, a.shape) for a in ARRAYS.values()] and values


# The file


def test_round_trip(path):
    save(path, ARRAYS, FACTS)
    assert same(load(path))
    save(path, {}, [])
    assert load(path) == ({}, [])
    assert os.listdir(os.path.dirname(path)) == ["c.npz"]


@pytest.mark.parametrize(
    "error, raised",
    [
        (OSError(errno.ENOSPC, "No space left on device"), InputError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (MemoryError(), MemoryError),
    ],
)
def test_a_write_that_fails_leaves_the_old_file_and_no_other(path, monkeypatch, error, raised):
    save(path, ARRAYS, FACTS)
    before = Path(path).read_bytes()

    def half(file, **arrays):
        file.write(before[: len(before) // 2])
        raise error

    monkeypatch.setattr(np, "savez", half)
    with pytest.raises(raised) as caught:
        save(path, {}, {})
    if raised is InputError:
        assert str(caught.value) == f"cannot write {path}: No space left on device"
    assert Path(path).read_bytes() == before
    assert os.listdir(os.path.dirname(path)) == ["c.npz"]


def test_a_file_that_is_not_on_the_disk_takes_no_ones_place(path, monkeypatch):
    save(path, ARRAYS, FACTS)

    def fails(_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(InputError, match="Input/output error"):
        save(path, {}, {})
    assert same(load(path)) and os.listdir(os.path.dirname(path)) == ["c.npz"]


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match=r"cannot write .*c\.npz: "):
        save(str(tmp_path / "file" / "c.npz"), ARRAYS, FACTS)


def refused(path):
    """Whether `load` refuses a file in one line that names it and says what to do."""
    with pytest.raises(InputError) as caught:
        load(path)
    text = str(caught.value)
    assert text.startswith(f"{path} is not a whole file of minipw (") and "\n" not in text
    assert text.endswith("; delete it")


def test_a_truncated_file_is_refused(path):
    save(path, ARRAYS | {"c": np.arange(500)}, FACTS)
    whole = Path(path).read_bytes()
    assert len(whole) > 40 * 97
    for end in range(0, len(whole), 97):
        Path(path).write_bytes(whole[:end])
        refused(path)


@pytest.mark.parametrize("flip", [0x01, 0x08, 0xFF])
def test_a_changed_byte_is_refused_or_changes_nothing(path, flip):
    save(path, ARRAYS, FACTS)
    whole = Path(path).read_bytes()
    harmless = 0
    for n in range(len(whole)):
        Path(path).write_bytes(whole[:n] + bytes([whole[n] ^ flip]) + whole[n + 1 :])
        try:
            assert same(load(path))
            harmless += 1
        except InputError as error:
            assert str(error).endswith("; delete it")
    assert harmless < len(whole) / 2  # dates and attributes of a .zip, not read


def foreign_files(path):
    """Files of other kinds under `path`, one after the other."""
    Path(path).write_bytes(b"")
    yield
    Path(path).write_text("notes")
    yield
    with open(path, "wb") as file:
        np.save(file, np.arange(3))
    yield
    np.savez(path, a=1)
    yield
    np.savez(path, facts=np.arange(3))
    yield
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("facts", "{}")
    yield
    os.remove(path)
    os.mkdir(path)
    yield


def test_a_foreign_file_is_refused(path):
    os.mkdir(os.path.dirname(path))
    for _ in foreign_files(path):
        refused(path)


def test_a_missing_file(path):
    with pytest.raises(InputError, match=r"c\.npz does not exist$"):
        load(path)


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_no_pickle_is_loaded(path, tmp_path):
    trap = Trap(str(tmp_path / "sprung"))
    content = np.array([trap], dtype=object)
    facts = np.frombuffer(b"{}", np.uint8)
    os.mkdir(os.path.dirname(path))
    for arrays in ({"a": content, "facts": facts}, {"facts": content}):
        np.savez(path, **arrays)
        refused(path)
    Path(path).write_bytes(pickle.dumps(trap))
    refused(path)
    assert not os.path.exists(trap.path)
    pickle.loads(Path(path).read_bytes())
    assert os.path.exists(trap.path)  # the trap works


def test_each_run_has_a_file_of_its_own(tmp_path):
    keys = [json.dumps([{"density": 0.1}, seed, "mnist"]) for seed in range(50)]
    paths = {path_for(str(tmp_path), key) for key in keys}
    assert len(paths) == 50 and all(Path(path).parent == tmp_path for path in paths)
    assert path_for("a", keys[0]) == path_for("a", keys[0])


# A run, left and taken up


def stop_at(number):
    """A stop that says yes at the call of that number, counted from 1."""
    calls = iter(range(1, number + 1))
    return lambda: next(calls) == number


def learn(settings, data, keeper=None):
    """A run from its checkpoint, if any, to its end."""
    state = Run(settings, 3, data)
    if keeper:
        keeper.take_up(state)
    state.learn(lambda state: keeper and keeper.after_step(state, 0.0))
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
            learn(settings, data, Keeper(path, "k", stop_at(number)))
        assert_equal(learn(settings, data, Keeper(path, "k")), whole)
        os.remove(path)


@pytest.mark.parametrize("experiment", ["split", "permuted", "iid"])
def test_a_run_stopped_again_and_again_ends_the_same(data, path, experiment, rng):
    settings = replace(BASE, experiment=experiment, tasks=3)
    stops, state = 0, None
    while state is None:
        try:
            state = learn(settings, data, Keeper(path, "k", stop_at(rng.integers(1, 12))))
        except Stopped:
            stops += 1
    assert stops > 4
    assert_equal(state, learn(settings, data))


def test_the_record_of_a_run_that_was_taken_up(data, path):
    whole = run(BASE, 3, data)
    with pytest.raises(Stopped):
        run(BASE, 3, data, keeper=Keeper(path, "k", stop_at(20)))
    arrays, facts = load(path)
    assert facts["run"]["steps"] == 16 and 0 < facts["seconds"] < 60
    save(path, arrays, {**facts, "seconds": 1000.0})
    record = run(BASE, 3, data, keeper=Keeper(path, "k"))
    assert 1000 < record["seconds"] < 1060
    assert {**record, "seconds": 0} == {**whole, "seconds": 0}
    assert not os.path.exists(path)


# The keeper


def test_interval(data, path, monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(checkpoint, "time", SimpleNamespace(monotonic=lambda: clock.now))
    keeper, state = Keeper(path, "k", interval=30.0), Run(BASE, 0, data)
    written = []
    for state.steps, clock.now in enumerate((0, 29, 31, 40, 60, 62, 100)):
        keeper.after_step(state, clock.now)
        if os.path.exists(path):
            written.append(load(path)[1]["seconds"])
            os.remove(path)
    assert written == [31, 62, 100]


def test_without_a_path_nothing_is_saved(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    state = Run(BASE, 0, data)
    keeper = Keeper(None, "k", interval=-1.0)
    assert keeper.take_up(state) == 0
    keeper.after_step(state, 0.0)
    with pytest.raises(Stopped):
        Keeper(None, "k", stop_at(1)).after_step(state, 0.0)
    keeper.finish()
    assert os.listdir(tmp_path) == []


def test_the_checkpoint_of_another_run_is_refused(data, path):
    Keeper(path, "one", interval=-1.0).after_step(Run(BASE, 0, data), 0.0)
    with pytest.raises(InputError, match="is the checkpoint of another run; delete it"):
        run(BASE, 0, data, keeper=Keeper(path, "other"))
    assert load(path)[1]["key"] == "one"


def test_finish_removes(data, path):
    keeper = Keeper(path, "k", interval=-1.0)
    keeper.after_step(Run(BASE, 0, data), 0.0)
    keeper.finish()
    assert os.listdir(os.path.dirname(path)) == []
    keeper.finish()


# Ctrl-C


@pytest.fixture
def interruptible():
    """SIGINT raises KeyboardInterrupt, which not every shell leaves so."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_the_first_interrupt_asks_and_the_second_interrupts(interruptible):
    told = []
    with StopRequest(lambda: told.append(1)) as stop:
        assert not stop()
        os.kill(os.getpid(), signal.SIGINT)
        assert stop() and stop.asked and told == [1]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_handler_comes_back(interruptible):
    with StopRequest() as stop:
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler and not stop()
    with pytest.raises(RuntimeError), StopRequest():
        raise RuntimeError
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
