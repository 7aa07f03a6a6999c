"""Many runs at once: work items handed to executors, results to the caller."""

import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, ProcessPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import cache

from minipw import InputError
from minipw.checkpoint import Keeper, Stopped, path_for
from minipw.runs import run_key
from minipw.settings import Settings

ATTEMPTS = 2
"""Times that a run is started when its worker dies."""
PATIENCE = 5.0
"""Seconds between two looks at whether lanes are still there."""


@dataclass(frozen=True)
class Item:
    """One run to do.

    checkpoints : str or None
        Folder for the checkpoints of unfinished runs, where the folder around it is there:
        a machine of a cluster may not have it.
    data : str or None
        `Dataset.identity`, where it is more than the name.
    """

    settings: Settings
    seed: int
    data_dir: str | None = None
    checkpoints: str | None = None
    data: str | None = None

    @property
    def key(self):
        """The key of its record in a store."""
        return run_key(asdict(self.settings), self.seed, self.data or self.settings.dataset)


class StopFlag:
    """A flag that processes share, without a lock: one killed beside it blocks nobody."""

    def __init__(self, context):
        self.value = context.RawValue("b", 0)

    def set(self):
        """Raise the flag, for good."""
        self.value.value = 1

    def is_set(self):
        """Whether it was raised."""
        return bool(self.value.value)


_stop_flag = None  # of this worker process, set by its parent
_at_work = threading.Lock()  # held by this worker process during a run


def prepare_worker(stop_flag, parent):
    """Run once in every worker process: what tells it to stop."""
    global _stop_flag
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    _stop_flag = (stop_flag, parent)
    threading.Thread(target=leave_with_parent, daemon=True).start()


def leave_with_parent():
    """End this worker process when its parent is gone and the run in progress is saved."""
    multiprocessing.parent_process().join()
    with _at_work:
        os._exit(1)


def should_stop():
    """Whether the parent wants this worker to leave its run, or is gone."""
    if _stop_flag is None:
        return False
    stop_flag, parent = _stop_flag
    return stop_flag.is_set() or os.getppid() != parent


@cache
def dataset_of(name, data_dir, label=None):
    """A data set, read once a process."""
    from minipw import datasets

    return datasets.load(name, data_dir=data_dir, label=label)


def perform(item):
    """Do one run; the function that workers call.

    Returns
    -------
    dict
        The record, or None when the worker was told to stop.
    """
    from minipw.backend import keep_freed_memory
    from minipw.train import run

    keep_freed_memory()
    kept = item.checkpoints and os.path.isdir(os.path.dirname(item.checkpoints) or ".")
    path = path_for(item.checkpoints, item.key) if kept else None
    keeper = Keeper(path, item.key, should_stop)
    dataset = dataset_of(item.settings.dataset, item.data_dir, item.settings.label)
    with _at_work if _stop_flag else nullcontext():
        try:
            return run(item.settings, item.seed, dataset, keeper=keeper)
        except Stopped:
            return None


@contextmanager
def interrupts_held():
    """Hold Ctrl-C back within a with block, where the system can."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class ProcessLane:
    """One worker process that does one run at a time, and is replaced if it dies."""

    def __init__(self, stop_flag):
        self.stop_flag = stop_flag
        self.renew()

    def renew(self):
        """Start over with a fresh process."""
        self.executor = ProcessPoolExecutor(
            1,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=prepare_worker,
            initargs=(self.stop_flag, os.getpid()),
        )

    def check(self):
        """The process is here; one that died says so by its future."""

    def submit(self, item):
        """Begin a run; returns its future."""
        # A process that starts now inherits the mask: Ctrl-C is the parent's alone.
        with interrupts_held():
            try:
                return self.executor.submit(perform, item)
            except BrokenExecutor:  # its process died between two runs
                self.renew()
                return self.executor.submit(perform, item)

    def close(self):
        """Wait for the process to leave; a run that it still does is saved first."""
        self.stop_flag.set()
        self.executor.shutdown(wait=True, cancel_futures=True)


class SharedLane:
    """A slot of an executor that others own, such as a cluster's.

    Parameters
    ----------
    executor : concurrent.futures.Executor
    on_close : callable
    check : callable
        Raises InputError when the executor is gone, with its runs.
    """

    def __init__(self, executor, on_close=lambda: None, check=lambda: None):
        self.executor, self.close, self.check = executor, on_close, check

    def renew(self):
        """The executor replaces its workers itself."""

    def submit(self, item):
        """Begin a run; returns its future."""
        self.check()
        return self.executor.submit(perform, item)


def process_lanes(count):
    """`count` worker processes with one thread each, and the event that stops them."""
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ[f"{library}_NUM_THREADS"] = "1"  # the processes inherit it
    stop_flag = StopFlag(multiprocessing.get_context("spawn"))
    return [ProcessLane(stop_flag) for _ in range(count)], stop_flag


def execute(items, lanes, stop=lambda: False):
    """Do runs on lanes, in the order given.

    Parameters
    ----------
    items : sequence of Item
    lanes : list of ProcessLane or SharedLane
    stop : callable
        Once it says True no further run is begun.

    Yields
    ------
    item : Item
    outcome : dict, the record, or an exception when the run failed

    Notes
    -----
    A worker that dies costs its run only: the run is started once more, then given
    up, and the lane goes on with a fresh worker.
    """
    waiting, idle, running, attempts = deque(items), list(lanes), {}, Counter()
    try:
        while waiting or running:
            if stop():
                waiting.clear()
            while waiting and idle:
                lane, item = idle.pop(), waiting.popleft()
                running[lane.submit(item)] = lane, item
            done, _ = wait(running, PATIENCE, return_when=FIRST_COMPLETED)
            if not done:
                for lane, _ in running.values():
                    lane.check()
            for future in done:
                lane, item = running.pop(future)
                idle.append(lane)
                try:
                    outcome = future.result()
                except InputError as error:  # the run itself cannot be done
                    outcome = error
                except Exception as error:  # whatever took the worker away
                    lane.renew()
                    attempts[item] += 1
                    if attempts[item] < ATTEMPTS and not stop():
                        waiting.appendleft(item)
                        continue
                    outcome = error
                if outcome is not None:
                    yield item, outcome
    finally:
        for future in running:
            future.cancel()
        for lane in lanes:
            lane.close()
