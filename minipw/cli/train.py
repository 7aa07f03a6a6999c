"""`train`: seeds one after the other in this process, or together on a device."""

import json
import os
import sys
from contextlib import nullcontext
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path

from minipw import InputError, datasets
from minipw.backend.arrays import array_module
from minipw.backend.cuda import device_module, device_text
from minipw.cli import run_text
from minipw.cli.flags import check_learner, refuse_unused
from minipw.datasets import user_files
from minipw.experiments import figures
from minipw.experiments.store import Store, run_key
from minipw.paper.released import PROTOCOLS, printed_accuracy, released_settings
from minipw.parameters import CLOSED_FORM, OF_NETWORKS
from minipw.progress import progress_bar
from minipw.training.checkpoint import Checkpointer, Stopped, StopRequest, path_for
from minipw.training.run import begin
from minipw.training.run import train as train_run
from minipw.training.settings import Settings, read_settings, resolve


def train(args):
    """Do the runs that the flags ask for, store and show them; returns the exit status."""
    args.seed, runs = args.seed or 0, args.runs or 1
    if args.plot:
        figures.check_figure(args.plot)
    settings, source, dataset = chosen_settings(args)
    if settings.blur and args.device == "cuda":
        raise InputError("blurred streams run on the CPU alone: leave out blur or --device cuda")
    say = speaker(args)
    beside = paper_number(settings)
    state, records = begin(settings, args.seed, dataset, device_module(args.device)), []
    say(run_text.settings_text(state, source, dataset.name))
    with open_store(args, settings) as store, StopRequest() as stop:
        seeds = range(args.seed, args.seed + runs)
        keys = {seed: run_key(asdict(settings), seed, dataset.identity) for seed in seeds}
        found = {seed: store and store.find(key) for seed, key in keys.items()}
        missing = [seed for seed in seeds if not found[seed]]
        perform = together if args.device == "cuda" else one_by_one
        outcomes = perform(args, state, missing, dataset, store, stop, say)
        del state
        for seed in seeds:
            record = found[seed]
            if record:
                say(f"seed {seed}: found in {store.path}")
            else:
                try:
                    record = next(outcomes)
                except Stopped as stopped:
                    print(f"interrupted at step {stopped}", file=sys.stderr)
                    return 130
            records.append(record)
            if args.json:
                print(json.dumps(record), flush=True)
            if runs > 1:
                say(f"seed {seed}: accuracy {record['accuracy']:.2f} %, {record['seconds']:.1f} s")
            else:
                say(run_text.result_text(record, beside))
    if runs > 1 or args.quiet:
        say(run_text.summary_text(records, beside), always=not args.json)
    if args.plot:
        figures.plot_run(records[0], run_text.title(settings, dataset.name), args.plot)
        say(f"figure written to {args.plot}")
    return 0


def speaker(args):
    """A function that prints text for the reader, beside what --json prints."""
    talk = sys.stderr if args.json else sys.stdout

    def say(text, always=False):
        if always or not args.quiet:
            print(text, file=talk, flush=True)

    return say


def chosen_settings(args):
    """The settings that the flags ask for, where the others came from, and the data set.

    A flag wins over the file of --settings, both win over what was released.
    """
    names = [field.name for field in fields(Settings)]
    flags = {name: getattr(args, name, None) for name in names}
    flags = {name: value for name, value in flags.items() if value is not None}
    given = {**settings_of_file(args, flags), **flags}
    if "experiment" not in given:
        raise InputError("nothing to do: give --exp split, permuted or iid (see run.py --help)")
    experiment, head = given.pop("experiment"), given.pop("head", "pairwise")
    rule, multi_head = given.pop("rule", "adagrad"), given.pop("multi_head", False)
    needs = {
        "multi_head": (experiment == "split", "--exp split"),
        "classes_per_task": (experiment == "split", "--exp split"),
        "tasks": (experiment == "permuted", "--exp permuted"),
        "blur": (experiment in ("split", "permuted"), "--exp split or permuted"),
        "class_mask": (multi_head, "--multi-head"),
    }
    if args.protocol and head in CLOSED_FORM:
        raise InputError("--protocol has no effect without --head pairwise or fc: leave it out")
    refuse_unused((name, *need) for name, need in needs.items() if flags.get(name))
    check_learner(flags, head, rule)
    name = given.pop("dataset", None)
    dataset = datasets.load(
        name or "mnist", data_dir=args.data_dir, named=name is not None, label=given.get("label")
    )
    if "classes_per_task" in flags and dataset.tasks_train is not None:
        raise InputError(f"{dataset.name} names its tasks itself: leave out --classes-per-task")
    protocol, backbone = args.protocol or "released", given.pop("backbone", None)
    settings, source = resolve(
        dataset, experiment, multi_head, backbone, head, rule, protocol, given
    )
    return settings, source, dataset


