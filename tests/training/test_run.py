"""The streaming loop: what is learned, what is measured, and what the learner sees."""

from dataclasses import replace

import numpy as np
import pytest

from minipw import InputError
from minipw.training.run import Run, train
from minipw.training.settings import Settings

BASE = Settings(
    experiment="split",
    dataset="tiny",
    backbone="mlp-60-1",
    head="pairwise",
    rule="adagrad",
    multi_head=False,
    learning_rate=0.002,
    density=0.2,
    importance_lambda=0.8,
    batch_size=10,
    epochs=1,
    pair_weights=1000,
)


@pytest.fixture
def data(tiny_dataset):
    return tiny_dataset(train=400, test=120)


def trained(settings, data, change=None, seed=0):
    """A run after its last step; `change` maps its list of tasks to another."""
    state = Run(settings, seed, data)
    if change:
        state.tasks = change(state.tasks)
    for task in state.tasks:
        for rows in task.batches(state.samples, settings.batch_size, settings.epochs):
            state.step(task, rows)
    return state


def equal(a, b):
    """Whether parameters and importance of two runs are the same, bit for bit."""
    pairs = ((a.network.parameters, b.network.parameters), (a.importance, b.importance))
    return all(np.array_equal(p[name], q[name]) for p, q in pairs for name in p)


@pytest.mark.parametrize(
    "head, rule, learning_rate",
    [
        ("pairwise", "adagrad", 0.002),
        ("pairwise", "s-mas", 0.002),
        ("pairwise", "sgd", 0.1),
        ("fc", "adagrad", 0.02),
        ("fc", "s-mas", 0.02),
        ("fc", "sgd", 0.05),
    ],
)
def test_learning_works(data, head, rule, learning_rate):
    settings = replace(
        BASE, experiment="iid", head=head, rule=rule, learning_rate=learning_rate, epochs=2
    )
    record = train(settings, 0, data)
    assert record["accuracy_matrix"][0][0] < 60  # 4 classes: chance is 25, untrained stays near
    assert record["accuracy"] > 80
    assert 25 < record["online_accuracy"] < 100


def test_accuracy_matrix(data):
    record = train(BASE, 0, data)
    a = np.array(record["accuracy_matrix"])
    assert a.shape == (3, 2) and record["tasks"] == [task.name for task in Run(BASE, 0, data).tasks]
    assert a[0].tolist() == Run(BASE, 0, data).evaluate()  # row 0: the untrained network
    assert a[-1].tolist() == record["task_accuracy"] == trained(BASE, data).evaluate()
    first = trained(BASE, data, lambda tasks: tasks[:1])
    assert a[1].tolist() == [first.accuracy(task) for task in Run(BASE, 0, data).tasks]


@pytest.mark.parametrize("multi_head", [False, True])
def test_overall_accuracy_by_hand(data, multi_head):
    settings = replace(BASE, rule="sgd", learning_rate=1e-4, classes_per_task=3)
    settings = replace(settings, multi_head=multi_head, class_mask="exclude")
    record, state = train(settings, 0, data), trained(settings, data)
    correct, averages = 0, []
    for group in ({0, 1, 2}, {3}):
        rows = [n for n, label in enumerate(data.y_test) if label in group]
        logits = state.network.logits(data.batch(data.x_test[rows]))
        classes = sorted(group) if multi_head else range(4)
        predicted = [max(classes, key=lambda c, z=z: z[c]) for z in logits]
        right = sum(p == label for p, label in zip(predicted, data.y_test[rows], strict=True))
        correct += right
        averages.append(100 * right / len(rows))
    assert record["accuracy"] == pytest.approx(100 * correct / 120, abs=1e-9)  # float64 sums
    assert record["average_accuracy"] == pytest.approx(sum(averages) / 2, abs=1e-9)
    assert record["accuracy"] != pytest.approx(record["average_accuracy"])  # 90 and 30 images


def test_online_accuracy_counts_before_the_update(data):
    settings = replace(BASE, learning_rate=0.01)
    state, before, after, number = Run(settings, 0, data), 0, 0, 0
    for task in state.tasks:
        for rows in task.batches(state.samples, 10, 1):
            number += 1
            x, labels = data.batch(data.x_train[rows]), data.y_train[rows]
            count = int((state.network.logits(x).argmax(-1) == labels).sum())
            assert state.step(task, rows) == count
            before += count
            after += int((state.network.logits(x).argmax(-1) == labels).sum())
    record = train(settings, 0, data)
    assert record["steps"] == number == 40
    assert record["online_accuracy"] == pytest.approx(100 * before / 400)
    assert after > before  # counted after the update it would be another number


