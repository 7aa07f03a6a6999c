"""`bench --device cuda` over the stand-in: what is counted, timed and reported."""

import json
import types
from dataclasses import replace

import numpy as np
import pytest
from stacked_cases import BASE

from minipw import datasets
from minipw.bench import gpu, kernels
from minipw.kernels import launcher, pairwise_gpu
from minipw.paper.cells import Cell
from minipw.training.many_seeds import create_runs
from minipw.training.stacked_runs import Stack

LABEL = "split mnist single mlp-700-1 pairwise adagrad"


@pytest.fixture
def small(monkeypatch, tiny_dataset, cupy):
    """Three small runs in every cell's place, two steps a measurement."""
    data = tiny_dataset(train=200, test=40)
    settings = replace(BASE, dataset="mnist")
    cell = Cell("table1", LABEL, "mnist", {}, 83.1, 3)
    monkeypatch.setattr(gpu, "settings_of", lambda *_: (cell, settings))
    monkeypatch.setattr(gpu, "CASES", gpu.CASES[:1])
    monkeypatch.setattr(gpu, "STEPS", 4)
    monkeypatch.setattr(gpu, "rates", lambda xp: (1e9, 1e12))
    monkeypatch.setattr(datasets, "load", lambda *_, **__: data)
    return data


def test_every_case_is_a_cell_of_the_paper():
    for part, label in gpu.CASES:
        cell, settings = gpu.settings_of(part, label, gpu.OUTLINES["mnist"])
        assert (cell.part, cell.label) == (part, label) and settings.batch_size == 64


def test_moved_bytes_by_hand():
    arguments = {
        "x": np.ones((2, 3), np.float32),
        "theta": np.ones(5, np.float32),
        "omega": np.ones(5),
        "values": np.ones(100, np.float32),
        "units": np.int32(7),
        "rate": 0.5,
    }
    assert kernels.moved_bytes(arguments, 0.25) == 24 + 2 * 20 + 2 * 40 + 100


def test_rates_of_a_copy_and_of_a_product(cupy, monkeypatch):
    done = []

    def timed(function, repeats, calls=1):
        done.append(function())
        return 0.5

    monkeypatch.setattr(kernels, "device_seconds", timed)
    monkeypatch.setattr(kernels, "COPIED", 1000)
    monkeypatch.setattr(kernels, "SIDE", 50)
    copy, product = kernels.rates(cupy)
    assert copy == 2 * 4 * 1000 / 0.5  # bytes read and bytes written
    assert product == 2 * 50**3 / 0.5
    assert done[1].shape == (50, 50) and float(done[1][0, 0]) == 50


def test_a_row_of_a_kernel():
    row = kernels.kernel_row("k", 2, 0.004, 8e6, 0.001)
    expected = {"ms": 4.0, "gb_per_second": 2.0, "floor_ms": 1.0, "ratio": 4.0}
    assert row == {"kernel": "k", "launches": 2} | {
        key: pytest.approx(value) for key, value in expected.items()
    }


def test_launches_are_timed_and_the_launcher_is_given_back(cupy, tiny_dataset, monkeypatch):
    launched = []
    fake = types.ModuleType("launcher")
    fake.launch = plain = lambda *args, **named: launched.append((args, named))
    monkeypatch.setattr(kernels, "launcher", fake)
    stack = Stack(create_runs(BASE, (0, 1), tiny_dataset(train=100), cupy))
    x = np.ones(1000, np.float32)

    def step():
        for _ in range(2):
            fake.launch(("a.cu",), "one", (), (1,), {"x": x}, 5, block=7)
        fake.launch(("a.cu",), "two", (), (1,), {"theta": x})

    stack.step = step
    (row,) = kernels.kernel_times(stack, 1e9, ("two",))
    assert row["kernel"] == "two" and len(launched) == 2 + 1 + 3 * kernels.CALLS
    launched.clear()
    rows = kernels.kernel_times(stack, bandwidth=1e9)
    assert fake.launch is plain
    assert [(row["kernel"], row["launches"]) for row in rows] == [("one", 2), ("two", 1)]
    assert [row["floor_ms"] for row in rows] == pytest.approx([0.008, 0.008])
    assert launched[0] == ((("a.cu",), "one", (), (1,), {"x": x}, 5), {"block": 7})
    # Each of the three is launched once uncounted and three times 20 times.
    assert len(launched) == 3 * (1 + 3 * kernels.CALLS)


