"""`--exp`: seeds one after the other in this process, each shown as it ends."""

import json
import os
import sys
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

from minipw import figures, report
from minipw.checkpoint import Keeper, Stopped, StopRequest, path_for
from minipw.paper import PROTOCOLS, printed_accuracy, released_settings
from minipw.runs import Store, run_key
from minipw.train import Run, run


def experiment(args, settings, source, dataset, say):
    """Do the runs, store and show them.

    Parameters
    ----------
    args : namespace
        seed, runs, out, plot, json, quiet.
    settings : Settings
    source : str
        Where they came from.
    dataset : Dataset
    say : callable of str

    Returns
    -------
    int
        The exit status.
    """
    runs, beside = args.runs or 1, paper_number(settings)
    state, records = Run(settings, args.seed, dataset), []
    steps = state.total_steps
    say(report.settings_text(state, source, dataset.name))
    with open_store(args, settings) as store, StopRequest() as stop:
        for seed in range(args.seed, args.seed + runs):
            record = store and store.find(asdict(settings), seed, dataset.identity)
            if record:
                say(f"seed {seed}: found in {store.path}")
            else:
                keeper = keeper_for(args, settings, seed, dataset, stop)
                try:
                    with progress_bar(steps, args.quiet) as bar:
                        record = run(settings, seed, dataset, bar, keeper, state)
                except Stopped as stopped:
                    print(f"interrupted at step {stopped}{keeper.advice}", file=sys.stderr)
                    return 130
                if store:
                    store.append(record)
            state = None  # it was the first seed's
            records.append(record)
            if args.json:
                print(json.dumps(record), flush=True)
            if runs > 1:
                say(f"seed {seed}: accuracy {record['accuracy']:.2f} %, {record['seconds']:.1f} s")
            else:
                say(report.result_text(record, beside))
    if runs > 1 or args.quiet:
        say(report.summary_text(records, beside), always=not args.json)
    if args.plot:
        figures.plot_run(records[0], report.title(settings, dataset.name), args.plot)
        say(f"figure written to {args.plot}")
    return 0


def paper_number(settings):
    """The paper's accuracy for the same cell, as text to print beside ours, or ""."""
    cell = (settings.experiment, settings.dataset, settings.multi_head)
    network = (settings.backbone, settings.head, settings.rule)
    printed = printed_accuracy(*cell, *network, settings.batch_size)
    released, _ = released_settings(*cell, *network)
    same_stream = (settings.classes_per_task, settings.tasks, settings.epochs) == (
        2,
        10,
        released["epochs"],
    )
    if printed is None or not same_stream:
        return ""
    released |= PROTOCOLS["released"]
    same = all(getattr(settings, name) == value for name, value in released.items())
    return f"   (paper{'' if same else ', with its own settings'}: {printed:g} %)"


def keeper_for(args, settings, seed, dataset, stop):
    """What saves a run when it is interrupted, if there is a folder for it."""
    key = run_key(asdict(settings), seed, dataset.identity)
    path = path_for(os.path.join(args.out, "checkpoints"), key) if args.out else None
    return Keeper(path, key, stop)


def open_store(args, settings):
    """The store under --out for runs like these, or a context of None."""
    if not args.out:
        return nullcontext()
    name = f"{settings.experiment}-{Path(settings.dataset).stem}.jsonl"
    return Store(Path(args.out) / name)


def progress_bar(steps, quiet):
    """A bar over the training steps on standard error, if that is a terminal."""
    from tqdm import tqdm

    return tqdm(
        total=steps,
        unit=" steps",
        disable=quiet or None,
        leave=False,
        dynamic_ncols=True,
        file=sys.stderr,
    )
