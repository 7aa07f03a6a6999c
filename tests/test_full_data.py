"""The main job on full MNIST, and lam on CIFAR-10. Run with `pytest -m data`."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_ridge import trial

from minipw import InputError, datasets
from minipw.datasets import catalog
from minipw.network.feature_map import feature_map

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def mnist_folder():
    """The folder with the MNIST files, without downloading them."""
    try:
        datasets.load("mnist", download=False)
    except InputError as error:
        pytest.skip(str(error))
    return os.environ.get("MINIPW_DATA", catalog.HOME_DATA)


def run(*flags):
    command = [sys.executable, "run.py", *flags, "--json", "--quiet"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.data
def test_main_job(mnist_folder):
    record = run("--exp", "permuted", "--head", "pairwise", "--data-dir", mnist_folder)
    assert record["dataset"] == "mnist" and record["steps"] == 9370
    assert abs(record["accuracy"] - 95.4) < 0.5  # the paper's table 3; seeds differ by 0.1
    assert [len(row) for row in record["accuracy_matrix"]] == [10] * 11
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20  # KiB to GiB
    assert largest < 1


@pytest.mark.data
def test_split_mnist_multi_head(mnist_folder):
    record = run("--exp", "split", "--multi-head", "--data-dir", mnist_folder)
    assert abs(record["accuracy"] - 99.6) < 0.3  # the paper's table 1; seeds differ by 0.1


@pytest.fixture(scope="module")
def cifar():
    try:
        return datasets.load("cifar-10", download=False)
    except InputError as error:
        pytest.skip(str(error))


@pytest.mark.data
@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        ("scales-100", 0.3),
        ("scales-500", 0.3),
        ("patches-200", 0.5),  # 1,600 features, nearly as many as samples: 0.38
        ("scales-3000", 0.3),
    ],
)
def test_lam_on_patches_of_images_is_near_the_best_of_a_grid(cifar, words, allowed):
    """More features than samples included: 2,000 images learn, 2,000 others test."""
    results = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        train, test = np.split(rng.permutation(len(cifar.y_train))[:4000], 2)
        z = feature_map(words, cifar.x_train[train[:1000]], rng)
        sides = ((z(cifar.x_train[rows]), cifar.y_train[rows]) for rows in (train, test))
        (learned, labels), (tested, truth) = sides
        results.append(trial(learned, labels, tested, truth)[:2])
    chosen, grid = (np.mean(part, 0) for part in zip(*results, strict=True))
    assert chosen >= grid.max() - allowed, (chosen, grid)
