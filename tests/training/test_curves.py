"""Networks without k-WTA, and accuracy measured along the way."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

from minipw.gradcheck import GradientError, check_network
from minipw.network.architecture import Architecture
from minipw.network.network import Network
from minipw.rules import Rule
from minipw.training.run import Run, train
from minipw.training.settings import Settings

BASE = Settings(
    experiment="permuted",
    dataset="tiny",
    backbone="mlp-40-1",
    head="fc",
    rule="adagrad",
    multi_head=False,
    learning_rate=0.02,
    density=None,
    importance_lambda=0.8,
    batch_size=10,
    epochs=1,
    pair_weights=None,
    tasks=3,
)


@pytest.fixture
def data(tiny_dataset):
    return tiny_dataset(train=200, test=40)


# Without k-WTA


@pytest.mark.parametrize(
    "head, rule, learning_rate",
    [
        ("fc", "adagrad", 0.02),
        ("fc", "s-mas", 0.02),
        ("fc", "sgd", 0.02),
        ("pairwise", "adagrad", 0.002),
    ],
)
def test_learning_works_without_kwta(data, head, rule, learning_rate):
    settings = replace(BASE, experiment="iid", head=head, rule=rule, epochs=2, pair_weights=400)
    record = train(replace(settings, learning_rate=learning_rate), 0, data)
    assert record["accuracy_matrix"][0][0] < 60  # 4 classes: chance is 25, untrained stays near
    assert record["accuracy"] > 80


@pytest.mark.parametrize("backbone, shape", [("mlp-9-2", (5,)), ("cnn-s", (8, 8, 1))])
@pytest.mark.parametrize("head", ["fc", "pairwise"])
def test_gradients_without_kwta(rng, backbone, shape, head):
    architecture = Architecture(shape, 4, backbone, head, None, 24)
    network = Network.create(architecture, rng, rng, np.float64)
    network.parameters["head"] = rng.standard_normal(network.parameters["head"].shape)
    x, labels = rng.standard_normal((3, *shape)), rng.integers(0, 4, 3)
    rule = Rule("s-mas", 0.01, 0.01)
    assert check_network(network, x, labels, rule, entries=12) == 2 * len(network.parameters)
    kept = network.backward

    def wrong(dlogits, caches):
        gradients = kept(dlogits, caches)
        return gradients | {network.layers[0][0]: 1.001 * gradients[network.layers[0][0]]}

    network.backward = wrong
    with pytest.raises(GradientError, match=f"d loss / d {network.layers[0][0]}"):
        check_network(network, x, labels, rule, entries=12)


@pytest.mark.parametrize("head", ["fc", "pairwise"])
def test_every_unit_reaches_the_head(data, head):
    """The logits by hand, with all units and nothing subtracted from them."""
    settings = replace(BASE, head=head, gelu="exact", pair_weights=80)
    network = Run(settings, 0, data).network
    x = data.batch(data.x_test[:5])
    assert network.winners == network.architecture.units == 40
    z = x.reshape(5, -1) @ network.parameters["dense0"]
    units, w = z * ndtr(z), network.parameters["head"]
    if head == "fc":
        expected = units @ w
    else:
        products = units[:, network.pairs.i] * units[:, network.pairs.j] * w
        expected = products.reshape(5, -1, 4).sum(1)  # (B, P / C, C) to (B, C)
    # float32 sums of 40 or 20 terms in another order
    np.testing.assert_allclose(network.logits(x), expected, rtol=1e-5, atol=1e-5)
    logits = Run(replace(settings, density=0.5), 0, data).network.logits(x)
    assert not np.allclose(logits, expected, rtol=1e-2)


# The learning curve


@pytest.mark.parametrize("every", [1, 7, 20, 60, 61])
def test_points_of_the_curve(data, every):
    curve = train(replace(BASE, evaluate_every=every), 0, data)["curve"]
    assert [step for step, _ in curve] == list(range(every, 61, every))
    for step, accuracies in curve:
        task = (step - 1) // 20  # 200 images in batches of 10; the point is after the step
        assert len(accuracies) == task + 1
        assert all(0 <= accuracy <= 100 for accuracy in accuracies)


def test_a_point_at_the_end_of_a_task_is_the_row_of_the_matrix(data):
    record = train(replace(BASE, evaluate_every=10), 0, data)
    for task in (1, 2, 3):
        step, accuracies = record["curve"][2 * task - 1]
        assert step == 20 * task and accuracies == record["accuracy_matrix"][task][:task]


def test_a_point_within_a_task_is_the_accuracy_then(data):
    settings = replace(BASE, experiment="split", evaluate_every=3, learning_rate=0.001)
    state = Run(settings, 0, data)
    measured = []
    for number, task in enumerate(state.tasks):
        for rows in task.batches(state.samples, 10, 1):
            state.step(task, rows)
            measured.append([state.accuracy(seen) for seen in state.tasks[: number + 1]])
    curve = train(settings, 0, data)["curve"]
    assert curve == [[step, measured[step - 1]] for step in (3, 6, 9, 12, 15, 18)]
    assert len({tuple(accuracies) for _, accuracies in curve}) > 2


def test_a_point_is_measured_on_so_many_test_images(data, monkeypatch):
    monkeypatch.setattr("minipw.training.run.CURVE_SAMPLES", 7)
    curve = train(replace(BASE, evaluate_every=5, learning_rate=0.001), 0, data)["curve"]
    shares = {round(accuracy * 7 / 100, 9) for _, point in curve for accuracy in point}
    assert shares <= set(range(8)) and len(shares) > 2  # sevenths


def test_the_curve_changes_nothing_else(data):
    with_curve, without = (train(replace(BASE, evaluate_every=every), 0, data) for every in (3, 0))
    assert without["curve"] == []
    for record in (with_curve, without):
        for key in ("curve", "seconds", "settings"):
            del record[key]
    assert with_curve == without