def settings_of_file(args, flags):
    """The settings of the file of --settings that go with the flags; {} without one."""
    values = read_settings(args.settings) if args.settings else {}
    if args.protocol:  # a flag wins over the file
        values = {k: v for k, v in values.items() if k not in PROTOCOLS[args.protocol]}
    both = {**values, **flags}
    other = any(both.get(name) != values.get(name, both.get(name)) for name in ("backbone", "head"))
    if other or both.get("head") == "fc":
        values.pop("pair_weights", None)  # they are another network's
    if both.get("head") in CLOSED_FORM:
        values = {k: v for k, v in values.items() if k not in OF_NETWORKS}
    if len({one.get("head") in CLOSED_FORM for one in (values, both)}) == 2:
        values.pop("backbone", None)
    if not user_files.is_table(both.get("dataset", "")):
        values.pop("label", None)  # it belongs to the file's own data set
    if both.get("experiment") != "split":
        values.pop("multi_head", None)
    return values


def one_by_one(args, state, seeds, dataset, store, stop, say):
    """Yield the record of each seed, stored, from runs one after the other on the CPU.

    `state` is the run of the command's first seed, before its first step. Raises `Stopped`
    with the step and what becomes of the run.
    """
    settings, steps = state.settings, state.total_steps
    for seed in seeds:
        ready = state if state and state.seed == seed else None
        state = None
        checkpointer = checkpointer_for(args, settings, seed, dataset, stop)
        try:
            with progress_bar(steps, " steps", args.quiet) as bar:
                record = train_run(settings, seed, dataset, bar, checkpointer, ready)
        except Stopped as stopped:
            again = "; the same command begins this run again"
            advice = again if settings.head in CLOSED_FORM else checkpointer.advice
            raise Stopped(f"{stopped}{advice}") from None
        if store:
            store.append(record)
        yield record


def together(args, state, seeds, dataset, store, stop, say):
    """As `one_by_one`, on the device, as many at once as fit.

    When a run failed, the records of the others are stored before its InputError.
    """
    from minipw.training.many_seeds import run_seeds, seeds_that_fit

    settings, steps, xp = state.settings, state.total_steps, array_module(state.importance["head"])
    count = min(seeds_that_fit(settings, dataset, xp), max(len(seeds), 1))
    say(f"  device      {device_text()}; {count} run{'s' * (count > 1)} together")
    ready = {state.seed: state}
    state = None
    new_bar = partial(progress_bar, steps, " steps", args.quiet)
    try:
        for done in run_seeds(settings, seeds, dataset, xp, count, new_bar, stop, ready):
            records = [outcome for _, outcome in done if isinstance(outcome, dict)]
            for record in records if store else ():
                store.append(record)
            for _, outcome in done:
                if isinstance(outcome, InputError):
                    raise outcome
                yield outcome
    except Stopped as stopped:
        advice = "the same command does these runs again" if store else "nothing was saved"
        raise Stopped(f"{stopped} of {count} runs; {advice}") from None


def paper_number(settings):
    """The paper's accuracy for the same cell, as text to print beside ours, or ""."""
    cell = (settings.experiment, settings.dataset, settings.multi_head)
    network = (settings.backbone, settings.head, settings.rule)
    printed = printed_accuracy(*cell, *network, settings.batch_size)
    released, _ = released_settings(*cell, *network)
    stream = settings.classes_per_task, settings.tasks, settings.epochs
    if printed is None or settings.blur or stream != (2, 10, released["epochs"]):
        return ""
    released |= PROTOCOLS["released"]
    same = all(getattr(settings, name) == value for name, value in released.items())
    return f"   (paper{'' if same else ', with its own settings'}: {printed:g} %)"


def checkpointer_for(args, settings, seed, dataset, stop):
    """What saves a run when it is interrupted, if there is a folder for it."""
    key = run_key(asdict(settings), seed, dataset.identity)
    path = path_for(os.path.join(args.out, "checkpoints"), key) if args.out else None
    return Checkpointer(path, key, stop)


def open_store(args, settings):
    """The store under --out for runs like these, or a context of None."""
    if not args.out:
        return nullcontext()
    name = f"{settings.experiment}-{Path(settings.dataset).stem}.jsonl"
    return Store(Path(args.out) / name)
