"""Text and pictures of results."""

import sys

import pytest

from minipw.cli import run_text
from minipw.experiments import figures

RECORD = {
    "tasks": ["classes 2 3", "classes 0 1"],
    "accuracy_matrix": [[40.0, 65.0], [95.0, 60.0], [90.0, 85.0]],
    "task_accuracy": [90.0, 85.0],
    "accuracy": 87.5,
    "forgetting": 5.0,
    "backward_transfer": -5.0,
    "forward_transfer": -2.5,
    "online_accuracy": 76.04,
    "steps": 1200,
    "seconds": 2.0,
    "note": "synthetic",
}
MAGIC = {"png": b"\x89PNG\r\n\x1a\n", "svg": b"<?xml", "pdf": b"%PDF"}
"""First bytes of a picture."""


@pytest.fixture
def tiny(tiny_npz):
    small = ("--backbone", "mlp-30-1", "--batch-size", 8, "--quiet")
    return ("--exp", "split", "--dataset", tiny_npz, *small)


def test_formulas_in_names_are_text(tmp_path):
    pytest.importorskip("matplotlib", reason="a figure needs matplotlib")
    result = {"dataset": r"a$\frac$.csv", "curve": [[5, 50.0]], "class_accuracy": {r"$\frac$": 9.0}}
    figures.plot_stream(result, str(tmp_path / "a.png"))
    assert (tmp_path / "a.png").stat().st_size > 1000


@pytest.mark.parametrize("tasks, ticks, numbers", [(2, 2, 6), (15, 15, 240), (40, 14, 0)])
def test_axes_have_no_more_numbers_than_fit(tmp_path, monkeypatch, tasks, ticks, numbers):
    pytest.importorskip("matplotlib", reason="a figure needs matplotlib")
    drawn = []
    monkeypatch.setattr(figures, "save", lambda figure, paths: drawn.append(figure))
    matrix = [[100.0] * tasks for _ in range(tasks + 1)]
    figures.plot_run({"accuracy_matrix": matrix}, "all right", "x.png")
    left, right, _ = drawn[0].axes
    assert len(left.get_xticks()) == len(right.get_xticks()) == ticks
    assert len(right.texts) == numbers and left.get_ylim() == (90, 100.5)
    figures.pyplot().close(drawn[0])


def test_samples_that_fill_no_batch_are_named(command, tiny_npz):
    flags = ("--exp", "split", "--dataset", tiny_npz, "--backbone", "mlp-20-1", "--batch-size")
    assert "80 of 200 samples fill no batch and are left out" in command(*flags, 60)[1]
    assert "fill no batch in each epoch" in command(*flags, 60, "--epochs", 2)[1]
    assert "fill no batch" not in command(*flags, 50)[1]


def test_result_text():
    lines = run_text.result_text(RECORD, "   (paper: 83.1 %)").splitlines()
    assert lines[1].split() == ["classes", "2", "3", "95.0", "%", "90.0", "%"]
    assert lines[2].split() == ["classes", "0", "1", "85.0", "%", "85.0", "%"]
    assert lines[3] == "accuracy 87.50 % of all test images   (paper: 83.1 %)"
    assert lines[4] == "forgetting 5.00, backward transfer -5.00, forward transfer -2.50 points"
    assert "76.04 %, 1,200 steps in 2.0 s" in lines[5] and "600 steps/s" in lines[5]
    assert lines[6] == "note: synthetic"


def test_result_text_of_one_task_has_no_forgetting():
    one = {**RECORD, "tasks": ["all"], "accuracy_matrix": [[1.0], [2.0]], "forgetting": None}
    text = run_text.result_text({**one, "note": ""})
    assert "forgetting" not in text and "paper" not in text and "note" not in text


def test_summary_text_by_hand():
    # mean 90, deviation sqrt((4 + 0 + 4) / 2) = 2, error 2 / sqrt(3); t of 2 degrees is 4.302653
    text = run_text.summary_text(
        [{"accuracy": a} for a in (88.0, 90.0, 92.0)], "   (paper: 83.1 %)"
    )
    assert text == (
        "accuracy 90.00 % ± 1.15 (standard error), 95 % interval ± 4.97, 3 runs   (paper: 83.1 %)"
    )
    assert run_text.summary_text([{"accuracy": 88.0}]) == "accuracy 88.00 %, 1 run"


@pytest.mark.parametrize("suffix", MAGIC)
def test_plot(command, tiny, tmp_path, suffix):
    pytest.importorskip("matplotlib", reason="a figure needs matplotlib")
    path = tmp_path / f"figure.{suffix}"
    status, out, _ = command(*tiny[:-1], "--plot", path)
    assert status == 0 and out.endswith(f"figure written to {path}\n")
    assert path.read_bytes().startswith(MAGIC[suffix]) and path.stat().st_size > 5000


def test_plot_without_matplotlib(command, tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as if not installed
    status, out, err = command(*tiny, "--plot", tmp_path / "figure.png")
    assert (status, out) == (2, "") and not (tmp_path / "figure.png").exists()
    assert err.startswith("error: ") and err.count("\n") == 1 and "minipw[plot]" in err


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("figure.xyz", "name it .png, .svg or .pdf"),
        ("missing/figure.png", "missing is no folder that can be written"),
        ("folder.png", "is a folder, name a file"),
    ],
)
def test_plot_that_cannot_be_written(command, tiny, tmp_path, name, says):
    pytest.importorskip("matplotlib", reason="a figure needs matplotlib")
    (tmp_path / "folder.png").mkdir()
    status, _, err = command(*tiny, "--plot", tmp_path / name)
    assert status == 2 and not (tmp_path / name).is_file()
    assert err.startswith(f"error: figure {tmp_path / name}: ") and err.count("\n") == 1
    assert says in err


@pytest.mark.parametrize("name", ["figure.xyz", "missing/figure.png", "figure"])
def test_plot_is_refused_before_the_training(command, tiny, tmp_path, name):
    pytest.importorskip("matplotlib", reason="a figure needs matplotlib")
    status, out, _ = command(*tiny, "--plot", tmp_path / name)
    assert (status, out) == (2, "")
