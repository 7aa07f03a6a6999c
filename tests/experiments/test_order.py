"""`paper order`: learners over the order of their samples."""

import os

import kill_target
import pytest
from stored_records import stored

from minipw.experiments import page, workers
from minipw.experiments import plan as plan_module
from minipw.experiments.report import read_records
from minipw.experiments.run_times import estimated_seconds
from minipw.experiments.store import Store, read
from minipw.experiments.tables import cell_settings
from minipw.network.feature_map import feature_count
from minipw.paper.cells import NAMES, ORDERS, OUTLINES, STREAMS, cells, order_cells
from minipw.parameters import CLOSED_FORM


def cell_of(*words):
    """The cell whose label ends with these words."""
    (cell,) = (cell for cell in cells("order") if cell.label.endswith(" ".join(words)))
    return cell


def test_every_learner_in_every_order():
    found = list(order_cells())
    assert {(stream, order) for stream, order, _ in found} == {
        (stream, order) for stream in STREAMS for order in ORDERS
    }
    assert len(found) == 4 * 5 * 8 and "order" not in NAMES
    settings = [tuple(cell_settings(cell).items()) for cell in cells("order")]
    assert len({*settings}) == len(found)
    for cell in cells("order"):
        shape = OUTLINES[cell.dataset].shape
        if cell.request["head"] in CLOSED_FORM:
            assert feature_count(cell.request["backbone"], shape) in (1000, 1600, 1800, 7200)


def test_a_network_keeps_its_settings_where_samples_are_shuffled():
    sharp, shuffled = (
        cell_settings(cell_of("cifar-10 cnn-s pairwise s-mas", order))
        for order in ("sharp", "shuffled")
    )
    assert {name for name in sharp if sharp[name] != shuffled[name]} == {"experiment"}


def test_shuffled_permutations_are_tested_by_task():
    settings = cell_settings(cell_of("permuted mnist mlp-700-1 pairwise s-mas shuffled"))
    assert (settings["experiment"], settings["blur"]) == ("permuted", 1e6)


def test_estimated_times_grow_with_the_features():
    ridge, lda, ncm = (
        estimated_seconds(plan_module.resolve(OUTLINES["mnist"], "split", head=head)[0], outline)
        for head, outline in zip(CLOSED_FORM, [OUTLINES["mnist"]] * 3, strict=True)
    )
    assert 0 < ncm < ridge == lda


def test_section_of_the_page(tmp_path):
    def filled():
        return page.fill("<!-- order -->", read_records(tmp_path), "released", tmp_path, [])

    with Store(tmp_path / "s.jsonl") as store:
        for words, accuracies in (
            ("split mnist scales-7200 ridge sharp", (99.1, 99.2)),
            ("split mnist scales-7200 ridge shuffled", (99.15,)),
            ("split mnist mlp-700-1 pairwise adagrad blur 0.5", (76.0,)),
        ):
            cell = cell_of(words)
            for seed, accuracy in enumerate(accuracies):
                more = {"online_accuracy": None} if "ridge" in words else {}
                store.append(stored(seed, accuracy, cell_settings(cell), "mnist", **more))
    assert filled().splitlines()[2:] == [
        "**Split MNIST**",
        "",
        "| learner | sharp | blur 0.25 | blur 0.5 | blur 1 | shuffled |",
        "| --- | --: | --: | --: | --: | --: |",
        "| ridge, contexts-scales-7200 | - | - | - | - | - |",
        "| ridge, scales-7200 | 99.15 ± 0.05 (2) | - | - | - | 99.15 (1) |",
        "| ridge, patches-100 | - | - | - | - | - |",
        "| lda, patches-100 | - | - | - | - | - |",
        "| ncm, patches-100 | - | - | - | - | - |",
        "| pairwise, mlp-700-1, Adagrad | - | - | 76.00 (1) | - | - |",
        "| pairwise, mlp-700-1, S-MAS | - | - | - | - | - |",
        "| fc, mlp-1000-1, Adagrad | - | - | - | - | - |",
        "| PEC, as published (Zając et al. 2024) | 92.3 | - | - | - | - |",
    ]


@pytest.fixture
def two_cells(tiny_npz, tmp_path, monkeypatch):
    """A ridge and an ncm cell over a file in the working folder, as the part of any name."""
    monkeypatch.chdir(tmp_path)
    for library in ("OMP", "OPENBLAS", "MKL"):
        monkeypatch.setenv(f"{library}_NUM_THREADS", "1")
    workers.dataset_of.cache_clear()
    found = kill_target.tiny_cells(os.path.basename(tiny_npz))
    for cell, head in zip(found, ("ridge", "ncm"), strict=True):
        cell.request.update(head=head, backbone="random-40", rule="", given={"blur": 0.5})
    monkeypatch.setattr(plan_module, "cells", lambda part: found)
    yield found
    workers.dataset_of.cache_clear()


def test_workers_do_the_runs(command, two_cells, tmp_path):
    again = ("paper", "order", "--runs", 2, "--workers", 1, "--quiet")
    status, out, err = command(*again)
    assert status == 0, err
    (store,) = tmp_path.glob("results/*.jsonl")
    records = read(store)
    assert sorted(r["settings"]["head"] for r in records) == ["ncm"] * 2 + ["ridge"] * 2
    assert out.startswith("2 cells, 4 runs to do") and out.count("(2)") == 2
    assert command(*again)[1].startswith("2 cells, 0 runs to do")
    assert {record["settings"]["blur"] for record in records} == {0.5}


def test_an_interrupted_plan_says_what_begins_anew(command, two_cells, monkeypatch):
    monkeypatch.setattr(plan_module, "run_plan", lambda plan, args: (0, True))
    status, _, err = command("paper", "order", "--quiet")
    assert status == 130
    assert err.endswith("goes on from here; runs under way of head ncm, ridge begin anew\n")
