"""The README: what it tells a reader to do works as it is printed."""

import re
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("line", re.findall(r"^\| (\d+) \| `(minipw/[^`]+)`", README, flags=re.M))
def test_line_counts_are_right(line):
    count, name = line
    path = ROOT / name
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    assert sum(len(file.read_text().splitlines()) for file in files) == int(count)
