"""The command line: flags to settings, and what is printed."""

import argparse
import json
import math
import sys
from dataclasses import asdict, replace

from minipw import InputError, __version__
from minipw.paper import PROTOCOLS, printed_accuracy, released_settings

DESCRIPTION = """\
Continual learning with the pairwise layer. A classifier sees a stream once, task
after task, is never told the task, and is tested on all tasks after each.

  python run.py --exp permuted --head pairwise        ten permutations of MNIST
  python run.py --exp split --head fc --runs 5        five seeds, the dense head
  python run.py --exp split --multi-head --rule s-mas the S-MAS rule, told the task
  python run.py --exp split --dataset digits.npz      your own data
  python run.py --bench                               how fast, against the floor
"""

EPILOG = """\
What is not given comes from the settings released with the paper for that
experiment, head mode, backbone, head and rule, or from the nearest that has any;
the run says which. A flag always wins. Accuracies are per cent of test images.
Exit status: 0 done, 2 bad input, 130 interrupted.
"""


class Parser(argparse.ArgumentParser):
    """Reports a mistake in one line."""

    def error(self, message):
        print(f"error: {message} (see --help)", file=sys.stderr)
        raise SystemExit(2)


def whole(low):
    """A parser of whole numbers from `low` up."""

    def parse(text):
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if value < low:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} up")
        return value

    return parse


def real(low, above=False):
    """A parser of finite numbers from `low` up, or above it."""

    def parse(text):
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < low or (above and value == low):
            bound = "above" if above else "of at least"
            raise argparse.ArgumentTypeError(f"{text!r} is not a number {bound} {low:g}")
        return value

    return parse


