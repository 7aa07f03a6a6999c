"""A request that is killed at random moments, again and again, loses and repeats nothing."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import kill_target
import pytest

from minipw import datasets
from minipw.training.run import train
from minipw.training.settings import resolve

TESTS = Path(__file__).parents[1]
SEEDS = 3


def start(folder, dataset, epochs):
    """The request as the leader of a process group of its own."""
    command = [sys.executable, TESTS / "kill_target.py", dataset, str(epochs), "out"]
    return subprocess.Popen(
        [*command, "--workers", "2"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(TESTS.parent)},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def finished_before(process, seconds, condition=lambda: False):
    """Whether a process ends within some seconds; returns once a condition holds."""
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline and not condition():
        time.sleep(0.005)
    return process.poll() is not None


def kill_once(folder, dataset, epochs, random):
    """Start the request and kill it at a random moment; whether it was done before that.

    One time in four the moment is in the start, else after a worker began a run.
    """
    begun = len(kill_target.begun(folder / "out" / "checkpoints"))
    process = start(folder, dataset, epochs)
    try:
        if random.random() < 0.75:

            def at_work():
                return len(kill_target.begun(folder / "out" / "checkpoints")) > begun

            finished_before(process, 60, at_work)
        if finished_before(process, random.uniform(0, 1)):
            assert process.returncode == 0
            return True
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return False


def expected(dataset, epochs):
    """The records of an undisturbed execution, by rule and seed."""
    data, found = datasets.load(dataset), {}
    for cell in kill_target.tiny_cells(dataset, epochs):
        settings, _ = resolve(data, **cell.request)
        for seed in range(SEEDS):
            found[cell.request["rule"], seed] = json.loads(json.dumps(train(settings, seed, data)))
    return found


def check(store, undisturbed):
    """Every line is whole, every run is there once, and its record is the undisturbed one."""
    assert store.read_bytes().endswith(b"\n")
    records = [json.loads(line) for line in store.read_text().splitlines()]
    found = {(record["settings"]["rule"], record["seed"]): record for record in records}
    assert len(records) == len(found) and found.keys() == undisturbed.keys()
    for key, record in found.items():
        assert {**record, "seconds": 0} == {**undisturbed[key], "seconds": 0}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kills, epochs", [(4, 60), pytest.param(200, 150, marks=pytest.mark.slow)])
def test_killed_again_and_again(tiny_npz, tmp_path, monkeypatch, kills, epochs):
    monkeypatch.chdir(tmp_path)
    moments, dataset = random.Random(0), os.path.basename(tiny_npz)
    undisturbed, done = expected(dataset, epochs), 0
    store = tmp_path / "out" / f"split-{dataset}.jsonl"
    while done < kills:
        if kill_once(tmp_path, dataset, epochs, moments):
            check(store, undisturbed)
            store.unlink()  # the rest of the kills on the same request anew
        else:
            done += 1
    process = start(tmp_path, dataset, epochs)
    assert finished_before(process, 120) and process.returncode == 0
    check(store, undisturbed)
    begun = kill_target.begun(tmp_path / "out" / "checkpoints")
    assert any(steps > 0 for *_, steps, _ in begun)  # taken up from a checkpoint
    assert list((tmp_path / "out" / "checkpoints").glob("*.npz")) == []


def test_the_check_finds_what_is_wrong(tmp_path):
    """A record that is missing, doubled, torn or another does not pass."""
    store = tmp_path / "s.jsonl"
    lines = [
        json.dumps({"settings": {"rule": "adagrad"}, "seed": seed, "accuracy": 1.0, "seconds": 2.0})
        for seed in range(2)
    ]
    undisturbed = {("adagrad", seed): json.loads(lines[seed]) for seed in range(2)}
    store.write_text("\n".join(lines) + "\n")
    check(store, undisturbed)
    for wrong in (
        [lines[0]],
        [*lines, lines[0]],
        [lines[0], lines[1][:-5]],
        [lines[0], lines[1].replace("1.0", "1.5")],
    ):
        store.write_text("\n".join(wrong) + "\n")
        with pytest.raises((AssertionError, ValueError)):
            check(store, undisturbed)
