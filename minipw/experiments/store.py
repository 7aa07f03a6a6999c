"""The store of finished runs: one line of JSON each, in a file that only grows."""

import contextlib
import dataclasses
import json
import os
from pathlib import Path

from minipw import InputError
from minipw.training.record import RECORD_FORMAT
from minipw.training.settings import Settings

try:
    import fcntl
except ImportError:  # not on every system
    fcntl = None

RECORD_START = b'{"format":'
DEFAULTS = {
    field.name: field.default
    for field in dataclasses.fields(Settings)
    if field.default is not dataclasses.MISSING
}


def run_key(settings, seed, dataset):
    """What makes two runs the same: every setting, the seed and the data (`Dataset.identity`).

    A setting that an older record lacks had its default value then.
    """
    return json.dumps([{**DEFAULTS, **settings}, seed, dataset], sort_keys=True)


def cell_key(record, seed=None):
    """`run_key` of a stored run; without the seed, what runs that are averaged have in common."""
    identity = f"{record['dataset']} {record.get('digest', '')}".rstrip()
    return run_key(record["settings"], seed, identity)


def core_seconds(record):
    """Seconds of one core that a run took on a CPU."""
    return record["seconds"] * record.get("threads", 1)


def read(path):
    """The records of a store that another process may be writing, as a list of dict.

    A last line without its end is left out. Where a run is stored twice, in stores that were
    joined, its last record counts. A line that is no record of this format raises InputError.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read results in {path}: {error.strerror}") from None
    return list(_parse(path, whole_part(content)).values())


def _parse(path, content):
    """Records by their keys."""
    known = {}
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            record = json.loads(line)
            if (found := record["format"]) == RECORD_FORMAT:
                _ = 0.0 + record["accuracy"] + record["seconds"]  # both are numbers
                known[cell_key(record, record["seed"])] = record
        except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
            raise InputError(
                f"{where}: not a result of minipw; delete that line, or choose another --out"
            ) from None
        if found != RECORD_FORMAT:
            raise InputError(
                f"{where}: a result of format {found}, this version reads {RECORD_FORMAT}; "
                "choose another --out"
            )
    return known


def whole_part(content):
    """A store's content, bytes, without the unfinished record that it may end with.

    A last line that is not the beginning of a record, such as somebody's note, is kept.
    """
    start = content.rfind(b"\n") + 1
    last = content[start:].rstrip(b"\0")  # what a file system may put for bytes not written
    if not (last.startswith(RECORD_START) or RECORD_START.startswith(last)):
        return content
    try:
        json.loads(last)
    except (ValueError, RecursionError):
        return content[:start]
    return content[: start + len(last)]


class Store:
    """Finished runs in a JSON-lines file, for one writing process at a time.

    Two stores join with `cat`. An unfinished last line is cut off when the store is opened.
    While it is open no other process can open it, but all can `read` it.

    Parameters
    ----------
    path : path of the .jsonl file; its folder is made when missing

    Raises InputError when the file cannot be written, is open elsewhere, or holds a line that
    is no record of this format.
    """

    def __init__(self, path):
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.file = self.path.open("a+b", buffering=0)
        except OSError as error:
            raise InputError(
                f"cannot write results to {self.path}: {error.strerror}; choose another --out"
            ) from None
        try:
            self._lock()
            self._known = self._read()
        except InputError:
            self.close()
            raise

    @property
    def records(self):
        """The finished runs, as a list of dict."""
        return list(self._known.values())

    def _lock(self):
        """Keep other processes from writing; the lock goes with the open file."""
        if fcntl is None:
            return
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"{self.path} is in use by another process: wait for it, or choose another "
                "--out (stores join with cat)"
            ) from None
        except OSError:  # a file system without locks
            pass

    def _read(self):
        self.file.seek(0)
        content = self.file.read()
        whole = whole_part(content)
        known = _parse(self.path, whole)
        if len(whole) < len(content):
            self.file.truncate(len(whole))
        if whole and not whole.endswith(b"\n"):
            self.file.write(b"\n")  # an editor took it off a whole record
        return known

    def find(self, key):
        """The record of a run that was done before, by its `run_key`, or None."""
        return self._known.get(key)

    def append(self, record):
        """Add a finished run; on return it is on the disk."""
        left = (json.dumps(record, separators=(",", ":")) + "\n").encode()
        start = self.file.seek(0, os.SEEK_END)
        try:
            while left:
                left = left[self.file.write(left) :]
            os.fsync(self.file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):  # else the next start cuts the line off
                os.ftruncate(self.file.fileno(), start)
            raise InputError(f"cannot write to {self.path}: {error.strerror}") from None
        self._known[cell_key(record, record["seed"])] = record

    def close(self):
        """Close the file. The records stay readable."""
        self.file.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
