"""The store of finished runs."""

import errno
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stored_records import SETTINGS
from stored_records import stored as record

from minipw import InputError
from minipw.experiments.store import Store, read, run_key
from minipw.training.record import RECORD_FORMAT

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "made" / "on the way" / "s.jsonl"


def filled(path, *seeds):
    """A store with records of these seeds, closed again."""
    with Store(path) as store:
        for seed in seeds:
            store.append(record(seed))
    return path.read_bytes()


def test_round_trip(path):
    line = filled(path, 0)
    assert json.loads(line) == record(0) and line.endswith(b"\n")
    filled(path, 1)
    assert path.read_bytes().startswith(line) and path.read_bytes().count(b"\n") == 2
    with Store(path) as store:
        assert [r["seed"] for r in store.records] == [0, 1]
        assert store.find(run_key(SETTINGS, 1, "tiny")).items() >= record(1).items()


def test_an_appended_record_is_found_and_on_the_disk_at_once(path):
    with Store(path) as store:
        assert store.find(run_key(SETTINGS, 0, "tiny")) is None
        store.append(record(0, note="é\n"))
        assert store.find(run_key(SETTINGS, 0, "tiny"))["note"] == "é\n"
        assert json.loads(path.read_bytes())["note"] == "é\n"


def test_every_part_of_the_key_counts(path):
    filled(path, 0)
    with Store(path) as store:
        assert store.find(run_key(dict(reversed(SETTINGS.items())), 0, "tiny"))
        assert store.find(run_key({**SETTINGS, "learning_rate": 0.2}, 0, "tiny")) is None
        assert store.find(run_key(SETTINGS, 1, "tiny")) is None
        assert store.find(run_key(SETTINGS, 0, "mnist-5k")) is None


def test_a_torn_last_line_is_cut_off_wherever_it_ends(path):
    whole = filled(path, 0, 1)
    first = whole.index(b"\n") + 1
    for end in range(first, len(whole) - 1):
        path.write_bytes(whole[:end])
        with Store(path) as store:
            assert [r["seed"] for r in store.records] == [0]
            assert path.read_bytes() == whole[:first]
            store.append(record(1))
        assert path.read_bytes() == whole


def test_a_record_that_lost_the_end_of_its_line_is_kept(path):
    whole = filled(path, 0, 1)
    path.write_bytes(whole[:-1])  # as some editors leave it
    assert [r["seed"] for r in read(path)] == [0, 1]
    assert path.read_bytes() == whole[:-1]
    filled(path, 2)
    with Store(path) as store:
        assert [r["seed"] for r in store.records] == [0, 1, 2]
    assert path.read_bytes().startswith(whole)


def test_a_foreign_text_without_an_end_is_not_cut(path):
    path.parent.mkdir(parents=True)
    path.write_bytes(b"a precious note")
    with pytest.raises(InputError, match="line 1: not a result"):
        Store(path)
    assert path.read_bytes() == b"a precious note"


def test_a_whole_last_line_is_kept(path):
    whole = filled(path, 0, 1)
    with Store(path) as store:
        assert len(store.records) == 2
    assert path.read_bytes() == whole


def test_two_stores_join_by_concatenation(tmp_path):
    joined = tmp_path / "joined.jsonl"
    joined.write_bytes(filled(tmp_path / "a.jsonl", 0, 1) + filled(tmp_path / "b.jsonl", 1, 2))
    with Store(joined) as store:
        assert all(store.find(run_key(SETTINGS, seed, "tiny")) for seed in (0, 1, 2))


def test_a_joined_store_that_lost_its_end_is_reported(tmp_path, capsys):
    one, two = filled(tmp_path / "a.jsonl", 0, 1), filled(tmp_path / "b.jsonl", 2)
    joined = tmp_path / "joined.jsonl"
    for end in (one.index(b"\n") + 5, len(one) - 9, len(one) - 1):
        joined.write_bytes(one[:end] + two)
        assert [r["seed"] for r in read(joined)] == [0]
        assert f"{joined}, line 2: not a result of minipw" in capsys.readouterr().err


@pytest.mark.parametrize("tail", [b"", b'{"fo', b'{"format":1,"set', b"\0\0", b'{"format":1,\0'])
def test_what_a_crash_left_at_the_end_is_cut_off(path, tail):
    whole = filled(path, 0, 1)
    for end in (whole, whole + b"\n", whole + b" \r\n"):  # empty lines do not matter
        path.write_bytes(end + tail)
        assert [r["seed"] for r in read(path)] == [0, 1]
        with Store(path) as store:
            store.append(record(2))
        assert [r["seed"] for r in read(path)] == [0, 1, 2]


