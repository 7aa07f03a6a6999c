"""`--paper`: the runs behind a table or figure, done where the store lacks them."""

import statistics
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np

from minipw import InputError, datasets, report
from minipw.backend import device_module, device_text
from minipw.bench import step_operations
from minipw.checkpoint import StopRequest
from minipw.forms import expected_form
from minipw.metrics import mean_and_interval
from minipw.paper.cells import cells, select
from minipw.progress import progress_bar
from minipw.runs import Store, cell_key, core_seconds, run_key
from minipw.seeds import execute_together
from minipw.settings import Settings, resolve
from minipw.workers import Item, SharedLane, execute, process_lanes


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
        self.datasets, self.guesses = {}, {}
        known = set()
        try:
            for cell in select(cells(part), only):
                if cell.dataset not in self.datasets:
                    self.datasets[cell.dataset] = datasets.load(cell.dataset, data_dir=data_dir)
                dataset = self.datasets[cell.dataset]
                settings, _ = resolve(dataset, protocol=protocol, **cell.request)
                self.cells.append((cell, settings))
                self.keys[settings] = run_key(asdict(settings), None, dataset.identity)
                self.sizes[settings] = estimated_seconds(settings, dataset)
                store = self.store(out, settings)
                for seed in range(runs or cell.runs):
                    checkpoints, data = str(Path(out) / "checkpoints"), dataset.identity
                    item = Item(settings, seed, data_dir, checkpoints, data)
                    if item.key not in known and not store.find(asdict(settings), seed, data):
                        self.items.append(item)
                    known.add(item.key)
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

    def measured(self, device):
        """The records of runs done on a device, "cpu" or "cuda"."""
        return [r for r in self.records() if r.get("device", "cpu") == device]

    def expected_seconds(self, device="cpu"):
        """Seconds that one worker, or the device, needs for a run, by its settings.

        The mean of the runs done so far with the same settings; where there are none,
        the estimate, scaled as it turned out for stored runs of the same network and
        head, of the same head, or of any kind, whether the plan has them or not.
        """
        measured, ratios = {}, {}
        for record in self.measured(device):
            measured.setdefault(cell_key(record), []).append(record)
        means = {key: statistics.fmean(map(core_seconds, found)) for key, found in measured.items()}
        for key, (record, *_) in measured.items():
            if key not in self.guesses:
                self.guesses[key] = self.guess(record)
            for kind, seconds in self.guesses[key].items():
                ratios.setdefault(kind, []).append(means[key] / seconds)
        scales = {kind: statistics.median(found) for kind, found in ratios.items()}
        return {
            s: means.get(key)
            or self.sizes[s] * next((scales[kind] for kind in kinds(s) if kind in scales), 1.0)
            for s, key in self.keys.items()
        }

    def guess(self, record):
        """`estimated_seconds` of a stored run under each of its kinds; empty for other data."""
        settings = Settings(**record["settings"])
        dataset = self.datasets.get(settings.dataset)
        if dataset is None or cell_key(record) != run_key(asdict(settings), None, dataset.identity):
            return {}
        return dict.fromkeys(kinds(settings), estimated_seconds(settings, dataset))

    def close(self):
        """Close the stores."""
        for store in self.stores.values():
            store.close()


def kinds(settings):
    """What runs may have in common that take alike, the closest likeness first."""
    return (settings.backbone, settings.head), (settings.head,), ()


def estimated_seconds(settings, dataset):
    """A rough guess of a run's time on one core, before anything was measured."""
    architecture, batch = settings.architecture(dataset), settings.batch_size
    tasks = settings.tasks if settings.experiment == "permuted" else 1
    steps = tasks * settings.epochs * len(dataset.y_train) / batch
    seconds = 1e-3 + step_operations(architecture, batch, settings.rule) / 5e10
    if settings.head == "pairwise":
        seconds += 2.5e-8 * expected_form(architecture, batch)[1]
        seconds += 1.5e-9 * architecture.pair_weights
    return steps * seconds


def duration(seconds):
    """Seconds as people say them: "45 s", "12 min", "3 h 20 min"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def reproduce(args):
    """Do the runs that the flags ask for and print each cell beside the paper's.

    Returns
    -------
    int
        The exit status: 0, 2 when runs failed, 130 when interrupted.
    """
    plan = Plan(args.paper, args.only, args.protocol, args.runs, args.out, args.data_dir)
    try:
        failed, stopped = work_off(plan, args)
        for line in summary_lines(plan):
            print(line)
        if stopped:
            lost = "; runs under way on the device begin anew" if args.device == "cuda" else ""
            print(f"interrupted: the same command goes on from here{lost}", file=sys.stderr)
            return 130
        return 2 if failed else 0
    finally:
        plan.close()


def work_off(plan, args):
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
        if xp is not np and not plan.measured(args.device):
            return ""
        expected = plan.expected_seconds(args.device)
        seconds = sum(expected[item.settings] for item in items) / max(len(lanes), 1)
        return f"about {duration(seconds)}"

    parts = (f"{len(plan.cells)} cells", f"{len(plan.items)} runs to do", time_for(plan.items))
    print(", ".join(filter(None, parts)) + where, flush=True)
    left = dict.fromkeys(plan.items)

    def keep(item, record):
        del left[item]
        plan.store(args.out, item.settings).append(record)
        return f"{time_for(left)} left"

    return work_items(plan.items, lanes, on_stop, args.quiet, keep, left.pop, xp)


def work_items(items, lanes, on_stop, quiet, keep, give_up=lambda item: None, xp=np):
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
                bar.write(f"failed: seed {item.seed} of {item.settings}: {outcome}", sys.stderr)
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
        executor = client.get_executor(pure=False)
        return [
            SharedLane(executor, client.close) for _ in range(min(slots, max(runs, 1)))
        ], lambda: None
    lanes, stop_flag = process_lanes(min(args.workers, runs))
    return lanes, stop_flag.set


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
            ours = report.with_error(mean, error, len(values))
        yield f"{cell.label:{width}}  {paper:>5s} | {ours}"
