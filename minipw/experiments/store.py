"""The store of finished runs: one line of JSON each, in a file that only grows."""

import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path

from minipw import InputError
from minipw.datasets.dataset import identity
from minipw.training.record import RESULTS, fault
from minipw.training.settings import decisive

try:
    import fcntl
except ImportError:  # not on every system
    fcntl = None

RECORD_START = b'{"format":'
NAMED_AT_MOST = 3
"""Lines of a store that are named one by one when they are no records."""


def run_key(settings, seed, data, results=RESULTS):
    """What makes two runs the same.

    Parameters
    ----------
    settings : dict of `Settings`
    seed : int, or None for what runs that are averaged have in common
    data : str, `Dataset.identity`
    results : int, `record.RESULTS` of the version that computed it
    """
    return json.dumps([decisive(settings), seed, data, results], sort_keys=True)


def cell_key(record, seed=None):
    """`run_key` of a stored run; without the seed, what runs that are averaged have in common."""
    data = identity(record["dataset"], record.get("digest", ""))
    return run_key(record["settings"], seed, data, record.get("results", 1))


def core_seconds(record):
    """Seconds of one core that a run took on a CPU."""
    return record["seconds"] * record.get("threads", 1)


def to_stderr(line):
    """Print a line on standard error."""
    print(line, file=sys.stderr)


def read(path, say=to_stderr):
    """The records of a store that another process may be writing, as a list of dict.

    A last line without its end is left out. Where a run is stored twice, in stores that were
    joined, its last record counts. Lines that are no records are named by `say`.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read results in {path}: {error.strerror}") from None
    known, faults = _parse(content)
    _tell(path, faults, say)
    return list(known.values())


def _parse(content):
    """Records by their keys, and (line, what is wrong) for each line that is none."""
    known, faults = {}, []
    for number, line in enumerate(whole_part(content).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            faults.append((number, "not a result of minipw (it is no JSON)"))
            continue
        if reason := fault(record):
            faults.append((number, reason))
        else:
            known[cell_key(record, record["seed"])] = record
    return known, faults


def _tell(path, faults, say):
    for number, reason in faults[:NAMED_AT_MOST]:
        say(f"warning: {path}, line {number}: {reason}; it is left out: mend or delete that line")
    if more := len(faults[NAMED_AT_MOST:]):
        say(f"warning: {path}: {more} more lines are no results and left out")


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
    While it is open no other process can open it, but all can `read` it. When somebody replaces,
    edits or deletes the file, this goes on in the file that has its path, and adds to it the
    runs that it lacks: those appended here, or all of a file that was deleted.

    Parameters
    ----------
    path : path of the .jsonl file; its folder is made when missing

    Raises InputError when the file cannot be written, is open elsewhere, or has no line that is
    a record. Where finished runs could not be stored, it says in which file they are instead.
    """

    def __init__(self, path):
        self.path, self._own = Path(path), {}  # the records that the file must have
        self._open()

    def _open(self):
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
            self.file.close()
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
        known, faults = _parse(whole)
        if faults and not known:
            number, reason = faults[0]
            raise InputError(f"{self.path}, line {number}: {reason}; choose another --out")
        _tell(self.path, faults, to_stderr)
        if len(whole) < len(content):
            self.file.truncate(len(whole))
        if whole and not whole.endswith(b"\n"):
            self.file.write(b"\n")  # an editor took it off a whole record
        self._place = _place(os.fstat(self.file.fileno()))
        return known

    def find(self, key):
        """The record of a run that was done before, by its `run_key`, or None."""
        return self._known.get(key)

    def append(self, record):
        """Add a finished run; on return it is on the disk, in the file that has the path."""
        key = cell_key(record, record["seed"])
        self._own[key] = record
        self._known.pop(key, None)  # a run that was done again is stored again
        self._keep()

    def _keep(self):
        """Write those of `_own` that the file lacks, until it is the one that has the path."""
        try:
            self._follow()
            while lacking := [key for key in self._own if key not in self._known]:
                for key in lacking:
                    self._write(self._own[key])
                    self._known[key] = self._own[key]
                self._follow()
        except InputError as error:
            own, self._own = self._own, {}
            raise InputError(f"{error}; {rescue(own)}") from None

    def _follow(self):
        """Open the file anew if the path names another one, or if somebody else wrote to it."""
        try:
            found = _place(os.stat(self.path))
        except OSError:
            found = None, None, 0
        if found == self._place:
            return
        changed = found[2] > 0
        if not changed:
            self._own = {**self._known, **self._own}
        self.file.close()
        self._open()
        lacking = len(self._own.keys() - self._known.keys())
        what = "changed by another program" if changed else "deleted or emptied"
        to_stderr(f"warning: {self.path} was {what}: {lacking} runs that it lacks are added again")

    def _write(self, record):
        left = line = (json.dumps(record, separators=(",", ":")) + "\n").encode()
        start = self.file.seek(0, os.SEEK_END)
        try:
            while left:
                left = left[self.file.write(left) :]
            os.fsync(self.file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):  # else the next start cuts the line off
                os.ftruncate(self.file.fileno(), start)
            raise InputError(f"cannot write to {self.path}: {error.strerror}") from None
        self._place = (*self._place[:2], self._place[2] + len(line))

    def close(self):
        """Close the file. The records stay readable."""
        try:
            if self._own:
                self._keep()
        finally:
            self.file.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _place(status):
    """What tells that a path names another file, or that another program changed its size."""
    return status.st_dev, status.st_ino, status.st_size


def rescue(records):
    """Write records to a temporary file; a text that says where they are."""
    count = f"{len(records)} finished run{'s' * (len(records) > 1)}"
    path = None
    try:
        handle, path = tempfile.mkstemp(".jsonl", "minipw-")
        with open(handle, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(record) + "\n" for record in records.values())
    except OSError:
        if path is not None:
            os.unlink(path)
        return f"the {count} of this command cannot be kept elsewhere either"
    return f"the {count} of this command: {path} (stores join with cat)"
