"""The file of a checkpoint: written whole or not at all. Ctrl-C asks for one."""

import errno
import json
import os
import pickle
import signal
import zipfile
from pathlib import Path

import numpy as np
import pytest

from minipw import InputError
from minipw.training.checkpoint import Checkpointer, StopRequest, load, path_for, save

ARRAYS = {"parameter/a": np.arange(12.0, dtype=np.float32).reshape(3, 4), "b": np.array(7)}
FACTS = {"key": "[1]", "run": {"steps": 3, "state": 2**127 + 1, "matrix": [[0.1, 100 / 3]]}}


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "made" / "c.npz")


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


@pytest.mark.parametrize("flip", [0x09])  # sets encryption, a method nobody has
def test_a_changed_byte_is_refused_or_changes_nothing(path, flip):
    save(path, {"b": ARRAYS["b"]}, FACTS)
    whole, before = Path(path).read_bytes(), load(path)
    harmless = 0
    for n in range(len(whole)):
        Path(path).write_bytes(whole[:n] + bytes([whole[n] ^ flip]) + whole[n + 1 :])
        try:
            assert load(path) == before
            harmless += 1
        except InputError as error:
            assert str(error).endswith("; delete it")
    assert harmless < len(whole) / 2  # dates and attributes in the .zip, not read


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


def test_a_start_removes_what_a_killed_run_left(path):
    os.mkdir(folder := os.path.dirname(path))
    for name in ("other.npz.999999999999.part", f"c.npz.{os.getpid()}.part"):
        Path(folder, name).write_text("half")
    assert Checkpointer(path, "key").resume(None) == 0
    assert os.listdir(folder) == [f"c.npz.{os.getpid()}.part"]
