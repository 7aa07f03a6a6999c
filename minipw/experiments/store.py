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
    """What makes two runs the same: every setting, the seed and the data used.

    dataset : str
        `Dataset.identity`.

    A setting that an older record does not have had its default value then.
    """
    return json.dumps([{**DEFAULTS, **settings}, seed, dataset], sort_keys=True)


def record_key(record):
    """`run_key` of a stored run."""
    return run_key(record["settings"], record["seed"], _identity(record))


def cell_key(record):
    """The same for every seed: what runs that are averaged have in common."""
    return run_key(record["settings"], None, _identity(record))


def _identity(record):
    return f"{record['dataset']} {record.get('digest', '')}".rstrip()


def core_seconds(record):
    """Seconds of one core that a run took on a CPU."""
    return record["seconds"] * record.get("threads", 1)


def read(path):
    """The records of a store that another process may be writing, as a list of dict.

    A last line without its end is left out. Joined stores may share runs: of two
    records of one run the last is taken.

    Raises
    ------
    InputError
        When a line is no record of this format.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read results in {path}: {error.strerror}") from None
    return list(_parse(path, content).values())


def _parse(path, content):
    """Records by their keys, of the whole lines of a store's content."""
    known = {}
    for number, line in enumerate(content[: whole_size(content)].splitlines(), start=1):
        try:
            records, rest = _records(line)
            if rest:
                raise ValueError
            for record in records:
                if record["format"] != RECORD_FORMAT:
                    raise InputError(
                        f"{path}, line {number}: a result of format {record['format']}, this "
                        f"version reads {RECORD_FORMAT}; choose another --out"
                    )
                _ = 0.0 + record["accuracy"] + record["seconds"]  # both are numbers
                known[record_key(record)] = record
        except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"{path}, line {number}: not a result of minipw; delete that line, or "
                "choose another --out"
            ) from None
    return known


def _records(line):
    """What a line holds: a record, or more where a store without its end was joined.

    What a crash left of a record before another one is skipped, and so are the zeros that
    a file system may have put in place of what was not written.

    Returns
    -------
    records : list of dict
    rest : bytes
        What cannot be read, from there to the end.
    """
    try:
        return [json.loads(line)], b""
    except ValueError:
        pass
    text, at, records = line.decode("latin-1"), 0, []  # a character a byte
    start = RECORD_START.decode()
    while at < len(text):
        if text[at] in "\0 \t\r":
            at += 1
            continue
        try:
            _, end = json.JSONDecoder().raw_decode(text, at)
            records.append(json.loads(line[at:end]))
        except ValueError:
            end = text.find(start, at + 1)
            torn = text[at:end].rstrip("\0")
            if end < 0 or not (torn.startswith(start) or start.startswith(torn)):
                return records, line[at:]
        at = end
    return records, b""


def whole_size(content):
    """Bytes of a store's content without the torn record that it may end with."""
    start = content.rfind(b"\n") + 1
    try:
        _, rest = _records(content[start:])
    except RecursionError:
        rest = content[start:]
    if rest.startswith(RECORD_START) or RECORD_START.startswith(rest.rstrip(b"\0")):
        return len(content) - len(rest)
    return len(content)


class Store:
    """Finished runs in a JSON-lines file, for one writing process at a time.

    Two stores join with `cat`. A last line that an interrupted write left without its
    end is cut off when the store is opened. While it is open, no other process can open
    it; `read` needs no such right.

    Parameters
    ----------
    path : path of the .jsonl file; its folder is made when missing

    Raises
    ------
    InputError
        When the file cannot be written, is open elsewhere, or holds a line that is no
        record of this format.
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
        self.records = list(self._known.values())

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
        known, whole = _parse(self.path, content), whole_size(content)
        if whole < len(content):
            self.file.truncate(whole)
        if content[:whole] and not content[:whole].endswith(b"\n"):
            self.file.write(b"\n")  # an editor took it off a whole record
        return known

    def find(self, settings, seed, dataset):
        """The record of a run that was done before, or None.

        Parameters
        ----------
        settings : dict, as in the record
        seed : int
        dataset : str, `Dataset.identity` of the data that was used
        """
        return self._known.get(run_key(settings, seed, dataset))

    def append(self, record):
        """Add a finished run; on return it is on the disk."""
        left = (json.dumps(record, separators=(",", ":")) + "\n").encode()
        start = self.file.seek(0, os.SEEK_END)
        try:
            while left:
                left = left[self.file.write(left) :]
            os.fsync(self.file.fileno())
        except OSError as error:
            self._cut(start)
            raise InputError(f"cannot write to {self.path}: {error.strerror}") from None
        self.records.append(record)
        self._known[record_key(record)] = record

    def _cut(self, size):
        """Take back a line that was not written whole, as far as the disk lets us."""
        with contextlib.suppress(OSError):  # the next start cuts it off
            os.ftruncate(self.file.fileno(), size)

    def close(self):
        """Close the file. The records stay readable."""
        self.file.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
