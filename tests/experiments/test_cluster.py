"""`--cluster`: the runs of a table on a dask scheduler and two workers of this machine."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import kill_target
import pytest

from minipw.experiments import plan, schedule, workers
from minipw.training.checkpoint import load

distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")

TESTS = Path(__file__).parents[1]


@pytest.fixture
def tiny(tiny_npz, tmp_path, monkeypatch):
    """A function that puts tiny cells in the table's place, with runs of so many epochs."""
    monkeypatch.chdir(tmp_path)
    for library in ("OMP", "OPENBLAS", "MKL"):
        monkeypatch.setenv(f"{library}_NUM_THREADS", "1")

    def use(epochs):
        found = kill_target.tiny_cells(os.path.basename(tiny_npz), epochs)
        monkeypatch.setattr(plan, "cells", lambda part: found)

    return use


@pytest.fixture
def cluster(tmp_path):
    """A function that starts a scheduler and workers of one thread, each a process in the
    test's folder, and gives the scheduler's address; `processes` of it are these."""
    file = tmp_path / "scheduler.json"
    environment = {**os.environ, "PYTHONPATH": f"{TESTS.parent}{os.pathsep}{TESTS}"}
    environment["DASK_TEMPORARY_DIRECTORY"] = str(tmp_path)
    processes = []

    def start(what, *flags):
        command = [sys.executable, "-m", "dask", what, "--scheduler-file", file, "--no-dashboard"]
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        processes.append(
            subprocess.Popen([*command, *flags], cwd=tmp_path, env=environment, **pipes)
        )

    def start_all(count):
        start("scheduler", "--host", "127.0.0.1", "--port", "0")
        for name in range(count):
            start("worker", "--nthreads", "1", "--no-nanny", "--name", str(name))
        deadline = time.monotonic() + 60
        while not file.exists():
            assert time.monotonic() < deadline, "the scheduler does not start"
            time.sleep(0.05)
        address = json.loads(file.read_text())["address"]
        if count:
            with distributed.Client(address, timeout=60) as client:
                client.wait_for_workers(count, timeout=60)
        return address

    start_all.processes = processes
    yield start_all
    with suppress(ValueError):  # there is none
        distributed.default_client().close()
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()


def stored(folder):
    """The records of a store by rule and seed, without what may differ between machines."""
    (store,) = Path(folder).glob("*.jsonl")
    records = [json.loads(line) for line in store.read_text().splitlines()]
    found = {(record["settings"]["rule"], record["seed"]): record for record in records}
    assert len(found) == len(records)
    for record in records:
        for key in ("seconds", "versions", "threads"):
            del record[key]
    return found


def test_a_cluster_fills_the_store_as_processes_do(command, tiny, cluster, monkeypatch):
    tiny(epochs=100)
    address = cluster(2)
    flags = ("paper", "table1", "--runs", 2)
    status, by_processes, _ = command(*flags, "--out", "here", "--workers", 2)
    assert status == 0
    # One worker is killed in the middle of its first run.
    monkeypatch.setattr(workers, "perform", kill_target.perform)
    checkpoints = Path("there") / "checkpoints"

    def kill():
        deadline = time.monotonic() + 60
        while not (saved := list(checkpoints.glob("*.npz"))) and time.monotonic() < deadline:
            time.sleep(0.01)
        settings, seed, *_ = json.loads(load(saved[0])[1]["key"])
        for line in kill_target.begun(checkpoints):
            if line[:2] == (seed, settings["rule"]):
                os.kill(line[3], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    status, by_cluster, err = command(*flags, "--out", "there", "--cluster", address)
    killer.join()
    assert (status, err) == (0, "")
    assert "4 runs to do" in by_cluster and "with 2 workers" in by_cluster
    assert by_cluster.splitlines()[1:] == by_processes.splitlines()[1:]
    assert stored("there") == stored("here") and len(stored("there")) == 4
    begun = kill_target.begun(checkpoints)
    assert len({pid for *_, pid in begun}) == 2 and len(begun) == 5
    assert [steps > 0 for *_, steps, _ in begun].count(True) == 1  # taken up, not begun anew
    assert list(checkpoints.glob("*.npz")) == []


def test_the_scheduler_goes_away(command, tiny, cluster, monkeypatch):
    tiny(epochs=100_000)
    monkeypatch.setattr(schedule, "SECONDS_BETWEEN_CHECKS", 0.2)
    monkeypatch.setattr(schedule, "CONNECTION_SECONDS", 3.0)
    address = cluster(1)
    checkpoints = Path("there") / "checkpoints"
    monkeypatch.setattr(workers, "perform", kill_target.perform)

    def kill():
        deadline = time.monotonic() + 60
        while not list(checkpoints.glob("*.npz")) and time.monotonic() < deadline:
            time.sleep(0.01)
        cluster.processes[0].kill()

    killer = threading.Thread(target=kill)
    killer.start()
    flags = ("paper", "table1", "--runs", 1, "--out", "there", "--cluster", address)
    status, _, err = command(*flags)
    killer.join()
    assert status == 2
    assert err.splitlines()[-1] == (
        f"error: the scheduler at {address} is gone, and the runs under way with it: start it "
        "again; the same command goes on"
    )


def test_an_interrupt_says_that_it_waits(cluster, capsys):
    slots, on_stop = schedule.open_slots(SimpleNamespace(cluster=cluster(1)), 3)
    assert len(slots) == 1
    on_stop()
    slots[0].close()
    assert capsys.readouterr().err.startswith("waiting for the runs under way on the cluster")


def error(command, tiny, address):
    """The one line about a cluster that cannot be used."""
    tiny(epochs=1)
    status, out, err = command("paper", "table1", "--cluster", address)
    assert (status, out) == (2, "") and err.startswith("error: ") and err.count("\n") == 1
    return err


HASTY = """
import sys, kill_target
from minipw.experiments import schedule
schedule.CONNECTION_SECONDS = 0.3
sys.exit(kill_target.main(*sys.argv[1:]))
"""
"""The request, but it waits for a scheduler 0.3 instead of 10 seconds."""


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "nonsense", "x://y"])
def test_no_scheduler(tiny, address):
    # In a process of its own: a client that failed may hang the next one in its process,
    # when it is collected on that one's event loop.
    done = subprocess.run(
        [sys.executable, "-c", HASTY, "tiny.npz", "1", "out", "--cluster", address],
        env={**os.environ, "PYTHONPATH": f"{TESTS.parent}{os.pathsep}{TESTS}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: no dask scheduler at {address}: ")
    assert done.stderr.count("\n") == 1, done.stderr


def test_no_workers(command, tiny, cluster):
    address = cluster(0)
    says = f"the scheduler at {address} has no workers: start some"
    assert says in error(command, tiny, address)


def test_without_dask(command, tiny, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert 'a cluster needs dask: pip install "minipw[cluster]"' in error(command, tiny, "tcp://x")
