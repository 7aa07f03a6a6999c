"""The main job on full MNIST: accuracy, time and memory. Run with `pytest -m data`."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from minipw import InputError, datasets
from minipw.datasets import catalog

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
