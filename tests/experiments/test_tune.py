"""The search for settings: on held-out training data, never on the test set."""

import json
from collections import namedtuple
from dataclasses import replace

import numpy as np
import pytest

from minipw import InputError
from minipw.experiments.tune import choose, released_grid
from minipw.paper.released import table
from minipw.training.settings import Settings, read_settings

Point = namedtuple("Point", "learning_rate density")


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
    return ["tune", tmp_path / "best.json", *flags, *grid], tmp_path / "best.json"


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


def test_of_equal_settings_the_one_with_the_best_neighbours_is_chosen():
    values = {(1, 0.1): 9, (1, 0.2): 1, (2, 0.1): 5, (2, 0.2): 8, (3, 0.1): 9, (3, 0.2): 9}
    # The neighbours of (1, 0.1) with itself have a mean of 5, of (3, 0.1) 23/3, of (3, 0.2) 26/3.
    points = {Point(*cell): value for cell, value in values.items()}
    best, remarks = choose(points, [1, 2, 3], [0.1, 0.2])
    assert best == Point(3, 0.2)
    assert remarks == [
        "3 of 6 settings are equally good, one with the best neighbours is taken: more --runs "
        "tell them apart",
        "3 is the highest of --learning-rates: others beyond it may be better",
        "0.2 is the highest of --densities: others beyond it may be better",
    ]
    inside = {Point(rate, 0.1): 5 - abs(rate - 2) for rate in (1, 2, 3)}
    assert choose(inside, [1, 2, 3], [0.1]) == (Point(2, 0.1), [])
    # One that could not be run is an end all the same, and no neighbour.
    assert choose(inside, [1, 2, 3, 4], [0.1]) == (Point(2, 0.1), [])
    assert choose({Point(2, 0.1): 5}, [1, 2, 3], [0.1]) == (Point(2, 0.1), [])


def test_what_cannot_be_run_is_said_once_before_the_search(command, tiny_npz, tmp_path):
    flags = ("--exp", "split", "--dataset", tiny_npz, "--batch-size", 10_000)
    status, _, err = command("tune", tmp_path / "best.json", *flags, "--out", tmp_path)
    assert status == 2 and err.startswith("error: batch size 10000 is more than the")
    assert err.count("\n") == 1 and "failed" not in err


def test_pair_weights_of_another_network_are_not_taken(command, tiny_npz, tmp_path):
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"backbone": "mlp-60-1", "head": "pairwise", "pair_weights": 1500}))
    flags = ("--exp", "split", "--dataset", tiny_npz, "--batch-size", 8, "--json")
    for more, weights in (
        ((), 1500),
        (("--backbone", "mlp-60-1"), 1500),
        (("--backbone", "mlp-20-1"), 190 // 4 * 4),
        (("--head", "fc"), None),
    ):
        status, out, err = command(*flags, "--settings", path, *more)
        assert status == 0, err
        assert json.loads(out)["settings"]["pair_weights"] == weights, more


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


@pytest.mark.parametrize(
    "values, says",
    [
        ({"batch_size": "64"}, "batch_size is '64': use a whole number of at least 1"),
        ({"batch_size": 4.5}, "batch_size is 4.5: use a whole number of at least 1"),
        ({"epochs": True}, "epochs is True: use a whole number of at least 1"),
        ({"density": "x"}, "density is 'x': use a number between 0 and 1"),
        ({"learning_rate": "x"}, "learning_rate is 'x': use a number above 0"),
        ({"blur": float("nan")}, "blur is nan: use a number from 0 to 1e+06"),
        ({"backbone": 5}, "backbone is 5: use text"),
        ({"multi_head": "no"}, "multi_head is 'no': use true or false"),
        ({"importance_lambda": None}, "importance_lambda is None: use a number of at least 0"),
        ({"held_out": 0.5}, "held_out is no setting"),
        ({"evaluate_every": 5}, "evaluate_every is no setting"),
    ],
)
def test_a_value_of_another_kind_is_named(tmp_path, values, says):
    path = tmp_path / "s.json"
    path.write_text(json.dumps(values))
    with pytest.raises(InputError) as caught:
        read_settings(path)
    assert str(caught.value) == f"settings {path}: {says}"


def test_values_of_their_kind_are_taken(tmp_path):
    path, values = tmp_path / "s.json", {"label": None, "density": None, "learning_rate": 1}
    path.write_text(json.dumps(values))
    assert read_settings(path) == values


@pytest.mark.parametrize(
    "values, flags, says",
    [
        ({"importance_lambda": -3}, (), "importance_lambda is -3: use a number of at least 0"),
        ({"experiment": "iid", "blur": 0.5}, (), "an iid stream has no boundaries to blur"),
    ],
)
def test_a_file_is_checked_as_flags_are(command, tiny_npz, tmp_path, values, flags, says):
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"experiment": "split", "dataset": tiny_npz, **values}))
    status, _, err = command("--settings", path, *flags)
    assert status == 2 and says in err and err.count("\n") == 1


