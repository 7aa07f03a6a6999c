"""The flags of the command line and what they accept."""

import argparse
import math
import sys

from minipw import InputError, __version__
from minipw.paper.released import PROTOCOLS

DESCRIPTION = """\
Continual learning with the pairwise layer. A classifier sees a stream once, task
after task, is never told the task, and is tested on all tasks after each.

  python run.py --exp permuted --head pairwise        ten permutations of MNIST
  python run.py --exp split --head fc --runs 5        five seeds, the dense head
  python run.py --exp split --multi-head --rule s-mas the S-MAS rule, told the task
  python run.py --exp split --dataset digits.npz      your own data
  python run.py --exp stream --dataset wine.csv --label kind --save-model wine.npz
  python run.py --bench                               how fast, against the floor
"""

EPILOG = """\
What is not given comes from the settings released with the paper for that
experiment, head mode, backbone, head and rule, or from the nearest that has any;
the run says which. A flag always wins. --exp stream takes the defaults of the online
classifier instead, and --pair-weights are then those of a class. Accuracies are per
cent of test images.
Exit status: 0 done, 2 bad input, 130 interrupted.
"""


class Parser(argparse.ArgumentParser):
    """Takes flags by their full names and reports a mistake in one line."""

    def __init__(self, **settings):
        super().__init__(allow_abbrev=False, **settings)

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


def numbers(text):
    """A parser of numbers above 0, separated by commas."""
    return [real(0, above=True)(word) for word in text.split(",")]


def parser():
    """The parser of every flag."""
    p = Parser(
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("--version", action="version", version=f"minipw {__version__}")
    what = p.add_argument_group("what is learned")
    what.add_argument(
        "--exp",
        choices=["split", "permuted", "iid", "stream"],
        help="split: a few classes a task; permuted: all data, pixels permuted anew a task; "
        "iid: all data in random order; stream: the online classifier on the data in their own "
        "order",
    )
    what.add_argument(
        "--dataset",
        metavar="NAME",
        help="mnist (default), fashion-mnist, cifar-10, mnist-5k (bundled), FILE.npz with "
        "x_train, y_train, x_test, y_test, or FILE.csv with a header",
    )
    what.add_argument("--label", metavar="COLUMN", help="of FILE.csv, the column of the classes")
    what.add_argument(
        "--multi-head", action="store_true", help="loss and test see only the task's classes"
    )
    what.add_argument(
        "--classes-per-task", type=whole(1), metavar="N", help="split: classes of a task (2)"
    )
    what.add_argument("--tasks", type=whole(1), metavar="N", help="permuted: permutations (10)")
    what.add_argument(
        "--blur",
        type=real(0),
        metavar="F",
        help="split, permuted: tasks run into each other over this share of their length (0)",
    )
    network = p.add_argument_group("the network")
    network.add_argument("--head", choices=["pairwise", "fc"], help="pairwise unless given")
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
        type=real(0),
        metavar="F",
        help="share of the last hidden units that k-WTA keeps, in (0, 1)",
    )
    learning = p.add_argument_group("learning")
    learning.add_argument(
        "--rule", choices=["adagrad", "s-mas", "sgd"], help="adagrad unless given"
    )
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
        help="sets all five below; released, where the printed numbers come from, unless given",
    )
    protocol.add_argument("--pairs", choices=["released", "distinct"])
    protocol.add_argument("--kwta-threshold", choices=["k", "k+1"])
    protocol.add_argument("--smas-norm", choices=["mean", "sum"])
    protocol.add_argument("--class-mask", choices=["zero", "exclude"])
    protocol.add_argument("--gelu", choices=["tanh", "exact"])
    run = p.add_argument_group("the run")
    run.add_argument("--seed", type=whole(0), metavar="N", help="of the first run (0)")
    run.add_argument(
        "--runs", type=whole(1), metavar="N", help="seeds (1; --paper: the paper's number)"
    )
    run.add_argument(
        "--device",
        choices=["cpu", "cuda"],
        default="cpu",
        help="cuda: all seeds of --runs, or of a cell of --paper, together on a GPU; needs CuPy "
        "(cpu)",
    )
    run.add_argument("--data-dir", metavar="DIR", help="where data sets lie or are downloaded to")
    run.add_argument(
        "--out",
        metavar="DIR",
        help="append each result to DIR; a run found there is not repeated (--paper and --report: "
        "results, --tune: runs)",
    )
    run.add_argument("--plot", metavar="FILE", help="draw the first run (.png, .svg or .pdf)")
    run.add_argument("--json", action="store_true", help="one JSON object a run on standard output")
    run.add_argument("--quiet", action="store_true", help="the accuracy alone")
    run.add_argument(
        "--workers",
        type=whole(1),
        metavar="N",
        help="processes that share the runs of --paper and --tune (one a core)",
    )
    run.add_argument(
        "--save-model", metavar="FILE", help="stream: keep what was learned in FILE (.npz)"
    )
    run.add_argument(
        "--load-model", metavar="FILE", help="stream: go on from what --save-model kept"
    )
    paper = p.add_argument_group("the paper, table by table")
    paper.add_argument(
        "--paper",
        metavar="PART",
        help="table1 to table5, sparsity, curves, cifar or all: do the runs that --out lacks",
    )
    paper.add_argument(
        "--only", metavar="TEXT", help='the cells with these words: "mlp-700-1 pairwise"'
    )
    paper.add_argument(
        "--report", action="store_true", help="tables and figures of what --out (results) holds"
    )
    search = p.add_argument_group("settings for your own data")
    search.add_argument(
        "--tune",
        metavar="FILE",
        help="search learning rate and density on a held-out tenth of the training set, "
        "write the best settings to FILE (.json)",
    )
    search.add_argument(
        "--learning-rates", type=numbers, metavar="F,F", help="to search (the released ones)"
    )
    search.add_argument(
        "--densities", type=numbers, metavar="F,F", help="to search (the released ones)"
    )
    search.add_argument("--settings", metavar="FILE", help="settings to use where no flag is given")
    paper.add_argument("--cluster", metavar="ADDRESS", help="a dask scheduler, tcp://host:port")
    run.add_argument("--bench", action="store_true", help="time training steps and stop")
    return p


def given_flags(args):
    """The names, in `args`, of the flags that are given with another value than their default."""
    defaults = vars(parser().parse_args([]))
    return [name for name, value in vars(args).items() if value != defaults[name]]


def flag_of(name):
    """The flag behind a name in the namespace: "--lambda" for "importance_lambda"."""
    return "--" + name.removeprefix("importance_").replace("_", "-")


def refuse_unused(flags):
    """Raise InputError for a flag that is given but not used.

    flags : list of (flag, given, used, what it needs)
    """
    for flag, given, used, needs in flags:
        if given and not used:
            raise InputError(f"{flag} has no effect without {needs}: leave it out")


def network_flags(args):
    """For `refuse_unused`: flags of one head or rule with another."""
    pairwise, regularized = args.head in (None, "pairwise"), args.rule != "sgd"
    importance = args.importance_lambda is not None
    return [
        ("--pair-weights", args.pair_weights, pairwise, "--head pairwise"),
        ("--lambda", importance, regularized, "--rule adagrad or s-mas"),
        ("--smas-norm", args.smas_norm, args.rule == "s-mas", "--rule s-mas"),
    ]
