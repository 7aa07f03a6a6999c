"""Whole networks: gradients, stacked runs, types, sizes, initial weights, prediction."""

import numpy as np
import pytest
import reference

from minipw.backend.sparse_gradient import Columns, to_dense
from minipw.gradcheck import check_network
from minipw.network.architecture import Architecture
from minipw.network.network import Network
from minipw.rules import Rule, update, zero_importance

CLASSES = 4
RULES = {"adagrad": Rule("adagrad", 0.01, 0.8), "s-mas": Rule("s-mas", 0.01, 0.3, "sum")}
# Input shape, density and pair weights: several winners, and pairs that they reach. Of 7
# units there are 21 pairs, so the 40 weights of the dense backbones repeat them.
BACKBONES = {
    "mlp-7-1": ((5,), 0.6, 42),
    "mlp-7-3": ((3, 2, 1), 0.6, 42),
    "cnn-s": ((8, 8, 1), 0.3, 500),
    "cnn-m": ((9, 9, 2), 0.3, 1000),
}
# Float64 sums of up to 1,600 products, in matrix products of different shapes.
ROUNDING = {"rtol": 1e-12, "atol": 1e-12}


def build(backbone, head, seed=0, dtype=np.float64, **changes):
    """A network whose pair weights are of order 1, so that no gradient is near its rounding."""
    shape, density, pair_weights = BACKBONES[backbone]
    settings = {"density": density, "pair_weights": pair_weights} | changes
    architecture = Architecture(shape, CLASSES, backbone, head, **settings)
    rng = np.random.default_rng(seed)
    network = Network.create(architecture, rng, rng, dtype)
    if head == "pairwise":
        network.parameters["head"] *= 1000  # the initial weights have deviation 0.001
    return network


def draw_batch(network, batch, seed=0, lead=(), dtype=np.float64):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((*lead, batch, *network.architecture.input_shape))
    return x.astype(dtype), rng.integers(0, CLASSES, (*lead, batch))


def draw_away_from_kinks(network, batch):
    """A batch in which no small step changes the unit at the k-WTA threshold.

    Of twenty times as many samples, those whose threshold is farthest from its neighbours.
    """
    x, labels = draw_batch(network, 20 * batch)
    _, caches = network.forward(x)
    (*_, (_, (before_gelu, s, _))), _, _ = caches
    row = np.sort((before_gelu * s).reshape(len(x), -1))
    v = row.shape[-1] - 1 - network.winners
    gap = np.diff(row[:, v - 1 : v + 2]).min(-1)
    keep = np.argsort(gap)[-batch:]
    return x[keep], labels[keep]


def one_step(network, x, labels, rule):
    """The importance after a first step; the parameters change in place."""
    importance = zero_importance(network.parameters)
    _, _, gradients = network.loss_gradients(x, labels, rule)
    for name, gradient in gradients.items():
        update(rule, network.parameters[name], importance[name], gradient)
    return importance


@pytest.mark.parametrize("batch", [3, 9])  # up to 8 samples, zero columns may be left out
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("head", ["pairwise", "fc"])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_network_gradients_are_finite_differences(backbone, head, rule, batch):
    network = build(backbone, head)
    x, labels = draw_away_from_kinks(network, batch)
    _, _, gradients = network.loss_gradients(x, labels, RULES[rule])
    for name, parameter in network.parameters.items():
        assert np.abs(to_dense(gradients[name], parameter.shape[-1])).max() > 1e-3
    compared = check_network(network, x, labels, RULES[rule], entries=8)
    assert compared == len(network.parameters) * (2 if rule == "s-mas" else 1)


@pytest.mark.parametrize("masking", ["exclude", "zero"])
def test_network_gradients_under_a_class_mask(masking):
    network = build("mlp-7-1", "pairwise", gelu="exact", kwta_threshold="k+1")
    x, labels = draw_away_from_kinks(network, 3)
    mask = np.arange(CLASSES) // 2 == labels[:, None] // 2
    check_network(network, x, labels, RULES["s-mas"], mask, masking, entries=None)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("head", ["pairwise", "fc"])
