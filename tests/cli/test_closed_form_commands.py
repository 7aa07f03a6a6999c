"""Heads without a network through the real command line."""

import json

import numpy as np
import pytest

from minipw.parameters import CLOSED_FORM
from minipw.training.checkpoint import StopRequest

SPLIT = ("--exp", "split", "--dataset", "mnist-5k")
SMALL = (*SPLIT, "--head", "ridge", "--backbone", "random-200")


@pytest.mark.parametrize("head", CLOSED_FORM)
@pytest.mark.parametrize(
    "stream", ["split", "split --multi-head", "split --blur 0.5", "permuted --tasks 2", "iid"]
)
def test_every_combination(command, tiny_npz, head, stream):
    flags = ("--exp", *stream.split(), "--head", head, "--backbone", "random-40", "--json")
    status, out, err = command("--dataset", tiny_npz, *flags)
    record = json.loads(out)
    assert status == 0 and record["settings"]["head"] == head
    assert f"{head} head\n" in err and "learning rate" not in err and "k-WTA" not in err
    # Images are fixed patterns under noise: every head tells their four classes apart.
    assert record["accuracy"] > 80 and record["forgetting"] in (None, pytest.approx(0, abs=20))


def test_real_images(command):
    status, out, _ = command(*SMALL)
    lines = out.splitlines()
    assert status == 0 and lines[0] == "Split mnist-5k, single-head: random-200, ridge head"
    assert "200 of random-200, made from the first 1,000 samples" in out
    assert "2,000; sums of 0.3 MiB" in out and "5 tasks" in out
    assert "degrees of freedom" in lines[-1] or "degrees of freedom" in lines[-2]
    (accuracy,) = (float(line.split()[1]) for line in lines if line.startswith("accuracy"))
    assert accuracy > 80  # a nearest mean of the pixels has 77; 300 features have 89 to 91
    assert "online (test-then-train)" not in out


def test_patches(command):
    status, out, _ = command(*SPLIT, "--head", "ncm", "--backbone", "patches-9-6-2")
    assert status == 0 and "72 of patches-9-6-2 (6 by 6 pixels, grid 2)" in out


def test_a_store_holds_runs_of_each_head(command, tmp_path):
    more = ("--out", tmp_path, "--quiet")
    first = command(*SMALL, *more, "--runs", 2, "--json")
    assert first[0] == 0
    again = command(*SMALL, *more, "--runs", 2, "--json")
    assert again[1] == first[1]  # the seconds, too: found, not repeated
    assert command(*SMALL[:-4], "--head", "ncm", *SMALL[-2:], *more)[0] == 0
    (store,) = tmp_path.glob("*.jsonl")
    heads = [json.loads(line)["settings"]["head"] for line in store.read_text().splitlines()]
    assert heads == ["ridge", "ridge", "ncm"]


def test_plot(command, tmp_path):
    pytest.importorskip("matplotlib", reason="a figure needs matplotlib")
    assert command(*SMALL, "--quiet", "--plot", tmp_path / "f.png")[0] == 0
    assert (tmp_path / "f.png").stat().st_size > 5000


@pytest.mark.parametrize(
    "flags",
    [
        *("--rule sgd", "--learning-rate 1", "--lambda 1", "--density 0.3", "--pair-weights 50"),
        *("--pairs distinct", "--kwta-threshold k", "--smas-norm sum", "--gelu exact"),
        *("--epochs 2", "--batch-size 1", "--multi-head --class-mask zero", "--protocol paper"),
    ],
)
def test_flags_without_effect(command, flags):
    status, out, err = command(*SMALL, *flags.split())
    assert (status, out, err.count("\n")) == (2, "", 1)
    flag = flags.split()[-2]
    assert err == f"error: {flag} has no effect without --head pairwise or fc: leave it out\n"


@pytest.mark.parametrize(
    "flags, says",
    [
        ((*SPLIT, "--backbone", "scales-7200"), "unknown backbone 'scales-7200'"),
        ((*SPLIT, "--head", "lda", "--backbone", "mlp-700-1"), "unknown feature map 'mlp-700-1'"),
        ((*SMALL[:-1], "random-900000"), "use fewer than random-900000 gives"),
        (("tune", "OUT.json", *SMALL), "head ridge has nothing to tune"),
        (("paper", "order", "--device", "cuda"), "part order runs on the CPU alone"),
        (("paper", "orders"), "cifar, order or all"),
        (("stream", "FILE", "--head", "ncm"), "invalid choice: 'ncm'"),
        (("stream", "FILE", "--head", "ridge", "--backbone", "patches-9-6-2"), "use patches-9\n"),
        (("stream", "FILE", "--head", "ridge", "--rule", "sgd"), "--rule has no effect without"),
    ],
)
def test_what_does_not_go_together(command, flags, says):
    status, out, err = command(*flags)
    assert (status, out, err.count("\n")) == (2, "", 1) and says in err


def test_settings_of_a_file(command, tiny_npz, tmp_path):
    path = tmp_path / "s.json"
    path.write_text('{"head": "ridge", "backbone": "random-50", "learning_rate": 0.1}')
    from_file = command(*SPLIT, "--settings", path, "--json", "--quiet")
    assert from_file[0] == 0, from_file[2]
    settings = json.loads(from_file[1])["settings"]
    assert (settings["head"], settings["backbone"]) == ("ridge", "random-50")
    path.write_text('{"head": "fc", "backbone": "mlp-50-1", "batch_size": 8, "epochs": 2}')
    more = ("--exp", "split", "--dataset", tiny_npz, "--json", "--quiet")
    other = command(*more, "--settings", path, "--head", "ncm")
    assert json.loads(other[1])["settings"]["backbone"] == "scales-1800"


def test_an_interrupted_run_says_that_it_begins_again(command, tmp_path, monkeypatch):
    monkeypatch.setattr(StopRequest, "__call__", lambda self: True)
    status, _, err = command(*SMALL, "--quiet", "--out", tmp_path)
    assert status == 130
    assert err == "interrupted at step 1; the same command begins this run again\n"
    assert not list(tmp_path.rglob("*.npz"))


def test_a_stream(command, tmp_path):
    rng, path, model = np.random.default_rng(0), tmp_path / "s.csv", tmp_path / "m.npz"
    labels = np.sort(rng.integers(0, 3, 200))  # class after class
    x = rng.normal(5 * np.eye(3)[labels], 1.0)
    lines = (f"{a},{b},{c},kind{label}" for (a, b, c), label in zip(x, labels, strict=True))
    path.write_text("\n".join(["a,b,c,kind", *lines]))
    flags = ("stream", path, "--label", "kind")
    status, out, err = command(
        *flags, "--head", "ridge", "--backbone", "random-50", "--json", "--save-model", model
    )
    result = json.loads(out)
    assert status == 0 and "random-50 features, ridge head, 0 samples learned before" in err
    assert result["accuracy"] > 95 and result["unused_units"] is None  # five deviations apart
    # Two classes are unknown for up to a 16th of the samples before them, 4 and 7 of 160.
    assert result["online_accuracy"] > 85
    status, out, err = command(*flags, "--load-model", model, "--plot", tmp_path / "s.png")
    assert status == 0 and f"{result['samples']} samples learned before" in out
