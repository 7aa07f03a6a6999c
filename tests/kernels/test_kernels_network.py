"""Whole networks through the kernels, compiled for the host, against the plain functions."""

from dataclasses import replace

import numpy as np
import pytest

from minipw.backend.cuda import without_kernels
from minipw.backend.sparse_gradient import to_dense
from minipw.kernels.pairwise_gpu import DevicePairs
from minipw.network.architecture import Architecture
from minipw.network.network import Network
from minipw.rules import Rule, update, zero_importance

CLASSES, RUNS = 4, 3
NETWORKS = {  # input shape, backbone, density, pair weights
    "mlp": ((5, 1, 1), "mlp-33-2", 0.3, 400),
    "cnn": ((8, 8, 1), "cnn-s", 0.2, 800),
    "deeper cnn": ((9, 9, 2), "cnn-m", 0.2, 800),  # col2im returns a part of an array
}
RULES = {
    "sgd": Rule("sgd", 0.01),
    "adagrad": Rule("adagrad", 0.01, 0.8),
    "s-mas": Rule("s-mas", 0.01, 0.3),
}


def stacked(name, dtype, **changes):
    """Three networks as one, and again with the head on the kernels."""
    shape, backbone, density, pair_weights = NETWORKS[name]
    settings = {"density": density, "pair_weights": pair_weights} | changes
    architecture = Architecture(shape, CLASSES, backbone, **settings)
    networks = []
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        network = Network.create(architecture, rng, rng, dtype)
        network.parameters["head"] *= 1000  # the initial weights have deviation 0.001
        networks.append(network)
    network = Network.stack(networks)
    i, j = network.pairs.i, network.pairs.j
    kernels = DevicePairs(i, j, CLASSES, architecture.units, architecture.winners)
    on_kernels = {name: w.copy() for name, w in network.parameters.items()}
    return network, Network(
        architecture, on_kernels, replace(network.pairs, implementation=kernels)
    )


def steps(network, rule, batches):
    """Loss and logits of every step, and the importance after the last."""
    importance, outputs = zero_importance(network.parameters), []
    for x, labels in batches:
        loss, logits, gradients = network.loss_gradients(x, labels, rule)
        outputs += [loss, logits]
        for name, gradient in gradients.items():
            update(rule, network.parameters[name], importance[name], gradient)
    return outputs, importance


def draw_batches(network, rng, dtype, batch, count=2):
    shape = (RUNS, batch, *network.architecture.input_shape)
    for _ in range(count):
        yield rng.standard_normal(shape).astype(dtype), rng.integers(0, CLASSES, shape[:2])


def assert_close(first, second, tolerance):
    for a, b in zip(first, second, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_steps_equal_the_plain_ones(on_host, rng, name, rule):
    network, other = stacked(name, np.float64)
    batches = list(draw_batches(network, rng, np.float64, 9))
    host = on_host(shared=227 << 10)
    host.records = []
    outputs, importance = steps(other, rule, batches)
    kernels = {record[1][0].split("<")[0] for record in host.records}
    assert kernels == {
        *("kwta_forward", "kwta_backward", "gelu_forward", "gelu_backward", "list_active"),
        *("pairwise_forward", "pairwise_sum", "pairwise_dw", "pairwise_dx", "softmax_loss"),
        "update_sgd" if rule.name == "sgd" else "update_importance",
    }
    with without_kernels():
        expected, expected_importance = steps(network, rule, batches)
    # Float64 sums of up to 1,600 products; a gradient that is a rounding of zero, over the
    # root of epsilon, is a thousand times as far off.
    assert_close(outputs, expected, 1e-10)
    assert_close(other.parameters.values(), network.parameters.values(), 1e-10)
    assert_close(importance.values(), expected_importance.values(), 1e-10)


@pytest.mark.parametrize("changes", [{"gelu": "exact"}, {"density": None}], ids=str)
def test_other_settings(on_host, rng, changes):
    network, other = stacked("mlp", np.float64, **changes)
    batches = list(draw_batches(network, rng, np.float64, 5))  # few enough for `Columns`
    on_host(shared=227 << 10)
    outputs, _ = steps(other, RULES["s-mas"], batches)
    with without_kernels():
        expected, _ = steps(network, RULES["s-mas"], batches)
    assert_close(outputs, expected, 1e-10)  # as above
    assert_close(other.parameters.values(), network.parameters.values(), 1e-10)


@pytest.mark.parametrize("name", ["mlp", "deeper cnn"])
def test_gradients_in_float32(on_host, rng, name):
    network, other = stacked(name, np.float32)
    ((x, labels),) = draw_batches(network, rng, np.float32, 9, count=1)
    on_host()
    loss, logits, gradients = other.loss_gradients(x, labels, RULES["s-mas"])
    with without_kernels():
        expected_loss, expected_logits, expected = network.loss_gradients(x, labels, RULES["s-mas"])
    # Sums of a hundred products of order 1, through four layers, of 6e-8 each.
    assert_close([loss, logits], [expected_loss, expected_logits], 3e-5)
    for name, gradient in gradients.items():
        size = network.parameters[name].shape[-1]
        assert_close([to_dense(gradient, size)], [to_dense(expected[name], size)], 3e-5)
