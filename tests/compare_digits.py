"""Online classifiers on the digits of scikit-learn.

    python tests/compare_digits.py [SPLITS] [--json FILE]

Each split takes three quarters of the 1,797 digits for training and one for testing. The
training samples come one at a time, once, class after class (0, 1, ... 9), and then, for
comparison, in random order. Every method sees them through the same running
standardization; trees and naive Bayes see the raw pixels where that is better. Where a
method has settings to choose from, they are chosen for each split on a held-out quarter of
its training samples; the table shows the most frequent choice.
"""

import argparse
import functools
import itertools
import json
import platform
import time
import warnings
from importlib.metadata import version

import numpy as np
from river import linear_model, multiclass, naive_bayes, optim, tree
from sklearn.datasets import load_digits
from sklearn.linear_model import Perceptron, SGDClassifier
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier

from minipw.online import OnlineClassifier, StreamingRidgeClassifier
from minipw.online.standardize import Standardizer

CLASSES = np.arange(10)
digits = functools.cache(functools.partial(load_digits, return_X_y=True))
COLUMNS = ("class_by_class", "usual_choice", "shuffled")


class Raw:
    """Features as they are, for methods that do not mind their scale."""

    @staticmethod
    def update(x):
        pass

    @staticmethod
    def transform(x):
        return x


class Ours:
    """A learner of ours; it is not told the classes before, unless a row says so."""

    def __init__(self, seed, learner=None, **settings):
        self.model = (learner or OnlineClassifier)(seed=seed, **settings)

    def learn(self, x, y):
        self.model.partial_fit(x, y)

    def predict(self, x):
        return self.model.predict(x)


class Scikit:
    """A classifier with partial_fit, which is told the classes.

    The samples are standardized one at a time, or `size` at a time, and learned in one call
    when the classifier learns the samples of a call one by one (`whole`).
    """

    def __init__(self, seed, kind, size=1, whole=True, inputs="standardized", **settings):
        self.size, self.whole = size, whole
        if kind is not GaussianNB:
            settings |= {"random_state": seed, "shuffle": False}
        self.model = kind(**settings)
        self.standardizer = Standardizer(64, 3.0) if inputs == "standardized" else Raw

    def learn(self, x, y):
        inputs = np.empty_like(x)
        for start in range(0, len(x), self.size):
            part = slice(start, start + self.size)
            self.standardizer.update(x[part])
            inputs[part] = self.standardizer.transform(x[part])
        step = len(x) if self.whole else self.size
        for start in range(0, len(x), step):
            part = slice(start, start + step)
            self.model.partial_fit(inputs[part], y[part], classes=CLASSES)

    def predict(self, x):
        return self.model.predict(self.standardizer.transform(x))


class River:
    """A classifier of River."""

    def __init__(self, seed, make, inputs="standardized", **settings):
        self.model = make(seed, **settings)
        self.standardizer = Standardizer(64, 3.0) if inputs == "standardized" else Raw

    def inputs(self, x):
        return [dict(enumerate(row)) for row in self.standardizer.transform(x).tolist()]

    def learn(self, x, y):
        for n in range(len(x)):
            self.standardizer.update(x[n : n + 1])
            self.model.learn_one(self.inputs(x[n : n + 1])[0], int(y[n]))

    def predict(self, x):
        return np.array([self.model.predict_one(row) for row in self.inputs(x)])


def logistic(seed, rate):
    return multiclass.OneVsRestClassifier(
        linear_model.LogisticRegression(optimizer=optim.SGD(rate))
    )


def softmax(seed, rate):
    return linear_model.SoftmaxRegression(optimizer=optim.SGD(rate))


def hoeffding(seed, grace):
    return tree.HoeffdingTreeClassifier(grace_period=grace)


INPUTS = ("standardized", "raw")
RATES = [{"rate": rate} for rate in (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)]
SGD = [
    {"loss": loss, **schedule}
    for loss in ("hinge", "log_loss")
    for schedule in [
        *({"alpha": alpha} for alpha in (1e-4, 1e-3, 1e-2, 1e-1)),
        *({"learning_rate": "constant", "eta0": rate} for rate in (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)),
    ]
]
METHODS = {
    "minipw, closed form": (Ours, {"learner": StreamingRidgeClassifier}, [{}]),
    "minipw, pairwise head": (
        Ours,
        {},
        [{"learning_rate": rate} for rate in (1e-3, 1.5e-3, 2e-3, 3e-3, 5e-3)],
    ),
    "minipw, defaults": (Ours, {}, [{}]),
    "minipw, no outputs in reserve": (Ours, {}, [{"reserve": 0}]),
    "minipw, classes announced": (Ours, {"classes": CLASSES}, [{}]),
    "minipw, dense head": (
        Ours,
        {"head": "fc"},
        [{"learning_rate": rate} for rate in (5e-4, 1e-3, 2e-3, 4e-3, 8e-3)],
    ),
    "scikit-learn SGDClassifier": (Scikit, {"kind": SGDClassifier}, SGD),
    "scikit-learn Perceptron": (
        Scikit,
        {"kind": Perceptron},
        [{"eta0": rate} for rate in (0.01, 1.0)],
    ),
    "scikit-learn MLPClassifier, 500 units": (
        Scikit,
        {"kind": MLPClassifier, "hidden_layer_sizes": (500,), "solver": "sgd", "batch_size": 1},
        [{"learning_rate_init": rate} for rate in (1e-5, 1e-4, 1e-3, 1e-2)],
    ),
    "River OneVsRest(LogisticRegression)": (River, {"make": logistic}, RATES),
    "River SoftmaxRegression": (River, {"make": softmax}, RATES),
    "River HoeffdingTree": (
        River,
        {"make": hoeffding},
        [{"grace": n, "inputs": kind} for n in (10, 50, 200) for kind in INPUTS],
    ),
    "River GaussianNB": (
        River,
        {"make": lambda seed: naive_bayes.GaussianNB()},
        [{"inputs": kind} for kind in INPUTS],
    ),
    "scikit-learn GaussianNB, 64 samples a call": (
        Scikit,
        {"kind": GaussianNB, "size": 64, "whole": False},
        [{"var_smoothing": n, "inputs": kind} for n in (1e-9, 1e-3, 1e-1) for kind in INPUTS],
    ),
}


