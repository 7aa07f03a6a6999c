"""Runs handed to workers or to a device, and their results handed back."""

import sys
from collections import Counter, deque
from concurrent.futures import FIRST_COMPLETED, wait

import numpy as np

from minipw import InputError
from minipw.experiments.workers import SharedLane, dataset_of, process_lanes
from minipw.progress import progress_bar
from minipw.training.checkpoint import Stopped, StopRequest
from minipw.training.many_seeds import run_seeds, seeds_that_fit

ATTEMPTS = 2
"""Times that a run is started when its worker dies."""
PATIENCE = 5.0
"""Seconds between two looks at whether lanes are still there."""


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


def run_items(items, lanes, on_stop, quiet, keep, give_up=lambda item: None, xp=np):
    """Do runs under one progress bar.

    Parameters
    ----------
    items : list of Item
    lanes, on_stop : from `open_lanes`; unused on a device
    quiet : bool
    keep : callable of an item and its record
        Stores it; what it returns is shown beside the bar.
    give_up : callable of an item
        Told of a run that failed.
    xp : module
        Of a device: the seeds of the same settings are trained together there.

    Returns
    -------
    failed : list of Item
    stopped : bool
    """
    failed = []
    bar = progress_bar(len(items), " runs", quiet, leave=True)
    with StopRequest(on_stop) as stop, bar:
        done = execute(items, lanes, stop) if xp is np else execute_together(items, xp, stop)
        for item, outcome in done:
            if isinstance(outcome, Exception):
                failed.append(item)
                give_up(item)
                reason = str(outcome) or type(outcome).__name__
                bar.write(f"failed: seed {item.seed} of {item.settings}: {reason}", sys.stderr)
            else:
                bar.set_postfix_str(keep(item, outcome) or "", refresh=False)
            bar.update()
    return failed, stop.asked


def open_lanes(args, runs):
    """Workers for so many runs, and what tells them to stop."""
    if args.cluster:
        try:
            from distributed import Client
        except ImportError:
            raise InputError(
                'a cluster needs dask: pip install "minipw[cluster]" (from a checkout: .[cluster])'
            ) from None
        try:
            client = Client(args.cluster, timeout=10)
        except (OSError, ValueError) as error:
            raise InputError(f"no dask scheduler at {args.cluster}: {error}") from None
        slots = sum(client.nthreads().values())
        if not slots:
            client.close()
            raise InputError(f"the scheduler at {args.cluster} has no workers: start some")

        def check():
            if client.status not in ("running", "connecting"):
                raise InputError(
                    f"the scheduler at {args.cluster} is gone, and the runs under way with it: "
                    "start it again; the same command goes on"
                )

        executor = client.get_executor(pure=False)
        count = min(slots, max(runs, 1))
        return [SharedLane(executor, client.close, check) for _ in range(count)], say_it_waits
    lanes, stop_flag = process_lanes(min(args.workers, runs))
    return lanes, stop_flag.set


def say_it_waits():
    """What Ctrl-C means for a cluster: its workers hear nothing of it."""
    print(
        "waiting for the runs under way on the cluster; Ctrl-C again leaves without them",
        file=sys.stderr,
    )
