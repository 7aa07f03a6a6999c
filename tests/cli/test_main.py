"""The command line: every combination on tiny data, what is printed and where."""

import json
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from minipw import __version__, datasets
from minipw.datasets import catalog
from minipw.paper.released import PROTOCOLS, released_settings

REPOSITORY = Path(__file__).parents[2]
SMALL = ("--backbone", "mlp-30-1", "--batch-size", 8)
PLAIN = {
    "settings",
    "seed",
    "dataset",
    "device",
    "parameters",
    "accuracy",
    "task_accuracy",
    "accuracy_matrix",
    "forgetting",
    "backward_transfer",
    "online_accuracy",
    "steps",
    "seconds",
    "versions",
}


@pytest.fixture
def tiny(tiny_npz):
    """Flags that make a run tiny."""
    return ("--dataset", tiny_npz, *SMALL)


@pytest.fixture
def result(command, tiny):
    """A function that runs with --json and gives the one record."""

    def run(*flags):
        status, out, err = command(*tiny, "--json", *flags)
        assert status == 0, err
        (line,) = out.splitlines()
        return json.loads(line)

    return run


# Every combination


@pytest.mark.parametrize("rule", ["adagrad", "s-mas", "sgd"])
@pytest.mark.parametrize("head", ["pairwise", "fc"])
@pytest.mark.parametrize(
    "experiment, tasks",
    [
        (["split"], 2),
        (["split", "--multi-head"], 2),
        (["split", "--classes-per-task", 3], 2),
        (["permuted", "--tasks", 3], 3),
        (["iid"], 1),
    ],
)
def test_every_combination(command, tiny, experiment, tasks, head, rule):
    flags = ("--exp", *experiment, "--head", head, "--rule", rule, "--json")
    status, out, err = command(*tiny, *flags)
    assert status == 0
    (line,) = out.splitlines()  # standard output has the object and nothing else
    record = json.loads(line)
    assert record.keys() >= PLAIN
    settings = record["settings"]
    assert (settings["experiment"], settings["head"], settings["rule"]) == (
        experiment[0],
        head,
        rule,
    )
    assert settings["multi_head"] == ("--multi-head" in experiment)
    assert np.shape(record["accuracy_matrix"]) == (tasks + 1, tasks)
    assert record["task_accuracy"] == record["accuracy_matrix"][-1]
    assert (record["forgetting"] is None) == (tasks == 1)
    assert 0 <= record["accuracy"] <= 100 and 0 <= record["online_accuracy"] <= 100
    weights = 432 if head == "pairwise" else 30 * 4  # 30 units form 435 pairs
    assert record["parameters"] == 64 * 30 + weights
    assert record["steps"] == {1: 25, 2: 24, 3: 75}[tasks]
    assert record["device"] == "cpu" and record["seconds"] > 0
    assert f"{head} head" in err and "accuracy" in err


def test_convolutions(result):
    record = result("--exp", "iid", "--backbone", "cnn-s", "--pair-weights", 400)
    assert record["parameters"] == 7 * 7 * 64 + 400  # of 64 filters and 2 x 2 x 64 units


def test_text_goes_to_standard_output(command, tiny):
    status, out, err = command(*tiny, "--exp", "split", "--seed", 2)
    assert status == 0 and "error" not in err
    lines = out.splitlines()
    assert lines[0].startswith("Split ") and "single-head: mlp-30-1, pairwise head" in lines[0]
    assert "24 steps, 2 tasks" in out and "2,352 (1,920 backbone, 432 head)" in out
    assert out.count("  classes ") == 2 and "% of all test images" in out
    assert "forgetting" in out and "online (test-then-train)" in out


def test_a_process_of_its_own(process, tiny, result):
    done = process(*tiny, "--exp", "split", "--json")
    assert done.returncode == 0
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["accuracy_matrix"] == result("--exp", "split")["accuracy_matrix"]


# Seeds and runs


def test_seeds(result):
    one, same, other = (result("--exp", "split", "--seed", seed) for seed in (3, 3, 4))
    assert one["seed"] == 3 and other["seed"] == 4
    assert one["accuracy_matrix"] == same["accuracy_matrix"]
    assert one["accuracy_matrix"] != other["accuracy_matrix"]


def test_several_runs(command, tiny, result):
    flags = ("--exp", "split", "--runs", 3, "--seed", 5)
    status, out, err = command(*tiny, *flags, "--json")
    records = [json.loads(line) for line in out.splitlines()]
    assert status == 0 and [record["seed"] for record in records] == [5, 6, 7]
    again = result("--exp", "split", "--seed", 6)
    assert again["accuracy_matrix"] == records[1]["accuracy_matrix"]
    accuracies = np.array([record["accuracy"] for record in records])
    error = accuracies.std(ddof=1) / np.sqrt(3)
    half_width = 4.302653 * error  # Student's t, 2 degrees of freedom, 0.975
    summary = (
        f"accuracy {accuracies.mean():.2f} % ± {error:.2f} (standard error), "
        f"95 % interval ± {half_width:.2f}, 3 runs"
    )
    assert error > 0 and summary in err
    assert command(*tiny, *flags)[1].splitlines()[-1] == summary


def test_one_run_carries_no_interval(command, tiny):
    _, out, _ = command(*tiny, "--exp", "split")
    assert "±" not in out and "interval" not in out


