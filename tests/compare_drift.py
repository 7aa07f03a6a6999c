"""Classifiers of streams that drift, on the generators of River and on tables.

    OPENBLAS_NUM_THREADS=1 python tests/compare_drift.py [TABLE ...] [--seeds N] [--json FILE]

Each generated stream has 20,000 samples. SEA and Agrawal change their concept three times at
once; the plane and the centres of the other two turn and move all the time. A table is a CSV
file of numbers with a line of names, the class in the last column; its order is the stream.
Every sample is predicted, then learned, once. The constants of our classifier were chosen on
seed 0, so seeds 1 to N are measured.
"""

import argparse
import csv
import itertools
import json
import platform
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
from river import forest, linear_model, multiclass, preprocessing, tree
from river.datasets import synth

from minipw.online import DriftingRidgeClassifier
from minipw.online.river import DriftingRidgeClassifier as Ours

PART = 5000


def sea(variant, seed):
    return synth.SEA(variant=variant, noise=0.1, seed=seed)


def agrawal(function, seed):
    return synth.Agrawal(classification_function=function, perturbation=0.05, seed=seed)


def concepts(make, numbers, seed):
    """A part of a stream for each concept, one after the other."""
    streams = (make(number, seed=10 * seed + n) for n, number in enumerate(numbers))
    return itertools.chain.from_iterable(stream.take(PART) for stream in streams)


def hyperplane(seed):
    return synth.Hyperplane(
        seed=seed, n_features=10, n_drift_features=5, mag_change=0.001, noise_percentage=0.05
    ).take(4 * PART)


def centres(seed):
    return synth.RandomRBFDrift(
        *(seed, seed),
        n_classes=5,
        n_features=10,
        n_centroids=50,
        n_drift_centroids=50,
        change_speed=1e-4,
    ).take(4 * PART)


STREAMS = {
    "SEA": lambda seed: concepts(sea, (0, 3, 1, 2), seed),
    "Agrawal": lambda seed: concepts(agrawal, (0, 3, 6, 2), seed),
    "Hyperplane": hyperplane,
    "moving centres": centres,
}
METHODS = {
    "minipw DriftingRidgeClassifier": lambda seed: DriftingRidgeClassifier(seed=seed),
    "the same, as a classifier of River": lambda seed: Ours(seed=seed),
    "River ARFClassifier": lambda seed: forest.ARFClassifier(seed=seed),
    "River HoeffdingAdaptiveTree": lambda seed: tree.HoeffdingAdaptiveTreeClassifier(seed=seed),
    "River StandardScaler, LogisticRegression": lambda seed: (
        preprocessing.StandardScaler()
        | multiclass.OneVsRestClassifier(linear_model.LogisticRegression())
    ),
}


def prequential(model, samples):
    """Accuracy in per cent and microseconds of processor time a sample: (float, float)."""
    if hasattr(model, "learn_one"):
        steps, predict, learn = samples, model.predict_one, model.learn_one
    else:
        steps = [(np.array([list(x.values())], float), [y]) for x, y in samples]
        learn = model.partial_fit

        def predict(x):
            return model.predict(x)[0] if model.classes_ else None

    correct, start = 0, time.process_time()
    for (x, y), (_, label) in zip(steps, samples, strict=True):
        correct += predict(x) == label
        learn(x, y)
    return 100 * correct / len(samples), 1e6 * (time.process_time() - start) / len(samples)


def mean_and_error(values):
    """The mean and its standard error, 0 for one value."""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return [float(np.mean(values)), float(error)]


def table(path):
    """The samples of a CSV file, the same for every seed."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    label = list(rows[0])[-1]
    return lambda seed: [(row, float(row.pop(label))) for row in map(dict, rows)]


def compare(streams, seeds):
    """Accuracy as mean and error, and the median time: dict of method, stream, measure."""
    found = {method: {} for method in METHODS}
    for name, stream in streams.items():
        measured = {method: [] for method in METHODS}
        for seed in range(1, seeds + 1):
            samples = [({str(k): float(v) for k, v in x.items()}, int(y)) for x, y in stream(seed)]
            for method, make in METHODS.items():
                measured[method].append(prequential(make(seed), samples))
                print(name, seed, method, *measured[method][-1], sep="; ", flush=True)
        for method, values in measured.items():
            accuracies, times = zip(*values, strict=True)
            row = {"accuracy": mean_and_error(accuracies), "microseconds": float(np.median(times))}
            found[method][name] = row
    return found


def main():
    parser = argparse.ArgumentParser(description="Compare classifiers on streams that drift.")
    parser.add_argument("tables", metavar="TABLE", nargs="*", help="a CSV file, the class last")
    parser.add_argument("--seeds", type=int, default=5, help="how many, from 1 on (5)")
    parser.add_argument("--json", metavar="FILE", help="write the result to this file")
    args = parser.parse_args()
    names = ("minipw", "numpy", "river")
    streams = STREAMS | {Path(path).stem: table(path) for path in args.tables}
    result = {"streams": compare(streams, args.seeds), "seeds": args.seeds}
    result["versions"] = {"python": platform.python_version(), **{n: version(n) for n in names}}
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
