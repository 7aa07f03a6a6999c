"""The README: what it tells a reader to do works as it is printed."""

import re
from pathlib import Path

from minipw.experiments import tables

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.M | re.S)


def test_python_examples_run(monkeypatch, tmp_path, rng, capsys):
    monkeypatch.chdir(tmp_path)
    images = rng.integers(0, 255, (40, 8, 8), dtype="uint8")
    names = {"x_train": images, "y_train": [0, 1, 2, 3] * 10}
    names |= {"x_test": images, "y_test": names["y_train"]}
    examples = blocks("python")
    assert len(examples) >= 2
    for example in examples:
        exec(example, dict(names))
    assert re.search(r"^[\d.]+ \[\[", capsys.readouterr().out, flags=re.M)


def test_the_ci_runs_the_printed_commands():
    ci = (ROOT / ".ci" / "run").read_text()
    install = '.venv/bin/pip install -q -e ".[test]"'
    for command in (install, ".venv/bin/python -m pytest -n auto"):
        assert command in README and command in ci


def test_the_tables_are_those_of_the_store():
    """Every measured row as the store gives it, and seeds 0 to n - 1 in each cell."""
    records = tables.read_records(ROOT / "results")
    rows = 0
    for part in tables.TITLES:
        for label, entries in tables.build_table(part, records, "released").rows.items():
            if any(entry.values for entry in entries.values()):
                cells = (str(entry).replace(" | ", " / ") for entry in entries.values())
                row = f"| {label} | {' | '.join(cells)} |".replace(" *", r"\*")
                assert row in README, f"not in the README: {row}"
                rows += 1
        for cell in tables.cells(part):
            seeds = {r["seed"] for r in tables.records_of(cell, records, "released")}
            assert seeds == set(range(len(seeds))), cell.label
    assert rows > 10
    count = sum(map(len, records.values()))
    assert f"{count:,} runs are in `results/`" in README


def test_the_report_is_that_of_the_store():
    records = tables.read_records(ROOT / "results")
    report = (ROOT / "results" / "tables.md").read_text(encoding="utf-8")
    for part in tables.TITLES:
        table = tables.build_table(part, records, "released")
        if any(entry.values for entries in table.rows.values() for entry in entries.values()):
            assert tables.as_markdown(table) in report
