"""The paper's tables of facts, and the settings nearest to a run."""

import csv
import itertools
import math
from pathlib import Path

import pytest

import minipw.paper
from minipw.paper.released import (
    KEY,
    backbone_distance,
    printed_accuracy,
    released_settings,
    table,
)

FOLDER = Path(minipw.paper.__file__).parent


def arguments(row):
    """What the functions take, from a row of a table."""
    multi_head = {"single": False, "multi": True}[row["head_mode"]]
    network = row["backbone"], row["head"], row["rule"]
    return row["experiment"], row["dataset"], multi_head, *network


@pytest.mark.parametrize("name, count", [("numbers", 106), ("hyperparameters", 152)])
def test_every_row_is_read(name, count):
    with open(FOLDER / f"{name}.csv", newline="") as file:
        lines = list(csv.reader(file))
    assert len(table(name)) == len(lines) - 1 == count
    assert [list(row.values()) for row in table(name)] == lines[1:]


@pytest.mark.parametrize(
    "cell, accuracy",
    [
        (("permuted", "mnist", False, "mlp-700-1", "pairwise", "adagrad"), 95.4),
        (("split", "mnist", False, "cnn-s", "pairwise", "s-mas"), 81.0),
        (("split", "mnist", False, "mlp-700-1", "pairwise", "adagrad"), 83.1),
        (("split", "mnist", True, "mlp-700-1", "pairwise", "s-mas"), 98.8),
        (("split", "mnist", False, "mlp-700-1", "pairwise", "s-mas", 1), 82.9),
        (("split", "mnist", False, "mlp-700-1", "pairwise", "s-mas", 16), 83.4),
        (("split", "mnist", False, "mlp-700-1", "pairwise", "s-mas", 64), 84.4),
        (("split", "mnist", False, "mlp-700-1", "pairwise", "s-mas", 32), None),
        (("split", "mnist", False, "mlp-701-1", "pairwise", "adagrad"), None),
        (("iid", "mnist", False, "mlp-700-1", "pairwise", "adagrad"), None),
        (("split", "mnist-5k", False, "mlp-700-1", "pairwise", "adagrad"), None),
        (("split", "own.npz", False, "mlp-700-1", "pairwise", "adagrad"), None),
    ],
)
def test_printed_accuracy(cell, accuracy):
    assert printed_accuracy(*cell) == accuracy


def test_every_cell_of_the_large_tables_is_found():
    rows = [row for row in table("numbers") if row["table"] in "1234"]
    assert len(rows) == 100
    for row in rows:
        assert printed_accuracy(*arguments(row)) == float(row["accuracy"])
        assert 0 < float(row["accuracy"]) <= 100


def test_released_settings_of_a_known_cell():
    settings, source = released_settings(
        "permuted", "mnist", False, "mlp-700-1", "pairwise", "adagrad"
    )
    assert source == ""
    assert settings == {
        "learning_rate": 0.004,
        "density": 0.15,
        "importance_lambda": 0.8,
        "batch_size": 64,
        "epochs": 1,
        "pair_weights": 250_000,
    }


def test_every_row_gives_its_own_settings():
    assert len({tuple(row[key] for key in KEY) for row in table("hyperparameters")}) == 152
    for row in table("hyperparameters"):
        settings, source = released_settings(*arguments(row))
        assert source == ""
        column = "smas_lambda" if row["rule"] == "s-mas" else "adagrad_lambda"
        assert settings["learning_rate"] == float(row["effective_learning_rate"])
        assert settings["density"] == float(row["kwta_density"])
        assert settings["importance_lambda"] == float(row[column])
        assert settings["batch_size"] == int(row["batch_size"])
        assert settings["epochs"] == int(row["epochs"])
        assert settings["pair_weights"] == (int(row["pair_weights"] or 0) or None)
        product = float(row["learning_rate"]) * float(row["task_learning_rate"])
        assert math.isclose(settings["learning_rate"], product)


