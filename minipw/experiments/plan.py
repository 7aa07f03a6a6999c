"""`--paper`: the runs behind a table or figure, done where the store lacks them."""

import contextlib
import os
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np

from minipw import InputError, datasets
from minipw.backend.cuda import device_module, device_text
from minipw.experiments import run_text
from minipw.experiments.run_times import RunTimes, duration, estimated_seconds
from minipw.experiments.schedule import open_lanes, run_items
from minipw.experiments.store import Store, cell_key, read, run_key
from minipw.experiments.workers import Item
from minipw.paper.cells import cells, cifar_remark, select
from minipw.training.metrics import mean_and_interval
from minipw.training.settings import resolve


class Plan:
    """What a request needs: its cells with their settings, and the runs still to do.

    Parameters
    ----------
    part, only, protocol : str
        As on the command line.
    runs : int or None
        Seeds a cell; None takes the paper's number.
    out : str
        Folder of the store.
    data_dir : str or None
    """

    def __init__(
        self, part, only=None, protocol="released", runs=None, out="results", data_dir=None
    ):
        self.cells = []
        self.items, self.sizes, self.keys, self.stores = [], {}, {}, {}
        self.datasets, known = {}, set()
        checkpoints = os.path.abspath(os.path.join(out, "checkpoints"))
        try:
            for cell in select(cells(part), only):
                if cell.dataset not in self.datasets:
                    self.datasets[cell.dataset] = datasets.load(cell.dataset, data_dir=data_dir)
                dataset = self.datasets[cell.dataset]
                settings, _ = resolve(dataset, protocol=protocol, **cell.request)
                self.cells.append((cell, settings))
                self.keys[settings] = run_key(asdict(settings), None, dataset.identity)
                self.sizes[settings] = estimated_seconds(settings, dataset, len(dataset.y_train))
                store, data = self.store(out, settings), dataset.identity
                for seed in range(runs or cell.runs):
                    item = Item(settings, seed, data_dir, checkpoints, data)
                    if item.key not in known and not store.find(asdict(settings), seed, data):
                        self.items.append(item)
                    known.add(item.key)
            self.times = RunTimes(self.datasets, self.records())
            for path in Path(out).glob("*.jsonl"):
                if path.name not in self.stores:
                    with contextlib.suppress(InputError):  # it is no matter of this plan
                        for record in read(path):
                            self.times.add(record)
        except BaseException:
            self.close()
            raise

    def store(self, out, settings):
        """The store for runs with these settings."""
        name = f"{settings.experiment}-{settings.dataset}.jsonl"
        if name not in self.stores:
            self.stores[name] = Store(Path(out) / name)
        return self.stores[name]

    def records(self):
        """All records of the opened stores."""
        return [record for store in self.stores.values() for record in store.records]

    def expected_seconds(self, device="cpu"):
        """Seconds that one worker, or the device, needs for a run, by its settings.

        Learned from every run in the folder, whether the plan has it or not.
        """
        return self.times.expected(self.keys, self.sizes, device)

    def keep(self, out, item, record):
        """Store a finished run."""
        self.store(out, item.settings).append(record)
        self.times.add(record)

    def close(self):
        """Close the stores."""
        for store in self.stores.values():
            store.close()


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
            lost = "; runs under way on the device begin anew" if args.device == "cuda" else ""
            print(f"interrupted: the same command goes on from here{lost}", file=sys.stderr)
            return 130
        return 2 if failed else 0
    finally:
        plan.close()


def run_plan(plan, args):
    """Do the plan's runs, the longest first; returns the failed ones and whether stopped."""
    xp = device_module(args.device)
    expected = plan.expected_seconds(args.device)
    plan.items.sort(key=lambda item: -expected[item.settings])
    lanes, on_stop, where = [], lambda: None, f" on {device_text()}" if xp is not np else ""
    if xp is np:
        lanes, on_stop = open_lanes(args, len(plan.items))
        where = f" with {max(len(lanes), 1)} worker{'s' * (len(lanes) > 1)}"

    def time_for(items):
        """How long runs take, as text; nothing before one was measured on a device."""
        if xp is not np and not plan.times.learned_on(args.device):
            return ""
        expected = plan.expected_seconds(args.device)
        seconds = sum(expected[item.settings] for item in items) / max(len(lanes), 1)
        return f"about {duration(seconds)}"

    parts = (f"{len(plan.cells)} cells", f"{len(plan.items)} runs to do", time_for(plan.items))
    print(", ".join(filter(None, parts)) + where, flush=True)
    left = dict.fromkeys(plan.items)

    def keep(item, record):
        del left[item]
        plan.keep(args.out, item, record)
        return f"{time_for(left)} left"

    return run_items(plan.items, lanes, on_stop, args.quiet, keep, left.pop, xp)


def summary_lines(plan):
    """A line a cell: label, the paper's number and ours with its error."""
    found = {}
    for record in plan.records():
        found.setdefault(cell_key(record), []).append(record["accuracy"])
    width = max(len(cell.label) for cell, _ in plan.cells)
    for cell, settings in plan.cells:
        values = found.get(plan.keys[settings], [])
        paper = "" if cell.printed is None else f"{cell.printed:.1f}"
        ours = "-"
        if values:
            mean, error, _ = mean_and_interval(values)
            ours = run_text.with_error(mean, error, len(values))
        yield f"{cell.label:{width}}  {paper:>5s} | {ours}"
