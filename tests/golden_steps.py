"""The recorded steps of an independent float64 program, and their repetition by minipw."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from minipw.backend.arrays import to_device
from minipw.kernels.pairwise_cpu import ListedPairs, WinnerPairs
from minipw.kernels.pairwise_matrix import MatrixPairs
from minipw.network.architecture import Architecture
from minipw.network.head_implementation import with_implementations
from minipw.network.network import Network
from minipw.nn.pairwise import Pairs
from minipw.rules import Rule, update, zero_importance

GOLDEN = Path(__file__).parent / "golden"
NAMES = sorted(path.stem for path in GOLDEN.glob("???[0-9]-*.npz"))
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


def build(name, recorded, form, xp):
    """The network before the first step on the device of `xp`, and its rule."""
    parameters = {key: xp.array(value) for key, value in group(recorded, "initial/").items()}
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
    assert {layer.name: layer.shape for layer in architecture.layers()} == {
        key: value.shape for key, value in parameters.items() if key != "head"
    }
    network = Network(architecture, parameters)
    if "rows" in recorded:
        i, j = recorded["rows"], recorded["cols"]
        if form == "device":
            network.pairs, _ = with_implementations(Pairs(i, j, CLASSES), architecture, 4, xp)
        else:
            network.pairs = Pairs(i, j, CLASSES, FORMS[form](i, j, architecture.units))
    rule = Rule(
        "s-mas" if "smas" in name else "adagrad",
        float(recorded["learning_rate"]),
        float(recorded["lambda"]),
        "mean",
    )
    return network, rule


def host(x):
    """An array of either module, or a number, for NumPy."""
    return x.get() if hasattr(x, "get") else np.asarray(x)


def assert_close(ours, theirs):
    # Two float64 programs that add in different orders agree to 1e-14 or so; entries in
    # which larger terms cancel do so relative to the largest entry of their array.
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11 * np.abs(theirs).max())


def check(case, form, masking="zero", sees_tasks=True, xp=np, **rule_changes):
    """Repeat the steps of a file, with changed settings where given, and compare.

    form : key of FORMS, or "device" for the form that the module `xp` gives the pairs
    """
    with np.load(GOLDEN / f"{case}.npz") as file:
        recorded = dict(file)
    assert recorded["epsilon"] == 1e-6
    network, rule = build(case, recorded, form, xp)
    rule = replace(rule, **rule_changes)
    importance = zero_importance(network.parameters)
    for x, labels, loss, logits in zip(
        *(recorded[key] for key in ("x", "y", "loss", "logits")), strict=True
    ):
        mask = None
        if "multihead" in case and sees_tasks:
            mask = to_device(xp, np.arange(CLASSES) // 2 == labels[:, None] // 2)  # (B, C)
        our_loss, our_logits, gradients = network.loss_gradients(
            to_device(xp, x), to_device(xp, labels), rule, mask, masking
        )
        assert_close(host(our_loss), loss)
        assert_close(host(our_logits), logits)
        for key, gradient in gradients.items():
            update(rule, network.parameters[key], importance[key], gradient)
    initial = group(recorded, "initial/")
    for key, theirs in group(recorded, "final/").items():
        # The change is the stricter test: it is about a thousandth of the weight.
        assert_close(host(network.parameters[key]) - initial[key], theirs - initial[key])
    for key, theirs in group(recorded, "importance/").items():
        assert_close(host(importance[key]), theirs)
