"""Many seeds of the same settings: as many together as fit into the device's memory."""

import gc
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np

from minipw.backend.cuda import free_memory, release_memory
from minipw.backend.threads import available_cores
from minipw.network import cost
from minipw.training.checkpoint import Stopped
from minipw.training.record import result
from minipw.training.run import Run
from minipw.training.stacked_runs import Stack


def create_runs(settings, seeds, dataset, xp, ready=None):
    """A run for every seed, on the device of `xp`, with one copy of the data there.

    ready : dict of int to Run
        Runs that were created before, by seed. Each run that is used is removed from it.
    """
    ready = {} if ready is None else ready

    def create(seed):
        return ready.pop(seed, None) or Run(settings, seed, dataset, xp)

    # Most of the work is drawing and sorting, which release Python's lock.
    with ThreadPoolExecutor(available_cores()) as pool:
        runs = list(pool.map(create, seeds))
    data = runs[0].dataset.moved_to(xp)
    for run in runs:
        run.dataset = data
    return runs


def run_stack(runs, progress=None, stop=lambda: False):
    """Train runs together and measure each.

    An interrupted stack is not saved.

    Parameters
    ----------
    runs, progress : as in `Stack`, `run.train`
    stop : callable
        Says, after each step, whether to raise `Stopped`.

    Returns
    -------
    list of dict or InputError
        The record of each run, or why it has none. `seconds` is the time of all runs
        divided by their number.
    """
    began, stack = time.perf_counter(), Stack(runs)

    def after_step(stack):
        if progress is not None:
            tasks = len(runs[0].tasks)
            number = min(tasks, 1 + min(run.tasks_done for run in runs))
            progress.set_description(f"task {number} of {tasks}", refresh=False)
            progress.update(stack.steps - progress.n)
        if stop():
            raise Stopped(stack.steps)

    with np.errstate(over="ignore", invalid="ignore"):
        stack.learn(after_step)
    seconds = (time.perf_counter() - began) / len(runs)
    return [
        stack.failures[r] if r in stack.failures else result(run, seconds, len(runs))
        for r, run in enumerate(runs)
    ]


def seeds_that_fit(settings, dataset, xp):
    """R, how many runs fit into the device's memory, roughly; 1 on a CPU."""
    if xp is np:
        return 1
    architecture = settings.architecture(dataset)
    data = sum(getattr(dataset, name).nbytes for name in ("x_train", "x_test"))
    return cost.runs_that_fit(free_memory()[0], data, cost.run_bytes(architecture, settings))


def run_seeds(settings, seeds, dataset, xp, together, new_bar=nullcontext, stop=None, ready=None):
    """Do runs, `together` at a time, or fewer when the device runs out of memory.

    Parameters
    ----------
    new_bar : callable
        Returns a context of a progress bar, or of None, for one stack.
    stop, ready : as in `run_stack`, `create_runs`

    Yields
    ------
    list of (int, dict or InputError)
        Each seed of a stack with its record, or why it has none.
    """
    waiting = list(seeds)
    while waiting:
        part, outcomes = waiting[:together], None
        try:
            with new_bar() as bar:
                runs = create_runs(settings, part, dataset, xp, ready)
                outcomes = run_stack(runs, bar, stop or (lambda: False))
        except MemoryError:
            if len(part) == 1:
                raise
        if outcomes is None:
            together, runs = -(-len(part) // 2), None
            gc.collect()
            release_memory()
            continue
        yield list(zip(part, outcomes, strict=True))
        del waiting[: len(part)]
