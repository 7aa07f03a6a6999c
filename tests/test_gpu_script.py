"""`gpu.sh` and its table, as far as a machine without a device can run them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import gpu_summary
import pytest

from minipw import InputError
from minipw.backend import cuda

SCRIPT = Path(__file__).parent / "gpu.sh"


def test_syntax():
    subprocess.run(["bash", "-n", SCRIPT], check=True, timeout=10)


def test_unknown_flags_are_refused():
    done = subprocess.run([SCRIPT, "--fast"], capture_output=True, text=True, timeout=10)
    assert done.returncode == 2 and done.stderr.startswith("error: unknown flag --fast")


@pytest.mark.parametrize("flag", ["--data-dir", "--python"])
def test_a_flag_without_its_value_is_refused(flag):
    done = subprocess.run([SCRIPT, flag], capture_output=True, text=True, timeout=10)
    assert (done.returncode, done.stderr) == (2, f"error: {flag} needs a value\n")


def test_without_a_device_it_stops_with_one_line():
    try:
        cuda.device_module("cuda")
    except InputError as error:
        expected = f"error: {error}\n"
    else:
        pytest.skip("there is a device")
    done = subprocess.run(
        [SCRIPT, "--python", sys.executable], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)


def test_its_parts_end_in_time():
    """The limits of the parts, in seconds, add up to less than 5 minutes."""
    limits = [
        int(line.split()[2]) * (2 if "$tool" in line else 1)  # two tools
        for line in SCRIPT.read_text().splitlines()
        if line.strip().startswith("part ")
    ]
    assert len(limits) == 7
    assert sum(limits) - limits[1] <= 285  # one of the two ways to run the checks


@pytest.fixture
def folder(tmp_path):
    """What the parts leave behind, in a folder."""
    cell = {"cell": "c1", "runs_together": 30, "step_ms": 2.5, "cell_seconds": 4.25}
    cell |= {"speed_up": 12.34, "steps_times_runs_per_second": 12_000}
    bench = {"cells": [cell, {**cell, "cell": "c2", "speed_up": None}]}
    bench["kernels"] = [{"kernel": "k", "ms": 0.125, "ratio": 1.5}]
    bench["variants"] = [
        {"kernel": "k", "constant": "N", "value": value, "ratio": ratio, "set": value == 16}
        for value, ratio in ((8, 2.25), (16, 1.5), (32, 1.25))
    ]
    bench |= {"paper_seconds": 330, "paper_parts": {"table1": 90, "table3": 240}}
    closed = {"data": "drawn", "images": 50000, "features": 12800, "accuracy": 81.25}
    closed |= dict.fromkeys(("filters_seconds", "sums_seconds", "test_seconds"), 2)
    closed["solve_seconds"] = 1.5
    torch = {"step_ms": 100, "runs": 15, "steps_times_runs_per_second": 150}
    texts = {
        "device": "A card, 80 GiB\n",
        "checks": "check_x 0.1 s ok\n12 of 12 checks hold\n",
        "accuracy": "split MNIST, 30 runs: 83.01 % in 4.9 s\ncheck_split_accuracy 5 s ok\n",
        "bench": json.dumps(bench),
        "closed": json.dumps(closed),
        "torch": "a warning\n" + json.dumps(torch),
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.txt").write_text(text)
        (tmp_path / f"{name}.status").write_text("0\n")
    return tmp_path


def test_table(folder, capsys):
    assert gpu_summary.main(folder) == 0
    width = len("every run of the paper") + 2
    lines = [(line[:width].rstrip(), line[width:]) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ("device", "A card, 80 GiB"),
        ("checks", "ok (12 of 12 checks hold)"),
        ("accuracy", "ok"),
        ("bench", "ok"),
        ("closed", "ok"),
        ("torch", "ok"),
        ("memcheck", "not run"),
        ("racecheck", "not run"),
        ("split, 30 runs", "83.01 % in 4.9 s (paper 83.1)"),
        (
            "c1",
            "2.500 ms a step of 30 runs, cell in 4.2 s, 12.3 times CuPy without kernels",
        ),
        ("c2", "2.500 ms a step of 30 runs, cell in 4.2 s"),
        ("the first in PyTorch", "100.0 ms a step of 15 runs; ours is 80.0 times as fast"),
        ("k", "0.125 ms, 1.5 times its floor"),
        ("k by N", "8: 2.2, 16: 1.5, 32: 1.2 times its floor; set 16, best 32"),
        ("every run of the paper", "5.5 min, estimated"),
        ("  table1", "1.5 min"),
        ("  table3", "4.0 min"),
        (
            "closed form, drawn",
            "50,000 images, 12,800 features: 4.0 s for filters and sums, 1.5 s to solve, 81.2 %",
        ),
    ]


@pytest.mark.parametrize("status, says", [("1", "status 1"), ("124", "out of time")])
def test_a_part_that_failed(folder, capsys, status, says):
    (folder / "checks.status").write_text(status)
    assert gpu_summary.main(folder) == 1
    assert f"FAILED: {says} (12 of 12 checks hold)" in capsys.readouterr().out


def test_a_part_that_was_skipped(folder, capsys):
    (folder / "accuracy.txt").write_text("skipped: mnist is not in data\n")
    assert gpu_summary.main(folder) == 0
    assert "skipped: mnist is not in data" in capsys.readouterr().out


def test_nothing_but_a_device(tmp_path, capsys):
    (tmp_path / "device.txt").write_text("A card, 80 GiB\n")
    assert gpu_summary.main(tmp_path) == 0
    assert capsys.readouterr().out.count("not run") == len(gpu_summary.PARTS)


def test_it_is_executable():
    assert os.access(SCRIPT, os.X_OK)
