"""The benchmark: counted operations by hand, and what a measurement reports."""

import json

import pytest

from minipw.bench import closed_form, cpu
from minipw.network import cost
from minipw.network.architecture import Architecture

MNIST = (28, 28, 1)
TINY = cpu.Case("mlp-30-1", "pairwise", batch_size=4, steps=3)


def operations(backbone, head="pairwise", batch_size=64, rule="adagrad", shape=MNIST):
    return cost.step_operations(Architecture(shape, 10, backbone, head), batch_size, rule)


def test_operations_of_one_layer():
    # y = x w and dw = x^T dy; nothing asks for the gradient of the images
    assert operations("mlp-700-1") == 2 * 64 * 784 * 700 * 2
    assert operations("mlp-700-1", batch_size=1) == 2 * 784 * 700 * 2
    assert operations("mlp-700-1", shape=(784,)) == operations("mlp-700-1")


def test_operations_of_three_layers():
    first, later = 2 * 64 * 784 * 700, 2 * 64 * 700 * 700
    assert operations("mlp-700-3") == 2 * first + 2 * 3 * later  # y, dw, dx in the later ones


def test_operations_of_a_dense_head():
    first, head = 2 * 64 * 784 * 1000, 2 * 64 * 1000 * 10
    assert operations("mlp-1000-1", "fc") == 2 * first + 3 * head


def test_operations_of_convolutions():
    # 7 x 7 kernels at stride 4 give 7 x 7 places, 5 x 5 x 64 ones at stride 2 give 4 x 4
    first, second = 2 * 64 * 49 * (49 * 64), 2 * 64 * 16 * (25 * 64 * 128)
    assert operations("cnn-s") == 2 * first
    assert operations("cnn-m") == 2 * first + 3 * second
    colours = 2 * 64 * 64 * (49 * 3 * 64)  # 8 x 8 places in a 32 x 32 image
    assert operations("cnn-s", shape=(32, 32, 3)) == 2 * colours


def test_smas_has_the_backward_products_twice():
    first, head = 2 * 64 * 784 * 1000, 2 * 64 * 1000 * 10
    assert operations("mlp-1000-1", "fc", rule="s-mas") == (1 + 2) * first + (1 + 2 * 2) * head
    assert operations("mlp-700-1", rule="sgd") == operations("mlp-700-1")


@pytest.mark.parametrize("rule, arrays", [("adagrad", 3), ("s-mas", 3), ("sgd", 2)])
def test_measure(tiny_dataset, rule, arrays):
    case = cpu.Case("mlp-30-1", "pairwise", rule, batch_size=4, steps=3)
    row = cpu.measure(case, tiny_dataset(), rate=1e9, bandwidth=1e9)
    assert row["network"] == "mlp-30-1 pairwise"
    assert (row["rule"], row["batch_size"]) == (rule, 4)
    pair_weights = row["parameters"] - 64 * 30
    assert pair_weights % 4 == 0 and pair_weights > 0
    times = {key: row[key] for key in row if key.endswith("_ms")}
    assert times.keys() == {"forward_ms", "backward_ms", "update_ms", "step_ms", "floor_ms"}
    assert min(times.values()) > 0
    assert row["steps_per_second"] == pytest.approx(1e3 / row["step_ms"])
    assert row["samples_per_second"] == pytest.approx(4 * row["steps_per_second"])
    products = (1 + (2 if rule == "s-mas" else 1)) * 2 * 4 * 64 * 30
    moved = 2 * arrays * 4 * row["parameters"]
    assert row["floor_ms"] == pytest.approx(1e3 * (products / 1e9 + moved / 1e9))
    assert row["ratio"] == pytest.approx(row["step_ms"] / row["floor_ms"])


def test_rates_are_positive():
    assert cpu.sgemm_rate(size=64, repeats=3) > 0
    assert cpu.copy_bandwidth(size=1 << 16, repeats=3) > 0
    assert closed_form.ssyrk_rate(size=64, repeats=3) > 0


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(cpu, "CASES", [TINY, TINY])
    monkeypatch.setattr(cpu, "sgemm_rate", lambda: 1e10)
    monkeypatch.setattr(cpu, "copy_bandwidth", lambda: 2e10)
    sizes = {"FILTERS": 3, "IMAGES": 4, "FEATURES": 20, "SAMPLES": 30, "SMALL": 20, "CALL": 20}
    for name, size in sizes.items():
        monkeypatch.setattr(closed_form, name, size)
    monkeypatch.setattr(closed_form, "ssyrk_rate", lambda: 1e10)


def test_command(command, quick):
    status, out, err = command("bench", "--json")
    report = json.loads(out)
    assert (status, err, out.count("\n")) == (0, "", 1)
    assert report["machine"].items() >= {"sgemm_gflops": 10, "copy_gb_per_second": 20}.items()
    assert len(report["cases"]) == 2 and report["cases"][0]["ratio"] > 0
    patches, sums, *others = report["closed_form"]
    products = 2 * 4 * 27**2 * 108 * 3  # of 4 images and 3 filters
    assert patches["share"] == pytest.approx(products / 1e10 / (patches["ms"] / 1e3))
    assert sums["share"] == pytest.approx(30 * 20**2 / 1e10 / (sums["ms"] / 1e3))
    assert sums["per_second"] == pytest.approx(30 / (sums["ms"] / 1e3))
    assert len(others) == 4 and all(row["share"] is None for row in others)


def test_table(command, quick):
    status, out, err = command("bench")
    lines = out.splitlines()
    assert (status, err, len(lines)) == (0, "", 13)
    assert lines[0].endswith("SGEMM 10 GFLOP/s, copy 20.0 GB/s (read + written)")
    assert lines[3].startswith("mlp-30-1 pairwise") and len(lines[3]) == len(lines[2])
