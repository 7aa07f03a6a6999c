"""Every bad input ends in one line, exit status 2, and nothing half-written."""

import errno
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from data_files import FILES, TRAIN_IMAGES, TRAIN_LABELS, idx, leftovers, write

from minipw.backend import memory
from minipw.training.run import Run

REPOSITORY = Path(__file__).parents[2]
IDX_SHAPE = {TRAIN_IMAGES: idx(np.zeros((12, 20, 20)))}
IDX_LABEL = {TRAIN_LABELS: idx([0] * 7 + [10] + [0] * 4)}


@pytest.fixture
def fails(command, tmp_path):
    """A function that runs to an error and gives its line; nothing is left behind."""

    def run(*flags, says="", status=2):
        before = leftovers(tmp_path)
        found, out, err = command(*flags)
        assert found == status
        assert err.count("\n") == 1 and err.startswith("error: "), err
        assert "Traceback" not in err and leftovers(tmp_path) == before
        for text in (says,) if isinstance(says, str) else says:
            assert text in err
        run.out = out
        return err

    return run


@pytest.fixture
def bare(tiny_npz):
    """Flags of a tiny run."""
    small = ("--backbone", "mlp-30-1", "--batch-size", 8, "--quiet")
    return ("--exp", "split", "--dataset", tiny_npz, *small)


@pytest.fixture
def tiny(bare, tmp_path):
    """Flags of a tiny run whose results are kept."""
    return (*bare, "--out", tmp_path / "out")


# Flags


@pytest.mark.parametrize(
    "flags, culprit, remedy",
    [
        ("--density 0", "--density: '0'", "between 0 and 1"),
        ("--density 1", "--density: '1'", "between 0 and 1"),
        ("--density nan", "--density: 'nan'", "see run.py train --help"),
        ("--density 0.01 --kwta-threshold k+1", "leaves no winner", "from 0.0667"),
        ("--density 0.06", "density 0.06 leaves no winner", "from 0.1 to"),
        ("--pair-weights 10000000 --pairs distinct", "only 435", "use --pair-weights 432 or fewer"),
        ("--pair-weights 3", "3 pair weights", "use at least 4"),
        ("--backbone mlp-1-1", "1 units before the head form too few pairs", "a wider --backbone"),
        ("--backbone mlp-1-1 --head fc", "leaves no winner among 1 units", "a wider backbone"),
        ("--backbone mlp-x", "'mlp-x'", "use mlp-WIDTH-DEPTH"),
        ("--backbone mlp-30-0", "'mlp-30-0'", "use mlp-WIDTH-DEPTH"),
        ("--backbone cnn-x", "'cnn-x'", "cnn-s or cnn-m"),
        ("--dataset mnits", "mnits", "choose mnist, "),
        ("--dataset missing.npz", "missing.npz: cannot be read: No such file", "check the path"),
        ("--batch-size 0", "--batch-size: '0'", "at least 1"),
        ("--batch-size -3", "--batch-size: '-3'", "at least 1"),
        ("--batch-size abc", "--batch-size: 'abc'", "at least 1"),
        ("--batch-size 101", "batch size 101 is more than the 100", "use --batch-size 100 or less"),
        ("--classes-per-task 9", "9 classes per task", "use --classes-per-task 1 to 4"),
        ("--runs 0", "--runs: '0'", "from 1 to 10000"),
        ("--runs 1000000000", "--runs: '1000000000'", "from 1 to 10000"),
        ("--epochs 0", "--epochs: '0'", "at least 1"),
        ("--seed -1", "--seed: '-1'", "at least 0"),
        ("--learning-rate 0", "--learning-rate: '0'", "above 0"),
        ("--learning-rate inf", "--learning-rate: 'inf'", "a number above 0"),
        ("--lambda -1", "--lambda: '-1'", "of at least 0"),
        ("--lambda 0", "importance_lambda 0 makes the steps of adagrad those of sgd", "rule sgd"),
        ("--rule s-mas --lambda 0", "importance_lambda 0 makes the steps of s-mas", "rule sgd"),
        ("--backbone mlp-10-1000000000", "unknown backbone", "a depth of at most 999"),
        ("--rule adam", "'adam'", "choose from"),
        ("--surprise", "--surprise", "see run.py train --help"),
        ("--tasks 3", "--tasks has no effect without --exp permuted", "leave it out"),
        ("--exp iid --multi-head", "--multi-head has no effect", "leave it out"),
        ("--exp iid --classes-per-task 2", "--classes-per-task has no effect", "leave it out"),
        ("--head fc --pair-weights 100", "--pair-weights has no effect", "leave it out"),
        ("--head fc --pairs distinct", "--pairs has no effect", "leave it out"),
        ("--smas-norm sum", "--smas-norm has no effect without --rule s-mas", "leave it out"),
        ("--class-mask zero", "--class-mask has no effect without --multi-head", "leave it out"),
    ],
)
def test_bad_flags(fails, tiny, flags, culprit, remedy):
    fails(*tiny, *flags.split(), says=(culprit, remedy))
    assert fails.out == ""


