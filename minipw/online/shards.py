"""Streams larger than one machine: workers learn shards, and their sums are merged."""

import copy
import os
from concurrent.futures import BrokenExecutor
from contextlib import ExitStack
from itertools import chain

from minipw import InputError
from minipw.online import merging
from minipw.online import shard_workers as workers
from minipw.online.ridge import StreamingRidgeClassifier
from minipw.progress import progress_bar


def learn_shards(learner, shards, executor=None, label=None):
    """Learn shards in parallel, as one machine would in any order; returns the learner.

        learner = StreamingRidgeClassifier(size=3000)
        if __name__ == "__main__":  # the processes import this file
            learn_shards(learner, ["a.npz", "b.npz"])  # a process a core
            client = dask.distributed.Client("tcp://scheduler:8786")
            learn_shards(learner, (x, y), client)  # arrays of dask
            learner.predict(x_new)

    A learner without features takes the first samples itself, in the order of the shards.
    A feature that is constant in what it has learned then shares the others' scale for good.
    New classes come in the order in which shards are done.
    Where a shard fails, or Ctrl-C ends the call, the learner stays as it was.

    Parameters
    ----------
    learner : StreamingRidgeClassifier
    shards : iterable, or two arrays of dask
        Each a pair (x, y) of arrays or delayed values, or (x, y, sample_weight); a path of a
        .npz file with x_train and y_train, or x and y, or of a .csv file; or a function that
        returns a pair.
    executor : Executor of this machine, Client of dask.distributed, or None
        None: processes, one a core. Executors hand the sums on in the folder for temporary
        files, the workers of a cluster directly. Those may die and lose nothing.
    label : str, the column of the classes in .csv files

    Raises
    ------
    InputError
        That names the shard which cannot be learned.
    """
    if not isinstance(learner, StreamingRidgeClassifier):
        raise InputError(f"{type(learner).__name__} has no sums: use StreamingRidgeClassifier")
    shards, count = _named(shards)
    with ExitStack() as stack:
        stack.enter_context(learner._learning)
        bar = stack.enter_context(progress_bar(count, " shards"))
        fixed, shards = _with_features(learner, shards, label)
        merged = None
        if fixed.statistics is not None:
            tools = stack.enter_context(workers.engine(executor))
            merged = _run(fixed, shards, label, bar, *tools)
        with learner._lock:
            if merged is not None:
                fixed.features.close()  # as those of the shards are
                merging.add_sums(fixed, merged)
            own = ("_lock", "_learning")
            vars(learner).update((k, v) for k, v in vars(fixed).items() if k not in own)
    return learner


def _named(shards):
    """Pairs of a shard's name and the shard, and how many there are, or None."""
    path = (str, os.PathLike)
    if isinstance(shards, path) or not hasattr(shards, "__iter__"):
        raise InputError(f"shards of type {type(shards).__name__}: use a list of pairs or paths")
    if hasattr(shards, "__len__") and [hasattr(s, "to_delayed") for s in shards] == [True, True]:
        x, y = shards
        x = x.rechunk(dict.fromkeys(range(1, x.ndim), -1))  # whole samples
        y = y if x.chunks[0] == y.chunks[0] else y.rechunk((x.chunks[0],))
        shards = list(zip(x.to_delayed().ravel(), y.to_delayed().ravel(), strict=True))
    named = ((f"{n} ({s})" if isinstance(s, path) else n, s) for n, s in enumerate(shards, 1))
    return named, len(shards) if hasattr(shards, "__len__") else None


def _with_features(learner, shards, label):
    """The learner, or a copy with features of the first samples; and the shards that are left."""
    if learner.statistics is not None:
        return learner, shards
    fixed = copy.deepcopy(learner)
    for name, shard in shards:
        with workers.naming(name):
            names, *rest = workers.read(shard, label, fixed)
            while len(rest[1]) and fixed.statistics is None:
                room = fixed.settings["first"] - fixed.waiting
                workers.learn(fixed, names, *(part[:room] for part in rest))
                rest = [part[room:] for part in rest]
        if fixed.statistics is not None:
            return fixed, chain([(name, rest)] if len(rest[1]) else [], shards)
    return fixed, shards


def _run(learner, shards, label, bar, submit, wait, limit, folder):
    """What all shards taught, in a learner without features; None where there are no shards.

    At most `limit` shards are under way. Two sums that are ready are merged at once.
    """
    like = copy.copy(learner)
    like.features = copy.deepcopy(learner.features)  # which it closes, but a shard may fail
    template = StreamingRidgeClassifier(like=like)
    template.add_classes(learner.classes_)
    template.statistics = None  # as large as all it says
    template = workers.kept(template, folder) if folder else submit(copy.copy, template)
    running, ready = {}, []
    try:
        while True:
            while len(running) < limit and (task := next(shards, None)) is not None:
                running[submit(workers.learn_shard, template, *task, label, folder)] = 1
            while len(ready) > 1:
                running[submit(workers.merge_sums, ready.pop(), ready.pop(), folder)] = 0
            if not running:
                return workers.opened(ready[0] if folder else ready[0].result()) if ready else None
            for future in wait(list(running), return_when="FIRST_COMPLETED").done:
                if (error := future.exception()) is not None:
                    raise error if isinstance(error, InputError) else _lost(error)
                bar.update(running.pop(future))
                ready.append(future.result() if folder else future)
    except BrokenExecutor as error:  # at submit
        raise _lost(error) from None
    finally:
        for future in running:
            future.cancel()


def _lost(error):
    advice = "nothing was learned; if memory was short, use fewer workers"
    if not isinstance(error, (BrokenExecutor, MemoryError)):
        advice = f"{error}; nothing was learned. Functions must be at the top level of a module"
    return InputError(f"a worker failed ({type(error).__name__}): {advice}")
