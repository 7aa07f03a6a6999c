"""`paper`: the runs behind a table or figure, done where the store lacks them."""

import contextlib
import os
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np

from minipw import InputError, datasets
from minipw.backend.cuda import device_module, device_text
from minipw.experiments.run_times import RunTimes, duration, estimated_seconds
from minipw.experiments.schedule import open_slots, run_items
from minipw.experiments.store import Store, cell_key, read, run_key
from minipw.experiments.tables import with_error
from minipw.experiments.workers import Item
from minipw.paper.cells import cells, cifar_remark, select
from minipw.parameters import CLOSED_FORM
from minipw.training.settings import resolve


class Plan:
    """The cells of a request with their settings, and the runs still to do.

    Parameters
    ----------
    part, only, protocol, runs, out, data_dir
        As on the command line.
    """

    def __init__(
        self, part, only=None, protocol="released", runs=None, out="results", data_dir=None
    ):
        self.out, self.cells, self.stores, self.datasets = Path(out), [], {}, {}
        self.items, self.estimates = [], {}
        known, checkpoints = set(), os.path.abspath(os.path.join(out, "checkpoints"))
        try:
            for cell in select(cells(part), only):
                if cell.dataset not in self.datasets:
                    self.datasets[cell.dataset] = datasets.load(cell.dataset, data_dir=data_dir)
                dataset = self.datasets[cell.dataset]
                settings, _ = resolve(dataset, protocol=protocol, **cell.request)
                self.cells.append((cell, settings))
                self.estimates[settings] = estimated_seconds(settings, dataset)
                store = self.store(settings)
                for seed in range(runs or cell.runs):
                    item = Item(settings, seed, data_dir, checkpoints, dataset.identity)
                    if item.key not in known and not store.find(item.key):
                        self.items.append(item)
                    known.add(item.key)
            self.items.sort(key=lambda item: -self.estimates[item.settings])  # longest first
            self.times = RunTimes(self.datasets, self.records())
            for path in self.out.glob("*.jsonl"):
                if path.name not in self.stores:
                    with contextlib.suppress(InputError):  # the plan does not need that file
                        for record in read(path, say=lambda line: None):
                            self.times.add(record)
        except BaseException:
            self.close()
            raise

    def store(self, settings):
        """The store for runs with these settings."""
        name = f"{settings.experiment}-{settings.dataset}.jsonl"
        if name not in self.stores:
            self.stores[name] = Store(self.out / name)
        return self.stores[name]

    def records(self):
        """All records of the opened stores."""
        return [record for store in self.stores.values() for record in store.records]

    def time_text(self, items, device, workers):
        """About how long runs take; "" on a GPU where none was measured before."""
        scale = self.times.scale(device)
        if scale is None and device != "cpu":
            return ""
        seconds = sum(self.estimates[item.settings] for item in items) * (scale or 1.0)
        return f"about {duration(seconds / workers)}"

    def keep(self, item, record):
        """Store a finished run."""
        self.store(item.settings).append(record)
        self.times.add(record)

    def close(self):
        """Close the stores."""
        with contextlib.ExitStack() as stack:  # all of them, even if one cannot be written
            for store in self.stores.values():
                stack.callback(store.close)


def reproduce(args):
    """Do the runs that the flags ask for and print each cell beside the paper's.

    Returns
    -------
    int
        The exit status: 0, 2 when runs failed, 130 when interrupted.
    """
    plan = Plan(args.paper, args.only, args.protocol, args.runs, args.out, args.data_dir)
    try:
        failed, stopped = run_plan(plan, args)
        for line in summary_lines(plan):
            print(line)
        if any(cell.part == "cifar" for cell, _ in plan.cells):
            print(cifar_remark())
        if stopped:
            heads = sorted({settings.head for _, settings in plan.cells} & {*CLOSED_FORM})
            where = "on the device" if args.device == "cuda" else f"of head {', '.join(heads)}"
            lost = f"; runs under way {where} begin anew" if args.device == "cuda" or heads else ""
            print(f"interrupted: the same command goes on from here{lost}", file=sys.stderr)
            return 130
        return 2 if failed else 0
    finally:
        plan.close()


def run_plan(plan, args):
    """Do the plan's runs; returns how many failed and whether they were stopped."""
    xp = device_module(args.device)
    if xp is np:
        slots, on_stop = open_slots(args, len(plan.items))
        workers = max(len(slots), 1)
        where = f" with {workers} worker{'s' * (workers > 1)}"
    else:
        slots, on_stop, workers, where = [], lambda: None, 1, f" on {device_text()}"
    time = plan.time_text(plan.items, args.device, workers)
    cell_count, run_count = len(plan.cells), len(plan.items)
    parts = (
        f"{cell_count} cell{'s' * (cell_count != 1)}",
        f"{run_count} run{'s' * (run_count != 1)} to do",
        time,
    )
    print(", ".join(filter(None, parts)) + where, flush=True)

    def keep(item, record, left):
        plan.keep(item, record)
        return f"{plan.time_text(left, args.device, workers)} left"

    return run_items(plan.items, slots, on_stop, args.quiet, keep, xp)


def summary_lines(plan):
    """A line a cell: label, the paper's number and ours with its error."""
    found = {}
    for record in plan.records():
        found.setdefault(cell_key(record), []).append(record["accuracy"])
    width = max(len(cell.label) for cell, _ in plan.cells)
    for cell, settings in plan.cells:
        paper = "" if cell.printed is None else f"{cell.printed:.1f}"
        key = run_key(asdict(settings), None, plan.datasets[cell.dataset].identity)
        ours = with_error(found.get(key, []))
        yield f"{cell.label:{width}}  {paper:>5s} | {ours}"
