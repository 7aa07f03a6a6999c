"""Seeds of the same settings, trained as many together as the device has memory for."""

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
        Runs that are there already, by their seed; each is taken out.
    """
    found = {seed: (ready or {}).pop(seed, None) for seed in seeds}

    def create(seed):
        return found[seed] or Run(settings, seed, dataset, xp)

    # Drawing and sorting is most of the work, and leaves Python's lock to the others.
    with ThreadPoolExecutor(available_cores()) as pool:
        runs = list(pool.map(create, found))
    data = runs[0].dataset.moved_to(xp)
    for run in runs:
        run.dataset = data
    return runs


def run_stack(runs, progress=None, stop=lambda: False):
    """Train runs together and measure each.

    An interrupted stack is not saved: it begins anew.

    Parameters
    ----------
    runs : list of Run, from `create_runs`
    progress : tqdm bar or None
        Its count follows the steps; its description names the task.
    stop : callable
        Says, after each step, whether to leave by raising `Stopped`.

    Returns
    -------
    list of dict or InputError
        The record of each run, or why there is none. `seconds` is the time of all
        divided by their number.
    """
    began, stack = time.perf_counter(), Stack(runs)

    def after_step(stack):
        if progress is not None:
            number = min(min(run.tasks_done for run in runs) + 1, len(runs[0].tasks))
            progress.set_description(f"task {number} of {len(runs[0].tasks)}", refresh=False)
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
    """R, the runs that fit into the device's memory; on a CPU one.

    A rough count: `run_seeds` tries fewer where it was too high.
    """
    if xp is np:
        return 1
    architecture = settings.architecture(dataset)
    data = sum(getattr(dataset, name).nbytes for name in ("x_train", "x_test"))
    return cost.runs_that_fit(free_memory()[0], data, cost.run_bytes(architecture, settings))


def run_seeds(settings, seeds, dataset, xp, together, new_bar=nullcontext, stop=None, ready=None):
    """Do runs, so many at a time; fewer when the device has not enough memory for them.

    Parameters
    ----------
    settings, dataset : Settings, Dataset
    seeds : sequence of int
    xp : module
    together : int
        R.
    new_bar : callable
        Gives a context of a progress bar, or of None, for one stack.
    stop, ready : as in `run_stack` and `create_runs`

    Yields
    ------
    list of (int, dict or InputError)
        Each seed of a stack with its record, or why there is none.
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
            together = -(-len(part) // 2)
            runs = None
            gc.collect()
            release_memory()
            continue
        yield list(zip(part, outcomes, strict=True))
        del waiting[: len(part)]