def test_gradients_with_few_columns_are_finite_differences(head, rule):
    # 3 winners and the subtracted unit in 2 samples reach at most 8 of 40 units.
    architecture = Architecture((5,), CLASSES, "mlp-40-2", head, 0.1, 400)
    rng = np.random.default_rng(0)
    network = Network.create(architecture, rng, rng, np.float64)
    network.parameters["head"] = rng.standard_normal(network.parameters["head"].shape)
    x, labels = draw_away_from_kinks(network, 2)
    _, _, gradients = network.loss_gradients(x, labels, RULES[rule])
    assert isinstance(gradients["dense1"], Columns)
    assert isinstance(gradients["head"], Columns) == (head == "pairwise")
    check_network(network, x, labels, RULES[rule], entries=40)


@pytest.mark.parametrize("backbone", ["mlp-7-3", "cnn-s"])
def test_a_step_equals_the_loops(backbone):
    network = build(backbone, "pairwise")
    x, labels = draw_batch(network, 3)
    weights = [w.copy() for w in network.parameters.values()]
    expected = reference.network_step(
        x if backbone == "cnn-s" else x.reshape(3, -1),
        labels,
        weights,
        [np.zeros(w.shape) for w in weights],
        "s-mas",
        0.01,
        0.3,
        winners=network.winners,
        pairs=(network.pairs.i, network.pairs.j),
        classes=CLASSES,
        strides=[4] if backbone == "cnn-s" else None,
        approximate=True,
    )
    loss, logits, _ = network.loss_gradients(x, labels, RULES["s-mas"])
    importance = one_step(network, x, labels, RULES["s-mas"])
    np.testing.assert_allclose(loss, expected[0], **ROUNDING)
    np.testing.assert_allclose(logits, expected[1], **ROUNDING)
    # A gradient that is a rounding of zero, over sqrt(1e-6): a thousand times as far off.
    for ours, theirs in zip(network.parameters.values(), expected[2], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10)
    for ours, theirs in zip(importance.values(), expected[3], strict=True):
        np.testing.assert_allclose(ours, theirs, **ROUNDING)


@pytest.mark.parametrize("batch", [3, 9])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("head", ["pairwise", "fc"])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_three_stacked_runs_are_three_networks(backbone, head, rule, batch):
    networks = [build(backbone, head, seed) for seed in range(3)]
    stack = Network.stack(networks)
    assert stack.parameter_count == sum(network.parameter_count for network in networks)
    x, labels = draw_batch(stack, batch, lead=(3,))
    loss, logits, gradients = stack.loss_gradients(x, labels, RULES[rule])
    importance = one_step(stack, x, labels, RULES[rule])
    for r, network in enumerate(networks):
        one_loss, one_logits, one = network.loss_gradients(x[r], labels[r], RULES[rule])
        np.testing.assert_allclose(loss[r], one_loss, **ROUNDING)
        np.testing.assert_allclose(logits[r], one_logits, **ROUNDING)
        one_importance = one_step(network, x[r], labels[r], RULES[rule])
        for name, parameter in network.parameters.items():
            size, axis = parameter.shape[-1], int(rule == "s-mas")
            ours = to_dense(gradients[name], size).take(r, axis)
            np.testing.assert_allclose(ours, to_dense(one[name], size), **ROUNDING)
            np.testing.assert_allclose(importance[name][r], one_importance[name], **ROUNDING)
            # Over sqrt(1e-6) a rounding of the gradient is a thousand times as large.
            stepped = stack.parameters[name][r]
            np.testing.assert_allclose(stepped, parameter, rtol=1e-10, atol=1e-10)


def test_stacking_copies_the_parameters():
    networks = [build("mlp-7-1", "fc", seed) for seed in range(2)]
    stack = Network.stack(networks)
    stack.parameters["dense0"] += 1
    assert np.all(stack.parameters["dense0"][0] == networks[0].parameters["dense0"] + 1)


@pytest.mark.parametrize("batch", [1, 9])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("head", ["pairwise", "fc"])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_float32_stays_float32(backbone, head, rule, batch):
    network = build(backbone, head, dtype=np.float32)
    x, labels = draw_batch(network, batch, dtype=np.float32)
    loss, logits, gradients = network.loss_gradients(x, labels, RULES[rule])
    assert loss.dtype == logits.dtype == np.float32
    for gradient in gradients.values():
        values = gradient.values if isinstance(gradient, Columns) else gradient
        assert values.dtype == np.float32
    importance = one_step(network, x, labels, RULES[rule])
    for name, parameter in network.parameters.items():
        assert parameter.dtype == importance[name].dtype == np.float32


