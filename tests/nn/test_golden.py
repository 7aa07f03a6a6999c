"""The recorded steps of an independent float64 program, repeated by minipw itself."""

import pytest
from golden_steps import FORMS, NAMES, check


def test_every_recorded_file_is_here():
    assert len(NAMES) == 7


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", [name for name in NAMES if "pairwise" in name])
def test_pairwise_steps_are_the_recorded_ones(name, form):
    check(name, form)


@pytest.mark.parametrize("name", [name for name in NAMES if "-fc-" in name])
def test_fully_connected_steps_are_the_recorded_ones(name):
    check(name, None)


@pytest.mark.parametrize(
    ("case", "changes"),
    [
        ("mlp1-pairwise-smas", {"smas_norm": "sum"}),
        ("mlp1-pairwise-adagrad", {"importance_lambda": 0.801}),
        ("mlp1-pairwise-adagrad", {"name": "sgd"}),
        ("mlp1-pairwise-multihead-adagrad", {"masking": "exclude"}),
        ("mlp1-pairwise-multihead-adagrad", {"sees_tasks": False}),
    ],
)
def test_other_settings_are_told_apart(case, changes):
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check(case, "listed", **changes)
