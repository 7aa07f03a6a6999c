"""Which implementation of the pairwise head a network gets."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from minipw.kernels.pairwise_cpu import ListedPairs, WinnerPairs
from minipw.kernels.pairwise_matrix import MatrixPairs
from minipw.kernels.pairwise_sparse import SparsePairs
from minipw.network import head_implementation
from minipw.network.architecture import Architecture
from minipw.network.head_implementation import fastest_implementation
from minipw.network.initialization import sample_pairs
from minipw.network.network import Network
from minipw.nn.pairwise import Pairs, pairwise_forward
from minipw.training.streams import seed_generators


def architecture_of(units, density):
    """A network of 10 classes in which units * density units win."""
    return Architecture((4,), 10, f"mlp-{units}-1", density=density, kwta_threshold="k+1")


def fastest(i, j, units, density):
    return fastest_implementation(i, j, architecture_of(units, density), batch_size=64)


def test_every_pair_and_few_winners_are_found_by_winners(monkeypatch):
    i, j = np.tril_indices(40, -1)
    # 64 * 4^2 / 2 = 512 pairs of winners against 780 words and 2.5 * 64 * 7.8 products.
    assert fastest(i, j, 40, 0.1) is WinnerPairs
    table = 6 * 40 * 40  # of int32 and int16 entries
    monkeypatch.setattr(head_implementation, "TABLE_LIMIT", table)
    assert fastest(i, j, 40, 0.1) is WinnerPairs
    monkeypatch.setattr(head_implementation, "TABLE_LIMIT", table - 1)
    assert fastest(i, j, 40, 0.1) is ListedPairs


def test_few_pairs_and_many_winners_are_found_by_the_list():
    i, j = np.arange(20), np.arange(20, 40)
    # 64 * 20^2 / 2 = 12,800 pairs of winners against 20 words and 800 products.
    assert fastest(i, j, 100, 0.5) is ListedPairs


def test_pairs_listed_often_become_matrices(monkeypatch):
    i, j = (np.tile(unit, 12) for unit in np.tril_indices(40, -1))
    # 96 * 10 * 40^2 / 350 + 0.3 * 9,360 = 7,197 against 153,600 pairs of winners.
    assert fastest(i, j, 40, 0.5) is MatrixPairs
    monkeypatch.setattr(head_implementation, "TABLE_LIMIT", 8 * 10 * 40 * 40 - 1)
    assert fastest(i, j, 40, 0.5) is WinnerPairs


def test_a_unit_with_itself_is_always_listed():
    i, j = np.tril_indices(40)  # with the diagonal
    assert fastest(i, j, 40, 0.1) is ListedPairs


def test_stacked_runs_have_the_defining_form_on_a_cpu():
    generators = seed_generators(0)
    architecture = Architecture((4,), 10, "mlp-40-1", density=0.1, pair_weights=780)
    networks = [
        Network.create(architecture, generators["weights"], generators["pairs"]) for _ in range(2)
    ]
    stack = Network.stack(networks)
    assert stack.pairs.i.shape == (2, 780)
    assert stack.pairs.implementation is stack.evaluation_pairs.implementation is None


@pytest.mark.parametrize(
    ("units", "density", "pair_weights", "training", "evaluation"),
    [
        (40, 0.1, 780, WinnerPairs, WinnerPairs),
        (700, 0.15, 250_000, WinnerPairs, MatrixPairs),
        (2048, 0.15, 25_000, ListedPairs, SparsePairs),
        (40, 0.5, 780 * 12, MatrixPairs, MatrixPairs),
    ],
)
def test_a_network_may_evaluate_with_another_implementation(
    units, density, pair_weights, training, evaluation
):
    architecture = Architecture(
        (4,), 10, f"mlp-{units}-1", density=density, pair_weights=pair_weights
    )
    generators = seed_generators(0)
    network = Network.create(architecture, generators["weights"], generators["pairs"])
    assert type(network.pairs.implementation) is training
    assert type(network.evaluation_pairs.implementation) is evaluation
    x = np.random.default_rng(1).standard_normal((300, 4), np.float32)
    expected, _ = network.forward(x)
    np.testing.assert_allclose(network.logits(x), expected, rtol=0, atol=1e-4)


def test_the_count_of_products_of_winners():
    """20 of 40 units are used: 4 of 8 winners at first, all of them later, 6 between."""
    architecture = architecture_of(40, 0.2)
    costs = head_implementation.implementation_costs(architecture, 780, 20, 1, batch_size=64)
    assert costs[WinnerPairs] == 64 * 6**2 / 2


def test_products_a_sample():
    architecture = Architecture((4,), 10, "mlp-100-1", density=0.21, pair_weights=10_000)
    assert architecture.winners == 20
    held = head_implementation.products(WinnerPairs, architecture)
    assert held == 3 * 20**2 // 2  # 4,950 pairs exist: some are listed three times
    assert head_implementation.products(ListedPairs, architecture) == 400  # 10,000 * 0.2^2
    assert head_implementation.products(MatrixPairs, architecture) == 0
    assert head_implementation.products(SparsePairs, architecture) == 0


@pytest.mark.parametrize("gradient", [True, False])
def test_threads_that_share_matrices_get_their_own_products(rng, gradient):
    i, j = sample_pairs(rng, 300, 20_000, 10, "released")
    pairs = MatrixPairs(i, j, 10, 300)
    x = rng.standard_normal((64, 300))
    weights = [rng.standard_normal(i.size) for _ in range(20)]
    expected = [pairs.forward(x, w, gradient)[0] for w in weights]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda w: pairs.forward(x, w, gradient)[0], weights))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("form", [MatrixPairs, ListedPairs, SparsePairs, None])
def test_whole_numbers_are_multiplied_as_floats(rng, form):
    i, j, w = np.array([0, 1, 2, 0]), np.array([1, 2, 3, 3]), np.array([0.5, -1.0, 2.0, 3.0])
    pairs = Pairs(i, j, 2, form and form(i, j, 2, 4))
    for dtype in (np.uint8, np.int64, np.float64):
        x = np.array([[200, 3, 100, 7], [0, 1, 0, 2]], dtype)
        y, _ = pairwise_forward(x, w, pairs, gradient=False)
        # 0.5 * 200 * 3 + 2 * 100 * 7, and -3 * 100 + 3 * 200 * 7
        np.testing.assert_array_equal(y, [[1700, 3900], [0, 0]])
