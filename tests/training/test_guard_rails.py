"""What stops a run, and what is said of one that wasted units."""

import re
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from test_run import BASE, trained

from minipw import InputError
from minipw.backend import memory
from minipw.network.diagnostics import unused_lines, unused_units
from minipw.nn.kwta import kwta_forward
from minipw.training.run import Run, train


@pytest.fixture
def data(tiny_dataset):
    return tiny_dataset(train=400, test=120)


@pytest.mark.parametrize("name", ["dense0", "head"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_weight_that_is_not_finite_stops_at_the_end_of_the_task(data, name, value):
    state = Run(BASE, 0, data)
    last = state.tasks[0].steps(BASE.batch_size, BASE.epochs)

    def after_step(state):
        if state.steps == last:  # later than any loss of this task
            state.network.parameters[name].reshape(-1)[0] = value

    says = f"^layer {name} holds weights that are not finite after step {last}: .* 0.0002"
    with np.errstate(invalid="ignore"), pytest.raises(InputError, match=says):
        state.learn(after_step)


def test_more_memory_than_is_free_is_refused_before_it_is_taken(data, monkeypatch):
    monkeypatch.setattr(memory, "_system_memory", lambda: 1000)
    with pytest.raises(InputError, match=r"GiB needed, 0\.0 GiB free: mlp-60-1 with 4 outputs"):
        Run(BASE, 0, data)


@pytest.mark.parametrize("backbone", ["mlp-60-1", "cnn-s"])
def test_units_that_never_won_are_those_of_no_sample(data, backbone):
    settings = replace(BASE, backbone=backbone, pair_weights=40, density=0.2)
    state = Run(settings, 0, data)
    won = np.zeros(state.network.architecture.units, bool)

    def watched(x, winners):
        y, cache = kwta_forward(x, winners)
        won.__ior__(cache[0].any(0))
        threshold = np.zeros(won.size, bool)
        threshold[cache[1]] = True
        won.__ior__(threshold)  # the subtracted unit has a gradient too
        return y, cache

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("minipw.network.network.kwta_forward", watched)
        for task, rows in batches(state):
            state.step(task, rows)
    found = unused_units(state.network, state.importance, state.rule)
    read = np.union1d(state.network.pairs.i, state.network.pairs.j)
    assert found["units"] == won.size and found["unread"] == won.size - read.size > 0
    filters = state.network.layers[-1][1][-1]
    idle = np.tile((~won.reshape(-1, filters)).all(0), won.size // filters)
    never = np.isin(np.flatnonzero(idle), read).sum()
    # a winner whose partners never won with it has no gradient either
    assert never <= found["never_won"] <= read.size and (backbone == "cnn-s" or never > 0)


def batches(state):
    for task in state.tasks:
        for rows in task.batches(state.samples, BASE.batch_size, BASE.epochs):
            yield task, rows


def test_without_importance_nothing_is_counted_by_it(data):
    state = trained(replace(BASE, learning_rate=1e-5, rule="sgd"), data)
    assert unused_units(state.network, state.importance, state.rule)["never_won"] is None


@pytest.mark.parametrize("rule", ["adagrad", "s-mas"])
def test_infinite_importance_is_said_once(data, rule, capsys):
    """Inputs of 1e12: the loss is finite, but the head's importance is not."""
    x = {name: getattr(data, name) / np.float32(256) for name in ("x_train", "x_test")}
    small, large = replace(data, **x), replace(data, **{n: 3e10 * v for n, v in x.items()})
    settings = replace(BASE, rule=rule, importance_lambda=1.0, learning_rate=1e-30, epochs=2)
    assert "warning" not in train(settings, 0, small) and capsys.readouterr().err == ""
    record = train(settings, 7, large)
    assert re.fullmatch(
        r"seed 7: [\d.]+ % of layer (dense0|head) has infinite importance and is frozen "
        r"\(scale the inputs, .*\) after step \d+",
        record["warning"],
    )
    assert capsys.readouterr().err == f"warning: {record['warning']}\n"


@pytest.mark.parametrize("label", [-1, 4, 255])
@pytest.mark.parametrize("part", ["y_train", "y_test"])
def test_a_label_that_is_no_class_is_refused_before_anything_is_drawn(data, part, label):
    getattr(data, part)[3] = label
    with pytest.raises(InputError, match=rf"label {label} of sample 3: use the numbers 0 to 3"):
        Run(BASE, 0, data)


def test_a_million_epochs_are_not_listed(data):
    state = Run(replace(BASE, epochs=1_000_000), 0, data)
    tracemalloc.start()
    stretches = state.stretches(lambda run: None)
    for _ in range(3):
        task, batches = next(stretches)
        state.count(len(batches), 0)
        assert len(batches) == task.steps(BASE.batch_size)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6  # the list of all batches has gigabytes


def test_a_dense_head_reads_every_unit(data):
    state = trained(replace(BASE, head="fc"), data)
    assert unused_units(state.network, state.importance, state.rule)["unread"] == 0


@pytest.mark.parametrize(
    "unread, never_won, says",
    [
        (10, 10, []),
        (11, None, ["11 of 100 units before the head are in no pair"]),
        (0, 11, ["11 of 100 units before the head never won"]),
    ],
)
def test_more_than_a_tenth_is_reported(unread, never_won, says):
    found = {"units": 100, "unread": unread, "never_won": never_won}
    assert list(unused_lines(found)) == says
    assert list(unused_lines(None)) == []


def test_a_record_counts_them(data):
    record = train(replace(BASE, pair_weights=20), 0, data)
    assert record["unused_units"]["unread"] >= 60 - 2 * 20
