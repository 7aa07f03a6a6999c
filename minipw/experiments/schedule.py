"""Runs handed to workers or to a device, and their results handed back."""

import sys
import traceback
from collections import Counter, deque
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, wait

import numpy as np

from minipw import InputError
from minipw.experiments.workers import ExecutorSlot, dataset_of, process_slots
from minipw.progress import progress_bar
from minipw.training.checkpoint import Stopped, StopRequest
from minipw.training.many_seeds import run_seeds, seeds_that_fit

ATTEMPTS = 2
"""Times that a run is started when its worker dies."""
SECONDS_BETWEEN_CHECKS = 5.0
"""How often slots are checked while no run ends."""
CONNECTION_SECONDS = 10.0
"""How long a cluster's scheduler may take to answer."""


def execute(items, slots, stop=lambda: False):
    """Do runs in worker slots, in the order given.

    A worker that dies costs its run only: the run is started once more, then given up, and
    the slot goes on with a fresh worker.

    Parameters
    ----------
    items : sequence of Item
    slots : list of ProcessSlot or ExecutorSlot
    stop : callable
        Once it returns True no further run is begun.

    Yields
    ------
    item : Item
    outcome : dict, the record, or an exception when the run failed
    """
    waiting, idle, running, attempts = deque(items), list(slots), {}, Counter()
    try:
        while waiting or running:
            if stop():
                waiting.clear()
            while waiting and idle:
                slot, item = idle.pop(), waiting.popleft()
                running[slot.submit(item)] = slot, item
            done, _ = wait(running, SECONDS_BETWEEN_CHECKS, return_when=FIRST_COMPLETED)
            if not done:
                for slot, _ in running.values():
                    slot.check()
            for future in done:
                slot, item = running.pop(future)
                idle.append(slot)
                try:
                    outcome = future.result()
                except Exception as error:
                    outcome = error
                    if worker_died(error):
                        slot.renew()
                        attempts[item] += 1
                        if attempts[item] < ATTEMPTS and not stop():
                            waiting.appendleft(item)
                            continue
                if outcome is not None:
                    yield item, outcome
    finally:
        for future in running:
            future.cancel()
        for slot in slots:
            slot.close()


def worker_died(error):
    """Whether a run failed by its worker's end, on this machine or a cluster."""
    lost = isinstance(error, BrokenExecutor | CancelledError)
    return lost or type(error).__module__.startswith("distributed")


def execute_together(items, xp, stop):
    """Do runs on a device, those of the same settings and data together.

    As `execute`, but on the device of the array module `xp`, and `stop` ends the runs in
    progress too.
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


def run_items(items, slots, on_stop, quiet, keep, xp=np):
    """Do runs under one progress bar.

    Parameters
    ----------
    items : list of Item
    slots, on_stop : from `open_slots`; unused on a device
    quiet : bool
    keep : callable of an item, its record and the items left
        Stores the record; the text that it returns is shown beside the bar.
    xp : module
        A device's: the seeds of the same settings are trained together there.

    Returns
    -------
    failed : int
        Number of runs.
    stopped : bool
    """
    failed, left = 0, dict.fromkeys(items)
    bar = progress_bar(len(items), " runs", quiet, leave=True)
    with StopRequest(on_stop) as stop, bar:
        done = execute(items, slots, stop) if xp is np else execute_together(items, xp, stop)
        for item, outcome in done:
            del left[item]
            if isinstance(outcome, Exception):
                failed += 1
                reason = str(outcome) or type(outcome).__name__
                if not (worker_died(outcome) or isinstance(outcome, InputError | MemoryError)):
                    bar.write("".join(traceback.format_exception(outcome)), sys.stderr)
                bar.write(f"failed: seed {item.seed} of {item.settings}: {reason}", sys.stderr)
            else:
                bar.set_postfix_str(keep(item, outcome, left) or "", refresh=False)
            bar.update()
    return failed, stop.asked


def open_slots(args, runs):
    """Worker slots for so many runs, and the function that tells them to stop."""
    if args.cluster:
        return cluster_slots(args.cluster, runs)
    slots, stop_flag = process_slots(min(args.workers, runs))
    return slots, lambda: setattr(stop_flag, "value", 1)


def cluster_slots(address, runs):
    """`open_slots` on a dask cluster."""
    try:
        from distributed import Client
    except ImportError:
        raise InputError(
            'a cluster needs dask: pip install "minipw[cluster]" (from a checkout: .[cluster])'
        ) from None
    try:
        client = Client(address, timeout=CONNECTION_SECONDS)
    except (OSError, ValueError) as error:
        raise InputError(f"no dask scheduler at {address}: {error}") from None
    threads = sum(client.nthreads().values())
    if not threads:
        client.close()
        raise InputError(f"the scheduler at {address} has no workers: start some")

    def check():
        if client.status not in ("running", "connecting"):
            raise InputError(
                f"the scheduler at {address} is gone, and the runs under way with it: "
                "start it again; the same command goes on"
            )

    def on_stop():  # a cluster's workers hear nothing of Ctrl-C
        print(
            "waiting for the runs under way on the cluster; Ctrl-C again leaves without them",
            file=sys.stderr,
        )

    slot = ExecutorSlot(client.get_executor(pure=False), client.close, check)
    return [slot] * min(threads, max(runs, 1)), on_stop
