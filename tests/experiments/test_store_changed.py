"""A store whose file is replaced, edited or deleted while a request runs; what a run's key is."""

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from stored_records import SETTINGS
from stored_records import stored as record

from minipw import InputError, datasets
from minipw.experiments import store as store_module
from minipw.experiments.store import Store, cell_key, read, run_key
from minipw.training import record as record_module
from minipw.training.settings import Settings

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture
def path(tmp_path):
    """A store of seed 0, before the request."""
    path = tmp_path / "out" / "s.jsonl"
    with Store(path) as store:
        store.append(record(0))
    return path


def seeds(path):
    return sorted(r["seed"] for r in read(path))


def replaced(path):
    """As `sed -i`, an editor or git does: another file under the name, with the old lines."""
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    os.replace(other, path)


def checked_out(path):
    """An older version of the file, without what was appended since."""
    other = path.with_name("other")
    other.write_bytes(path.read_bytes().splitlines(True)[0])
    os.replace(other, path)


def emptied(path):
    path.write_bytes(b"")  # in place


def deleted(path):
    path.unlink()


def folder_deleted(path):
    shutil.rmtree(path.parent)


CHANGES = [replaced, checked_out, emptied, deleted, folder_deleted]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("moment", [1, 2, 3])
def test_nothing_finished_is_lost(path, change, moment, capsys):
    """The file changes before the first append, between two, or after the last."""
    with Store(path) as store:
        for seed in (1, 2):
            if moment == seed:
                change(path)
            store.append(record(seed))
            assert seeds(path) == [*range(seed + 1)] == sorted(r["seed"] for r in store.records)
        if moment == 3:
            change(path)
    assert seeds(path) == [0, 1, 2] and len(path.read_bytes().splitlines()) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"warning: {path} was ") and "added again" in line
    with Store(path) as again:  # nobody holds it
        assert len(again.records) == 3


def test_a_store_in_use_by_another_after_it_was_replaced(path, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Store(path) as store:
        store.append(record(1))
        checked_out(path)
        with Store(path), pytest.raises(InputError) as caught:
            store.append(record(2))
    message = str(caught.value)
    assert f"{path} is in use by another process" in message and "\n" not in message
    assert "the 2 finished runs of this command: " in message
    (rescued,) = tmp_path.glob("minipw-*.jsonl")
    assert str(rescued) in message and seeds(rescued) == [1, 2]


def test_a_path_that_cannot_be_written_any_more(path, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Store(path) as store:
        folder_deleted(path)
        path.parent.write_text("a file in its place")
        with pytest.raises(InputError, match=r"cannot write results to .*the 2 finished runs") as e:
            store.append(record(1))
    (rescued,) = tmp_path.glob("minipw-*.jsonl")
    assert str(rescued) in str(e.value) and seeds(rescued) == [0, 1]


def test_what_cannot_be_kept_anywhere_is_said(path, tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Store(path) as store:
        monkeypatch.setattr(store_module.os, "fsync", full)
        monkeypatch.setattr(store_module.json, "dumps", lambda *_, **__: "x")
        with pytest.raises(InputError, match="No space left on device; the 1 finished run of"):
            store.append(record(1))
    assert seeds(path) == [0]


def test_a_bad_line_may_be_deleted_while_a_request_runs(path):
    path.write_bytes(b"{}\n" + path.read_bytes())
    with Store(path) as store:
        store.append(record(1))
        mended = path.with_name("mended")
        mended.write_bytes(path.read_bytes().split(b"\n", 1)[1])
        os.replace(mended, path)
        store.append(record(2))
    assert seeds(path) == [0, 1, 2]


# The key


def test_one_run_has_one_key():
    key = run_key(SETTINGS, 0, "mnist")
    for same in (
        {"learning_rate": 0.1, "blur": 0},
        {"blur": -0.0, "held_out": 0},
        {"dataset": "./tiny", "label": "kind"},
        {"tasks": 3, "class_mask": "exclude", "smas_norm": "sum"},  # a split of one head, Adagrad
    ):
        assert run_key({**SETTINGS, **same}, 0, "mnist") == key
    for other in ({"epochs": 2}, {"gelu": "exact"}, {"kwta_threshold": "k+1"}, {"blur": 0.5}):
        assert run_key({**SETTINGS, **other}, 0, "mnist") != key
    assert len({key, run_key(SETTINGS, 1, "mnist"), run_key(SETTINGS, 0, "mnist abcd")}) == 3
    one = replace(Settings(**SETTINGS), learning_rate=1)
    assert repr(one.learning_rate) == "1.0" and one == replace(one, learning_rate=1.0)


def test_a_file_has_one_identity_wherever_it_lies(tiny_npz, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(tiny_npz, tmp_path / "copy.npz")
    paths = (tiny_npz, os.path.relpath(tiny_npz), f"./{os.path.relpath(tiny_npz)}", "copy.npz")
    whole = {datasets.load(path).identity for path in paths}
    assert len(whole) == 1
    with_digest = [record(0, dataset=path, digest=datasets.load(path).digest) for path in paths]
    assert {json.loads(cell_key(one))[2] for one in with_digest} == whole


def test_a_command_finds_its_run_under_another_path(command, tiny_npz, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = ("--exp", "split", "--backbone", "mlp-30-1", "--batch-size", 8, "--out", "out")
    for path in (tiny_npz, os.path.basename(tiny_npz), "./" + os.path.basename(tiny_npz)):
        for spelled in ("1", "1.0"):
            status, out, _ = command("--dataset", path, *flags, "--lambda", spelled)
            assert status == 0
    assert "seed 0: found in" in out
    (found,) = Path("out").glob("*.jsonl")
    assert len(found.read_text().splitlines()) == 1


def test_results_of_another_version_are_done_anew(path, monkeypatch):
    key = run_key(SETTINGS, 0, "tiny")
    with Store(path) as store:
        assert store.find(key)["seed"] == 0  # a record without a number is of the first
    monkeypatch.setattr(store_module.run_key, "__defaults__", (record_module.RESULTS + 1,))
    with Store(path) as store:
        assert store.find(run_key(SETTINGS, 0, "tiny")) is None
        store.append(record(0, results=record_module.RESULTS + 1))
        assert store.find(run_key(SETTINGS, 0, "tiny"))["results"] == record_module.RESULTS + 1
    assert len(read(path)) == 2


def test_every_stored_run_is_valid_and_stands_for_itself(capsys):
    lines = [line for path in RESULTS.glob("*.jsonl") for line in path.read_text().splitlines()]
    found = [one for path in RESULTS.glob("*.jsonl") for one in read(path)]
    assert capsys.readouterr().err == ""
    assert len(found) == len(lines) >= 2737
    keys = set()
    for one in found:
        settings = Settings(**one["settings"])
        known = {name: getattr(settings, name) for name in settings.__dataclass_fields__}
        data = f"{one['dataset']} {one.get('digest', '')}".rstrip()
        keys.add(run_key(known, one["seed"], data))
        assert run_key(known, one["seed"], data) == cell_key(one, one["seed"])
    assert len(keys) == len(lines)
