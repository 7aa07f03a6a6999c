"""`--device cuda` on the command line, over the stand-in for CuPy."""

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import device_stand_in
import kill_target
import pytest

from minipw.experiments import plan, workers
from minipw.training.stacked_runs import Stack


@pytest.fixture
def tiny(tiny_npz):
    return ("--dataset", tiny_npz, "--backbone", "mlp-30-1", "--batch-size", 8)


def test_several_seeds(command, tiny, cupy):
    flags = (*tiny, "--exp", "split", "--runs", 3, "--seed", 5, "--head", "fc")
    status, out, err = command(*flags, "--device", "cuda", "--json")
    records = [json.loads(line) for line in out.splitlines()]
    assert status == 0 and [record["seed"] for record in records] == [5, 6, 7]
    assert "device      Stand-in device, 4 GiB; 3 runs together" in err
    assert {(r["device"], r["runs_together"]) for r in records} == {("cuda", 3)}
    on_cpu = [json.loads(line) for line in command(*flags, "--json")[1].splitlines()]
    assert [r["accuracy_matrix"] for r in records] == [r["accuracy_matrix"] for r in on_cpu]
    assert on_cpu[0]["device"] == "cpu" and "runs_together" not in on_cpu[0]


def test_a_store_is_shared_with_the_cpu(command, tiny, cupy, tmp_path):
    flags = (*tiny, "--exp", "split", "--out", tmp_path / "out")
    assert command(*flags, "--seed", 1)[0] == 0
    status, out, _ = command(*flags, "--runs", 3, "--device", "cuda")
    assert status == 0 and "2 runs together" in out and "seed 1: found in" in out
    (store,) = (tmp_path / "out").glob("*.jsonl")
    records = [json.loads(line) for line in store.read_text().splitlines()]
    assert [(r["seed"], r["device"]) for r in records] == [(1, "cpu"), (0, "cuda"), (2, "cuda")]
    again = command(*flags, "--runs", 3)[1]
    assert again.count("found in") == 3


def test_memory_limits_the_runs_together(command, tiny, monkeypatch):
    device_stand_in.install(monkeypatch, memory=400_000)
    status, out, _ = command(*tiny, "--exp", "split", "--runs", 5, "--device", "cuda")
    assert status == 0 and out.count("seed ") == 5
    (line,) = (line for line in out.splitlines() if "together" in line)
    assert int(line.split("; ")[1].split()[0]) in (2, 3, 4)


def test_a_run_that_fails_ends_the_command(command, tiny, cupy, tmp_path):
    flags = (*tiny, "--exp", "split", "--runs", 2, "--device", "cuda", "--learning-rate", 1e30)
    status, _, err = command(*flags, "--out", tmp_path / "out")
    assert status == 2 and err.startswith("error: seed 0: the loss is not finite at step")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "flags, says",
    [
        ("report --device cuda", "report does not take --device cuda"),
        ("tune x.json --exp split --device cuda", "tune does not take --device cuda"),
        ("paper table1 --workers 2 --device cuda", "--workers uses processes"),
        ("paper table1 --cluster tcp://a:1 --device cuda", "--cluster uses processes"),
        ("--exp split --device gpu", "'gpu'"),
    ],
)
def test_flags_that_do_not_fit(command, cupy, flags, says):
    status, out, err = command(*flags.split())
    assert (status, out, err.count("\n")) == (2, "", 1) and says in err


@pytest.mark.parametrize("command_flags", ["--exp split", "bench", "paper table1"])
def test_without_cupy(command, tiny, monkeypatch, tmp_path, command_flags):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "cupy", None)  # its import fails
    flags = tiny if "exp" in command_flags else ()
    monkeypatch.setattr(plan, "cells", lambda part: [])
    monkeypatch.setattr(plan, "select", lambda cells, only: [])
    status, _, err = command(*command_flags.split(), *flags, "--device", "cuda")
    assert status == 2 and err.count("\n") == 1 and 'pip install "minipw[gpu]"' in err
    assert err.startswith("error: --device cuda needs CuPy (")


