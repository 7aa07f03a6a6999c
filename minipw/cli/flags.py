"""The flags of each subcommand: what they are called, what they accept, what they mean."""

import argparse
import sys

from minipw import InputError, __version__
from minipw.paper.released import PROTOCOLS
from minipw.parameters import CLOSED_FORM, OF_NETWORKS, PARAMETERS

DESCRIPTION = """\
Continual learning with the pairwise layer. A classifier sees a stream once, task
after task, is never told the task, and is tested on all tasks after each.

  python run.py --exp permuted --head pairwise         ten permutations of MNIST
  python run.py --exp split --head fc --runs 5         five seeds, the dense head
  python run.py --exp split --multi-head --rule s-mas  the S-MAS rule, told the task
  python run.py --exp split --dataset digits.npz       your own data, in tasks
  python run.py stream wine.csv --label kind           your own stream, in its order
  python run.py tune best.json --exp split             settings for your own data
  python run.py paper table1 --only "mlp-700-1 fc"     a row of the paper's Table 1
  python run.py report                                 tables and figures of all runs
  python run.py bench                                  how fast, against the floor

Each command has a --help of its own; `train` may be left out.
"""
SETTINGS = """\
What is not given comes from the settings released with the paper for that
experiment, head mode, backbone, head and rule, or from the nearest that has any;
the run says which. A flag always wins. Accuracies are per cent of test images.
"""
EPILOG = "Exit status: 0 done, 2 bad input, 130 interrupted."
STREAM_HEADS = ("pairwise", "fc", "ridge")
STREAM_HEAD = "pairwise unless given; ridge: regression on fixed features, without a network"
STREAM_BACKBONE = (
    "mlp-WIDTH-DEPTH (mlp-500-1), cnn-s or cnn-m; of ridge: random-FEATURES (random-1000), "
    "scales-FEATURES (scales-3600 of images), patches-FILTERS, identity, or with features of "
    "their own for each layout of the pixels contexts-scales-FEATURES, contexts-FILTERS"
)
FLAGS = {"experiment": "--exp", "importance_lambda": "--lambda"}
"""Flags that are not called as their parameter is."""


class Parser(argparse.ArgumentParser):
    """Takes flags by their full names and reports a mistake in one line."""

    def __init__(self, **settings):
        settings.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message):
        print(f"error: {message} (see {self.prog} --help)", file=sys.stderr)
        raise SystemExit(2)


def flag_of(name):
    """The flag that sets a parameter: "--lambda" for "importance_lambda"."""
    return FLAGS.get(name) or "--" + name.replace("_", "-")


def reader(parameter):
    """A function that reads a parameter's value from text."""

    def read(text):
        try:
            value = parameter.kind(text)
        except ValueError:
            value = None
        if value is None or not parameter.allows(value):
            raise argparse.ArgumentTypeError(f"{text!r}: use {parameter.expected()}")
        return value

    return read


def add(group, names, choices=None, **about):
    """Give a group the flags of some parameters.

    names : str
        Parameters of `PARAMETERS`, separated by blanks.
    choices : tuple of str or None
        The words to choose from, where they are not the table's.
    about : str
        What --help says of them, where it is not what the table says.
    """
    for name in names.split():
        parameter, text = PARAMETERS[name], about.get(name)
        options = {"dest": name, "help": text or parameter.about or None}
        if parameter.kind is bool:
            options |= {"action": "store_true", "default": None}
        elif parameter.choices:
            options["choices"] = choices or parameter.choices
        else:
            words = {int: "N", float: "F", str: "NAME"}
            options |= {"type": reader(parameter), "metavar": words[parameter.kind]}
        group.add_argument(flag_of(name), **options)


def add_learner(p, stream=False):
    """The network and the rule.

    stream : bool
        Of the online classifier: pair weights are those of a class.
    """
    group = p.add_argument_group("the network")
    if stream:
        add(group, "head", STREAM_HEADS, head=STREAM_HEAD)
        add(group, "backbone pair_weights", backbone=STREAM_BACKBONE, pair_weights="of each class")
    else:
        add(group, "head backbone pair_weights")
    add(group, "density")
    group = p.add_argument_group("learning")
    add(group, "rule learning_rate importance_lambda batch_size")
    if not stream:
        add(group, "epochs")


def add_task_stream(p):
    """What is learned, and how the paper and its released program differ."""
    group = p.add_argument_group("what is learned")
    add(group, "experiment dataset label multi_head classes_per_task tasks blur")
    add_learner(p)
    group = p.add_argument_group(
        "where the paper and its released program differ (README, differences)"
    )
    add_protocol(group)
    add(group, "pairs kwta_threshold smas_norm class_mask gelu")


def add_protocol(group):
    """--protocol, for what the paper and its program differ in."""
    group.add_argument(
        "--protocol",
        choices=list(PROTOCOLS),
        help="sets pairs, threshold, norm, mask and GELU; released, where the printed numbers "
        "come from, unless given",
    )


def add_files(group, out=None):
    """Where data lie and results go; `out` says what results there are."""
    group.add_argument("--data-dir", metavar="DIR", help="where data sets lie or are downloaded to")
    if out:
        group.add_argument("--out", metavar="DIR", help=out)


def add_device(group, about="cuda: on a GPU, which needs CuPy (cpu)"):
    """--device."""
    group.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help=about)


def add_workers(group):
    """Who does the runs: processes here, or a cluster."""
    either = group.add_mutually_exclusive_group()
    add(either, "workers")
    either.add_argument("--cluster", metavar="ADDRESS", help="a dask scheduler, tcp://host:port")


