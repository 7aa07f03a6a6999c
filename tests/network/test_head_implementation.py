"""Which form of the pairwise head a network gets."""

import numpy as np
import pytest

from minipw.kernels.pairwise_cpu import ListedPairs, PerRun, WinnerPairs
from minipw.kernels.pairwise_matrix import MatrixPairs
from minipw.kernels.pairwise_sparse import SparsePairs
from minipw.network import head_implementation
from minipw.network.architecture import Architecture
from minipw.network.head_implementation import fastest_form
from minipw.network.network import Network
from minipw.training.streams import seed_generators


def test_every_pair_and_few_winners_are_found_by_winners(monkeypatch):
    i, j = np.tril_indices(40, -1)
    # 64 * 4^2 / 2 = 512 pairs of winners against 780 words and 2.5 * 64 * 7.8 products.
    assert isinstance(fastest_form(i, j, 10, 40, 4), WinnerPairs)
    table = 6 * 40 * 40  # of int32 and int16 entries
    monkeypatch.setattr(head_implementation, "TABLE_LIMIT", table)
    assert isinstance(fastest_form(i, j, 10, 40, 4), WinnerPairs)
    monkeypatch.setattr(head_implementation, "TABLE_LIMIT", table - 1)
    assert isinstance(fastest_form(i, j, 10, 40, 4), ListedPairs)


def test_few_pairs_and_many_winners_are_found_by_the_list():
    i, j = np.arange(20), np.arange(20, 40)
    # 64 * 20^2 / 2 = 12,800 pairs of winners against 20 words and 800 products.
    assert isinstance(fastest_form(i, j, 10, 100, 50), ListedPairs)


def test_pairs_listed_often_become_matrices(monkeypatch):
    i, j = (np.tile(unit, 12) for unit in np.tril_indices(40, -1))
    # 96 * 10 * 40^2 / 350 + 0.3 * 9,360 = 7,197 against 153,600 pairs of winners.
    assert isinstance(fastest_form(i, j, 10, 40, 20), MatrixPairs)
    monkeypatch.setattr(head_implementation, "TABLE_LIMIT", 8 * 10 * 40 * 40 - 1)
    assert isinstance(fastest_form(i, j, 10, 40, 20), WinnerPairs)


def test_a_unit_with_itself_is_always_listed():
    i, j = np.tril_indices(40)  # with the diagonal
    assert isinstance(fastest_form(i, j, 10, 40, 4), ListedPairs)


def test_each_stacked_run_gets_its_own_form():
    i, j = np.tril_indices(40, -1)
    squares = np.arange(780) % 40
    form = fastest_form(np.stack([i, squares]), np.stack([j, squares]), 10, 40, 4)
    assert isinstance(form, PerRun)
    assert [type(f) for f in form.forms] == [WinnerPairs, ListedPairs]


@pytest.mark.parametrize(
    ("units", "density", "pair_weights", "training", "evaluation"),
    [
        (40, 0.1, 780, WinnerPairs, WinnerPairs),
        (700, 0.15, 250_000, WinnerPairs, MatrixPairs),
        (2048, 0.15, 25_000, ListedPairs, SparsePairs),
        (40, 0.5, 780 * 12, MatrixPairs, MatrixPairs),
    ],
)
def test_a_network_may_evaluate_with_another_form(
    units, density, pair_weights, training, evaluation
):
    architecture = Architecture(
        (4,), 10, f"mlp-{units}-1", density=density, pair_weights=pair_weights
    )
    generators = seed_generators(0)
    network = Network.create(architecture, generators["weights"], generators["pairs"])
    assert type(network.pairs.form) is training
    assert type(network.evaluation_pairs.form) is evaluation
    x = np.random.default_rng(1).standard_normal((300, 4), np.float32)
    expected, _ = network.forward(x)
    np.testing.assert_allclose(network.logits(x), expected, rtol=0, atol=1e-4)


def test_the_count_of_products_of_winners():
    """20 of 40 units are used: 4 of 8 winners at first, all of them later, 6 between."""
    costs = head_implementation.form_costs(780, 20, 1, 10, 40, 8, 64)
    assert costs[WinnerPairs] == 64 * 6**2 / 2


def test_products_a_sample():
    architecture = Architecture((4,), 10, "mlp-100-1", density=0.21, pair_weights=10_000)
    assert architecture.winners == 20
    assert (
        head_implementation.products(WinnerPairs, architecture) == 3 * 20**2 // 2
    )  # 4,950 pairs exist
    assert head_implementation.products(ListedPairs, architecture) == 400  # 10,000 * 0.2^2
    assert head_implementation.products(MatrixPairs, architecture) == 0
    assert head_implementation.products(SparsePairs, architecture) == 0
