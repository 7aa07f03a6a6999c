"""Runs handed to executors: what comes back, and what a lost worker or a stop costs."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path

import kill_target
import pytest

from minipw import InputError, datasets
from minipw.experiments import workers
from minipw.experiments.schedule import execute, run_items
from minipw.experiments.workers import ExecutorSlot, Item, process_slots
from minipw.training.checkpoint import load, path_for
from minipw.training.run import train
from minipw.training.settings import Settings

TESTS = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """What `process_slots` sets, and these tests take back."""
    for library in ("OMP", "OPENBLAS", "MKL"):
        monkeypatch.setenv(f"{library}_NUM_THREADS", "1")


@pytest.fixture
def item(tiny_npz, tmp_path):
    """A function that gives a run of a seed; each epoch of 24 steps takes some 4 ms."""
    settings = Settings(
        experiment="split",
        dataset=tiny_npz,
        backbone="mlp-20-1",
        head="pairwise",
        rule="adagrad",
        multi_head=False,
        learning_rate=0.002,
        density=0.3,
        importance_lambda=0.8,
        batch_size=8,
        epochs=1,
        pair_weights=100,
    )

    def make(seed, **change):
        return Item(replace(settings, **change), seed, None, str(tmp_path / "checkpoints"))

    return make


def test_a_machine_without_the_folder_keeps_no_checkpoints(item, tmp_path):
    there = tmp_path / "not here" / "checkpoints"
    away = replace(item(0), checkpoints=str(there))
    record = workers.perform(away)
    assert record["seed"] == 0 and not there.parent.exists()


@pytest.fixture
def saving(monkeypatch):
    """Workers save their runs all the time and say what they begin."""
    monkeypatch.setattr(workers, "perform", kill_target.perform)


def alone(item):
    """The record of a run in this process."""
    return train(item.settings, item.seed, datasets.load(item.settings.dataset))


def assert_as_alone(outcomes):
    """Records are those of this process, bit for bit, but for the time taken."""
    for item, record in outcomes.items():
        assert {**record, "seconds": 0} == {**alone(item), "seconds": 0}


def wait_for(condition, seconds=30):
    """Return once the condition holds; fail after some seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "in vain"
        time.sleep(0.01)


# Worker processes


def test_worker_processes_give_what_this_process_gives(item):
    items = [item(0), item(1), item(0, rule="s-mas", head="fc"), item(0, batch_size=1000), item(2)]
    slots, _ = process_slots(2)
    outcomes = dict(execute(items, slots))
    assert set(outcomes) == set(items)
    error = outcomes.pop(items[3])
    assert isinstance(error, InputError) and "batch size 1000 is more than" in str(error)
    assert_as_alone(outcomes)
    assert multiprocessing.active_children() == []
    assert not os.path.exists(items[0].checkpoints) or os.listdir(items[0].checkpoints) == []


def test_a_killed_worker_costs_its_run_only(item, saving):
    once, twice, *others = items = [item(0, epochs=150), item(1, epochs=150), item(2), item(3)]

    def kill():
        for number, kills in (0, 1), (1, 2):
            path = path_for(items[number].checkpoints, items[number].key)
            for n in range(kills):
                wait_for(lambda n=n, seed=number: len(lines(seed)) > n)
                wait_for(lambda path=path: os.path.exists(path))
                os.kill(lines(number)[n][3], signal.SIGKILL)

    def lines(seed):
        return [line for line in kill_target.begun(once.checkpoints) if line[0] == seed]

    killer = threading.Thread(target=kill)
    slots, _ = process_slots(2)
    killer.start()
    outcomes = dict(execute(items, slots))
    killer.join()
    assert isinstance(outcomes.pop(twice), BrokenProcessPool)
    assert set(outcomes) == {once, *others}
    assert_as_alone(outcomes)
    assert [len(lines(seed)) for seed in range(4)] == [2, 2, 1, 1]
    assert lines(0)[0][2] == 0 < lines(0)[1][2]  # the second time from the checkpoint
    assert os.path.exists(path_for(twice.checkpoints, twice.key))  # for another day


def test_a_worker_killed_between_two_runs(item):
    slots, _ = process_slots(1)
    outcomes = {}
    for done, outcome in execute([item(0), item(1)], slots):
        outcomes[done] = outcome
        if len(outcomes) == 1:
            (worker,) = multiprocessing.active_children()
            worker.kill()
            worker.join()
            time.sleep(0.3)  # until the executor has noticed
    assert set(outcomes) == {item(0), item(1)}
    assert_as_alone(outcomes)


def test_stop_saves_what_runs_and_begins_nothing(item, saving):
    items = [item(seed, epochs=150) for seed in range(3)]
    slots, stop_flag = process_slots(2)
    saved = [path_for(one.checkpoints, one.key) for one in items[:2]]

    def ask():
        wait_for(lambda: all(map(os.path.exists, saved)))
        stop_flag.value = 1

    asking = threading.Thread(target=ask)
    asking.start()
    assert list(execute(items, slots, lambda: stop_flag.value)) == []
    asking.join()
    folder = items[0].checkpoints
    assert sorted(line[:3] for line in kill_target.begun(folder)) == [
        (0, "adagrad", 0),
        (1, "adagrad", 0),
    ]
    steps = [load(path)[1]["run"]["steps"] for path in saved]
    slots, _ = process_slots(2)
    outcomes = dict(execute(items[:2], slots))
    assert set(outcomes) == set(items[:2])
    assert_as_alone(outcomes)
    assert sorted(line[2] for line in kill_target.begun(folder)[2:]) == sorted(steps)
    assert os.listdir(folder) == ["log"]


