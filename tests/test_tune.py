"""The search for settings: on held-out training data, never on the test set."""

import json

import numpy as np
import pytest

from minipw.paper import table
from minipw.settings import Settings
from minipw.tune import read_settings, released_grid


def test_hold_out_takes_a_tenth_of_every_class(tiny_dataset):
    dataset = tiny_dataset(train=200)
    held = dataset.hold_out(0.1)
    assert (len(held.y_train), len(held.y_test)) == (180, 20)
    assert (np.bincount(held.y_test) == 5).all()
    rows = {row.tobytes() for row in dataset.x_train}
    test = {row.tobytes() for row in held.x_test}
    assert test < rows and not test & {row.tobytes() for row in held.x_train}
    assert not test & {row.tobytes() for row in dataset.x_test}


@pytest.fixture
def search(command, tiny_npz, tmp_path):
    """Runs the search over a grid of four on the tiny data; its flags and its file."""
    run = ["--exp", "split", "--dataset", tiny_npz, "--backbone", "mlp-30-1", "--batch-size", 8]
    flags = [*run, "--out", tmp_path / "search", "--workers", 1]
    grid = ["--learning-rates", "1e-3,1e-2", "--densities", "0.2,0.4"]
    return [*flags, *grid, "--tune", tmp_path / "best.json"], tmp_path / "best.json"


def test_search_end_to_end(search, command):
    flags, path = search
    status, out, err = command(*flags)
    assert (status, err) == (0, "")
    assert "4 settings, 4 runs to do" in out and out.count("*") == 1
    chosen = json.loads(path.read_text())
    assert chosen["learning_rate"] in (1e-3, 1e-2) and chosen["density"] in (0.2, 0.4)
    assert "held_out" not in chosen
    # The same search again does no run, and chooses the same.
    status, out, _ = command(*flags)
    assert "0 runs to do" in out and json.loads(path.read_text()) == chosen
    # The file is read back, and a flag wins over it.
    status, out, err = command("--settings", path, "--density", "0.3", "--json")
    settings = json.loads(out)["settings"]
    assert status == 0 and settings["density"] == 0.3 and settings["held_out"] == 0
    assert settings["learning_rate"] == chosen["learning_rate"]
    assert settings["backbone"] == chosen["backbone"]


def test_search_does_not_read_the_test_set(search, command, tiny_npz):
    flags, path = search
    command(*flags)
    before = path.read_bytes(), [p.read_text() for p in path.parent.glob("search/*.jsonl")]
    accuracies = [json.loads(line)["accuracy"] for line in before[1][0].splitlines()]
    for store in path.parent.glob("search/*.jsonl"):
        store.unlink()
    with np.load(tiny_npz) as file:
        arrays = dict(file)
    np.savez(tiny_npz, **{**arrays, "x_test": 255 - arrays["x_test"]})
    command(*flags)
    (store,) = path.parent.glob("search/*.jsonl")
    after = [json.loads(line)["accuracy"] for line in store.read_text().splitlines()]
    assert sorted(after) == sorted(accuracies) and path.read_bytes() == before[0]


def test_the_released_grid_has_only_released_values():
    settings = Settings(
        "split", "mnist", "mlp-700-1", "fc", "adagrad", False, 1, 0.1, 1, 64, 1, None
    )
    rates, densities = released_grid(settings)
    rows = [r for r in table("hyperparameters") if r["head"] == "fc" and r["head_mode"] == "single"]
    assert set(rates) <= {float(r["effective_learning_rate"]) for r in rows}
    assert 2e-4 in rates and 0.1 in densities and rates == sorted(rates)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        ("[1]", "one JSON object"),
        ('{"colour": 1}', "colour is no setting"),
    ],
)
def test_bad_settings_files(tmp_path, command, text, says):
    path = tmp_path / "s.json"
    path.write_text(text)
    status, out, err = command("--settings", path)
    assert (status, out, err.count("\n")) == (2, "", 1) and says in err


def test_missing_settings_file(tmp_path, command):
    status, _, err = command("--settings", tmp_path / "none.json")
    assert status == 2 and "No such file" in err


def test_read_settings_returns_what_is_there(tmp_path):
    path = tmp_path / "s.json"
    path.write_text('{"density": 0.25}')
    assert read_settings(path) == {"density": 0.25}
