"""What workers do with shards of a stream, and the executors that they belong to."""

import copy
import multiprocessing
import os
import pickle
import signal
import tempfile
import threading
import warnings
from concurrent import futures
from contextlib import contextmanager, nullcontext

import numpy as np

from minipw import InputError
from minipw.backend.threads import available_cores
from minipw.datasets.user_files import is_table, read_csv
from minipw.online import merging, validation
from minipw.ridge import Statistics

ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}


def learn_shard(template, name, shard, label, folder):
    """The sums of one shard, in a learner without features, or the file that holds it."""
    learner = opened(template)
    learner.statistics = Statistics.empty(learner.features.count, len(learner.classes_))
    with naming(name):
        learn(learner, *read(shard, label, learner))
    learner.features = None
    return kept(learner, folder)


def merge_sums(one, other, folder):
    """The sums of two learners in one; files of them are removed."""
    merged = opened(one)
    merging.add_sums(merged, opened(other) if folder else other)
    for path in (one, other) if folder else ():
        os.remove(path)
    return kept(merged, folder)


def read(shard, label, learner):
    """Names of columns or None, samples and labels, and weights where a shard has them."""
    if callable(shard):
        shard = shard()
    if isinstance(shard, (str, os.PathLike)):
        if is_table(shard):
            if label is None:
                raise InputError("which column has the classes? Give its name, label=")
            x, y, names = read_csv(shard, label, learner.settings["missing"])
            return names, x, y
        with np.load(shard) as file:
            train = "_train" if "x_train" in file else ""
            if not {f"x{train}", f"y{train}"} <= {*file}:
                raise InputError(f"it has {', '.join(file)}: x and y, or x_train and y_train")
            shard = file[f"x{train}"], file[f"y{train}"]
    if hasattr(shard, "shape"):
        raise InputError("it is an array, not a pair: use [(x, y)]")
    x, *rest = (part.compute() if hasattr(part, "compute") else part for part in shard)
    return None, x.tocsr() if validation.is_sparse(x) else x, *rest


def learn(learner, names, *samples):
    validation.check_columns(names, learner.columns)
    learner.partial_fit(*samples)
    learner.columns = names or learner.columns


@contextmanager
def naming(shard):
    try:
        yield
    except Exception as error:
        text = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        raise InputError(f"shard {shard}: {' '.join(text.split())}") from None


def kept(learner, folder):
    """A learner, or the file of a folder that holds it."""
    if folder is None:
        return learner
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        pickle.dump(learner, file, protocol=5)
    return file.name


def opened(kept):
    """A learner of one's own, as another call may need the one that is kept."""
    if not isinstance(kept, str):
        return copy.deepcopy(kept)
    with open(kept, "rb") as file:
        return pickle.load(file)


@contextmanager
def engine(executor):
    """Functions `submit` and `wait`, shards under way, and a folder for sums, or None."""
    if hasattr(executor, "scheduler_info"):  # a Client of dask
        from distributed import wait

        def submit(function, *args):
            args = [executor.compute(list(a)) if isinstance(a, (tuple, list)) else a for a in args]
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Sending large graph")
                return executor.submit(function, *args, pure=False)

        yield submit, wait, 2 * max(1, sum(executor.nthreads().values())), None
        return
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        nullcontext(executor) if executor is not None else _processes() as pool,
    ):
        workers = getattr(pool, "_max_workers", available_cores())
        yield pool.submit, futures.wait, 2 * workers, folder


@contextmanager
def _processes():
    """An executor of a process a core, with one thread each, that end with the with block."""
    reader, writer = multiprocessing.Pipe(duplex=False)
    spawn = multiprocessing.get_context("spawn")
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)  # the processes inherit it
    pool = futures.ProcessPoolExecutor(available_cores(), spawn, _end_with, (reader,))
    try:
        yield pool
    finally:
        writer.close()
        pool.shutdown(cancel_futures=True)
        reader.close()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _end_with(reader):
    """Run once in every process: it ends when the parent closes the pipe, or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch():
        try:
            reader.poll(None)
        finally:
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