def parser():
    """The parser of every flag."""
    p = Parser(
        "run.py",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("--version", action="version", version=f"minipw {__version__}")
    what = p.add_argument_group("what is learned")
    what.add_argument(
        "--exp",
        choices=["split", "permuted", "iid"],
        help="split: a few classes a task; permuted: all data, pixels permuted anew a task; "
        "iid: all data in random order",
    )
    what.add_argument(
        "--dataset",
        metavar="NAME",
        help="mnist (default), fashion-mnist, cifar-10, mnist-5k (bundled), or FILE.npz with "
        "x_train, y_train, x_test, y_test",
    )
    what.add_argument(
        "--multi-head", action="store_true", help="loss and test see only the task's classes"
    )
    what.add_argument(
        "--classes-per-task", type=whole(1), metavar="N", help="split: classes of a task (2)"
    )
    what.add_argument("--tasks", type=whole(1), metavar="N", help="permuted: permutations (10)")
    network = p.add_argument_group("the network")
    network.add_argument("--head", choices=["pairwise", "fc"], default="pairwise")
    network.add_argument(
        "--backbone",
        metavar="NAME",
        help="mlp-WIDTH-DEPTH, cnn-s or cnn-m (mlp-700-1 for pairwise, mlp-1000-1 for fc: "
        "equally many parameters)",
    )
    network.add_argument(
        "--pair-weights", type=whole(1), metavar="N", help="weights of the pairwise head"
    )
    network.add_argument(
        "--density",
        type=real(-math.inf),
        metavar="F",
        help="share of the last hidden units that k-WTA keeps, in (0, 1)",
    )
    learning = p.add_argument_group("learning")
    learning.add_argument("--rule", choices=["adagrad", "s-mas", "sgd"], default="adagrad")
    learning.add_argument("--learning-rate", type=real(0, above=True), metavar="F")
    learning.add_argument(
        "--lambda",
        dest="importance_lambda",
        type=real(0),
        metavar="F",
        help="how fast importance grows: stability against plasticity",
    )
    learning.add_argument("--batch-size", type=whole(1), metavar="N")
    learning.add_argument("--epochs", type=whole(1), metavar="N", help="passes over each task")
    protocol = p.add_argument_group(
        "where the paper and its released program differ (README, differences)"
    )
    protocol.add_argument(
        "--protocol",
        choices=list(PROTOCOLS),
        default="released",
        help="sets all five below; the printed numbers come from the released program",
    )
    protocol.add_argument("--pairs", choices=["released", "distinct"])
    protocol.add_argument("--kwta-threshold", choices=["k", "k+1"])
    protocol.add_argument("--smas-norm", choices=["mean", "sum"])
    protocol.add_argument("--class-mask", choices=["zero", "exclude"])
    protocol.add_argument("--gelu", choices=["tanh", "exact"])
    run = p.add_argument_group("the run")
    run.add_argument("--seed", type=whole(0), default=0, metavar="N", help="of the first run (0)")
    run.add_argument("--runs", type=whole(1), default=1, metavar="N", help="seeds, one by one (1)")
    run.add_argument("--data-dir", metavar="DIR", help="where data sets lie or are downloaded to")
    run.add_argument(
        "--out", metavar="DIR", help="append each result to DIR; a run found there is not repeated"
    )
    run.add_argument("--plot", metavar="FILE", help="draw the first run (.png, .svg or .pdf)")
    run.add_argument("--json", action="store_true", help="one JSON object a run on standard output")
    run.add_argument("--quiet", action="store_true", help="the accuracy alone")
    run.add_argument("--bench", action="store_true", help="time training steps and stop")
    return p


def main(argv=None):
    """Run the command line.

    Returns
    -------
    int
        The exit status.
    """
    args = parser().parse_args(argv)
    try:
        if args.bench:
            from minipw import bench

            return bench.main(as_json=args.json)
        if args.exp is None:
            raise InputError("nothing to do: give --exp split, permuted or iid (see --help)")
        return train(args)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def train(args):
    """The runs that the flags ask for."""
    check_combination(args)
    from minipw import datasets, report
    from minipw.runs import Store
    from minipw.train import Run, run

    if args.plot:
        report.pyplot()  # a missing extra is told before the training
    talk = sys.stderr if args.json else sys.stdout

    def say(text, always=False):
        if always or not args.quiet:
            print(text, file=talk, flush=True)

    dataset = datasets.load(
        args.dataset or "mnist", data_dir=args.data_dir, named=args.dataset is not None
    )
    settings, source = resolve(args, dataset)
    cell = (settings.experiment, dataset.name, settings.multi_head)
    paper = printed_accuracy(
        *cell, settings.backbone, settings.head, settings.rule, settings.batch_size
    )
    state = Run(settings, args.seed, dataset)
    say(report.settings_text(state, source, dataset.name))
    name = "-".join([settings.experiment, dataset.name, settings.backbone, settings.head])
    store = Store(f"{args.out}/{name}-{settings.rule}.jsonl") if args.out else None
    records = []
    for seed in range(args.seed, args.seed + args.runs):
        record = store and store.find(asdict(settings), seed, dataset.name)
        if record:
            say(f"seed {seed}: found in {store.path}")
        else:
            with progress_bar(state.total_steps, args.quiet) as bar:
                record = run(settings, seed, dataset, bar)
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
        report.plot_run(records[0], report.title(settings, dataset.name), args.plot)
        say(f"figure written to {args.plot}")
    return 0


def check_combination(args):
    """Refuse flags that the others leave without effect."""
    unused = [
        ("--multi-head", args.multi_head, args.exp == "split", "--exp split"),
        ("--classes-per-task", args.classes_per_task, args.exp == "split", "--exp split"),
        ("--tasks", args.tasks, args.exp == "permuted", "--exp permuted"),
        ("--pair-weights", args.pair_weights, args.head == "pairwise", "--head pairwise"),
        ("--pairs", args.pairs, args.head == "pairwise", "--head pairwise"),
        ("--smas-norm", args.smas_norm, args.rule == "s-mas", "--rule s-mas"),
        ("--class-mask", args.class_mask, args.multi_head, "--multi-head"),
    ]
    for flag, given, used, needs in unused:
        if given and not used:
            raise InputError(f"{flag} has no effect without {needs}: leave it out")


def resolve(args, dataset):
    """Settings from the flags, the protocol and the released settings.

    Returns
    -------
    settings : Settings
    source : str
        Where the unset ones came from, for the reader.
    """
    from minipw.train import Settings

    backbone = args.backbone or ("mlp-700-1" if args.head == "pairwise" else "mlp-1000-1")
    defaults, nearest = released_settings(
        args.exp, dataset.name, args.multi_head, backbone, args.head, args.rule
    )
    values = {**defaults, **PROTOCOLS[args.protocol]}
    given = {
        key: value
        for key in (*values, "classes_per_task", "tasks")
        if (value := getattr(args, key)) is not None
    }
    settings = Settings(
        experiment=args.exp,
        dataset=dataset.name,
        backbone=backbone,
        head=args.head,
        rule=args.rule,
        multi_head=args.multi_head,
        **{**values, **given},
    )
    source = f"nearest released: {nearest}" if nearest else "released with the paper"
    if args.protocol != "released":
        source += f"; protocol {args.protocol}"
    if given:
        source += "; given: " + ", ".join(key.replace("_", "-") for key in given)
    architecture = settings.architecture(dataset)
    exist = architecture.units * (architecture.units - 1) // 2
    own_pairs = settings.pairs == "distinct" or (nearest and backbone not in nearest.split())
    if "pair_weights" not in given and args.head == "pairwise" and own_pairs:
        # A default never asks for more pairs than there are.
        fitting = exist // dataset.classes * dataset.classes
        if fitting < settings.pair_weights:
            settings = replace(settings, pair_weights=fitting)
            source += f"; pair weights {fitting:,}, all pairs that exist"
    return settings, source


def progress_bar(steps, quiet):
    """A bar over the training steps on standard error."""
    from tqdm import tqdm

    return tqdm(
        total=steps, unit=" steps", disable=quiet, leave=False, dynamic_ncols=True, file=sys.stderr
    )
