"""Many runs at once: work items handed to executors, results to the caller."""

import multiprocessing
import os
import platform
import signal
import threading
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import cache

from minipw import InputError, datasets
from minipw.backend.threads import keep_freed_memory
from minipw.experiments.store import run_key
from minipw.training.checkpoint import Checkpointer, Stopped, path_for
from minipw.training.run import train
from minipw.training.settings import Settings


@dataclass(frozen=True)
class Item:
    """One run to do.

    checkpoints : str or None
        Folder for the checkpoints of unfinished runs. A machine of a cluster where its parent
        folder is missing keeps none.
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


_stop_flag = None  # of this worker process, shared with its parent
_training = threading.Lock()  # held by this worker process during a run


def prepare_worker(stop_flag):
    """Run once in every worker process: what tells it to stop."""
    global _stop_flag
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    _stop_flag = stop_flag
    threading.Thread(target=exit_with_parent, daemon=True).start()


def exit_with_parent():
    """End this worker process when its parent is gone and the run in progress is saved."""
    multiprocessing.parent_process().join()
    with _training:
        os._exit(1)


def should_stop():
    """Whether this worker should leave its run: its parent says so, or is gone."""
    if _stop_flag is None:
        return False
    return bool(_stop_flag.value) or os.getppid() != multiprocessing.parent_process().pid


@cache
def dataset_of(name, data_dir, label=None):
    """A data set, read once a process."""
    return datasets.load(name, data_dir=data_dir, label=label)


def perform(item):
    """Do one run; the function that workers call.

    Returns
    -------
    dict
        The record, or None when the worker was told to stop.
    """
    keep_freed_memory()
    kept = item.checkpoints and os.path.isdir(os.path.dirname(item.checkpoints) or ".")
    path = path_for(item.checkpoints, item.key) if kept else None
    checkpointer = Checkpointer(path, item.key, should_stop)
    dataset = dataset_of(item.settings.dataset, item.data_dir, item.settings.label)
    if item.data not in (None, dataset.identity):
        raise InputError(
            f"the data of {dataset.name} on {platform.node()} ({dataset.identity}) are not those "
            f"of this command ({item.data}): give both the same files"
        )
    with nullcontext() if _stop_flag is None else _training:
        try:
            return train(item.settings, item.seed, dataset, checkpointer=checkpointer)
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


class ExecutorSlot:
    """A worker slot of an executor that others own, such as a cluster's."""

    def __init__(self, executor, on_close=lambda: None, check=lambda: None):
        self.executor, self.close = executor, on_close
        self.check = check  # raises InputError when the executor is gone, with its runs

    def renew(self):
        """Nothing to do: the executor replaces its workers itself."""

    def submit(self, item):
        """Begin a run; returns its future."""
        self.check()
        return self.executor.submit(perform, item)


class ProcessSlot(ExecutorSlot):
    """One worker process that does one run at a time, and is replaced if it dies."""

    def __init__(self, stop_flag):
        self.stop_flag = stop_flag
        self.check = lambda: None  # the future of a process that died says so
        self.renew()

    def renew(self):
        """Start over with a fresh process."""
        self.executor = ProcessPoolExecutor(
            1,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=prepare_worker,
            initargs=(self.stop_flag,),
        )

    def submit(self, item):
        """Begin a run; returns its future."""
        # A process that starts here inherits the mask: Ctrl-C reaches the parent alone.
        with interrupts_held():
            try:
                return self.executor.submit(perform, item)
            except BrokenExecutor:  # its process died between two runs
                self.renew()
                return self.executor.submit(perform, item)

    def close(self):
        """Stop the process and wait for it; the run in progress is saved first."""
        self.stop_flag.value = 1
        self.executor.shutdown(wait=True, cancel_futures=True)


def process_slots(count):
    """`count` worker processes with one thread each, and the flag whose value 1 stops them."""
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ[f"{library}_NUM_THREADS"] = "1"  # the processes inherit it
    # Without a lock, which a killed process could keep.
    stop_flag = multiprocessing.get_context("spawn").RawValue("b", 0)
    return [ProcessSlot(stop_flag) for _ in range(count)], stop_flag