@pytest.mark.parametrize("words", ["paper table1", "report", "bench"])
@pytest.mark.parametrize(
    "flag",
    [
        "--head fc",
        "--learning-rate 1",
        "--lambda 1",
        "--dataset mnist-5k",
        "--seed 3",
        "--plot x.png",
        "--settings x.json",
        "--save-model m.npz",
        "--multi-head",
    ],
)
def test_flags_that_a_command_does_not_read(fails, words, flag):
    name = words.split()[0]
    says = f"{name} does not take {flag} (see run.py {name} --help)"
    fails(*words.split(), *flag.split(), says=says)


@pytest.mark.parametrize(
    "flags, says",
    [
        ("paper table1 --json", "paper does not take --json"),
        ("report --runs 3", "report does not take --runs 3"),
        ("paper table1 --cluster tcp://x --workers 2", "--workers: not allowed with argument --cl"),
        ("paper table1 --only=", "--only is empty"),
        ("bench --out runs", "bench does not take --out runs"),
        ("report --quiet", "report does not take --quiet"),
        ("bench --data-dir d", "--data-dir has no effect without --device cuda"),
        ("tune x.json --exp split --density 0.2", "--density is searched: give --densities"),
        ("tune x.json --exp split --device cuda", "tune does not take --device cuda"),
    ],
)
def test_commands_do_not_mix(fails, flags, says):
    fails(*flags.split(), says=says)


def test_nothing_to_do(fails):
    fails(says="give --exp split, permuted or iid (see run.py --help)")


@pytest.mark.parametrize("width, threshold", [(30, "k+1"), (30, "k"), (600, "k"), (625, "k")])
def test_the_least_density_of_the_message_is_enough(command, fails, bare, width, threshold):
    flags = (*bare, "--kwta-threshold", threshold, "--backbone", f"mlp-{width}-1")
    least = fails(*flags, "--density", 0.001).split("a density from ")[1].split(" to ")[0]
    assert command(*flags, "--density", least)[0] == 0
    assert command(*flags, "--density", 0.9999)[0] == 0
    assert float(least) < 1.1 * (3 if threshold == "k" else 2) / width


def test_the_largest_batch_of_the_message_is_taken(command, bare):
    assert command(*bare, "--batch-size", 100)[0] == 0


def test_backbone_of_no_width(fails, bare):
    fails(*bare, "--backbone", "mlp-0-1", says=("'mlp-0-1'", "use mlp-WIDTH-DEPTH"))


def test_lambda_without_importance(fails, bare):
    fails(*bare, "--rule", "sgd", "--lambda", 1, says=("--lambda has no effect", "leave it out"))


# Data files


@pytest.mark.parametrize(
    "change, name, says",
    [
        (IDX_SHAPE, TRAIN_IMAGES, "holds items of shape (20, 20), not (28, 28)"),
        (IDX_LABEL, TRAIN_LABELS, "label 10 of item 7 is out of range 0..9"),
        ({}, TRAIN_IMAGES, "SHA-256 differs"),
    ],
)
def test_bad_idx_files(fails, tmp_path, isolated, change, name, says):
    folder = tmp_path / "d" / "mnist"
    write(folder, {**FILES, TRAIN_IMAGES: idx(np.ones((12, 28, 28))), **change})
    flags = ("--exp", "split", "--dataset", "mnist", "--data-dir", tmp_path / "d")
    fails(*flags, says=(str(folder / name), says, "replace it"))


def test_truncated_gz(fails, tmp_path, isolated):
    write(tmp_path / "d" / "mnist", FILES, ".gz")
    path = tmp_path / "d" / "mnist" / f"{TRAIN_IMAGES}.gz"
    path.write_bytes(gzip.compress(FILES[TRAIN_IMAGES])[:-100])
    flags = ("--exp", "split", "--dataset", "mnist", "--data-dir", tmp_path / "d")
    fails(*flags, says=(str(path), "truncated download", "replace the file"))


def test_data_dir_that_is_a_file(fails, tmp_path, isolated):
    (tmp_path / "f").write_text("x")
    fails("--exp", "split", "--data-dir", tmp_path / "f", says=("is not a folder", "--data-dir"))


@pytest.fixture
def changed_npz(tiny_npz):
    """A function that changes arrays of the tiny .npz."""

    def change(**functions):
        with np.load(tiny_npz) as archive:
            arrays = dict(archive)
        np.savez(tiny_npz, **arrays | {key: f(arrays[key]) for key, f in functions.items()})
        return tiny_npz

    return change


