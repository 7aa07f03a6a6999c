"""The store of finished runs through the command line."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tiny(tiny_npz, tmp_path):
    small = ("--backbone", "mlp-30-1", "--batch-size", 8, "--quiet")
    return ("--exp", "split", "--dataset", tiny_npz, *small, "--out", tmp_path / "out")


def test_a_run_that_is_stored_is_not_run_again(command, tiny, tmp_path, monkeypatch):
    flags = (*tiny[:-3], *tiny[-2:])  # without --quiet
    status, out, _ = command(*flags, "--runs", 2)
    assert status == 0 and "found" not in out
    (store,) = (tmp_path / "out").rglob("*.jsonl")
    before = store.read_bytes()
    assert before.count(b"\n") == 2
    status, out, _ = command(*flags, "--runs", 3)
    assert status == 0 and store.read_bytes().startswith(before)
    assert f"seed 0: found in {store}" in out and f"seed 1: found in {store}" in out
    assert "seed 2: found" not in out and store.read_bytes().count(b"\n") == 3
    monkeypatch.setattr("minipw.training.run.train", None)  # nothing is left to run
    status, out, _ = command(*flags, "--runs", 3, "--json")
    assert status == 0 and [json.loads(line)["seed"] for line in out.splitlines()] == [0, 1, 2]


def test_another_setting_is_another_run(command, tiny, tmp_path):
    for flags in ((), ("--epochs", 2), ("--gelu", "exact"), ("--protocol", "paper")):
        assert command(*tiny, *flags)[0] == 0
    (store,) = (tmp_path / "out").rglob("*.jsonl")
    assert store.read_bytes().count(b"\n") == 4


def test_a_found_record_prints_like_a_run(command, tiny):
    first, again = (json.loads(command(*tiny, "--json")[1]) for _ in range(2))
    assert first == again


def test_file_size_limit_leaves_no_part_of_a_line(process, tiny, tmp_path):
    limit = (300, 300)  # bytes; the line has more
    done = process(*tiny, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
    (store,) = (tmp_path / "out").rglob("*.jsonl")
    assert done.returncode == 2 and "File too large" in done.stderr
    assert store.read_bytes() == b""


def test_store_lies_in_the_folder(command, tiny, tmp_path):
    assert command(*tiny)[0] == 0
    assert [path.suffix for path in (tmp_path / "out").iterdir()] == [".jsonl"]


def test_store_is_closed(process, tiny):
    assert process(*tiny, options=("-W", "always::ResourceWarning")).stderr == ""


def test_two_processes_on_one_store(tiny, tmp_path):
    """One of two commands at once does its run, the other says why not, or comes after it."""
    flags = [sys.executable, "run.py", *map(str, tiny), "--epochs", "3"]
    both = [subprocess.Popen(flags, cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in "ab"]
    results = [(process.communicate()[1], process.returncode) for process in both]
    assert sorted(status for _, status in results) in ([0, 0], [0, 2])
    assert all("in use by another process" in err for err, status in results if status == 2)
    (store,) = (tmp_path / "out").rglob("*.jsonl")
    assert len(store.read_text().splitlines()) == 1