def add_output(group, result="one JSON object a run on standard output"):
    """What is printed."""
    if result:
        group.add_argument("--json", action="store_true", help=result)
    group.add_argument("--quiet", action="store_true", help="no progress, the result alone")


def train_flags(p):
    """train: runs over tasks."""
    add_task_stream(p)
    group = p.add_argument_group("the run")
    group.add_argument("--settings", metavar="FILE", help="settings to use where no flag is given")
    add(group, "seed runs")
    add_device(group, "cuda: all seeds of --runs together on a GPU; needs CuPy (cpu)")
    add_files(group, "append each result to DIR; a run found there is not repeated")
    group.add_argument("--plot", metavar="FILE", help="draw the first run (.png, .svg or .pdf)")
    add_output(group)


def tune_flags(p):
    """tune: a search of learning rate and density on held-out training data."""
    p.add_argument("file", metavar="OUT.json", help="the best settings, for train --settings")
    add_task_stream(p)
    group = p.add_argument_group("the search")
    group.add_argument("--settings", metavar="FILE", help="settings to use where no flag is given")
    for flag, name in (("--learning-rates", "learning_rate"), ("--densities", "density")):
        read = reader(PARAMETERS[name])
        group.add_argument(
            flag,
            type=lambda text, read=read: [read(word) for word in text.split(",")],
            metavar="F,F",
            help="to search (the released ones)",
        )
    add(group, "seed runs", runs="seeds for each setting, from --seed on (1)")
    add_workers(group)
    add_files(group, "append each result to DIR; a run found there is not repeated (runs)")
    add_output(group, "the best settings on standard output")


def stream_flags(p):
    """stream: the online classifier on a file in its own order."""
    about = PARAMETERS["dataset"].about.replace(" (default)", "")
    p.add_argument("dataset", metavar="FILE", help=about)
    add(p, "label missing", missing="cells may be empty, NA or nan: unknown values")
    p.add_argument("--save-model", metavar="FILE", help="keep what was learned in FILE (.npz)")
    p.add_argument("--load-model", metavar="FILE", help="go on from what --save-model kept")
    add_learner(p, stream=True)
    add(p.add_argument_group("variants"), "kwta_threshold smas_norm gelu")
    group = p.add_argument_group("the run")
    add(group, "seed", seed="of the classifier (0)")
    add_device(group)
    add_files(group)
    group.add_argument("--plot", metavar="FILE", help="draw the result (.png, .svg or .pdf)")
    add_output(group, "one JSON object on standard output")


def paper_flags(p):
    """paper: the runs behind a part of the paper, done where the store lacks them."""
    p.add_argument(
        "part",
        metavar="PART",
        help="table1 to table5, sparsity, curves, cifar, or all; beside the paper: order, learners "
        "over the order of their samples",
    )
    p.add_argument(
        "--only", metavar="TEXT", help='the cells with these words: "mlp-700-1 pairwise"'
    )
    add_protocol(p)
    add(p, "runs", runs="seeds a cell (the paper's number)")
    add_device(p, "cuda: the seeds of a cell together on a GPU; needs CuPy (cpu)")
    add_workers(p)
    add_files(p, "the store: a run found there is not repeated (results)")
    add_output(p, result=None)


def report_flags(p):
    """report: tables and figures of the runs in a store."""
    p.add_argument("--out", metavar="DIR", help="the store, and where they are written (results)")
    add_protocol(p)


def bench_flags(p):
    """bench: training steps against the machine's own floor."""
    add_device(p, "cuda: cells of the paper and kernels on a GPU; needs CuPy (cpu)")
    p.add_argument("--data-dir", metavar="DIR", help="with --device cuda: where MNIST lies")
    p.add_argument("--json", action="store_true", help="one JSON object on standard output")


COMMANDS = {
    "train": train_flags,
    "paper": paper_flags,
    "stream": stream_flags,
    "tune": tune_flags,
    "report": report_flags,
    "bench": bench_flags,
}
"""What gives each subcommand its flags."""


def parser():
    """The parser of the whole command line."""
    main = Parser(prog="run.py", description=DESCRIPTION, epilog=EPILOG)
    main.add_argument("--version", action="version", version=f"minipw {__version__}")
    commands = main.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    for name, add_flags in COMMANDS.items():
        about = add_flags.__doc__.removeprefix(f"{name}: ").rstrip(".")
        texts = {"help": about, "description": about[0].upper() + about[1:] + ".", "epilog": EPILOG}
        if name in ("train", "tune"):
            texts["epilog"] = SETTINGS + EPILOG
        add_flags(commands.add_parser(name, **texts))
    return main


def refuse_unused(flags):
    """Raise InputError for a flag that is given but not used.

    flags : list of (name of its parameter, whether it is used, what it needs)
        Only of those that are given.
    """
    for name, used, needs in flags:
        if not used:
            raise InputError(f"{flag_of(name)} has no effect without {needs}: leave it out")


def check_learner(given, head, rule):
    """Raise InputError for a flag of one head or rule that is given with another.

    given : container of str
        Names of the parameters that are given.
    """
    if head in CLOSED_FORM:
        unused = (name for name in OF_NETWORKS if name in given)
        refuse_unused((name, False, "--head pairwise or fc") for name in unused)
        return
    needs = {
        "pair_weights": (head == "pairwise", "--head pairwise"),
        "pairs": (head == "pairwise", "--head pairwise"),
        "importance_lambda": (rule != "sgd", "--rule adagrad or s-mas"),
        "smas_norm": (rule == "s-mas", "--rule s-mas"),
    }
    refuse_unused((name, *need) for name, need in needs.items() if name in given)
