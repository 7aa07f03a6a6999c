"""`stream`: the online classifier on a data set in the file's own order.

Each batch, or with head ridge each sample, is predicted before it is learned from. Nothing
is shuffled, there are no tasks, and what is standardized is standardized by what was seen
so far.
"""

import json
import sys
import time
from itertools import pairwise

import numpy as np

from minipw import InputError, datasets
from minipw.backend.files import check_writable
from minipw.cli.flags import check_learner, flag_of
from minipw.cli.train import speaker
from minipw.experiments import figures
from minipw.network.diagnostics import unused_lines
from minipw.network.feature_map import parse_map
from minipw.online import (
    ContextRidgeClassifier,
    Learner,
    OnlineClassifier,
    StreamingRidgeClassifier,
    model_file,
)
from minipw.online.validation import check_columns, column_names
from minipw.progress import progress_bar
from minipw.training.checkpoint import StopRequest

FOLLOWED, SHARE = 1500, 64
"""Features up to which each sample is predicted by all before it; with more of them, a 64th as
many samples as were learned are predicted at a time, since solving takes its time."""
WINDOWS = 20
"""Stretches of the stream whose accuracy is reported one by one."""
OF_THE_LEARNER = (
    *("backbone", "head", "pair_weights", "density"),
    *("rule", "learning_rate", "importance_lambda", "batch_size"),
    *("kwta_threshold", "smas_norm", "gelu", "missing"),
)
"""Flags that set a parameter of `OnlineClassifier`, where they are given."""


def stream(args):
    """Learn a data set once, in its order, and report; returns the exit status."""
    given = {name: getattr(args, name) for name in OF_THE_LEARNER}
    given = {name: value for name, value in given.items() if value is not None}
    check_learner(given, given.get("head", "pairwise"), given.get("rule", "adagrad"))
    if args.save_model:
        check_writable(args.save_model, (".npz",), "model")
        model_file.check_replaceable(args.save_model)
    if args.plot:
        figures.check_figure(args.plot)
    learner = learner_for(args, given)
    missing = learner.settings["missing"]
    raw = "untested" if args.load_model else True
    dataset = datasets.load(args.dataset, args.data_dir, label=args.label, raw=raw, missing=missing)
    if any(learner.counts) and not set(learner.classes_) & set(
        label_list(dataset, dataset.y_train)
    ):
        known = ", ".join(map(repr, learner.classes_[:5]))
        print(f"warning: the model's classes ({known}) do not occur in the file", file=sys.stderr)
    columns = column_names(dataset)
    try:
        check_columns(columns, learner.columns)
    except InputError as error:
        raise InputError(f"{dataset.name}, {error}") from None
    learner.columns = columns or learner.columns
    say = speaker(args)
    tests = f", {len(dataset.y_test):,} others are for testing"
    say(
        f"{dataset.name}: {len(dataset.y_train):,} samples in their own order{tests}\n"
        f"  {learner_text(learner)}, {sum(learner.counts):,} samples learned before"
    )
    began = time.perf_counter()
    with StopRequest() as stop:
        right = follow(learner, dataset, stop, args.quiet)
    seconds = time.perf_counter() - began
    if args.save_model:
        learner.save(args.save_model)
        say(f"model written to {args.save_model}")
    if stop.asked:
        advice = ""
        if args.save_model:
            advice = ", which the model has learned: go on with a file of the others"
        print(f"interrupted after {right.size:,} samples{advice}", file=sys.stderr)
        return 130
    result = measure(learner, dataset, right, seconds)
    if args.json:
        print(json.dumps(result))
    elif args.quiet:
        print(accuracy_text(result) or f"online {result['online_accuracy']:.2f} %")
    say("\n".join(result_lines(result)))
    if args.plot:
        figures.plot_stream(result, args.plot)
        say(f"figure written to {args.plot}")
    return 0


def learner_for(args, given):
    """The classifier that `given` parameters describe, or the one of --load-model."""
    if args.load_model:
        for name in (*given, *(["seed"] if args.seed is not None else [])):
            raise InputError(
                f"{flag_of(name)} cannot be given with --load-model: the model has its own"
            )
        return Learner.load(args.load_model, args.device)
    head = given.get("head")
    if head == "ridge":
        chosen = {"missing": True} if "missing" in given else {}
        if "backbone" in given:
            words = parse_map(given["backbone"])
            if words.sizes:
                raise InputError(f"streams choose patches themselves: use patches-{words.size}")
            chosen |= {"features": words.kind, "size": words.size}
            if words.contexts:
                return ContextRidgeClassifier(seed=args.seed or 0, device=args.device, **chosen)
        return StreamingRidgeClassifier(seed=args.seed or 0, device=args.device, **chosen)
    if "pair_weights" in given:
        given["pair_weights_per_class"] = given.pop("pair_weights")
    return OnlineClassifier(seed=args.seed or 0, device=args.device, **given)


