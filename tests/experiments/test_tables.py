"""The report: measured runs beside the paper's numbers, in four formats."""

import csv
import json
from dataclasses import asdict

import pytest
from stored_records import stored

from minipw.experiments import figures, tables
from minipw.experiments.report import read_records
from minipw.experiments.store import Store
from minipw.paper.cells import CURVES, OUTLINES, cells
from minipw.training.settings import resolve


@pytest.fixture(autouse=True)
def no_figure_of_the_numbers(request, monkeypatch):
    """That figure takes a second; one test draws it."""
    if "figures_of_the_paper" not in request.node.name:
        monkeypatch.setattr(figures, "plot_paper", lambda tables, paths: None)


def record(cell, seed, accuracy, **more):
    """A stored run of a cell of the paper."""
    settings, _ = resolve(OUTLINES[cell.dataset], **cell.request)
    more = {"seconds": 3600.0, **more}
    return stored(seed, accuracy, asdict(settings), cell.dataset, **more)


@pytest.fixture
def folder(tmp_path):
    """A folder whose store holds three runs of table 1's first cell, one of its second."""
    first, second = cells("table1")[:2]
    with Store(tmp_path / "split-mnist.jsonl") as store:
        for seed, accuracy in enumerate((80.0, 81.0, 82.0)):
            store.append(record(first, seed, accuracy))
        store.append(record(second, 0, 84.0))
    return tmp_path


def test_report_on_the_terminal(folder, command):
    pytest.importorskip("matplotlib", reason="without it standard error says so")
    status, out, err = command("report", "--out", folder)
    assert (status, err) == (0, "")
    row = next(line for line in out.splitlines() if line.startswith("mlp-700-1 pairwise"))
    # Mean 81, standard error 1 / sqrt(3) = 0.577; 2.1 from the paper's 83.1, which is
    # more than 2 sqrt(0.577^2 + 0.4^2) = 1.40.
    assert "83.1 | 81.0 ± 0.6 (3) *" in row
    assert "84.4 | 84.0 (1)" in row and "99.6 | -" in row
    assert "4 runs, 4.0 hours of one core" in out
    assert "Table 2" not in out and "Table 5" in out  # its first row is table 1's second cell


