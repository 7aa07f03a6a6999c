"""How long runs are expected to take."""

from dataclasses import asdict, replace

import pytest

from minipw.experiments.run_times import RunTimes, estimated_seconds
from minipw.experiments.store import run_key
from minipw.paper.cells import OUTLINES, cells
from minipw.training.settings import resolve


def settings_of(part, label):
    (cell,) = [cell for cell in cells(part) if cell.label == label]
    return resolve(OUTLINES[cell.dataset], **cell.request)[0]


TRAINED = settings_of("table1", "split mnist single mlp-700-1 pairwise adagrad")
WANTED = settings_of("table3", "permuted mnist single mlp-700-1 pairwise s-mas")
CURVE = settings_of("curves", "curves pairwise Adagrad")
GUESS = estimated_seconds(WANTED, OUTLINES["mnist"], 60_000)


def record(settings, times, **change):
    """A run that took so many times its estimate."""
    seconds = times * estimated_seconds(settings, OUTLINES[settings.dataset], 60_000)
    found = {"settings": asdict(settings), "seed": 0, "dataset": settings.dataset}
    return {**found, "seconds": seconds, **change}


def expected(*records, device="cpu"):
    """The expected time of WANTED by its estimate."""
    keys, sizes = {WANTED: run_key(asdict(WANTED), None, "mnist")}, {WANTED: GUESS}
    return RunTimes({}, records).expected(keys, sizes, device)[WANTED] / GUESS


def test_the_likest_run_counts():
    dense = settings_of("table1", "split mnist single mlp-1000-1 fc adagrad")
    other = settings_of("table2", "split fashion-mnist single cnn-s pairwise adagrad")
    assert expected() == 1
    assert expected(record(dense, 2)) == pytest.approx(2)
    assert expected(record(dense, 2), record(other, 3)) == pytest.approx(3)
    found = [record(dense, 2), record(other, 3), record(TRAINED, 4)]
    assert expected(*found) == pytest.approx(4)
    assert expected(*found, record(WANTED, 5), record(WANTED, 7, seed=1)) == pytest.approx(6)


def test_one_slow_network_does_not_decide():
    rates = (record(replace(TRAINED, learning_rate=n / 1000), n) for n in (2, 3, 100))
    assert expected(*rates) == pytest.approx(3)


def test_devices_are_apart():
    found = record(TRAINED, 0.01, device="cuda")
    assert expected(found) == 1 and expected(found, device="cuda") == pytest.approx(0.01)
    assert RunTimes({}, [found]).learned_on("cuda") and not RunTimes({}, [found]).learned_on("cpu")


def test_threads_are_cores():
    assert expected(record(TRAINED, 2, threads=2)) == pytest.approx(4)


def test_runs_of_the_same_experiment_come_first():
    found = record(TRAINED, 4), record(replace(WANTED, rule="adagrad"), 3)
    assert expected(*found) == pytest.approx(3)


@pytest.mark.parametrize(
    "change",
    [
        {"settings": {}},
        {"settings": {**asdict(TRAINED), "dataset": ["mnist"]}},
        {"settings": {**asdict(TRAINED), "backbone": "vgg"}},
        {"device": "tpu"},
        {"digest": "part of it"},
        {"settings": {**asdict(TRAINED), "newer": 1}},
        {"settings": {**asdict(TRAINED), "dataset": "elsewhere.npz"}, "dataset": "elsewhere.npz"},
    ],
)
def test_runs_that_teach_nothing(change):
    assert expected({**record(TRAINED, 9), **change}) == 1


def test_runs_tested_all_along_teach_nothing_of_others():
    assert CURVE.evaluate_every and expected(record(CURVE, 9)) == 1
    assert not RunTimes({}, [record(CURVE, 9, device="cuda")]).learned_on("cuda")