@pytest.mark.parametrize(
    "cell, source",
    [
        (
            ("split", "mnist", False, "mlp-800-1", "pairwise", "sgd"),
            "split mnist single mlp-700-1 pairwise sgd",
        ),
        (
            ("split", "mnist", False, "mlp-900-3", "fc", "adagrad"),
            "split mnist single mlp-1000-3 fc adagrad",
        ),
        (
            ("split", "own.npz", True, "cnn-s", "pairwise", "s-mas"),
            "split mnist multi cnn-s pairwise s-mas",
        ),
        (
            ("split", "mnist-5k", False, "mlp-700-1", "pairwise", "adagrad"),
            "split mnist single mlp-700-1 pairwise adagrad",
        ),
        (
            ("iid", "mnist", False, "mlp-700-1", "pairwise", "adagrad"),
            "permuted mnist single mlp-700-1 pairwise adagrad",
        ),
        (
            ("permuted", "fashion-mnist", False, "mlp-700-1", "pairwise", "adagrad"),
            "permuted mnist single mlp-700-1 pairwise adagrad",
        ),
        (
            ("split", "cifar-10", False, "mlp-700-1", "pairwise", "adagrad"),
            "split cifar-10 single ",
        ),
        (
            ("split", "fashion-mnist", False, "mlp-701-1", "fc", "s-mas"),
            "split fashion-mnist single mlp-1000-1 fc s-mas",
        ),
    ],
)
def test_nearest_released_settings(cell, source):
    settings, found = released_settings(*cell)
    assert found.startswith(source)
    row = next(r for r in table("hyperparameters") if " ".join(r[k] for k in KEY) == found)
    assert settings["learning_rate"] == float(row["effective_learning_rate"])


def test_nearest_follows_the_documented_order():
    """Head, rule, head mode, experiment, data set: the first to be filtered wins."""
    modes, heads, rules = (False, True), ("pairwise", "fc"), ("adagrad", "s-mas", "sgd")
    streams = itertools.product(("split", "permuted"), ("mnist", "fashion-mnist", "cifar-10"))
    for (kind, data), mode, head, rule in itertools.product(streams, modes, heads, rules):
        if mode and kind == "permuted":  # the command line refuses it
            continue
        rows = table("hyperparameters")
        for agrees in (
            lambda row, head=head: row["head"] == head,
            lambda row, rule=rule: row["rule"] == rule,
            lambda row, mode=mode: (row["head_mode"] == "multi") == mode,
            lambda row, kind=kind: row["experiment"] == kind,
            lambda row, data=data: row["dataset"] == data,
        ):
            rows = list(filter(agrees, rows)) or rows
        allowed = {" ".join(row[key] for key in KEY) for row in rows}
        for backbone in ("mlp-123-2", "cnn-x"):
            _, source = released_settings(kind, data, mode, backbone, head, rule)
            assert source in allowed


def test_backbone_distance():
    same, wider, deeper = (
        backbone_distance(b, "mlp-700-1") for b in ("mlp-700-1", "mlp-1400-1", "mlp-700-3")
    )
    assert same == 0 and math.isclose(wider, math.log(2)) and deeper == 2
    assert backbone_distance("mlp-350-1", "mlp-700-1") == pytest.approx(wider)
    assert backbone_distance("mlp-700-1", "mlp-700-3") == deeper
    assert deeper < backbone_distance("cnn-s", "cnn-m") < backbone_distance("cnn-s", "mlp-700-1")
    assert backbone_distance("cnn-s", "cnn-s") == 0


def test_what_weighs_more_in_the_search(monkeypatch):
    cell = ("permuted", "fashion-mnist", "single", "mlp-700-1", "pairwise", "sgd")
    wanted = dict(zip(KEY, cell, strict=True))
    # from the lightest disagreement to the heaviest
    others = [
        {"backbone": "mlp-800-1"},
        {"dataset": "mnist"},
        {"dataset": "cifar-10"},
        {"experiment": "split"},
        {"head_mode": "multi"},
        {"rule": "adagrad"},
        {"head": "fc"},
    ]
    rows = [{**table("hyperparameters")[0], **wanted, **other} for other in others]
    for heavier in range(len(rows)):
        left = rows[heavier:][::-1]
        monkeypatch.setattr(minipw.paper.released, "table", lambda name, left=left: left)
        _, source = released_settings(*cell[:2], False, "mlp-701-1", *cell[4:])
        assert source == " ".join(rows[heavier][key] for key in KEY)
