"""How long runs are expected to take."""

from dataclasses import asdict, replace

import pytest

from minipw.experiments.run_times import RunTimes, estimated_seconds
from minipw.paper.cells import OUTLINES, cells
from minipw.training.settings import resolve


def settings_of(part, label):
    (cell,) = [cell for cell in cells(part) if cell.label == label]
    return resolve(OUTLINES[cell.dataset], **cell.request)[0]


TRAINED = settings_of("table1", "split mnist single mlp-700-1 pairwise adagrad")
CURVE = settings_of("curves", "curves pairwise Adagrad")


def record(settings, times, **change):
    """A run that took so many times its estimate."""
    seconds = times * estimated_seconds(settings, OUTLINES[settings.dataset])
    found = {"settings": asdict(settings), "seed": 0, "dataset": settings.dataset}
    return {**found, "seconds": seconds, **change}


def test_the_median_counts():
    rates = [record(replace(TRAINED, learning_rate=n / 1000), n) for n in (2, 3, 100)]
    assert RunTimes({}, rates).scale("cpu") == pytest.approx(3)


def test_devices_are_apart():
    times = RunTimes({}, [record(TRAINED, 0.01, device="cuda")])
    assert times.scale("cpu") is None and times.scale("cuda") == pytest.approx(0.01)


def test_threads_are_cores():
    assert RunTimes({}, [record(TRAINED, 2, threads=2)]).scale("cpu") == pytest.approx(4)


def test_the_estimate_grows_with_the_work():
    outline = OUTLINES["mnist"]
    once = estimated_seconds(TRAINED, outline)
    assert estimated_seconds(replace(TRAINED, epochs=3), outline) == pytest.approx(3 * once)
    permuted = replace(TRAINED, experiment="permuted", tasks=10)
    assert estimated_seconds(permuted, outline) == pytest.approx(10 * once)
    assert estimated_seconds(replace(TRAINED, backbone="mlp-1400-1"), outline) > once


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
    times = RunTimes({}, [{**record(TRAINED, 9), **change}])
    assert times.ratios == {"cpu": [], "cuda": []}


def test_runs_with_a_learning_curve_teach_nothing():
    assert CURVE.evaluate_every and RunTimes({}, [record(CURVE, 9)]).scale("cpu") is None
