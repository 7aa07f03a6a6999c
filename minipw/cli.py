"""The command line: flags to settings, and what is printed."""

import json
import os
import sys
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

from minipw import InputError
from minipw.flags import parser
from minipw.paper import printed_accuracy

GIVEN = (
    "learning_rate",
    "density",
    "importance_lambda",
    "batch_size",
    "epochs",
    "pair_weights",
    "classes_per_task",
    "tasks",
    "pairs",
    "kwta_threshold",
    "smas_norm",
    "class_mask",
    "gelu",
)
"""Flags that set one setting each, where they are given."""


def main(argv=None):
    """Run the command line.

    Returns
    -------
    int
        The exit status.
    """
    args = parser().parse_args(argv)
    for library in ("OPENBLAS", "MKL"):
        # The threads of backend.THREADS do more than those of the matrix products.
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    try:
        if not (args.exp or args.bench or args.paper or args.report or args.settings):
            raise InputError("nothing to do: give --exp split, permuted or iid (see --help)")
        if args.paper:
            return paper(args)
        if args.report:
            from minipw.tables import report

            return report(args.out or "results", args.protocol)
        from minipw.backend import THREADS, available_threads

        with THREADS.use(available_threads()):
            return benchmark(args) if args.bench else train(args)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        # Output that nobody can take: nothing more is written, at exit neither.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        if not isinstance(error, BrokenPipeError):
            print(f"error: cannot write the output: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def paper(args):
    """Do the runs behind a part of the paper."""
    from minipw.backend import available_cores
    from minipw.reproduce import reproduce

    args.out = args.out or "results"
    args.workers = args.workers or available_cores()
    return reproduce(args)


def benchmark(args):
    """Time the training steps of a set of networks."""
    from minipw import bench

    return bench.main(as_json=args.json)


def train(args):
    """The runs, or the search, that the flags ask for."""
    from_file = take_settings(args)
    check_combination(args)
    from minipw import datasets, figures, report
    from minipw.checkpoint import Stopped, StopRequest
    from minipw.settings import resolve
    from minipw.train import Run, run

    if args.plot:
        figures.check_figure(args.plot)
    talk = sys.stderr if args.json else sys.stdout

    def say(text, always=False):
        if always or not args.quiet:
            print(text, file=talk, flush=True)

    dataset = datasets.load(
        args.dataset or "mnist", data_dir=args.data_dir, named=args.dataset is not None
    )
    settings, source = resolve(
        dataset,
        args.exp,
        args.multi_head,
        args.backbone,
        args.head,
        args.rule,
        args.protocol,
        {**from_file, **given_settings(args)},
    )
    if args.tune:
        return tune(args, settings, dataset, say)
    args.runs = args.runs or 1
    cell = (settings.experiment, dataset.name, settings.multi_head)
    paper = printed_accuracy(
        *cell, settings.backbone, settings.head, settings.rule, settings.batch_size
    )
    state = Run(settings, args.seed, dataset)
    say(report.settings_text(state, source, dataset.name))
    records = []
    with open_store(args, settings) as store, StopRequest() as stop:
        for seed in range(args.seed, args.seed + args.runs):
            record = store and store.find(asdict(settings), seed, dataset.name)
            if record:
                say(f"seed {seed}: found in {store.path}")
            else:
                keeper = keeper_for(args, settings, seed, stop)
                try:
                    with progress_bar(state.total_steps, args.quiet) as bar:
                        record = run(settings, seed, dataset, bar, keeper)
                except Stopped as stopped:
                    print(f"interrupted at step {stopped}{keeper.advice}", file=sys.stderr)
                    return 130
                if store:
                    store.append(record)
            records.append(record)
            if args.json:
                print(json.dumps(record), flush=True)
            if args.runs > 1:
                say(f"seed {seed}: accuracy {record['accuracy']:.2f} %, {record['seconds']:.1f} s")
            else:
                say(report.result_text(record, paper))
    if args.runs > 1 or args.quiet:
        say(report.summary_text(records, paper), always=not args.json)
    if args.plot:
        figures.plot_run(records[0], report.title(settings, dataset.name), args.plot)
        say(f"figure written to {args.plot}")
    return 0


def take_settings(args):
    """Fill in what no flag gave from the file of --settings.

    Returns
    -------
    dict
        The settings of the file that have flags of their own name.
    """
    values = {}
    if args.settings:
        from minipw.tune import read_settings

        values = read_settings(args.settings)
    args.exp = args.exp or values.get("experiment")
    args.dataset = args.dataset or values.get("dataset")
    args.backbone = args.backbone or values.get("backbone")
    args.head = args.head or values.get("head", "pairwise")
    args.rule = args.rule or values.get("rule", "adagrad")
    args.multi_head = args.multi_head or values.get("multi_head", False)
    if args.exp is None:
        raise InputError("nothing to do: give --exp split, permuted or iid (see --help)")
    return {key: values[key] for key in GIVEN if key in values}


def tune(args, settings, dataset, say):
    """Search settings and write the best to a file that --settings reads."""
    from minipw.backend import available_cores
    from minipw.tune import tune

    args.out = args.out or "runs"
    args.workers = args.workers or available_cores()
    chosen = tune(settings, dataset, args, say)
    if chosen is None:
        print("interrupted: the same command goes on from here", file=sys.stderr)
        return 130
    text = json.dumps(chosen, indent=2) + "\n"
    try:
        Path(args.tune).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {args.tune}: {error.strerror}") from None
    if args.json:
        print(json.dumps(chosen))
    say(f"best settings written to {args.tune}: use them with --settings {args.tune}")
    return 0


def keeper_for(args, settings, seed, stop):
    """What saves a run when it is interrupted, if there is a folder for it."""
    from minipw.checkpoint import Keeper, path_for
    from minipw.runs import run_key

    key = run_key(asdict(settings), seed, settings.dataset)
    path = path_for(os.path.join(args.out, "checkpoints"), key) if args.out else None
    return Keeper(path, key, stop)


def open_store(args, settings):
    """The store under --out for runs like these, or a context of None."""
    if not args.out:
        return nullcontext()
    from minipw.runs import Store

    name = f"{settings.experiment}-{Path(settings.dataset).stem}.jsonl"
    return Store(Path(args.out) / name)


def check_combination(args):
    """Refuse flags that the others leave without effect."""
    unused = [
        ("--multi-head", args.multi_head, args.exp == "split", "--exp split"),
        ("--classes-per-task", args.classes_per_task, args.exp == "split", "--exp split"),
        ("--tasks", args.tasks, args.exp == "permuted", "--exp permuted"),
        ("--pair-weights", args.pair_weights, args.head == "pairwise", "--head pairwise"),
        ("--pairs", args.pairs, args.head == "pairwise", "--head pairwise"),
        (
            "--lambda",
            args.importance_lambda is not None,
            args.rule != "sgd",
            "--rule adagrad or s-mas",
        ),
        ("--smas-norm", args.smas_norm, args.rule == "s-mas", "--rule s-mas"),
        ("--class-mask", args.class_mask, args.multi_head, "--multi-head"),
    ]
    for flag, given, used, needs in unused:
        if given and not used:
            raise InputError(f"{flag} has no effect without {needs}: leave it out")


def given_settings(args):
    """The settings that flags set, by name."""
    values = {key: getattr(args, key) for key in GIVEN}
    return {key: value for key, value in values.items() if value is not None}


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
