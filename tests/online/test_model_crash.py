"""Saving on a full disk, where nothing can be written, interrupted, and killed."""

import io
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from learner_streams import SMALL, stream

from minipw import InputError
from minipw.backend import files
from minipw.online.classifier import OnlineClassifier

TINY = {**SMALL, "backbone": "mlp-6-1", "density": 0.4}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The bytes of a small model file with every kind of part in it."""
    path = tmp_path_factory.mktemp("model") / "m.npz"
    x, y = stream(30)
    OnlineClassifier(batch_size=4, **TINY).partial_fit(x, y).save(path)
    return path.read_bytes()


class FullDisk(io.FileIO):
    """A file on a disk that is full after `room` bytes."""

    room = 0

    def write(self, data):
        if self.tell() + len(data) > self.room:
            raise OSError(28, "No space left on device")
        return super().write(data)


def test_a_full_disk_leaves_the_old_file(saved, tmp_path, monkeypatch, rng):
    path = tmp_path / "m.npz"
    path.write_bytes(saved)
    learner = OnlineClassifier.load(path)
    learner.partial_fit(*stream(30))
    monkeypatch.setattr(files, "open", FullDisk, raising=False)
    for room in [0, *rng.integers(1, len(saved) - 100, 20)]:
        FullDisk.room = room
        with pytest.raises(InputError, match=r"cannot write the model to .*: No space left"):
            learner.save(path)
        assert path.read_bytes() == saved and os.listdir(tmp_path) == ["m.npz"]
    FullDisk.room = 10**9
    learner.save(path)
    assert path.read_bytes() != saved


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_the_system_s_full_device(tmp_path):
    learner = OnlineClassifier(**TINY).partial_fit([[0.0]], [0])
    part = tmp_path / f"m.npz.{os.getpid()}.{threading.get_native_id()}.part"
    part.symlink_to("/dev/full")
    with pytest.raises(InputError, match="cannot write the model"):
        learner.save(tmp_path / "m.npz")
    assert list(tmp_path.iterdir()) == []


def test_targets_that_cannot_be_written(tmp_path, monkeypatch):
    learner = OnlineClassifier(**TINY).partial_fit([[0.0]], [0])
    with pytest.raises(InputError, match=r"cannot write the model to .*No such file"):
        learner.save(tmp_path / "none" / "m.npz")
    folder = tmp_path / "m.npz"
    folder.mkdir()
    with pytest.raises(InputError, match=r"cannot write the model to .*directory"):
        learner.save(folder)
    assert os.listdir(tmp_path) == ["m.npz"]

    def denied(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files, "open", denied, raising=False)
    with pytest.raises(InputError, match=r"cannot write the model to .*: Permission denied"):
        learner.save(tmp_path / "other.npz")


def test_an_interrupted_save_leaves_the_old_file(saved, tmp_path, monkeypatch):
    path = tmp_path / "m.npz"
    path.write_bytes(saved)
    learner = OnlineClassifier.load(path)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        learner.save(path)
    assert path.read_bytes() == saved and os.listdir(tmp_path) == ["m.npz"]


SAVING = """
import sys
import numpy as np
from minipw.online import OnlineClassifier

path, seed = sys.argv[1], int(sys.argv[2])
x = np.random.default_rng(seed).standard_normal((500, 20))
learner = OnlineClassifier("mlp-60-1", seed=seed)
while True:
    learner.partial_fit(x[:5], [seed] * 5).save(path)
"""


def saving(path, seed):
    """A process that learns and saves without end."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    environment |= {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", SAVING, path, str(seed)], env=environment)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kills", [3, pytest.param(200, marks=pytest.mark.slow)])
def test_killed_while_saving(tmp_path, rng, kills):
    """Two processes save to one path; one is killed; the file is always whole."""
    path, seen = tmp_path / "m.npz", set()
    for _ in range(kills):
        processes = [saving(path, seed) for seed in (1, 2)]
        try:
            deadline = time.monotonic() + 60
            while not path.exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            for _ in range(5):
                time.sleep(rng.uniform(0, 0.15))
                seen.add(OnlineClassifier.load(path).samples)
        finally:
            for process in processes:
                process.send_signal(signal.SIGKILL)
                process.wait()
        learner = OnlineClassifier.load(path)
        assert learner.samples % 5 == 0 and learner.classes_ == [learner.settings["seed"]]
        assert os.listdir(tmp_path) == ["m.npz"]  # what the killed ones left is gone
    assert len(seen) > 1  # it was read while it was replaced


def test_leftovers_of_processes_that_are_gone_are_removed(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    path, lives = tmp_path / "m[1].npz", os.getppid()
    endings = (f"{gone.pid}.part", f"{gone.pid}.7.part", f"{10**30}.part")
    kept = [f"m[1].npz.{lives}.part", f"m[1].npz.{lives}.9.part", f"m1.npz.{gone.pid}.part"]
    kept += ["m[1].npz.part", f"m[1].npz.old.{gone.pid}.part"]
    learner = OnlineClassifier(**TINY)
    for act in (learner.save, OnlineClassifier.load):
        for name in [*kept, *(f"m[1].npz.{ending}" for ending in endings)]:
            (tmp_path / name).write_text("x")
        act(path)
        assert sorted(os.listdir(tmp_path)) == sorted([*kept, "m[1].npz"])


def test_two_threads_save_to_one_path(tmp_path):
    path, faults = tmp_path / "m.npz", []

    def save(seed):
        learner = OnlineClassifier(seed=seed, **TINY).partial_fit([[0.0]], [seed])
        try:
            for _ in range(30):
                learner.save(path)
                assert OnlineClassifier.load(path).samples == 1
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=save, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == [] and os.listdir(tmp_path) == ["m.npz"]


def test_only_a_model_is_replaced(tmp_path):
    """What is there stays: text, another program's arrays, a pipe, a checkpoint."""
    path, learner = tmp_path / "m.npz", OnlineClassifier(**TINY)
    path.write_bytes(b"")
    learner.save(path)  # an empty file holds nothing
    whole = path.read_bytes()

    def other():
        np.savez(path, x=np.arange(3))

    makers = [
        lambda: path.write_text("notes"),
        lambda: path.write_bytes(whole[:-30]),
        other,
        lambda: os.mkfifo(path),
        lambda: files.write(path, {}, {"key": "a run"}),
    ]
    for make in makers:
        path.unlink()
        make()
        before = path.stat()
        with pytest.raises(InputError, match=r"m\.npz.*is not replaced, choose another"):
            learner.save(path)
        assert path.stat() == before and os.listdir(tmp_path) == ["m.npz"]
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(InputError, match=r"cannot read the model .*: not a regular file"):
        OnlineClassifier.load(path)


def test_the_home_folder_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    OnlineClassifier(**TINY).save("~/m.npz")
    assert (tmp_path / "m.npz").exists() and OnlineClassifier.load("~/m.npz").samples == 0
