"""The command line: flags to settings, and what is printed."""

import json
import os
import sys
from pathlib import Path

from minipw import InputError
from minipw.cli.flags import flag_of, given_flags, network_flags, parser, refuse_unused

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
    "label",
    "blur",
)
"""Flags that set one setting each, where they are given."""
READ_BY = {
    "bench": ("device", "data_dir", "json"),
    "report": ("out", "protocol"),
    "paper": (
        "only",
        "protocol",
        "runs",
        "out",
        "data_dir",
        "device",
        "workers",
        "cluster",
        "quiet",
    ),
}
"""The flags that a command other than --exp heeds."""


def main(argv=None):
    """Run the command line.

    Returns
    -------
    int
        The exit status.
    """
    args = parser().parse_args(argv)
    args.given = given_flags(args)
    args.protocol, args.seed = args.protocol or "released", args.seed or 0
    for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
        os.environ.setdefault(variable, "1")  # backend.THREADS share more than the products
    try:
        if not (args.exp or args.bench or args.paper or args.report or args.settings):
            raise InputError("nothing to do: give --exp split, permuted or another (see --help)")
        check_commands(args)
        if args.paper:
            return paper(args)
        if args.report:
            from minipw.experiments.tables import report

            return report(args.out or "results", args.protocol)
        from minipw.backend.threads import THREADS, available_threads, keep_freed_memory

        keep_freed_memory()
        # On a device the host only launches work: threads would cut the batch in pieces.
        with THREADS.use(available_threads() if args.device == "cpu" else 1):
            return benchmark(args) if args.bench else train(args)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except MemoryError as error:
        print(f"error: not enough memory: {error}; use a smaller network", file=sys.stderr)
        return 2
    except OSError as error:
        if error.filename is None:  # output that nobody takes: no more of it, at exit neither
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        if not isinstance(error, BrokenPipeError):
            where = error.filename or "the output"
            print(f"error: {where}: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def paper(args):
    """Do the runs behind a part of the paper."""
    from minipw.backend.threads import available_cores
    from minipw.experiments.plan import reproduce

    args.out = args.out or "results"
    args.workers = args.workers or available_cores()
    return reproduce(args)


def benchmark(args):
    """Time the training steps of a set of networks."""
    if args.device == "cuda":
        from minipw.bench import gpu

        return gpu.main(args)
    from minipw.bench import cpu

    return cpu.main(as_json=args.json)


def train(args):
    """The runs, or the search, that the flags ask for."""
    if args.exp == "stream":
        from minipw.cli.stream import stream

        return stream(args)
    from_file = take_settings(args)
    check_combination(args)
    from minipw import datasets
    from minipw.cli.train import experiment
    from minipw.experiments import figures
    from minipw.training.settings import resolve

    if args.plot:
        figures.check_figure(args.plot)
    dataset = datasets.load(
        args.dataset or "mnist",
        data_dir=args.data_dir,
        named=args.dataset is not None,
        label=args.label,
    )
    if args.classes_per_task and dataset.tasks_train is not None:
        raise InputError(f"{dataset.name} names its tasks itself: leave out --classes-per-task")
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
    if settings.blur and args.device == "cuda":
        raise InputError("blurred streams run on the CPU alone: leave out blur or --device cuda")
    talk = sys.stderr if args.json else sys.stdout

    def say(text, always=False):
        if always or not args.quiet:
            print(text, file=talk, flush=True)

    if args.tune:
        return tune(args, settings, dataset, say)
    return experiment(args, settings, source, dataset, say)


def take_settings(args):
    """Fill in what no flag gave from the file of --settings.

    Returns
    -------
    dict
        The settings of the file that have flags of their own name.
    """
    values = {}
    if args.settings:
        from minipw.paper.released import PROTOCOLS
        from minipw.training.settings import read_settings

        values = read_settings(args.settings)
        if "protocol" in args.given:  # a flag wins over the file
            values = {k: v for k, v in values.items() if k not in PROTOCOLS[args.protocol]}
    if values.get("experiment") == "stream":
        raise InputError("--settings is not for --exp stream: give its flags on the command line")
    for name in ("backbone", "head"):
        if name in args.given and getattr(args, name) != values.get(name, getattr(args, name)):
            values.pop("pair_weights", None)  # it was the other network's
    args.exp = args.exp or values.get("experiment")
    args.dataset = args.dataset or values.get("dataset")
    args.backbone = args.backbone or values.get("backbone")
    args.head = args.head or values.get("head", "pairwise")
    args.rule = args.rule or values.get("rule", "adagrad")
    if args.head == "fc":
        values.pop("pair_weights", None)
    if not (args.dataset or "").lower().endswith(".csv"):
        values.pop("label", None)  # it belongs to the file's own data set
    if args.exp != "split":
        values.pop("multi_head", None)
    args.label = args.label or values.get("label")
    args.multi_head = args.multi_head or values.get("multi_head", False)
    if args.exp is None:
        raise InputError("nothing to do: give --exp split, permuted or another (see --help)")
    return {key: values[key] for key in GIVEN if key in values}


def tune(args, settings, dataset, say):
    """Search settings and write the best to a file that --settings reads."""
    from minipw.backend.threads import available_cores
    from minipw.experiments.tune import tune

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


def check_commands(args):
    """Refuse flags that belong to another of the things that can be done."""
    commands = [name for name in ("bench", "report", "paper", "exp") if name in args.given]
    if len(commands) > 1:
        first, second = (flag_of(name) for name in commands[:2])
        raise InputError(f"{first} and {second} are two different things: give one of them")
    for command in commands:
        for name in args.given:
            if command in READ_BY and name not in (command, *READ_BY[command]):
                raise InputError(
                    f"{flag_of(name)} has no effect with {flag_of(command)}: leave it out"
                )
    on_gpu = not args.bench or args.device == "cuda"
    unused = [
        ("--data-dir", args.data_dir, on_gpu, "--device cuda: --bench uses bundled images"),
        ("--only", args.only, args.paper, "--paper"),
        ("--cluster", args.cluster, args.paper or args.tune, "--paper or --tune"),
        ("--workers", args.workers, args.paper or args.tune, "--paper or --tune"),
        ("--learning-rates", args.learning_rates, args.tune, "--tune"),
        ("--densities", args.densities, args.tune, "--tune"),
    ]
    refuse_unused(unused)
    if args.cluster and args.workers:
        raise InputError("--cluster brings its own workers: leave out --workers")
    if args.only is not None and not args.only.split():
        raise InputError("--only is empty: give words of a cell, or leave it out")
    if args.device == "cuda":
        for flag, given in (
            ("--workers", args.workers),
            ("--cluster", args.cluster),
            ("--tune", args.tune),
        ):
            if given:
                raise InputError(f"{flag} uses processes on CPUs: leave out it or --device cuda")


def check_combination(args):
    """Refuse flags that the others leave without effect."""
    unused = [
        ("--multi-head", args.multi_head, args.exp == "split", "--exp split"),
        ("--classes-per-task", args.classes_per_task, args.exp == "split", "--exp split"),
        ("--tasks", args.tasks, args.exp == "permuted", "--exp permuted"),
        ("--blur", args.blur, args.exp in ("split", "permuted"), "--exp split or permuted"),
        ("--pairs", args.pairs, args.head == "pairwise", "--head pairwise"),
        ("--class-mask", args.class_mask, args.multi_head, "--multi-head"),
        ("--save-model", args.save_model, False, "--exp stream"),
        ("--load-model", args.load_model, False, "--exp stream"),
    ]
    refuse_unused([*unused, *network_flags(args)])
    if args.tune:
        for flag, given, instead in (
            ("--density", args.density, "--densities"),
            ("--learning-rate", args.learning_rate, "--learning-rates"),
            ("--plot", args.plot, "--plot with --settings afterwards"),
        ):
            if given is not None:
                raise InputError(f"{flag} has no effect with --tune: give {instead}")
        from minipw.files import check_writable

        check_writable(args.tune, (".json",), "settings")


def given_settings(args):
    """The settings that flags set, by name."""
    values = {key: getattr(args, key) for key in GIVEN}
    return {key: value for key, value in values.items() if value is not None}