@pytest.mark.parametrize(
    "line, says",
    [
        (b"{}", "it has no format"),
        (b"[1]", r"it is \[1\]"),
        (b"7", "it is 7"),
        (b"\xff\xfe", "it is no JSON"),
        (b'{"format": 1, "seed": 0}', "it has no settings"),
        (json.dumps(record(0, accuracy="50")).encode(), "accuracy is '50': use a number from 0"),
        (json.dumps(record(0, accuracy=float("nan"))).encode(), "accuracy is nan: use a number"),
        (json.dumps(record(0, seconds=None)).encode(), "seconds is None: use a number above 0"),
        (json.dumps(record(0, accuracy=10**400)).encode(), "accuracy is 10000"),
        (json.dumps(record(0, threads="two")).encode(), "threads is 'two': use a whole number"),
        (json.dumps(record("0")).encode(), "seed is '0': use a whole number of at least 0"),
        (json.dumps(record(0)).encode() + b" and more", "it is no JSON"),
        (b'{"format":1,"torn"', "it is no JSON"),
        (60_000 * b'{"format":1,', "it is no JSON"),
        (60_000 * json.dumps(record(0)).encode(), "it is no JSON"),
        (b'{"format": 2}', "a result of format 2, this version reads 1"),
    ],
)
def test_a_foreign_line_is_named_and_the_others_are_used(path, line, says, capsys):
    content = filled(path, 0) + line + b"\n" + filled(path.with_name("t"), 1)
    path.write_bytes(content + b'{"format":1,"torn')
    began = time.monotonic()
    assert [r["seed"] for r in read(path)] == [0, 1]
    with Store(path) as store:
        assert [r["seed"] for r in store.records] == [0, 1]
        store.append(record(2))
    assert time.monotonic() - began < 2
    one, again = capsys.readouterr().err.splitlines()
    assert re.search(rf"^warning: {path}, line 2: .*{says}.*; it is left out: mend or", one)
    assert one == again and path.read_bytes().startswith(content)
    assert [r["seed"] for r in read(path)] == [0, 1, 2]


def test_many_foreign_lines_are_counted(path, capsys):
    path.write_bytes(filled(path, 0) + 1000 * b"no\n")
    assert len(read(path)) == 1
    *named, counted = capsys.readouterr().err.splitlines()
    assert len(named) == 3 and counted.endswith("997 more lines are no results and left out")


def test_a_foreign_file_keeps_its_last_line(path):
    path.parent.mkdir(parents=True)
    path.write_bytes(b"notes of mine\nwithout an end")
    with pytest.raises(InputError):
        Store(path)
    assert path.read_bytes() == b"notes of mine\nwithout an end"


def test_one_process_writes_a_store_and_others_read_it(path):
    filled(path, 0)
    with Store(path) as store:
        with pytest.raises(InputError, match=r"s\.jsonl is in use by another process: wait"):
            Store(path)
        store.append(record(1))
        store.file.write(b'{"format": 1, "torn')
        assert [r["seed"] for r in read(path)] == [0, 1]
        assert path.read_bytes().endswith(b"torn")  # reading changes nothing
    with Store(path) as store:  # and the lock is gone with the file
        assert len(store.records) == 2
    assert [r["seed"] for r in read(path)] == [0, 1]


def test_a_killed_process_leaves_no_lock(path):
    hold = "import sys; from minipw.experiments.store import Store; "
    hold += "s = Store(sys.argv[1]); print(); input()"
    command = [sys.executable, "-c", hold, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        with pytest.raises(InputError, match="in use"):
            Store(path)
        process.kill()
    filled(path, 0)


def test_a_store_that_is_missing_is_one_line(path):
    with pytest.raises(InputError, match=r"cannot read results in .*: No such file"):
        read(path)


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_random_damage_is_an_input_error_or_harmless(tmp_path, data):
    path = tmp_path / "s.jsonl"
    path.unlink(missing_ok=True)
    whole = filled(path, 0, 1)
    start = data.draw(st.integers(0, len(whole)))
    patch = data.draw(
        st.binary(max_size=12) | st.sampled_from([b"\n", b"[" * 9999, b"1e999", b"{}"])
    )
    content = whole[:start] + patch + whole[start + data.draw(st.integers(0, 12)) :]
    path.write_bytes(content)
    try:
        with Store(path) as store:
            assert all(r["format"] == RECORD_FORMAT for r in store.records)
    except InputError as caught:
        assert str(path) in str(caught) and "\n" not in str(caught)
        assert path.read_bytes() == content


class Full:
    """A file on a disk that is full after some bytes."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def write(self, data):
        self.file.write(data[: self.room])
        self.file.flush()
        raise OSError(errno.ENOSPC, "No space left on device")

    def __getattr__(self, name):
        return getattr(self.file, name)


@pytest.mark.parametrize("room", [0, 1, 50])
def test_full_disk(path, room):
    before = filled(path, 0)
    with Store(path) as store:
        real, store.file = store.file, Full(store.file, room)
        with pytest.raises(InputError, match=r"cannot write to .*s\.jsonl: No space left"):
            store.append(record(1))
        assert path.read_bytes() == before and store.find(run_key(SETTINGS, 1, "tiny")) is None
        store.file = real
        store.append(record(1))
    assert path.read_bytes().startswith(before)
    assert [json.loads(line)["seed"] for line in path.read_text().splitlines()] == [0, 1]