def test_every_variant_is_timed_with_its_constant(monkeypatch):
    seen = []

    def timed(stack, bandwidth, only):
        seen.append((pairwise_gpu.ROUNDS, pairwise_gpu.SAMPLES, launcher.BLOCK))
        return [{"kernel": name, "ms": 1.0, "ratio": 2.0} for name in only]

    monkeypatch.setattr(kernels, "kernel_times", timed)
    rows, lines = kernels.variant_times(None, 1e9), []
    first = [(row["constant"], row["value"], row["set"], row["kernel"]) for row in rows[:4]]
    names = "pairwise_forward", "pairwise_sum", "pairwise_dw", "pairwise_forward"
    assert first == [
        ("ROUNDS", n, n == 32, name) for n, name in zip((16, 16, 16, 32), names, strict=True)
    ]
    assert [constants[0] for constants in seen[:3]] == [16, 32, 64]
    assert seen[3][1] == 8 and seen[-1][2] == 512
    assert (pairwise_gpu.ROUNDS, pairwise_gpu.SAMPLES, launcher.BLOCK) == (32, 16, 256)
    for _, constant, values, _ in kernels.VARIANTS:  # what is set is among what is timed
        assert sum(row["set"] for row in rows if row["constant"] == constant) >= 1, values
    kernels.report_variants(rows, lines.append)
    assert lines[4].split() == ["ROUNDS", "32*", "pairwise_forward", "1.0000", "2.0"]


def test_json(command, small):
    status, out, err = command("bench", "--device", "cuda", "--json")
    report = json.loads(out)
    assert status == 0 and report["device"] == "Stand-in device", err
    (row,) = report["cells"]
    assert (row["runs"], row["runs_together"], row["baseline_runs"]) == (3, 3, 3)
    assert row["steps_times_runs_per_second"] == pytest.approx(3e3 / row["step_ms"])
    products = 3 * 4 * 10 * 64 * 60  # y and dw of the first layer
    assert row["tflops"] == pytest.approx(products / row["step_ms"] / 1e9)
    steps = 60_000 / 10
    assert row["cell_seconds"] > steps * row["step_ms"] / 1e3
    assert row["speed_up"] == pytest.approx(row["baseline_step_ms"] / row["step_ms"])
    assert [kernel["kernel"] for kernel in report["kernels"]] == ["dense y = x w", "dense dw"]
    assert sum(report["paper_parts"].values()) == pytest.approx(report["paper_seconds"])
    assert {"table1", "table3"} <= report["paper_parts"].keys() and report["variants"] == []
    assert report["paper_seconds"] > report["first_cell_seconds"] > 0


def test_tables(command, small):
    status, out, err = command("bench", "--device", "cuda")
    assert (status, err) == (0, "")
    assert out.startswith("Stand-in device, 4 GiB: copy 1 GB/s (read + written), SGEMM 1.0 TFLOP/s")
    assert LABEL in out and "dense y = x w" in out
    assert "3 runs from start to end on tiny: " in out and "every run of the paper" in out


def test_the_baseline_takes_fewer_runs_when_memory_is_short(small, cupy, monkeypatch):
    plain = gpu.loaded_stack

    def limited(settings, seeds, *rest):
        if len(seeds) > 1:
            raise MemoryError
        return plain(settings, seeds, *rest)

    monkeypatch.setattr(gpu, "loaded_stack", limited)
    seconds, count = gpu.baseline(cupy, BASE, 3, small)
    assert seconds > 0 and count == 1
    monkeypatch.setattr(gpu, "loaded_stack", lambda *_: limited(BASE, [1, 2]))
    assert gpu.baseline(cupy, BASE, 3, small) == (None, None)
