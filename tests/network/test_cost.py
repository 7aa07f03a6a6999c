"""How much memory is free, and what happens when it is not enough."""

import builtins
import io
import os
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from minipw import InputError
from minipw.backend import memory
from minipw.backend.threads import THREADS
from minipw.kernels import pairwise_cpu
from minipw.kernels.pairwise_cpu import ListedPairs
from minipw.network import cost, head_implementation
from minipw.network.architecture import Architecture
from minipw.network.network import Network
from minipw.nn.pairwise import Pairs
from minipw.online.classifier import OnlineClassifier
from minipw.rules import Rule, update, zero_importance
from minipw.training.streams import seed_generators


def test_what_is_free_is_what_can_be_had():
    free = memory.available_memory()
    assert free is None or free > 1 << 20
    if free is not None:
        memory.require_memory(1 << 20, "little")
        with pytest.raises(InputError, match=r"GiB needed, [\d,.]+ GiB free: a lot; use less"):
            memory.require_memory(2 * free + (1 << 30), "a lot; use less")


def test_a_container_s_limit_counts(tmp_path):
    assert memory._group_memory(tmp_path) is None
    (tmp_path / "memory.current").write_text("300\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert memory._group_memory(tmp_path) is None
    (tmp_path / "memory.max").write_text("1000\n")
    assert memory._group_memory(tmp_path) == 700


@pytest.mark.parametrize("text", [None, "", "MemAvailable:\n", "MemTotal: 1 kB\n"])
def test_a_system_without_meminfo(monkeypatch, text):
    def other(path, *arguments):
        if text is None:
            raise FileNotFoundError(path)
        return io.StringIO(text)

    monkeypatch.setattr(builtins, "open", other)
    monkeypatch.setattr(os, "sysconf", {"SC_AVPHYS_PAGES": 10, "SC_PAGE_SIZE": 4096}.get)
    assert memory._system_memory() == 40960
    monkeypatch.delattr(os, "sysconf")
    assert memory._system_memory() is None


def test_nothing_is_refused_where_nothing_is_known(monkeypatch):
    monkeypatch.setattr(memory, "_system_memory", lambda: None)
    monkeypatch.setattr(memory, "_group_memory", lambda: None)
    memory.require_memory(np.iinfo(np.int64).max, "everything")


def peak_of_training(architecture, batch_size, rule):
    """Bytes that a network, one step and a test of 600 samples took at most."""
    generators = seed_generators(0)
    x = np.random.default_rng(1).standard_normal((600, *architecture.input_shape), np.float32)
    labels = np.arange(batch_size) % architecture.classes
    rule = Rule(rule, 1e-3, 0.1)
    tracemalloc.start()
    try:
        network = Network.create(
            architecture, generators["weights"], generators["pairs"], batch_size=batch_size
        )
        importance = zero_importance(network.parameters)
        _, _, gradients = network.loss_gradients(x[:batch_size], labels, rule)
        for name, gradient in gradients.items():
            update(rule, network.parameters[name], importance[name], gradient)
        del gradients
        network.logits(x)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("input_shape", "backbone", "density", "pair_weights", "batch_size"),
    [
        ((20,), "mlp-700-1", 0.15, 250_000, 64),  # winners, then matrices
        ((20,), "mlp-700-1", 0.25, 250_000, 64),  # matrices
        ((20,), "mlp-900-1", 0.2, 400_000, 1),  # winners for few samples
        ((28, 28, 1), "cnn-s", 0.25, 100_000, 64),  # the list, then a sparse matrix
        ((32, 32, 3), "cnn-s", 0.2, 100_000, 64),
        ((20,), "mlp-1000-1", None, 100_000, 64),
    ],
)
@pytest.mark.parametrize("rule, threads", [("adagrad", 1), ("s-mas", 2)])  # least and most
def test_the_estimate_is_near_what_is_taken(
    input_shape, backbone, density, pair_weights, batch_size, rule, threads
):
    architecture = Architecture(
        input_shape, 10, backbone, density=density, pair_weights=pair_weights
    )
    with THREADS.use(threads):
        # threads that happen to take turns take less at a time than at most
        taken = max(
            peak_of_training(architecture, batch_size, rule) for _ in range(2 * threads - 1)
        )
        estimate = cost.host_bytes(architecture, batch_size)
    assert 0.8 * taken < estimate < 5 * taken


def test_a_test_holds_no_more_products_than_allowed(monkeypatch, rng):
    learner = OnlineClassifier("mlp-300-1", density=0.4, classes=["a", "b"])
    learner.partial_fit(rng.standard_normal((3, 4)), ["a", "b", "a"])
    x = rng.standard_normal((100, 4))
    expected = learner.decision_function(x)
    head, sizes = learner.network.pairs.implementation, []
    forward = head._forward
    monkeypatch.setattr(head, "_forward", lambda x, *a: sizes.append(len(x)) or forward(x, *a))
    held = head_implementation.products(type(head), learner.network.architecture)
    assert held == 120**2 // 2
    monkeypatch.setattr(pairwise_cpu, "PRODUCTS", 30 * held + 1)
    np.testing.assert_array_equal(learner.decision_function(x), expected)
    assert sizes == [30, 30, 30, 10]
    monkeypatch.setattr(pairwise_cpu, "PRODUCTS", 1)
    sizes.clear()
    learner.decision_function(x[:60])
    assert sizes == [1] * 60
    sizes.clear()
    learner.decision_function(x[:3])  # too few for tables of the weights
    assert sizes == [1] * 3


def test_a_test_of_listed_pairs_is_cut_too(monkeypatch):
    architecture = Architecture((4,), 2, "mlp-300-1", density=0.4, pair_weights=100)
    pairs = Pairs(np.arange(100) + 1, np.arange(100), 2)
    pairs = replace(pairs, implementation=ListedPairs(pairs.i, pairs.j, 2, 300))
    held = head_implementation.products(ListedPairs, architecture)
    for allowed, size in ((30 * held + 1, 30), (1, 1)):
        monkeypatch.setattr(head_implementation, "PRODUCTS_AT_ONCE", allowed)
        assert head_implementation.cpu_evaluation_batch(pairs, architecture) == size


@pytest.mark.parametrize("system, group, free", [(5, 3, 3), (2, 3, 2), (None, 3, 3), (5, None, 5)])
def test_the_smaller_limit_counts(monkeypatch, system, group, free):
    monkeypatch.setattr(memory, "_system_memory", lambda: system)
    monkeypatch.setattr(memory, "_group_memory", lambda: group)
    assert memory.available_memory() == free


def test_meminfo_counts_in_kibibytes(monkeypatch):
    text = "MemTotal: 9 kB\nMemAvailable: 5 kB\n"
    monkeypatch.setattr(builtins, "open", lambda path: io.StringIO(text))
    assert memory._system_memory() == 5 * 1024
