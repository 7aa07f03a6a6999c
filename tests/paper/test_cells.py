"""The cells of the paper: none missing, none twice, each with settings that can be run."""

import itertools
from collections import Counter

import numpy as np
import pytest

from minipw import InputError
from minipw.datasets.dataset import Dataset
from minipw.paper.cells import NAMES, cells, select
from minipw.training.settings import resolve

SHAPES = {"mnist": (28, 28, 1), "fashion-mnist": (28, 28, 1), "cifar-10": (32, 32, 3)}
COUNTS = {"table1": 40, "table2": 40, "table3": 12, "table4": 8, "table5": 8}
COUNTS |= {"sparsity": 280, "curves": 5, "cifar": 24}


def settings_of(cell):
    """The settings of a cell on a data set of the right shape."""
    x, y = np.zeros((1, *SHAPES[cell.dataset]), np.uint8), np.zeros(1, np.int64)
    dataset = Dataset(cell.dataset, x, y, x, y, 10, (0.5,), (0.5,))
    return *resolve(dataset, **cell.request), dataset


@pytest.mark.parametrize("part", NAMES)
def test_cells_of_a_part(part):
    found = cells(part)
    assert len(found) == COUNTS[part] and {cell.part for cell in found} == {part}
    printed = [cell.printed is not None for cell in found]
    assert all(printed) if part.startswith("table") else not any(printed)
    runs = {"table3": {10}, "table5": {30, 1, 5}, "cifar": {3}, "sparsity": {3}, "curves": {3}}
    assert {cell.runs for cell in found} == runs.get(part, {30})


def test_all_parts_in_order_and_no_label_twice():
    found = cells("all")
    assert found == [cell for name in NAMES for cell in cells(name)]
    assert max(Counter(cell.label for cell in found).values()) == 1


def test_every_cell_has_settings_that_a_network_can_have():
    for cell in cells("all"):
        settings, source, dataset = settings_of(cell)
        architecture = settings.architecture(dataset)
        assert 1 <= architecture.winners <= architecture.units and settings.learning_rule()
        assert settings.dataset == cell.dataset
        if cell.part != "curves":  # the released settings know all others
            assert source.startswith("released with the paper"), cell.label
        for key, value in cell.request["given"].items():
            assert getattr(settings, key) == value


def test_table5_has_every_batch_size_both_readings_of_lambda_and_chosen_rates():
    found = [settings_of(cell)[0] for cell in cells("table5")]
    table = [(s.rule, s.batch_size, s.importance_lambda, s.learning_rate) for s in found]
    assert table == [
        ("s-mas", 64, 0.01, 1e-4),
        ("s-mas", 64, 0.1, 1e-4),
        ("s-mas", 16, 0.01, 1e-4),
        ("s-mas", 16, 0.01, 5e-5),
        ("s-mas", 1, 0.005, 1e-4),
        ("s-mas", 1, 0.005, 5e-6),
        ("adagrad", 1, 0.8, 2e-4),
        ("adagrad", 1, 0.8, 1e-4),
    ]
    assert {(s.backbone, s.head, s.multi_head) for s in found} == {("mlp-700-1", "pairwise", False)}
    assert [cell.printed for cell in cells("table5")] == [
        *(84.4, 84.4, 83.4, 83.4, 82.9, 82.9, 79.2, 79.2)
    ]


def test_sparsity_and_curves():
    found = [settings_of(cell)[0] for cell in cells("sparsity")]
    for kind in itertools.product(("pairwise", "fc"), ("s-mas", "adagrad")):
        densities = [s.density for s in found if (s.head, s.rule) == kind]
        assert densities == [n / 100 for n in range(1, 71)]
    found = [settings_of(cell)[0] for cell in cells("curves")]
    assert [(s.head, s.rule, s.density is None) for s in found] == [
        ("pairwise", "adagrad", False),
        ("fc", "adagrad", False),
        ("fc", "sgd", False),
        ("fc", "adagrad", True),
        ("fc", "sgd", True),
    ]
    assert {(s.experiment, s.evaluate_every, s.tasks) for s in found} == {("permuted", 30, 10)}


def test_select():
    chosen = cells("table1")
    assert select(chosen, None) == select(chosen, "") == chosen
    found = select(chosen, "MLP-700-1 pairwise single")
    assert [cell.label for cell in found] == [
        "split mnist single mlp-700-1 pairwise adagrad",
        "split mnist single mlp-700-1 pairwise s-mas",
    ]
    assert len(select(chosen, "cnn-s")) == 8 and len(select(chosen, "adagrad")) == 20
    first = "the first of them is 'split mnist single mlp-700-1 pairwise adagrad'"
    with pytest.raises(InputError, match=f"no cell matches 'mlp-70'; {first}"):
        select(chosen, "mlp-70")  # words, not parts of them
