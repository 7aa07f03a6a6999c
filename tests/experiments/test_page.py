"""The page of results: notes with tables of stored runs in them."""

import json

import pytest
from stored_records import stored

from minipw import InputError
from minipw.experiments import figures, page
from minipw.experiments.report import read_records
from minipw.experiments.store import Store
from minipw.experiments.tables import cell_settings
from minipw.paper.cells import cells


@pytest.fixture(autouse=True)
def no_figure(monkeypatch):
    monkeypatch.setattr(figures, "plot_paper", lambda tables, paths: None)


def settings_of(label, **change):
    """The settings of the paper's cell with a label, some of them changed."""
    (cell,) = (cell for cell in cells("all") if cell.label == label)
    return {**cell_settings(cell), **change}


SPLIT = "split mnist single mlp-700-1 pairwise adagrad"
PERMUTED = "permuted mnist single mlp-700-1 pairwise adagrad"


def filled(folder, name, runs):
    """A section of the page of a folder in which some runs are stored.

    runs : list of (settings, accuracies of seeds 0, 1, ...)
    """
    with Store(folder / "s.jsonl") as store:
        for settings, accuracies in runs:
            for seed, accuracy in enumerate(accuracies):
                ends = {"task_accuracy": [accuracy - 1, accuracy + 1]}
                store.append(stored(seed, accuracy, settings, "mnist", **ends))
    return page.fill(f"<!-- {name} -->\n", read_records(folder), "released", folder, ["n"])


def test_lines_of_the_notes_become_tables(tmp_path):
    text = filled(tmp_path, "table1", [(settings_of(SPLIT), (80.0, 81.0, 82.0))])
    assert text.startswith(f"{page.MARK}\n\n**Table 1: Split MNIST**\n\n| network and head |")
    assert "| mlp-700-1 pairwise | 83.1 / 81.0 ± 0.6 (3) * | 84.4 / - |" in text
    notes = "a\n<!-- counts -->\n<!-- speed -->\nb `<!-- speed -->`\n"
    page_of = page.fill(notes, {}, "released", tmp_path, ["7 runs", "1 of them"])
    assert page_of == f"{page.MARK}\n\na\n7 runs; 1 of them.\nb `<!-- speed -->`\n"


def test_agreement_counts_the_numbers_and_averages_their_differences(tmp_path):
    other = SPLIT.replace("mlp-700-1 pairwise", "cnn-s pairwise")
    runs = [(settings_of(SPLIT), (85.1,)), (settings_of(other), (74.8, 74.8, 75.1))]
    text = filled(tmp_path, "agreement", runs)
    # 85.1 - 83.1 = 2 and 74.9 - 80.9 = -6: mean -2, standard deviation sqrt(32) = 5.66.
    assert "Of the 100 numbers of Tables 1 to 4, 2 are measured and 1 of them bear the" in text
    assert "Over 2 single-head numbers ours minus the paper's is -2.0 on average" in text
    assert "a standard deviation of 5.7 points" in text and "multi-head" not in text


def test_a_section_that_is_not_known():
    with pytest.raises(InputError, match="no section 'table9': use counts, agreement, table1"):
        page.fill("<!-- table9 -->", {}, "released", ".", [])


def test_blur_needs_all_four_and_takes_the_seeds_of_all(tmp_path):
    runs = [(settings_of(SPLIT, blur=b), [80 - 10 * b, 82 - 10 * b]) for b in page.BLURS[1:]]
    assert "|" not in filled(tmp_path, "blur split", runs)
    runs = [(settings_of(SPLIT), (80.0, 82.0, 99.0))]
    lines = filled(tmp_path, "blur split", runs).splitlines()[2:]
    assert lines[0] == "| blur | 0 | 0.25 | 0.5 | 1 |"
    assert lines[2].startswith("| accuracy at the end | 81.0 ± 1.0 (2) | 78.5 ± 1.0 (2) | 76.0")
    assert lines[3].startswith("| first task at the end | 80.0 ± 1.0 (2) |")
    assert lines[4].startswith("| last task at the end | 82.0 ± 1.0 (2) |")
    assert lines[5].startswith("| online (test-then-train) | 50.0 ± 0.0 (2) |") and len(lines) == 6
    rate = settings_of(SPLIT)["learning_rate"] / 2
    half = settings_of(SPLIT, blur=0.5, learning_rate=rate)
    lines = filled(tmp_path, "blur split", [(half, [60.0])]).splitlines()
    assert lines[-1] == "| accuracy at half the learning rate | - | - | 60.0 (1) | - |"


def test_blur_of_permuted_tasks_has_two_digits(tmp_path):
    runs = [(settings_of(PERMUTED, blur=b), [95.123]) for b in page.BLURS]
    assert "| accuracy at the end | 95.12 (1) |" in filled(tmp_path, "blur permuted", runs)


