"""The loop references against recorded steps.

The recorded steps in `golden/` come from an independent float64 program.
"""

from pathlib import Path

import numpy as np
import pytest
import reference

GOLDEN = Path(__file__).parents[1] / "golden"
GOLDEN_NAMES = sorted(path.stem for path in GOLDEN.glob("???[0-9]-*.npz"))


def task_mask(labels):
    """For each sample the two classes of its own task: (0, 1), (2, 3), ..."""
    return [[c // 2 == label // 2 for c in range(10)] for label in labels]


def check_golden(name, make_mask=None, **changes):
    """Repeat the recorded steps, with changed settings where given, and compare."""
    with np.load(GOLDEN / f"{name}.npz") as file:
        recorded = dict(file)
    names = [key.removeprefix("initial/") for key in recorded if key.startswith("initial/")]

    def arrays(group):
        found = [recorded[f"{group}/{key}"] for key in names]
        if "rows" in recorded:  # the head is stored (P / C, C): pair p = (p // C, p mod C)
            found[-1] = found[-1].reshape(-1)
        return found

    settings = {
        "rule": "s-mas" if "smas" in name else "adagrad",
        "learning_rate": float(recorded["learning_rate"]),
        "lambda_": float(recorded["lambda"]),
        "epsilon": float(recorded["epsilon"]),
        "reduction": "mean",
        "mask_mode": "zero",
        "threshold": "k",
        "approximate": True,
    }
    initial = arrays("initial")
    width = initial[-2].shape[-1]
    step = reference.mlp_step
    if name.startswith("cnn"):
        width *= 3 * 3  # 12x12 pixels with stride 4
        step = reference.cnn_step
        settings["strides"] = [4]
    settings["winners"] = int(width * float(recorded["density"]))
    if "rows" in recorded:
        settings["pairs"] = recorded["rows"], recorded["cols"]
        settings["classes"] = 10
    if make_mask is None and "multihead" in name:
        make_mask = task_mask
    settings.update(changes)

    weights = initial
    importance = [np.zeros(weight.shape) for weight in initial]
    for x, labels, loss, logits in zip(
        *(recorded[key] for key in ("x", "y", "loss", "logits")), strict=True
    ):
        mask = None if make_mask is None else make_mask(labels)
        our_loss, our_logits, weights, importance = step(
            x, labels, weights, importance, classes_mask=mask, **settings
        )
        assert_golden(our_loss, loss)
        assert_golden(our_logits, logits)
    for before, ours, theirs in zip(initial, weights, arrays("final"), strict=True):
        assert_golden(ours - before, theirs - before)
    for ours, theirs in zip(importance, arrays("importance"), strict=True):
        assert_golden(ours, theirs)


def assert_golden(ours, theirs):
    # Two float64 programs that add in different orders agree to about 1e-14; entries
    # where larger terms cancel, or where two units tie within one rounding at the k-WTA
    # threshold, do so relative to the largest entry of their array. Weights are compared by
    # their change, a thousandth of them: the stricter test, at the price of three digits.
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11 * np.max(np.abs(theirs)))


def test_there_are_golden_files():
    assert len(GOLDEN_NAMES) == 7


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_golden(name):
    check_golden(name)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("mlp1-pairwise-adagrad", {"approximate": False}),
        ("mlp1-pairwise-adagrad", {"threshold": "k+1"}),
        ("mlp1-pairwise-adagrad", {"rule": "sgd"}),
        ("mlp1-pairwise-smas", {"reduction": "sum"}),
        ("mlp3-fc-smas", {"rule": "adagrad"}),
        ("mlp1-pairwise-multihead-adagrad", {"mask_mode": "exclude"}),
        ("mlp1-pairwise-multihead-adagrad", {"make_mask": lambda labels: None}),
        # one mask for the whole batch: every class of a task that the batch contains
        (
            "mlp1-pairwise-multihead-adagrad",
            {"make_mask": lambda labels: np.any(task_mask(labels), axis=0)},
        ),
    ],
)
def test_golden_tells_the_settings_apart(name, changes):
    with pytest.raises(AssertionError):
        check_golden(name, **changes)