def test_nan_in_npz(fails, tiny, changed_npz):
    path = changed_npz(x_train=lambda x: np.where(x > 250, np.nan, x), x_test=lambda x: x / 1.0)
    fails(*tiny, says=(f"{path}: x_train", "nan at [", "is not finite", "remove such values"))


def test_flat_features_under_a_convolution(fails, tiny, changed_npz):
    changed_npz(x_train=lambda x: x.reshape(200, 64), x_test=lambda x: x.reshape(80, 64))
    says = ("backbone cnn-s needs images", "(64,)", "use backbone mlp-700-1")
    fails(*tiny, "--backbone", "cnn-s", says=says)


def test_more_permutations_than_memory(fails, tiny, monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 8 * 64 * 1000)
    says = ("not enough memory", "1,001 permutations of 64 inputs; use fewer --tasks")
    fails(*tiny, "--exp", "permuted", "--tasks", 1001, says=says)


def test_class_without_test_samples(command, fails, tiny, changed_npz):
    changed_npz(y_test=lambda y: np.where(y == 3, 2, y))
    says = ("task 'classes 3' has no test samples", "use more --classes-per-task")
    fails(*tiny, "--classes-per-task", 1, says=says)
    assert command(*tiny)[0] == 0


def test_class_without_training_samples(fails, bare, changed_npz):
    changed_npz(y_train=lambda y: np.where(y == 3, 2, y))
    line = fails(*bare, "--classes-per-task", 1, says="task 'classes 3'")
    assert "--batch-size 0" not in line and "no training samples" in line


# The loss


DIVERGENT = ("--rule", "sgd", "--head", "fc", "--learning-rate", 1e30)


def test_loss_that_is_not_finite(fails, bare):
    fails(
        *bare, *DIVERGENT, says=("layer", "step 2", "smaller learning rate (--learning-rate 1e+29)")
    )


def test_nothing_but_the_error_when_the_loss_is_not_finite(process, bare):
    assert process(*bare, *DIVERGENT).stderr.count("\n") == 1


def test_no_progress_bar_without_a_terminal(process, bare):
    assert process(*bare[:-1]).stderr == ""


# Results


def test_unwritable_out(fails, tiny, tmp_path):
    (tmp_path / "file").write_text("x")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        fails(*tiny, "--out", out, says=(f"cannot write results to {out}", "choose another --out"))


def test_full_disk(fails, tiny, tmp_path, command, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    assert command(*tiny)[0] == 0
    (store,) = (tmp_path / "out").rglob("*.jsonl")
    before = store.read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    fails(*tiny, "--seed", 1, says=(f"cannot write to {store}", "No space left on device"))
    assert store.read_bytes() == before


@pytest.mark.parametrize(
    "line, says",
    [
        ({"a": 1}, "line 1: not a result of minipw"),
        ([], "line 1: not a result of minipw"),
        ({"format": 2}, "line 1: a result of format 2, this version reads 1"),
    ],
)
def test_foreign_store(fails, tiny, tmp_path, command, line, says):
    assert command(*tiny)[0] == 0
    (store,) = (tmp_path / "out").rglob("*.jsonl")
    store.write_text(json.dumps(line) + "\n")
    fails(*tiny, says=(str(store), says, "choose another --out"))
    assert store.read_text() == json.dumps(line) + "\n"


def test_full_disk_under_standard_output(process, bare):
    with open("/dev/full", "w") as full:
        done = process(*bare, "--json", stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2 and done.stderr.count("\n") == 1


# Ctrl-C


def test_interrupt(command, tiny, tmp_path, monkeypatch):
    step, calls = Run.step, []

    def interrupted(*args):
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return step(*args)

    monkeypatch.setattr(Run, "step", interrupted)
    assert command(*tiny) == (130, "", "interrupted\n")
    (store,) = (tmp_path / "out").rglob("*.jsonl")
    assert len(calls) == 3 and store.read_bytes() == b""


def test_interrupt_by_signal(tiny, tmp_path):
    flags = [*tiny[:-2], "--epochs", 100_000, "--out", tmp_path / "out"]
    running = subprocess.Popen(
        [sys.executable, "run.py", *map(str, flags)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # may be ignored here
    )
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not list(tmp_path.glob("out/**/*.jsonl")):
        time.sleep(0.02)
    time.sleep(0.2)  # the store is opened just before the training
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert (running.returncode, out) == (130, "")
    assert re.fullmatch(r"interrupted at step \d+; the same command goes on from here\n", err)
    assert len(list(tmp_path.glob("out/checkpoints/*.npz"))) == 1