def relabelled(tasks):
    """The same samples in the same order, under other names and class masks."""
    classes = [np.roll(task.classes, 1) for task in tasks]
    return [replace(t, name="?", classes=c) for t, c in zip(tasks, classes, strict=True)]


@pytest.mark.parametrize("rule", ["adagrad", "s-mas", "sgd"])
@pytest.mark.parametrize("head", ["pairwise", "fc"])
def test_task_identities_never_reach_a_single_head_run(data, head, rule):
    settings = replace(BASE, head=head, rule=rule)
    assert equal(trained(settings, data), trained(settings, data, relabelled))


def test_task_identities_reach_a_multi_head_run(data):
    settings = replace(BASE, multi_head=True)  # the released mask: any label has a finite loss
    assert not equal(trained(settings, data), trained(settings, data, relabelled))
    assert not equal(trained(settings, data), trained(BASE, data))


@pytest.mark.parametrize("experiment", ["split", "permuted", "iid"])
def test_two_runs_of_a_seed_are_equal(data, experiment):
    settings = replace(BASE, experiment=experiment, tasks=2)
    one, same, other = (trained(settings, data, seed=seed) for seed in (1, 1, 2))
    assert equal(one, same) and not equal(one, other)
    first, second = (train(settings, 1, data) for _ in range(2))
    assert {**first, "seconds": 0} == {**second, "seconds": 0}


@pytest.mark.parametrize("batch_size", [1, 10])
@pytest.mark.parametrize("backbone", ["mlp-60-1", "mlp-20-3", "cnn-s"])
@pytest.mark.parametrize("rule", ["adagrad", "s-mas", "sgd"])
def test_parameters_stay_float32_and_finite(data, backbone, rule, batch_size):
    settings = replace(BASE, backbone=backbone, rule=rule, batch_size=batch_size)
    start, state = Run(settings, 0, data), trained(settings, data)
    for name, w in state.network.parameters.items():
        assert w.dtype == state.importance[name].dtype == np.float32
        assert np.isfinite(w).all() and np.isfinite(state.importance[name]).all()
        assert (w != start.network.parameters[name]).any()
        assert (state.importance[name] >= 0).all()
        assert state.importance[name].any() == (rule != "sgd")


def test_a_batch_larger_than_a_task_is_refused(data):
    with pytest.raises(InputError, match="batch size 201 is more than the 200 training samples"):
        Run(replace(BASE, batch_size=201), 0, data)


def test_loss_that_is_not_finite_names_layer_step_and_remedy(data):
    state = Run(BASE, 0, data)
    state.network.parameters["dense0"][0, 0] = np.nan
    task, state.steps = state.tasks[0], 6
    before = {name: w.copy() for name, w in state.network.parameters.items()}
    with (
        np.errstate(invalid="ignore"),
        pytest.raises(InputError, match=r"step 7, first in layer dense0: .*--learning-rate 0.0002"),
    ):
        state.step(task, task.train[:10])
    for name, w in state.network.parameters.items():
        np.testing.assert_array_equal(w, before[name])


def test_a_batch_without_any_gradient_changes_nothing(data):
    state = Run(replace(BASE, batch_size=4), 0, data)
    state.network.parameters["head"][:] = 0  # no path from the loss to the backbone
    before = state.network.parameters["dense0"].copy()
    state.step(state.tasks[0], state.tasks[0].train[:4])
    np.testing.assert_array_equal(state.network.parameters["dense0"], before)


def test_online_accuracy_counts_the_first_epoch_alone(tiny_dataset):
    dataset = tiny_dataset(train=200)
    once, twice = (
        train(replace(BASE, experiment="iid", epochs=epochs), 0, dataset) for epochs in (1, 2)
    )
    assert once["online_accuracy"] == twice["online_accuracy"]
    assert twice["steps"] == 2 * once["steps"]


def test_a_curve_is_measured_all_over_the_test_set(tiny_dataset):
    dataset = tiny_dataset(train=200, test=80)
    state = Run(BASE, 0, dataset)
    rows = []
    state.predict = lambda logits, mask: rows.append(len(logits)) or np.zeros(len(logits), int)
    task = state.tasks[0]
    task = replace(task, test=np.arange(80))
    zeros = np.flatnonzero(dataset.y_test[np.linspace(0, 79, 8).astype(int)] == 0).size
    assert state.accuracy(task, 8) == 100 * zeros / 8 and rows == [8]


@pytest.mark.parametrize(
    "wrong",
    [
        {"experiment": "spilt"},
        {"class_mask": "exlude"},
        {"rule": "adam"},
        {"batch_size": 0},
        {"learning_rate": -1.0},
    ],
)
def test_settings_are_checked(wrong):
    with pytest.raises(InputError, match=str(next(iter(wrong.values())))):
        replace(BASE, **wrong)
