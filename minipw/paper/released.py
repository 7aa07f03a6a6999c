"""What the paper prints and what its program was run with, as tables of facts.

numbers.csv          every accuracy of the paper, one a row
hyperparameters.csv  the released settings: one row per experiment, data set, head mode,
                     backbone, head and rule

Two more are not the paper's: published.csv, what others printed for the same streams, and
chosen_rates.csv, learning rates of Table 5 that `tune` chose on held-out training data.
"""

import csv
import math
import re
from functools import cache
from importlib.resources import files

PROTOCOLS = {
    "released": {
        "pairs": "released",
        "kwta_threshold": "k",
        "smas_norm": "mean",
        "class_mask": "zero",
        "gelu": "tanh",
    },
    "paper": {
        "pairs": "distinct",
        "kwta_threshold": "k+1",
        "smas_norm": "sum",
        "class_mask": "exclude",
        "gelu": "exact",
    },
}
"""The points at which the paper's text and its program differ, as either has them."""

KEY = ("experiment", "dataset", "head_mode", "backbone", "head", "rule")
"""Columns that name a row of both tables."""


@cache
def table(name):
    """The rows of NAME.csv as a tuple of dicts of str."""
    with files(__package__).joinpath(f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def printed_accuracy(experiment, dataset, multi_head, backbone, head, rule, batch_size=64):
    """The paper's accuracy for a cell of its tables, per cent, or None."""
    mode = "multi" if multi_head else "single"
    wanted = (experiment, dataset, mode, backbone, head, rule, str(batch_size))
    for row in table("numbers"):
        if tuple(row[key] for key in (*KEY, "batch_size")) == wanted:
            return float(row["accuracy"])
    return None


def released_settings(experiment, dataset, multi_head, backbone, head, rule):
    """The released settings of a run, or those of the nearest one that has any.

    Nearest: the row that agrees in head, rule, head mode, experiment and data set,
    in this order of weight, and then has the most similar backbone. An iid stream
    is looked up as the permuted one, a data set that the paper does not use as MNIST.

    Returns
    -------
    settings : dict
        learning_rate, density, importance_lambda, batch_size, epochs, pair_weights.
    source : str
        "" for an exact match, else the row the settings were taken from.
    """
    stream = "permuted" if experiment == "iid" else experiment
    mode = "multi" if multi_head else "single"

    def distance(row):
        return (
            row["head"] != head,
            row["rule"] != rule,
            row["head_mode"] != mode,
            row["experiment"] != stream,
            row["dataset"] != dataset,
            row["dataset"] != "mnist",
            backbone_distance(row["backbone"], backbone),
        )

    row = min(table("hyperparameters"), key=distance)
    smas = row["rule"] == "s-mas"
    settings = {
        "learning_rate": float(row["effective_learning_rate"]),
        "density": float(row["kwta_density"]),
        "importance_lambda": float(row["smas_lambda" if smas else "adagrad_lambda"]),
        "batch_size": int(row["batch_size"]),
        "epochs": int(row["epochs"]),
        "pair_weights": int(row["pair_weights"]) if row["pair_weights"] else None,
    }
    found = tuple(row[key] for key in KEY)
    exact = found == (experiment, dataset, mode, backbone, head, rule)
    return settings, "" if exact else " ".join(found)


def backbone_distance(a, b):
    """How unlike two backbones are: 0 for the same, more for another family."""
    if a == b:
        return 0.0
    sizes = [re.fullmatch(r"mlp-([1-9]\d*)-([1-9]\d*)", name) for name in (a, b)]
    if all(sizes):
        (width_a, depth_a), (width_b, depth_b) = (map(int, size.groups()) for size in sizes)
        return abs(math.log(width_a / width_b)) + abs(depth_a - depth_b)
    return 100.0 + any(sizes)