def test_csv_has_the_numbers(folder, command):
    command("report", "--out", folder)
    with open(folder / "tables.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["table"] == "table1"]
    assert len(rows) == 40
    cell = next(r for r in rows if r["column"] == "single-head Adagrad" and r["mean"])
    assert float(cell["paper"]) == 83.1 and float(cell["mean"]) == 81.0
    assert float(cell["standard_error"]) == pytest.approx(3**-0.5)
    # The half-width is the t quantile for two degrees of freedom times the error.
    assert float(cell["interval_half_width"]) == pytest.approx(4.302653 * 3**-0.5)
    assert (cell["runs"], cell["differs"]) == ("3", "1")


def test_markdown_and_latex_have_every_row(folder, command):
    command("report", "--out", folder)
    markdown, latex = (folder / "README.md").read_text(), (folder / "tables.tex").read_text()
    table = markdown.split("\n\n")[3].splitlines()
    assert len(table) == 12 and all(line.count("|") == 6 for line in table)
    assert "83.1 / 81.0 ± 0.6 (3) *" in markdown
    body = latex.split(r"\end{tabular}")[0]
    assert body.count(r"\\") == 11 and r"81.0 $\pm$ 0.6 (3) $^*$" in body


def test_one_run_never_differs():
    assert not tables.Entry(83.1, (10.0,)).differs()
    assert str(tables.Entry(None, ())) == "- | -"


def test_what_the_paper_says_of_cifar_without_a_table():
    assert "about 31 single-head, 84 multi-head" in tables.TITLES["cifar"]


def test_no_results_is_an_error(tmp_path, command):
    status, out, err = command("report", "--out", tmp_path)
    assert (status, out) == (2, "") and "holds no results" in err


def test_other_settings_do_not_count(folder):
    first = cells("table1")[0]
    with Store(folder / "split-mnist.jsonl") as store:
        changed = record(first, 7, 10.0)
        changed["settings"]["density"] = 0.5
        store.append(changed)
    table = tables.build_table("table1", read_records(folder), "released")
    assert table["mlp-700-1 pairwise"]["single-head Adagrad"].values == (80.0, 81.0, 82.0)


def test_figures_of_the_paper(tmp_path, command):
    pytest.importorskip("matplotlib", reason="a figure needs matplotlib")
    with Store(tmp_path / "split-mnist.jsonl") as store:
        store.append(record(cells("table1")[0], 0, 80.0))
        for n, cell in enumerate(cells("sparsity")[::10]):
            for seed in range(1 + n % 3):  # points of one run, two and three
                store.append(record(cell, seed, 50.0 + n % 7 + seed))
    curve = [[step, [90.0] * (1 + step // 100)] for step in range(30, 1000, 30)]
    with Store(tmp_path / "permuted-mnist.jsonl") as store:
        for cell in cells("curves"):
            more = {"steps": 1000, "tasks": list("abcdefghij"), "curve": curve}
            more |= {"task_accuracy": [90.0] * 10, "accuracy_matrix": [[90.0] * 10] * 11}
            for seed in range(1 + len(cell.label) % 3):
                store.append(record(cell, seed, 90.0, **more))
    status, out, _ = command("report", "--out", tmp_path)
    assert status == 0 and f"written for protocol released: {tmp_path}" in out
    for name in ("sparsity", "curves", "paper"):
        if name != "paper":
            assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        text = (tmp_path / f"{name}.svg").read_text()
        assert text.lstrip().startswith("<?xml") and "</svg>" in text


def test_a_band_is_from_the_lowest_run_to_the_highest():
    pytest.importorskip("matplotlib", reason="a figure needs matplotlib")
    axes = figures.pyplot().subplots()[1]
    figures.plot_band(axes, [1, 2, 3], [[5.0], [6.0, 8.0], [1.0, 2.0, 6.0]], "red", "a line")
    (line,), (band,) = axes.lines, axes.collections
    assert line.get_ydata().tolist() == [5, 7, 3] and line.get_label() == "a line"
    corners = {tuple(corner) for corner in band.get_paths()[0].vertices.tolist()}
    assert corners == {(1, 5), (2, 6), (2, 8), (3, 1), (3, 6)}
    figures.pyplot().close()


def test_figures_of_runs_that_no_table_has(tmp_path, command):
    pytest.importorskip("matplotlib", reason="a figure needs matplotlib")
    with Store(tmp_path / "split-mnist.jsonl") as store:
        store.append(record(cells("sparsity")[0], 0, 50.0))
    status, out, _ = command("report", "--out", tmp_path)
    assert status == 0 and "none of them is of a cell of the paper's tables" in out
    assert (tmp_path / "sparsity.png").exists() and not (tmp_path / "README.md").exists()


def test_each_protocol_has_its_files(folder, command):
    pytest.importorskip("matplotlib", reason="without it standard error says so")
    command("report", "--out", folder)
    before = (folder / "README.md").read_text()
    status, out, _ = command("report", "--out", folder, "--protocol", "paper")
    assert status == 0 and "(protocol paper)" in out and "written" not in out
    cell = cells("table1")[0]
    settings, _ = resolve(OUTLINES[cell.dataset], protocol="paper", **cell.request)
    with Store(folder / "split-mnist.jsonl") as store:
        store.append({**record(cell, 0, 55.5), "settings": asdict(settings)})
    status, out, _ = command("report", "--out", folder, "--protocol", "paper")
    assert status == 0 and f"written for protocol paper: {folder / 'tables-paper.csv'}" in out
    assert "83.1 / 55.5 (1)" in (folder / "README-paper.md").read_text()
    assert (folder / "README.md").read_text() == before


def test_curves_have_a_colour_each():
    assert len(CURVES) <= len(figures.COLORS)
    assert len(set(figures.COLORS)) == len(figures.COLORS)


def test_a_record_of_the_report_is_json(folder):
    lines = (folder / "split-mnist.jsonl").read_text().splitlines()
    assert [json.loads(line)["seed"] for line in lines] == [0, 1, 2, 0]


def test_records_are_in_the_order_of_their_seeds(tmp_path):
    cell = cells("table1")[0]
    with Store(tmp_path / "s.jsonl") as store:
        for seed in (2, 0, 1):
            store.append(record(cell, seed, 80.0))
    (records,) = read_records(tmp_path).values()
    assert [record["seed"] for record in records] == [0, 1, 2]


@pytest.mark.parametrize(
    ("printed", "star"), [(79.61, False), (79.59, True), (82.39, False), (82.41, True)]
)
def test_the_star(printed, star):
    """Ours is 81 with a standard error of 1 / sqrt(3): 2 sqrt(1/3 + 0.16) = 1.405."""
    assert tables.Entry(printed, (80.0, 81.0, 82.0)).differs() == star


def test_the_star_is_for_two_runs_and_more():
    assert tables.Entry(79.2, (80.0, 81.0)).differs()  # 2 sqrt(0.25 + 0.16) = 1.28
    assert not tables.Entry(79.2, (99.0,)).differs()


def test_runs_on_a_part_of_the_data_are_left_out(tmp_path, command):
    cell = next(cell for cell in cells("cifar") if cell.dataset == "cifar-10")
    with Store(tmp_path / "s.jsonl") as store:
        for seed in range(3):
            store.append(record(cell, seed, 30.0 + seed))
            store.append(record(cell, seed, 10.0 + seed, digest="abcd"))
    records = read_records(tmp_path)
    assert [r["accuracy"] for r in tables.records_of(cell, records, "released")] == [30, 31, 32]
    status, out, _ = command("report", "--out", tmp_path)
    assert status == 0 and "31.0 ± 0.6 (3)" in out and "6 runs, 6.0 hours of one core\n" in out
    assert "3 of them are on a part of a data set and in no cell of the tables" in out


def test_hours_are_those_of_a_core(tmp_path, command):
    cell = cells("table1")[0]
    with Store(tmp_path / "s.jsonl") as store:
        store.append(record(cell, 0, 80.0, threads=4))
        store.append(record(cell, 1, 80.0, device="cuda"))
    status, out, _ = command("report", "--out", tmp_path)
    assert status == 0 and "2 runs, 4.0 hours of one core and 1.0 of a GPU\n" in out


def test_a_store_without_cells_of_the_paper(tmp_path, command):
    cell = cells("table1")[0]
    other = record(cell, 0, 80.0)
    other["settings"]["backbone"] = "mlp-60-1"
    with Store(tmp_path / "s.jsonl") as store:
        store.append(other)
    status, out, _ = command("report", "--out", tmp_path)
    assert status == 0 and "none of them is of a cell of the paper's tables" in out
    assert not (tmp_path / "README.md").exists()
