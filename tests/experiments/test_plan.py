"""`paper`: what is still to do, and what is printed of it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import kill_target
import pytest
from stored_records import stored

from minipw import InputError, datasets
from minipw.experiments import plan as plan_module
from minipw.experiments import schedule, workers
from minipw.experiments.plan import Plan, summary_lines
from minipw.experiments.run_times import duration
from minipw.experiments.store import Store
from minipw.experiments.workers import ExecutorSlot
from minipw.paper.cells import cells

TESTS = Path(__file__).parents[1]


# The plan


@pytest.fixture
def tiny(tiny_npz, tmp_path, monkeypatch):
    """The table is two tiny cells over a file in the working folder; a function sets it."""
    monkeypatch.chdir(tmp_path)
    for library in ("OMP", "OPENBLAS", "MKL"):
        monkeypatch.setenv(f"{library}_NUM_THREADS", "1")
    workers.dataset_of.cache_clear()

    def use(change=lambda found: found, epochs=1):
        found = change(kill_target.tiny_cells(os.path.basename(tiny_npz), epochs))
        monkeypatch.setattr(plan_module, "cells", lambda part: found)
        return found

    yield use
    workers.dataset_of.cache_clear()


@pytest.fixture
def plan(tiny):
    """A function that makes plans, their stores closed again."""

    def make(*args, **kwargs):
        made = Plan("table1", *args, **kwargs)
        made.close()
        return made

    return make


def keep(settings, seeds, seconds=1.0, accuracies=None):
    """Store records of a cell by hand."""
    digest = datasets.load(settings.dataset).digest
    with Store(Path("results") / f"split-{settings.dataset}.jsonl") as store:
        for seed, accuracy in zip(seeds, accuracies or [50.0] * len(seeds), strict=True):
            more = {"digest": digest, "seconds": seconds}
            store.append(stored(seed, accuracy, asdict(settings), settings.dataset, **more))


def test_what_the_store_holds_is_not_done_again(plan, tiny):
    tiny()
    first = plan()
    (_, one), (_, two) = first.cells
    assert Counter(item.settings for item in first.items) == {one: 3, two: 3}
    keep(one, [0, 2])
    keep(replace(two, density=0.31), [0, 1, 2])
    seeds = {(item.settings, item.seed) for item in plan().items}
    assert seeds == {(one, 1), (two, 0), (two, 1), (two, 2)}
    assert [item.seed for item in plan(runs=1).items] == [0]
    assert len(plan(runs=5).items) == 3 + 5
    assert [item.settings for item in plan(only="fc", runs=1).items] == [two]
    assert len(plan(out="elsewhere").items) == 6
    assert len(plan(protocol="paper").items) == 6  # other settings


def test_a_run_of_two_cells_is_done_once(plan, tiny):
    tiny(lambda found: [*found, replace(found[0], label="the same", runs=5)])
    items = plan().items
    assert len(items) == len({item.key for item in items}) == 5 + 3


def test_the_time_of_a_plan_is_learned_from_finished_runs(plan, tiny):
    tiny(lambda found: [*found, replace(found[0], label="more", request=more(found[0]))])
    first = plan()
    (_, one), _, (_, three) = first.cells
    assert 0 < first.estimates[three] == pytest.approx(10 * first.estimates[one])
    assert first.times.scale("cpu") is None
    keep(one, [0], seconds=10.0)
    part = plan(only="more", runs=2)  # it learns from every run in the folder
    assert [settings for _, settings in part.cells] == [three]
    assert part.time_text(part.items, "cpu", 1) == "about 3 min"  # 2 runs of 100 s
    assert part.time_text(part.items, "cpu", 4) == "about 50 s"
    assert part.time_text(part.items, "cuda", 1) == ""  # nothing was done there
    store = Path("results") / f"split-{one.dataset}.jsonl"
    other = json.loads(store.read_text()) | {"digest": "other data"}
    store.write_text(json.dumps(other, separators=(",", ":")) + "\n")
    assert plan(only="more").times.scale("cpu") is None


def test_a_run_just_done_is_learned_from(plan, tiny):
    tiny()
    made = plan()
    (_, one), _ = made.cells
    made.stores.clear()
    more = {"digest": datasets.load(one.dataset).digest, "seconds": 7.0}
    made.keep(made.items[0], stored(0, 1.0, asdict(one), one.dataset, **more))
    made.close()
    assert made.times.scale("cpu") * made.estimates[one] == pytest.approx(7)


@pytest.mark.parametrize("text", ["garbage\n", '{"format":1,"settings":{},"seed":0}\n', "{}\n"])
def test_another_file_in_the_folder_is_no_matter(plan, tiny, text):
    tiny()
    Path("results").mkdir()
    Path("results/notes.jsonl").write_text(text)
    made = plan()
    assert made.times.scale("cpu") is None
    assert Path("results/notes.jsonl").read_text() == text


def more(cell):
    return {**cell.request, "given": {**cell.request["given"], "epochs": 10}}


def test_summary_lines(plan, tiny):
    tiny()
    (_, one), (_, two) = plan().cells
    assert list(summary_lines(plan())) == [
        "split mlp-20-1 pairwise adagrad   83.1 | -",
        "split mlp-20-1 fc s-mas                | -",
    ]
    keep(one, range(3), accuracies=[80.0, 82.0, 87.0])  # squares 9 + 1 + 16: sd 3.61, se 2.08
    keep(two, [0], accuracies=[61.26])
    lines = [
        "split mlp-20-1 pairwise adagrad   83.1 | 83.0 ± 2.1 (3)",
        "split mlp-20-1 fc s-mas                | 61.3 (1)",
    ]
    assert list(summary_lines(plan())) == lines
    store = Path("results") / f"split-{one.dataset}.jsonl"
    store.write_bytes(2 * store.read_bytes())  # joined with itself: no seed counts twice
    assert list(summary_lines(plan())) == lines


def test_a_plan_that_fails_leaves_no_file_open(tiny, monkeypatch):
    tiny(lambda found: [found[0], replace(found[1], dataset="missing.npz")])
    opened = []
    monkeypatch.setattr(plan_module, "Store", lambda path: opened.append(Store(path)) or opened[-1])
    with pytest.raises(InputError, match=r"missing\.npz"):
        Plan("table1")
    still_open = [store for store in opened if not store.file.closed]
    for store in still_open:
        store.close()
    assert not still_open


def test_duration():
    assert [duration(s) for s in (0.4, 89.4, 90, 3600, 5400, 12000, 100_000)] == [
        "0 s", "89 s", "2 min", "60 min", "1 h 30 min", "3 h 20 min", "27 h 47 min"
    ]  # fmt: skip


# The command


@pytest.fixture
def threads(monkeypatch):
    """Runs are done by a thread of this process, one after the other."""
    with ThreadPoolExecutor(1) as executor:
        slots = lambda count: ([ExecutorSlot(executor)] * min(count, 1), SimpleNamespace())  # noqa: E731
        monkeypatch.setattr(schedule, "process_slots", slots)
        yield


def test_from_the_command_to_the_numbers(command, tiny):
    tiny()
    flags = ("paper", "table1", "--workers", 2)
    status, out, err = command(*flags, "--runs", 2)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("2 cells, 4 runs to do, about ") and "with 2 workers" in lines[0]
    (store,) = Path("results").glob("*.jsonl")
    records = [json.loads(line) for line in store.read_text().splitlines()]
    for line, rule in zip(lines[1:], ("adagrad", "s-mas"), strict=True):
        a, b = (r["accuracy"] for r in records if r["settings"]["rule"] == rule)
        mean, error = (a + b) / 2, abs(a - b) / 2  # sd |a - b| / sqrt 2, and that over sqrt 2
        assert line.endswith(f" | {mean:.1f} ± {error:.1f} (2)")
    assert {record["threads"] for record in records} == {1}
    again = command(*flags, "--runs", 2)
    assert again[0] == 0 and again[1].splitlines()[1:] == lines[1:]
    assert again[1].startswith("2 cells, 0 runs to do, about 0 s") and len(records) == 4


def test_the_longest_runs_come_first(command, tiny, threads, monkeypatch):
    tiny(lambda found: [found[0], replace(found[0], label="more", request=more(found[0]))])
    order, perform = [], workers.perform
    monkeypatch.setattr(
        workers, "perform", lambda item: order.append(item.settings.epochs) or perform(item)
    )
    assert command("paper", "table1", "--runs", 2, "--quiet")[0] == 0
    assert order == [10, 10, 1, 1]


def test_a_run_that_fails_is_reported_and_the_others_are_done(command, tiny, threads):
    wrong = {"given": {"batch_size": 1000}}
    tiny(lambda found: [replace(found[0], request=found[0].request | wrong), found[1]])
    status, out, err = command("paper", "table1", "--runs", 1)
    assert status == 2
    (line,) = err.splitlines()
    assert line.startswith("failed: seed 0 of Settings(") and "batch size 1000 is more" in line
    assert out.splitlines()[1].endswith("| -") and out.splitlines()[2].endswith("(1)")


@pytest.mark.parametrize(
    "flags, says",
    [
        ("paper nonsense", "the paper has no part 'nonsense': use table1, table2, table3"),
        ("paper table1 --only nothing", "no cell matches 'nothing'; the first of them is"),
        ("paper table1 --out file", "cannot write results to file"),
    ],
)
def test_errors(command, tiny, monkeypatch, flags, says):
    found = tiny()
    Path("file").write_text("x")
    monkeypatch.setattr(
        plan_module, "cells", lambda part: found if part == "table1" else cells(part)
    )
    status, out, err = command(*flags.split())
    assert (status, out) == (2, "") and err.startswith(f"error: {says}") and err.count("\n") == 1


def request(epochs, *flags):
    """The request as a process, with workers that save their runs all the time."""
    command = [sys.executable, TESTS / "kill_target.py", "tiny.npz", str(epochs), "out", *flags]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent)}
    return subprocess.Popen(command, env=environment, start_new_session=True, **pipes)


def interrupted(running, condition):
    """What a process says when Ctrl-C reaches it and its workers once the condition holds."""
    deadline = time.monotonic() + 30
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    os.killpg(running.pid, signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert running.returncode == 130
    return out.splitlines()[1:], err


def test_an_interrupted_command_goes_on_from_there(tiny, tmp_path):
    tiny()
    checkpoints = tmp_path / "out" / "checkpoints"
    flags = ("--only", "fc", "--runs", "1", "--workers", "1")
    found = interrupted(request(200, *flags), lambda: list(checkpoints.glob("*.npz")))
    assert found == (
        ["split mlp-20-1 fc s-mas        | -"],
        "interrupted: the same command goes on from here\n",
    )
    running = request(200, *flags)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (0, "") and out.endswith("(1)\n")
    begun = kill_target.begun(checkpoints)
    assert [steps > 0 for *_, steps, _ in begun] == [False, True]
    assert os.listdir(checkpoints) == ["log"]


def test_an_interrupt_while_the_workers_start(tiny, tmp_path):
    tiny()
    running = request(20_000, "--workers", "2")
    assert running.stdout.readline().startswith("2 cells")  # the workers start right after it
    time.sleep(0.2)
    os.killpg(running.pid, signal.SIGINT)
    _, err = running.communicate(timeout=30)
    assert running.returncode == 130
    assert err == "interrupted: the same command goes on from here\n"