@pytest.mark.parametrize(
    ("shape", "backbone", "head", "wanted", "count"),
    [
        # 784 * 700 + 250,000
        ((28, 28, 1), "mlp-700-1", "pairwise", 250_000, 798_800),
        # 784 * 700 + 700 * 10
        ((28, 28, 1), "mlp-700-1", "fc", 250_000, 555_800),
        # 784 * 50 + 50 * 50 + 50 * 50 + 999, the weights rounded down to 990
        ((28, 28, 1), "mlp-50-3", "pairwise", 999, 45_190),
        # 7 * 7 * 1 * 64 + 1,000
        ((28, 28, 1), "cnn-s", "pairwise", 1000, 4_136),
        # 7 * 7 * 1 * 64 + (7 * 7 * 64) * 10, as 28 / 4 = 7
        ((28, 28, 1), "cnn-s", "fc", None, 34_496),
        # 7 * 7 * 3 * 64 + 5 * 5 * 64 * 128 + (4 * 4 * 128) * 10, as 32 / 4 / 2 = 4
        ((32, 32, 3), "cnn-m", "fc", None, 234_688),
    ],
)
def test_parameter_count(shape, backbone, head, wanted, count):
    architecture = Architecture(shape, 10, backbone, head, pair_weights=wanted)
    rng = np.random.default_rng(0)
    assert Network.create(architecture, rng, rng).parameter_count == count


def test_initial_head_weights_have_their_deviation():
    network = Network.create(
        Architecture((5,), 10, "mlp-150-1", pair_weights=10_000),
        np.random.default_rng(0),
        np.random.default_rng(1),
    )
    # Of 10,000 normal draws the deviation is known to 1 / sqrt(20,000), the mean to 1 / 100
    # of 0.001: five of those.
    head = network.parameters["head"]
    assert abs(head.std() / 0.001 - 1) < 5 / np.sqrt(20_000)
    assert abs(head.mean()) < 5 * 0.001 / 100


def test_weights_and_pairs_come_from_their_own_generators():
    def create(weights_seed, pairs_seed):
        architecture = Architecture((5,), 10, "mlp-30-1", pair_weights=100)
        seeds = weights_seed, pairs_seed
        return Network.create(architecture, *map(np.random.default_rng, seeds))

    first, again = create(1, 2), create(1, 2)
    other_pairs, other_weights = create(1, 3), create(4, 2)
    for name, parameter in first.parameters.items():
        np.testing.assert_array_equal(parameter, again.parameters[name])
        np.testing.assert_array_equal(parameter, other_pairs.parameters[name])
        assert np.any(parameter != other_weights.parameters[name])
    np.testing.assert_array_equal(first.pairs.i, other_weights.pairs.i)
    assert np.any(first.pairs.i != other_pairs.pairs.i)


@pytest.mark.parametrize("head", ["pairwise", "fc"])
@pytest.mark.parametrize("lead", [(), (2,)])
def test_logits_in_batches_equal_one_forward(head, lead):
    networks = [build("mlp-7-1", head, seed) for seed in range(2)]
    network = Network.stack(networks) if lead else networks[0]
    x, _ = draw_batch(network, 515, lead=lead)  # 256 + 256 + 3
    logits = network.logits(x)
    assert logits.shape == (*lead, 515, CLASSES)
    np.testing.assert_allclose(logits, network.forward(x)[0], **ROUNDING)
    np.testing.assert_allclose(network.logits(x[..., :256, :]), logits[..., :256, :], **ROUNDING)


def test_gelu_setting_is_the_one_in_use():
    logits = [
        network.forward(draw_batch(network, 3)[0])[0]
        for network in (build("mlp-7-1", "fc", gelu=gelu) for gelu in ("tanh", "exact"))
    ]
    gap = np.abs(logits[0] - logits[1]).max()
    assert 1e-6 < gap < 1e-2  # the two functions differ by under 5e-4 of order 1