def test_without_a_device(command, tiny, cupy):
    cupy.cuda.runtime.getDeviceCount = lambda: 0
    status, out, err = command(*tiny, "--exp", "split", "--device", "cuda")
    assert (status, out) == (2, "")
    assert err == "error: no CUDA device to use: none is visible; use --device cpu\n"

    def fail():
        raise RuntimeError("cudaErrorInsufficientDriver: the driver is too old\nand more")

    cupy.cuda.runtime.getDeviceCount = fail
    _, _, err = command(*tiny, "--exp", "split", "--device", "cuda")
    assert err == (
        "error: no CUDA device to use: cudaErrorInsufficientDriver: the driver is too old; "
        "use --device cpu\n"
    )


def test_out_of_memory_is_one_line(command, tiny, cupy, monkeypatch):
    def too_much(*_):
        raise MemoryError("Out of memory allocating 9 bytes")

    monkeypatch.setattr("minipw.training.many_seeds.run_stack", too_much)
    status, _, err = command(*tiny, "--exp", "split", "--device", "cuda", "--runs", 3)
    assert status == 2 and err.startswith("error: not enough memory: Out of memory")


def test_interrupt(command, tiny, cupy, monkeypatch, tmp_path):
    plain, steps = Stack.step, []

    def step(self):
        plain(self)
        steps.append(1)
        if len(steps) == 5:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Stack, "step", step)
    flags = (*tiny, "--exp", "split", "--runs", 2, "--device", "cuda", "--out", tmp_path / "out")
    status, _, err = command(*flags)
    assert status == 130
    assert err == "interrupted at step 5 of 2 runs; the same command does these runs again\n"
    assert command(*flags)[0] == 0


# The paper


@pytest.fixture
def table(tiny_npz, tmp_path, monkeypatch):
    """The table is two tiny cells of three runs over a file in the working folder."""
    monkeypatch.chdir(tmp_path)
    workers.dataset_of.cache_clear()
    cells = kill_target.tiny_cells(os.path.basename(tiny_npz))
    monkeypatch.setattr(plan, "cells", lambda part: cells)
    yield cells
    workers.dataset_of.cache_clear()


def records_of(folder):
    (store,) = Path(folder).glob("*.jsonl")
    return [json.loads(line) for line in store.read_text().splitlines()]


def test_the_cells_of_a_table(command, table, cupy):
    status, out, err = command("paper", "table1", "--device", "cuda")
    lines = out.splitlines()
    assert (status, err) == (0, "")
    assert lines[0] == "2 cells, 6 runs to do on Stand-in device, 4 GiB"
    assert all(line.endswith("(3)") for line in lines[1:])
    records = records_of("results")
    assert {(r["device"], r["runs_together"]) for r in records} == {("cuda", 3)}
    again = command("paper", "table1", "--device", "cuda", "--runs", 4)[1].splitlines()
    assert again[0].startswith("2 cells, 2 runs to do, about ") and len(records_of("results")) == 8


def test_a_cell_that_fails_is_reported_and_the_other_done(command, table, cupy):
    wrong = table[0].request | {"given": {"batch_size": 1000}}
    table[0] = replace(table[0], request=wrong)
    status, out, err = command("paper", "table1", "--device", "cuda")
    assert status == 2 and err.count("failed: seed ") == 3 and "batch size 1000 is more" in err
    assert out.splitlines()[1].endswith("| -") and out.splitlines()[2].endswith("(3)")


def test_an_interrupted_table_keeps_what_is_complete(command, table, cupy, monkeypatch):
    plain, done = Stack.step, []

    def step(self):
        plain(self)
        done.append(self.settings.head)
        if done.count("fc") + done.count("pairwise") == 30:  # 24 steps a stack
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Stack, "step", step)
    status, _, err = command("paper", "table1", "--device", "cuda")
    assert status == 130 and err.startswith("interrupted: the same command goes on from here; ")
    assert err.endswith("runs under way on the device begin anew\n")
    assert len(records_of("results")) == 3