def learner_text(learner):
    """What learns, in one line."""
    settings = learner.settings
    if not isinstance(learner, OnlineClassifier):
        size = "" if settings["size"] is None else f"-{settings['size']}"
        return f"{settings.get('features', learner.kind)}{size} features, ridge head"
    rate = settings["learning_rate"]
    rate = "default learning rate" if rate is None else f"learning rate {rate:g}"
    network = f"{settings['backbone']}, {settings['head']} head, {settings['rule']}"
    return f"{network}, {rate}, batch {settings['batch_size']}"


def label_list(dataset, numbers):
    """Class numbers as the labels that the learner is given."""
    return [dataset.labels[n] if dataset.labels else int(n) for n in numbers]


def follow(learner, dataset, stop, quiet):
    """Predict, then learn, batch after batch; whether each sample was predicted: bool (n,)."""
    count, done = len(dataset.y_train), 0
    network = isinstance(learner, OnlineClassifier)
    right = np.zeros(count, bool)
    with progress_bar(count, " samples", quiet) as bar:
        while done < count and not stop():
            size = learner.batch_size if network else at_once(learner)
            part = slice(done, done + size)
            x, labels = dataset.x_train[part], label_list(dataset, dataset.y_train[part])
            if learner.network is not None if network else any(learner.counts):
                predicted = learner.predict(x)
                right[part] = [a == b for a, b in zip(predicted, labels, strict=True)]
            learner.partial_fit(x, labels)
            done += len(labels)
            bar.update(len(labels))
        if done == count and network:
            learner.flush()  # the last batch may not be full
    return right[:done]


def at_once(learner):
    """Samples that a learner without batches predicts before it learns them."""
    features = getattr(getattr(learner, "features", None), "count", 0)
    return 1 if features <= FOLLOWED else max(1, sum(learner.counts) // SHARE)


def measure(learner, dataset, right, seconds):
    """The result of a stream as JSON can hold it; accuracies in per cent."""
    labels, predicted = label_list(dataset, dataset.y_test), ()
    if labels:
        predicted = learner.predict(dataset.x_test)
    correct = np.array([a == b for a, b in zip(predicted, labels, strict=True)])
    bounds = np.linspace(0, right.size, min(WINDOWS, right.size) + 1).astype(int)
    classes = np.unique(dataset.y_test)
    return {
        "experiment": "stream",
        "dataset": dataset.name,
        "digest": dataset.digest,
        "settings": learner.settings,
        "unused_units": getattr(learner, "unused_units", lambda: None)(),
        "accuracy": 100 * float(correct.mean()) if labels else None,
        "class_accuracy": {
            dataset.label(c): 100 * float(correct[dataset.y_test == c].mean()) for c in classes
        },
        "untested": [dataset.label(c) for c in np.setdiff1d(dataset.y_train, classes)],
        "online_accuracy": 100 * float(right.mean()),
        "curve": [[int(b), 100 * float(right[a:b].mean())] for a, b in pairwise(bounds)],
        "samples": int(right.size),
        "seconds": seconds,
    }


def accuracy_text(result):
    """The accuracy on the test samples, "" where there are none."""
    return "" if result["accuracy"] is None else f"accuracy {result['accuracy']:.2f} %"


def result_lines(result):
    """What a person reads of a stream."""
    width = len(f"{result['samples']:,}")
    yield "test-then-train accuracy along the stream"
    for end, accuracy in result["curve"]:
        yield f"  to sample {end:{width},} {accuracy:6.1f} %  {'#' * round(accuracy / 2.5)}"
    width = max(map(len, result["class_accuracy"]), default=0)
    if width:
        yield "accuracy of each class at the end, on the test samples"
    for label, accuracy in result["class_accuracy"].items():
        yield f"  {label:{width}} {accuracy:6.1f} %"
    rate = result["samples"] / result["seconds"]
    yield (
        f"{accuracy_text(result) or 'none'} of all test samples, online "
        f"{result['online_accuracy']:.2f} %, {result['samples']:,} samples in "
        f"{result['seconds']:.1f} s ({rate:,.0f} a second)"
    )
    if result["untested"]:
        shown = ", ".join(result["untested"][:8]) + ", ..." * (len(result["untested"]) > 8)
        yield f"note: too few samples to test: {shown}"
    for line in unused_lines(result["unused_units"]):
        yield f"note: {line}"