def test_switches_are_changed_one_at_a_time_over_the_same_seeds(tmp_path):
    change = settings_of(SPLIT)
    runs = [
        (change, (80.0, 84.0, 10.0)),
        ({**change, "gelu": "exact"}, (81.0, 87.0)),
        ({**change, "pairs": "distinct", "pair_weights": 244_650}, (70.0,)),
        ({**change, "gelu": "exact", "kwta_threshold": "k+1"}, (11.0,)),  # two of them
        ({**change, "pair_weights": 1000}, (12.0,)),  # no switch
    ]
    lines = filled(tmp_path, "switches", runs).splitlines()[4:]
    # Differences 1 and 3: mean 2, standard error 1.
    assert sorted(lines) == [
        f"| {SPLIT} | gelu tanh → exact | 82.0 ± 2.0 (2) | 84.0 ± 3.0 (2) | 2.0 ± 1.0 (2) |",
        f"| {SPLIT} | pairs released → distinct | 80.0 (1) | 70.0 (1) | -10.0 (1) |",
    ]
    rate = {**change, "learning_rate": 0.1}
    text = filled(tmp_path, "other settings", [(rate, [20.0])])
    assert f"| {SPLIT} | learning rate 0.0002 → 0.1 | 80.0 (1) | 20.0 (1) | -60.0 (1) |" in text


def test_tuning_has_a_grid_and_the_choice_on_the_test_set(tmp_path):
    base = settings_of(SPLIT)
    runs = [
        ({**base, "learning_rate": rate, "density": density, "held_out": 0.1}, [accuracy])
        for rate, density, accuracy in ((0.1, 0.2, 50.0), (0.1, 0.3, 60.0), (0.2, 0.3, 55.0))
    ]
    runs += [({**base, "learning_rate": 0.1, "density": 0.3}, [58.0])]
    runs += [(base, (80.0, 99.0))]
    assert filled(tmp_path, "tuning", runs).splitlines()[2:] == [
        "**Adagrad, batch size 64**, mnist, mlp-700-1 pairwise",
        "",
        "| learning rate | density 0.2 | density 0.3 |",
        "| --- | --: | --: |",
        "| 0.1 | 50.0 | **60.0** |",
        "| 0.2 | - | 55.0 |",
        "",
        "Chosen: learning rate 0.1, density 0.3; on the test set 58.0 (1).",
        "",
        "Released: learning rate 0.0002, density 0.15; on the test set 80.0 (1).",
    ]


def test_stored_comparisons_and_timings(tmp_path):
    row = {"class_by_class": [94.34, 0.31], "usual_choice": "rate 0.003", "shuffled": [97.5, 0.3]}
    found = {"accuracy": {"minipw": row}, "splits": 10}
    found["samples_per_second"] = {"minipw": {"partial_fit": 864.6, "predict": 8917.0}}
    (tmp_path / "digits.json").write_text(json.dumps(found))
    found = {"minipw": {"SEA": {"accuracy": [88.56, 0.21], "microseconds": 1136.5}}}
    (tmp_path / "drift.json").write_text(json.dumps({"streams": found, "seeds": 5}))
    case = {"network": "mlp-700-1 pairwise", "rule": "s-mas", "batch_size": 64}
    case |= dict.fromkeys(("forward_ms", "backward_ms", "update_ms", "step_ms"), 1.25)
    case |= {"floor_ms": 1.4, "ratio": 6.75, "samples_per_second": 6797.0}
    bench = {"machine": {"threads": 2, "sgemm_gflops": 187.04}, "cases": [case]}
    (tmp_path / "bench.json").write_text(json.dumps(bench))
    notes = "<!-- digits -->\n<!-- drift -->\n<!-- throughput -->\n<!-- speed -->\n"
    text = page.fill(notes, {}, "released", tmp_path, [])
    assert "| minipw | 94.3 ± 0.3 | rate 0.003 | 97.5 ± 0.3 |" in text
    assert "| minipw | 88.6 ± 0.2 (1,136) |" in text
    assert "| samples a second | partial_fit | predict |" in text
    assert "| minipw | 865 | 8,917 |" in text
    assert "threads 2; sgemm gflops 187" in text
    assert "| mlp-700-1 pairwise | S-MAS | 64 | 1.2 | 1.2 | 1.2 | 1.2 | 1.4 | 6.8 | 6,797 |" in text


def test_a_readme_of_somebody_else_is_not_overwritten(tmp_path, command):
    filled(tmp_path, "table1", [(settings_of(SPLIT), [80.0])])
    (tmp_path / "README.md").write_text("# mine\n")
    status, out, err = command("report", "--out", tmp_path)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "README.md was not written by report: move it" in err
    assert (tmp_path / "README.md").read_text() == "# mine\n"
    assert not (tmp_path / "tables.csv").exists()


def test_the_notes_of_the_folder_are_used_for_the_released_protocol(tmp_path, command):
    paper = settings_of(SPLIT, pairs="distinct", kwta_threshold="k+1", smas_norm="sum")
    paper |= {"class_mask": "exclude", "gelu": "exact", "pair_weights": 244_650}
    filled(tmp_path, "table1", [(settings_of(SPLIT), [80.0]), (paper, [70.0])])
    (tmp_path / "notes.md").write_text("# Mine\n\n<!-- table1 -->\n")
    for protocol in ("released", "paper"):
        assert command("report", "--out", tmp_path, "--protocol", protocol)[0] == 0
    text = (tmp_path / "README.md").read_text()
    assert "# Mine" in text and "83.1 / 80.0 (1)" in text
    other = (tmp_path / "README-paper.md").read_text()
    assert "# Mine" not in other and "83.1 / 70.0 (1)" in other