def test_a_protocol_that_is_given_wins_over_the_file(command, search, tmp_path):
    flags, path = search
    assert command(*flags)[0] == 0
    pairs = {}
    for protocol in ((), ("--protocol", "paper"), ("--protocol", "released")):
        status, out, err = command("--settings", path, *protocol, "--json")
        assert status == 0, err
        pairs[protocol] = json.loads(out)["settings"]["pairs"]
    assert list(pairs.values()) == ["released", "distinct", "released"]


def test_flags_that_a_search_does_not_use(command, search):
    flags, _ = search
    for flag, value, says in (
        ("--density", 0.5, "--density is searched: give --densities"),
        ("--learning-rate", 0.5, "--learning-rate is searched: give --learning-rates"),
        ("--plot", "a.png", "tune does not take --plot a.png"),
    ):
        status, _, err = command(*flags, flag, value)
        assert status == 2 and says in err
    for bad, says in (("best.npz", "name it .json"), ("none/best.json", "none is no folder")):
        status, _, err = command("tune", bad, *flags[2:])
        assert status == 2 and says in err


def test_densities_that_leave_no_winner_are_not_searched(command, tiny_npz, tmp_path):
    """The released ones begin with 0.03, which of 30 units keeps none at threshold k."""
    run = ["--exp", "split", "--dataset", tiny_npz, "--backbone", "mlp-30-1", "--batch-size", 8]
    flags = [*run, "--out", tmp_path / "o", "--workers", 1, "--learning-rates", "1e-3"]
    status, out, err = command("tune", tmp_path / "best.json", *flags)
    assert status == 0, err
    assert "0.03" not in out and json.loads((tmp_path / "best.json").read_text())["density"] > 0.05


def test_the_first_of_every_class_are_held_out(tiny_dataset):
    data = replace(tiny_dataset(classes=2, train=30), y_train=np.tile([0, 1], 15))
    held = data.hold_out(0.12)  # round(1.8) of each class: rows 0 to 3
    np.testing.assert_array_equal(held.x_test, data.x_train[:4])
    np.testing.assert_array_equal(held.x_train, data.x_train[4:])


def test_values_that_are_given_twice_count_once(search, command):
    flags, _ = search
    flags[flags.index("1e-3,1e-2")], flags[flags.index("0.2,0.4")] = "1e-3,0.001", "0.2,0.2"
    status, out, err = command(*flags)
    assert (status, err) == (0, "") and "1 settings, 1 runs to do" in out


@pytest.mark.parametrize("value", [10**400, -(10**400)])
def test_a_number_out_of_reach_in_a_settings_file(tmp_path, value):
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"learning_rate": value}))
    with pytest.raises(InputError, match=r"learning_rate is .*: use a number"):
        read_settings(path)


def test_a_stream_has_no_settings_file(command, tmp_path):
    path = tmp_path / "s.json"
    path.write_text('{"experiment": "stream"}')
    status, _, err = command("--settings", path)
    assert status == 2 and "experiment is 'stream': use split, permuted or iid" in err
