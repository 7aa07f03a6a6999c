"""The recorded steps of an independent float64 program, repeated by minipw itself."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from minipw.architecture import Architecture
from minipw.kernels.pairwise_cpu import ListedPairs, WinnerPairs
from minipw.kernels.pairwise_matrix import MatrixPairs
from minipw.model import Network
from minipw.nn.pairwise import Pairs
from minipw.rules import Rule, update, zero_importance

GOLDEN = Path(__file__).parent / "golden"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.npz"))
CLASSES = 10
FORMS = {
    "defining": lambda i, j, units: None,
    "winners": lambda i, j, units: WinnerPairs(i, j, CLASSES, units),
    "listed": lambda i, j, units: ListedPairs(i, j, CLASSES, units),
    "matrices": lambda i, j, units: MatrixPairs(i, j, CLASSES, units),
}


def our_name(key):
    """MLP_0/dense_0/kernel is "dense0", output_head/weights is "head"."""
    block, *rest = key.split("/")
    return "head" if block == "output_head" else rest[0].replace("_", "")


def group(recorded, prefix):
    """The arrays under "prefix/"; a pairwise head is stored as (P / C, C)."""
    arrays = {
        our_name(key.removeprefix(prefix)): value
        for key, value in recorded.items()
        if key.startswith(prefix)
    }
    if "rows" in recorded:
        arrays["head"] = arrays["head"].reshape(-1)
    return arrays


def build(name, recorded, form):
    """The network before the first step, and its rule."""
    parameters = {key: value.copy() for key, value in group(recorded, "initial/").items()}
    backbone = "cnn-s"
    if name.startswith("mlp"):
        backbone = f"mlp-{parameters['dense0'].shape[1]}-{len(parameters) - 1}"
    architecture = Architecture(
        recorded["x"].shape[2:],
        CLASSES,
        backbone,
        "pairwise" if "rows" in recorded else "fc",
        float(recorded["density"]),
        kwta_threshold="k",
        gelu="tanh",
    )
    assert {key: shape for key, shape, _ in architecture.layers()} == {
        key: value.shape for key, value in parameters.items() if key != "head"
    }
    network = Network(architecture, parameters)
    if "rows" in recorded:
        i, j = recorded["rows"], recorded["cols"]
        network.pairs = Pairs(i, j, CLASSES, FORMS[form](i, j, architecture.units))
    rule = Rule(
        "s-mas" if "smas" in name else "adagrad",
        float(recorded["learning_rate"]),
        float(recorded["lambda"]),
        "mean",
    )
    return network, rule


def assert_close(ours, theirs):
    # Two float64 programs that add in different orders agree to 1e-14 or so; entries in
    # which larger terms cancel do so relative to the largest entry of their array.
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11 * np.abs(theirs).max())


def check(case, form, masking="zero", sees_tasks=True, **rule_changes):
    """Repeat the steps of a file, with changed settings where given, and compare."""
    with np.load(GOLDEN / f"{case}.npz") as file:
        recorded = dict(file)
    assert recorded["epsilon"] == 1e-6
    network, rule = build(case, recorded, form)
    rule = replace(rule, **rule_changes)
    importance = zero_importance(network.parameters)
    for x, labels, loss, logits in zip(
        *(recorded[key] for key in ("x", "y", "loss", "logits")), strict=True
    ):
        mask = None
        if "multihead" in case and sees_tasks:
            mask = np.arange(CLASSES) // 2 == labels[:, None] // 2  # (B, C)
        our_loss, our_logits, gradients = network.loss_gradients(x, labels, rule, mask, masking)
        assert_close(our_loss, loss)
        assert_close(our_logits, logits)
        for key, gradient in gradients.items():
            update(rule, network.parameters[key], importance[key], gradient)
    initial = group(recorded, "initial/")
    for key, theirs in group(recorded, "final/").items():
        # The change is the stricter test: it is about a thousandth of the weight.
        assert_close(network.parameters[key] - initial[key], theirs - initial[key])
    for key, theirs in group(recorded, "importance/").items():
        assert_close(importance[key], theirs)


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