def split(seed, held_out=False):
    """x_train, x_test, y_train, y_test; with `held_out` the last two are training samples."""
    x, y = digits()
    parts = train_test_split(x, y, test_size=0.25, random_state=seed, stratify=y)
    if held_out:
        x, _, y, _ = parts
        parts = train_test_split(x, y, test_size=0.25, random_state=seed, stratify=y)
    return parts


def accuracy(kind, settings, seed, by_class, held_out=False):
    """Per cent after one pass."""
    x, x_test, y, y_test = split(seed, held_out)
    if by_class:
        order = np.argsort(y, kind="stable")
        x, y = x[order], y[order]
    model = kind(seed, **settings)
    model.learn(x, y)
    return 100 * (model.predict(x_test) == y_test).mean()


def choose(kind, fixed, choices, seed, by_class):
    """The best of the choices on the held-out training samples of this seed."""
    if len(choices) == 1:
        return choices[0]
    found = [accuracy(kind, fixed | choice, seed, by_class, True) for choice in choices]
    return choices[int(np.argmax(found))]


def mean_and_error(values):
    """The mean and its standard error, 0 for one value."""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return [float(np.mean(values)), float(error)]


def compare(splits, methods=METHODS):
    """Print a line for each method, and return them: dict of dict with the keys COLUMNS."""
    rows = {}
    for name, (kind, fixed, choices) in methods.items():
        row = dict.fromkeys(COLUMNS)
        for order in ("class_by_class", "shuffled"):
            by_class = order == "class_by_class"
            chosen = [choose(kind, fixed, choices, seed, by_class) for seed in range(splits)]
            found = [accuracy(kind, fixed | c, s, by_class) for s, c in enumerate(chosen)]
            row[order] = mean_and_error(found)
            if by_class:
                usual = max(chosen, key=chosen.count)
                words = ", ".join(f"{k} {v}" for k, v in usual.items())
                row["usual_choice"] = words.replace("_", " ")
        print(name, *row.values(), sep="; ", flush=True)
        rows[name] = row
    return rows


def rate(work, samples, windows=7, seconds=0.4):
    """Samples a second of processor time of a function that handles `samples`: best window."""
    work()
    best = 0.0
    for _ in range(windows):
        count, began = 0, time.process_time()
        while time.process_time() - began < seconds:
            work()
            count += 1
        best = max(best, count * samples / (time.process_time() - began))
    return best


def throughput():
    """Samples a second of three methods: dict of dict."""
    x, y = digits()
    inputs = (x - x.mean(0)) / np.maximum(x.std(0), 1e-9)
    calls = {1: "partial_fit, 1 a call", 64: "partial_fit, 64 a call"}
    rows = {}
    for head, word in (("pairwise", "pairwise"), ("fc", "dense")):
        rows[f"minipw, {word} head"] = row = {}
        for size, call in calls.items():
            model = OnlineClassifier(head=head, batch_size=size)
            model.partial_fit(x[:640], y[:640])
            at = itertools.cycle(range(0, 1700, size))

            def learn(model=model, at=at, size=size):
                start = next(at)
                model.partial_fit(x[start : start + size], y[start : start + size])

            row[call] = rate(learn, size)
        row["predict, 1,797 a call"] = rate(lambda m=model: m.predict(x), len(x))
    rows["SGDClassifier, standardized before"] = row = {}
    for size, call in calls.items():
        model = SGDClassifier(shuffle=False).partial_fit(inputs[:64], y[:64], classes=CLASSES)
        fit = model.partial_fit
        row[call] = rate(lambda f=fit, n=size: f(inputs[:n], y[:n]), size)
    row["predict, 1,797 a call"] = rate(lambda: model.predict(inputs), len(x))
    return rows


def main():
    parser = argparse.ArgumentParser(description="Compare online classifiers on digits.")
    parser.add_argument("splits", type=int, nargs="?", default=10, help="how many (10)")
    parser.add_argument("--json", metavar="FILE", help="write the result to this file")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # MLPClassifier and GaussianNB on single samples
    speeds = throughput()
    print(json.dumps(speeds, indent=1), flush=True)
    result = {
        "accuracy": compare(args.splits),
        "splits": args.splits,
        "samples_per_second": speeds,
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("minipw", "numpy", "scikit-learn", "river")},
        },
    }
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