def test_quiet(command, tiny, result):
    status, out, err = command(*tiny, "--exp", "split", "--quiet")
    assert (status, err) == (0, "")
    assert out == f"accuracy {result('--exp', 'split')['accuracy']:.2f} %, 1 run\n"
    status, out, err = command(*tiny, "--exp", "split", "--quiet", "--json")
    assert (status, err, out.count("\n")) == (0, "", 1)


# Where settings come from


def test_protocol_sets_five_switches_and_a_flag_overrides_one(result):
    flags = ("--exp", "split", "--multi-head", "--rule", "s-mas")
    released = result(*flags)["settings"]
    assert released.items() >= PROTOCOLS["released"].items()
    paper = result(*flags, "--protocol", "paper")["settings"]
    assert paper.items() >= PROTOCOLS["paper"].items()
    assert {key for key in paper if paper[key] != released[key]} == PROTOCOLS["paper"].keys()
    assert len(PROTOCOLS["paper"]) == 5
    mixed = result(*flags, "--protocol", "paper", "--gelu", "tanh", "--smas-norm", "mean")
    assert mixed["settings"] == {**paper, "gelu": "tanh", "smas_norm": "mean"}


def test_unset_flags_come_from_the_released_settings(command, tiny, result):
    flags = ("--exp", "permuted", "--tasks", 1)
    expected, nearest = released_settings(
        "permuted", "tiny", False, "mlp-30-1", "pairwise", "adagrad"
    )
    settings = result(*flags)["settings"]
    for key in ("learning_rate", "density", "importance_lambda", "epochs"):
        assert settings[key] == expected[key]
    assert settings["batch_size"] == 8 and settings["pair_weights"] == 432  # what exist of 250000
    _, out, _ = command(*tiny, *flags)
    assert nearest == "permuted mnist single mlp-700-1 pairwise adagrad"
    (line,) = (line for line in out.splitlines() if line.startswith("  settings"))
    assert f"nearest released: {nearest}" in line and "given: batch-size, tasks" in line
    changed = result(
        *flags, "--learning-rate", 0.005, "--lambda", 3, "--density", 0.4, "--epochs", 2
    )
    assert changed["settings"] == {
        **settings,
        "learning_rate": 0.005,
        "importance_lambda": 3.0,
        "density": 0.4,
        "epochs": 2,
    }
    assert changed["steps"] == 2 * 25


def test_an_exact_match_is_named_beside_the_printed_number(command, monkeypatch, tiny_dataset):
    dataset = replace(tiny_dataset(train=300), name="mnist")
    monkeypatch.setattr(datasets, "load", lambda *_, **__: dataset)
    _, out, _ = command("--exp", "split")
    assert "  settings    released with the paper\n" in out and "nearest" not in out
    assert "batch 64" in out and "(paper: 83.1 %)" in out
    _, out, _ = command("--exp", "split", "--batch-size", 32)
    assert "released with the paper; given: batch-size\n" in out and "paper:" not in out


# The default data set


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """No data set on this machine, and mirrors that refuse the connection."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/"
    for name in ("variable", "home"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("MINIPW_DATA", str(tmp_path / "variable"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(catalog, "HOME_DATA", str(tmp_path / "home"))
    monkeypatch.setattr(catalog, "MIRRORS", dict.fromkeys(catalog.MIRRORS, (url,)))
    return tmp_path


def test_the_bundled_subset_stands_in_for_mnist(command, offline):
    flags = ("--exp", "split", "--backbone", "mlp-30-1", "--quiet", "--json")
    status, out, err = command(*flags)
    assert status == 0
    assert err.count("\n") == 1 and err.startswith("warning: mnist is not in") and "5,000" in err
    record = json.loads(out)
    assert record["dataset"] == record["settings"]["dataset"] == "mnist-5k"
    assert "stand in for MNIST" in record["note"]
    assert len(record["tasks"]) == 5 and record["steps"] == 5 * (800 // 64)
    _, out, _ = command(*flags[:-2])
    assert f"note: {record['note']}" in out


def test_a_named_data_set_is_not_replaced(command, offline):
    status, out, err = command("--exp", "split", "--dataset", "mnist")
    assert (status, out) == (2, "") and err.count("\n") == 1
    assert err.startswith("error: mnist is not in") and "Connection refused" in err
    assert "put train-images-idx3-ubyte.gz" in err and not any((offline / "home").iterdir())


# Help, version, start-up


def test_help_teaches(command):
    status, out, err = command("--help")
    assert (status, err) == (0, "")
    assert "python run.py --exp permuted --head pairwise" in out
    status, out, err = command("train", "--help")
    assert (status, err) == (0, "")
    for flag in ("--dataset", "--rule", "--runs", "--json", "--protocol", "--plot"):
        assert flag in out
    assert "130 interrupted" in out


def test_version(command):
    assert command("--version") == (0, f"minipw {__version__}\n", "")


def test_help_is_fast(process):
    times = []
    for _ in range(3):  # the fastest: other work on the machine only ever slows a run
        began = time.perf_counter()
        assert process("--help").returncode == 0
        times.append(time.perf_counter() - began)
    # 0.1 s when idle; importing numpy and scipy.special alone takes longer than the bound
    assert min(times) < 0.5


def test_imports_are_late():
    code = (
        "import sys, minipw.cli.main; minipw.cli.main.parser(); "
        "print(sorted({'numpy', 'scipy', 'tqdm', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")
