"""Seeds of the same settings, trained as many together as the device has memory for."""

import gc
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np

from minipw import InputError, memory
from minipw.backend import available_cores, free_memory, release_memory
from minipw.checkpoint import Stopped
from minipw.record import result
from minipw.stacked import Stack
from minipw.train import Run
from minipw.workers import dataset_of


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
    return memory.runs_that_fit(free_memory()[0], data, memory.run_bytes(architecture, settings))


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


def execute_together(items, xp, stop):
    """Do runs on a device, those of the same settings and data together.

    Parameters
    ----------
    items : sequence of Item
    xp : module
    stop : callable
        Once it says True the stack in progress is left and no other begun.

    Yields
    ------
    item, outcome : as from `workers.execute`
    """
    groups = {}
    for item in items:
        groups.setdefault((item.settings, item.data_dir), {})[item.seed] = item
    for (settings, data_dir), waiting in groups.items():
        if stop():
            return
        try:
            dataset = dataset_of(settings.dataset, data_dir, settings.label)
            count = seeds_that_fit(settings, dataset, xp)
            for done in run_seeds(settings, list(waiting), dataset, xp, count, stop=stop):
                for seed, outcome in done:
                    yield waiting.pop(seed), outcome
        except Stopped:
            return
        except (InputError, MemoryError) as error:
            for item in waiting.values():
                yield item, error
