"""What stands beside what, and which flags belong together."""

from dataclasses import replace

import numpy as np
import pytest

from minipw.cli.flags import COMMANDS
from minipw.cli.main import parse
from minipw.cli.train import paper_number
from minipw.paper.cells import OUTLINES
from minipw.training.settings import resolve


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "   (paper: 83.1 %)"),
        ({"density": 0.2}, "   (paper, with its own settings: 83.1 %)"),
        ({"classes_per_task": 5}, ""),
        ({"epochs": 2}, ""),
        ({"backbone": "mlp-50-1"}, ""),
    ],
)
def test_the_papers_number_stands_beside_the_same_cell(settings, text):
    released, _ = resolve(OUTLINES["mnist"], "split")
    assert paper_number(replace(released, **settings)) == text


@pytest.mark.parametrize(
    "flags",
    [
        "--exp split --only fc",
        "--exp split --workers 2",
        "--exp split --densities 0.1",
        "--exp split --learning-rates 1",
        "--exp split --cluster tcp://a:1",
        "stream mnist-5k --exp split",
        "report table1",
    ],
)
def test_flags_of_different_commands_are_refused(command, flags):
    status, out, err = command(*flags.split())
    assert (status, out, err.count("\n")) == (2, "", 1) and "does not take" in err


@pytest.mark.parametrize(
    "old, new",
    [
        ("--paper table1 --only fc", "paper table1 --only fc"),
        ("--out o --paper=table1", "paper table1 --out o"),
        ("--report --protocol paper", "report --protocol paper"),
        ("--bench --json", "bench --json"),
        ("--exp split --tune best.json --runs 2", "tune best.json --exp split --runs 2"),
        ("--exp stream --dataset w.csv --label kind", "stream w.csv --label kind"),
        ("--label a --exp=stream", "stream FILE --label a"),
    ],
)
def test_what_was_a_flag_names_its_command(command, old, new):
    status, out, err = command(*old.split())
    assert (status, out) == (2, "")
    assert err == f"error: this is a command of its own: python run.py {new}\n"
    assert parse(new.split()).command == new.split()[0]


@pytest.mark.parametrize("name", [*COMMANDS, None])
def test_every_command_has_its_own_help(command, name):
    status, out, err = command(*filter(None, [name]), "--help")
    assert (status, err) == (0, "") and "130 interrupted" in out
    assert ("--learning-rates" in out) == (name == "tune")
    assert ("--only" in out.split("Each command")[-1]) == (name == "paper")
    assert ("--save-model" in out) == (name == "stream")


def test_a_changed_file_is_not_the_same_data(command, tiny_npz, tmp_path):
    flags = ["--exp", "iid", "--dataset", tiny_npz, "--backbone", "mlp-20-1", "--batch-size", 8]
    flags += ["--out", tmp_path / "out"]
    assert "found" not in command(*flags)[1]
    assert "found" in command(*flags)[1]
    with np.load(tiny_npz) as file:
        arrays = dict(file)
    np.savez(tiny_npz, **{**arrays, "x_train": 255 - arrays["x_train"]})
    assert "found" not in command(*flags)[1]


def test_too_large_a_network_is_one_line(command, tiny_npz):
    flags = ["--exp", "iid", "--dataset", tiny_npz, "--head", "fc", "--batch-size", 8]
    status, _, err = command(*flags, "--backbone", "mlp-9000000000000-1")
    assert status == 2 and err.count("\n") == 1 and "memory" in err


@pytest.mark.parametrize(
    "words",
    [
        "report --protocol paper --out o",
        "paper all --only fc --protocol paper --runs 2 --out o --data-dir d --workers 2",
        "paper all --cluster tcp://a:1 --quiet",
        "bench --device cuda --data-dir d --json",
        "train --exp iid",
    ],
)
def test_flags_that_a_command_reads(words):
    assert parse(words.split()).command == words.split()[0]