def test_runs_are_left_when_their_results_cannot_be_kept(item, saving):
    long = item(1, epochs=20_000)
    slots, _ = process_slots(2)
    began = time.monotonic()
    with pytest.raises(InputError, match="full"):
        for _ in execute([long, item(0)], slots):
            raise InputError("the disk is full")
    assert time.monotonic() - began < 20  # the long run alone takes minutes
    assert multiprocessing.active_children() == []
    assert load(path_for(long.checkpoints, long.key))[1]["run"]["steps"] < 24 * 20_000


def alive(pid):
    """Whether a process is there and does not merely wait to be reaped."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_workers_leave_when_their_parent_is_killed(tiny_npz, tmp_path):
    command = [sys.executable, TESTS / "kill_target.py", tiny_npz, "20000", "out", "--workers", "2"]
    parent = subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(TESTS.parent)}
    )
    folder = tmp_path / "out" / "checkpoints"
    pids = []
    try:
        wait_for(lambda: len(list(folder.glob("*.npz"))) == 2)
        pids = [pid for *_, pid in kill_target.begun(folder)]
        assert len(pids) == 2 and all(map(alive, pids))
        parent.kill()
        parent.wait()
        wait_for(lambda: not any(map(alive, pids)), seconds=3)
    finally:
        parent.kill()
        for pid in filter(alive, pids):
            os.kill(pid, signal.SIGKILL)
    assert all(load(path)[1]["run"]["steps"] > 0 for path in folder.glob("*.npz"))


# Any executor


def test_any_executor_will_do(item):
    items = [item(seed, rule=rule) for seed in (0, 1) for rule in ("adagrad", "sgd")]
    with ThreadPoolExecutor(2) as executor:
        outcomes = dict(execute(items, [ExecutorSlot(executor) for _ in range(2)]))
        assert executor.submit(int).result() == 0  # left open for its owner
    assert set(outcomes) == set(items)
    assert_as_alone(outcomes)


@pytest.fixture
def counted(monkeypatch, item):
    """A function that executes runs by a stand-in for `perform`, on two threads."""

    def go(function, count=3, stop=lambda: False):
        calls = []

        def stand_in(one):
            calls.append(one.seed)
            return function(one, calls.count(one.seed))

        monkeypatch.setattr(workers, "perform", stand_in)
        with ThreadPoolExecutor(2) as executor:
            slots = [ExecutorSlot(executor) for _ in range(2)]
            outcomes = list(execute([item(seed) for seed in range(count)], slots, stop))
        return {one.seed: outcome for one, outcome in outcomes}, calls

    return go


def test_runs_begin_in_the_order_given(counted):
    outcomes, calls = counted(lambda one, _: {"seed": one.seed}, count=9)
    assert outcomes == {seed: {"seed": seed} for seed in range(9)}
    assert sorted(calls[:2]) == [0, 1] and sorted(calls) == list(range(9))


def test_a_run_that_cannot_be_done_is_not_tried_again(counted):
    def fails(one, attempt):
        if one.seed == 1:
            raise InputError("no")
        return {}

    outcomes, calls = counted(fails)
    assert str(outcomes.pop(1)) == "no" and outcomes == {0: {}, 2: {}}
    assert sorted(calls) == [0, 1, 2]


@pytest.mark.parametrize("failures, tries", [(1, 2), (2, 2), (9, 2)])
def test_a_lost_run_is_tried_once_more(counted, failures, tries):
    def lost(one, attempt):
        if one.seed == 1 and attempt <= failures:
            raise BrokenProcessPool("worker lost")
        return {}

    outcomes, calls = counted(lost)
    lost_outcome = outcomes.pop(1)
    assert lost_outcome == {} if failures == 1 else str(lost_outcome) == "worker lost"
    assert outcomes == {0: {}, 2: {}} and calls.count(1) == tries


@pytest.mark.parametrize("fault", [ZeroDivisionError("a fault"), MemoryError("much"), OSError("x")])
def test_a_fault_of_a_run_is_not_tried_again_and_printed_with_its_traceback(item, capsys, fault):
    calls = []

    def stand_in(one):
        calls.append(one.seed)
        if one.seed == 1:
            raise fault
        return {}

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as executor:
        patch.setattr(workers, "perform", stand_in)
        slots, kept = [ExecutorSlot(executor)], []
        items = [item(seed) for seed in range(3)]
        result = run_items(items, slots, lambda: None, True, lambda one, *_: kept.append(one.seed))
    assert result == (1, False) and kept == [0, 2] and calls == [0, 1, 2]
    *above, last = capsys.readouterr().err.splitlines()
    assert last.startswith("failed: seed 1 of Settings(") and last.endswith(str(fault))
    if isinstance(fault, MemoryError):
        assert not above
    else:
        assert above[0].startswith("Traceback") and "raise fault" in "".join(above)


def test_other_data_than_those_of_the_command_are_refused(item):
    with pytest.raises(InputError, match=r"the data of .*tiny.npz on .* are not those of this"):
        workers.perform(replace(item(0), data="another digest"))
    same = datasets.load(item(0).settings.dataset).identity
    assert workers.perform(replace(item(0), data=same))["seed"] == 0


def test_nothing_begins_after_a_stop(counted):
    asked = []

    def ask(one, attempt):
        asked.append(1)
        time.sleep(0.05)
        raise BrokenProcessPool("worker lost")

    outcomes, calls = counted(ask, count=9, stop=lambda: bool(asked))
    assert set(outcomes) == set(calls) <= {0, 1}  # neither others nor these again
    assert counted(ask, count=2, stop=lambda: True) == ({}, [])
