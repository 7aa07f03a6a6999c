"""The command line: each subcommand handed to its file."""

import os
import shlex
import sys
from itertools import pairwise

from minipw import InputError
from minipw.cli.flags import COMMANDS, parser

PATHS = ("dataset", "data_dir", "out", "settings", "file", "plot", "save_model", "load_model")
"""Flags and arguments that may be paths: ~ is the home folder."""
MOVED = {"--paper": "paper", "--report": "report", "--bench": "bench", "--tune": "tune"}
"""Flags that were commands once."""


def main(argv=None):
    """Run the command line; returns the exit status."""
    for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
        os.environ.setdefault(variable, "1")  # THREADS share more than the products
    try:
        args = parse(sys.argv[1:] if argv is None else argv)
        return RUN[args.command](args)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except MemoryError as error:
        print(f"error: not enough memory: {error}; use a smaller network", file=sys.stderr)
        return 2
    except OSError as error:
        if error.filename is None:  # nobody takes the output: print no more, not even at exit
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        if not isinstance(error, BrokenPipeError):
            where = error.filename or "the output"
            print(f"error: {where}: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def parse(argv):
    """The flags of a command line, as a namespace with the name of its `command`.

    Raises
    ------
    InputError
        For no command, a flag that the command does not have, or one that was a command.
    """
    if replacement := moved(argv):
        raise InputError(f"this is a command of its own: python run.py {shlex.join(replacement)}")
    if not argv:
        raise InputError("nothing to do: give --exp split, permuted or iid (see run.py --help)")
    if argv[0] not in (*COMMANDS, "-h", "--help", "--version"):
        argv = ["train", *argv]
    args, unknown = parser().parse_known_args(argv)
    if unknown:
        help_line = f"run.py {args.command} --help"
        raise InputError(f"{args.command} does not take {shlex.join(unknown)} (see {help_line})")
    given = {name: getattr(args, name, None) for name in PATHS}
    vars(args).update((name, os.path.expanduser(path)) for name, path in given.items() if path)
    return args


def moved(argv):
    """The command line that replaces one with the flags of before; None for any other."""
    words = [part for word in argv for part in word.split("=", word.startswith("--"))]
    for flag, command in MOVED.items():
        if flag in words:
            place = words.index(flag)
            values = words[place + 1 :][: flag in ("--paper", "--tune")]
            return [command, *values, *words[:place], *words[place + 1 + len(values) :]]
    pairs = list(pairwise(words))
    if ("--exp", "stream") not in pairs:
        return None
    file = [value for flag, value in pairs if flag == "--dataset"] or ["FILE"]
    left = [w for w in words if w not in ("--exp", "stream", "--dataset", *file)]
    return ["stream", *file, *left]


def with_threads(args, run):
    """Run a command with the threads that its device wants."""
    from minipw.backend.threads import THREADS, available_threads, keep_freed_memory

    keep_freed_memory()
    # On a device the host only launches work: threads would cut the batch in pieces.
    with THREADS.use(available_threads() if args.device == "cpu" else 1):
        return run(args)


def train(args):
    """Runs over tasks."""
    from minipw.cli.train import train

    return with_threads(args, train)


def stream(args):
    """The online classifier on a file."""
    from minipw.cli.stream import stream

    return with_threads(args, stream)


def tune(args):
    """A search of settings."""
    from minipw.cli.tune import tune

    return tune(args)


def paper(args):
    """The runs behind a part of the paper."""
    from minipw.backend.threads import available_cores
    from minipw.experiments.plan import reproduce

    if args.only is not None and not args.only.split():
        raise InputError("--only is empty: give words of a cell, or leave it out")
    for flag, given in (("--workers", args.workers), ("--cluster", args.cluster)):
        if given and args.device == "cuda":
            raise InputError(f"{flag} uses processes on CPUs: leave out it or --device cuda")
    if args.part == "order" and args.device == "cuda":
        raise InputError("part order runs on the CPU alone: leave out --device cuda")
    args.paper, args.out = args.part, args.out or "results"
    args.protocol, args.workers = args.protocol or "released", args.workers or available_cores()
    return reproduce(args)


def report(args):
    """Tables and figures."""
    from minipw.experiments.report import report

    return report(args.out or "results", args.protocol or "released")


def bench(args):
    """Training steps against the floor."""
    if args.device == "cuda":
        from minipw.bench import gpu

        return gpu.main(args)
    if args.data_dir:
        raise InputError("--data-dir has no effect without --device cuda: leave it out")
    from minipw.bench import cpu

    return with_threads(args, lambda args: cpu.main(as_json=args.json))


RUN = {
    "train": train,
    "paper": paper,
    "stream": stream,
    "tune": tune,
    "report": report,
    "bench": bench,
}
"""What does each subcommand."""
