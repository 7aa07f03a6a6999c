"""`tune`: settings chosen on held-out training data, written to a file."""

import json
import sys
from pathlib import Path

from minipw import InputError
from minipw.backend.files import check_writable
from minipw.backend.threads import available_cores
from minipw.cli.train import chosen_settings, speaker
from minipw.experiments.tune import tune as search
from minipw.parameters import CLOSED_FORM


def tune(args):
    """Write the best settings to a file for `train --settings`; returns the exit status."""
    for name, instead in (("density", "--densities"), ("learning_rate", "--learning-rates")):
        if getattr(args, name) is not None:
            raise InputError(f"--{name.replace('_', '-')} is searched: give {instead}")
    check_writable(args.file, (".json",), "settings")
    settings, _, dataset = chosen_settings(args)
    if settings.head in CLOSED_FORM:
        raise InputError(f"head {settings.head} has nothing to tune: use train")
    args.seed, args.out = args.seed or 0, args.out or "runs"
    args.workers = args.workers or available_cores()
    say = speaker(args)
    chosen = search(settings, dataset, args, say)
    if chosen is None:
        print("interrupted: the same command goes on from here", file=sys.stderr)
        return 130
    try:
        Path(args.file).write_text(json.dumps(chosen, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {args.file}: {error.strerror}") from None
    if args.json:
        print(json.dumps(chosen))
    say(f"best settings written to {args.file}: use them with --settings {args.file}")
    return 0
