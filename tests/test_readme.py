"""The README and the page of results: what they tell a reader to do and to believe holds."""

import json
import re
from dataclasses import replace
from pathlib import Path
from statistics import mean

from minipw import datasets
from minipw.experiments import page, report, tables
from minipw.paper.released import table

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS = ROOT / "results"


def test_python_examples_run(monkeypatch, tmp_path, rng):
    monkeypatch.chdir(tmp_path)
    load = datasets.load

    def part(name):
        """A twentieth of a data set: the examples run, but not for long."""
        whole = load(name)
        fields = ("x_train", "y_train", "x_test", "y_test")
        return replace(whole, **{field: getattr(whole, field)[::20] for field in fields})

    monkeypatch.setattr(datasets, "load", part)
    images = rng.integers(0, 255, (40, 8, 8), dtype="uint8")
    names = {"x_train": images, "y_train": [0, 1, 2, 3] * 10}
    names |= {"x_test": images, "y_test": names["y_train"]}
    examples = re.findall(r"^```python\n(.*?)^```", README, flags=re.M | re.S)
    assert examples
    for example in examples:
        exec(example, dict(names))


def test_the_ci_runs_the_printed_commands():
    ci = (ROOT / ".ci" / "run").read_text()
    install = '.venv/bin/pip install -q -e ".[test]"'
    for command in (install, ".venv/bin/python -m pytest -n auto"):
        assert command in README and command in ci


def test_the_page_is_what_report_writes():
    """The stores, notes.md and README.md of results/ belong together."""
    records = report.read_records(RESULTS)
    counts = report.count_lines([record for runs in records.values() for record in runs])
    notes = (RESULTS / "notes.md").read_text(encoding="utf-8")
    written = (RESULTS / "README.md").read_text(encoding="utf-8")
    assert page.fill(notes, records, "released", RESULTS, counts) == written
    built = {part: tables.build_table(part, records) for part in tables.TITLES}
    assert {"table1", "table2", "table3", "table4", "table5"} <= set(tables.measured(built))


def test_each_cell_has_the_first_seeds():
    """Seeds 0 to n - 1: none was left out or chosen."""
    records = report.read_records(RESULTS)
    for cell in page.table_cells():
        seeds = {record["seed"] for record in tables.records_of(cell, records)}
        assert seeds == set(range(len(seeds))), cell.label


def test_chosen_rates_are_the_best_of_the_stored_searches():
    found = {}
    for key, runs in report.read_records(RESULTS).items():
        settings = json.loads(key)[0]
        if settings["held_out"]:
            rates = found.setdefault((str(settings["batch_size"]), settings["rule"]), {})
            rates[mean(run["accuracy"] for run in runs)] = settings["learning_rate"]
    for row in table("chosen_rates"):
        rates = found[row["batch_size"], row["rule"]]
        assert rates[max(rates)] == float(row["learning_rate"])


def test_the_results_in_the_readme_are_those_of_the_page():
    """Whatever the README prints as "mean ± error (runs)" stands on the page."""
    printed = re.findall(r"\d+\.\d+ ± \d+\.\d+ \(\d+\)", README)
    written = (RESULTS / "README.md").read_text(encoding="utf-8")
    assert printed and not [number for number in printed if number not in written]
