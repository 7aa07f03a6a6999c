"""The store of finished runs: one line of JSON each, in a file that only grows."""

import contextlib
import dataclasses
import json
import os
from pathlib import Path

from minipw import InputError
from minipw.record import RECORD_FORMAT
from minipw.settings import Settings

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


class Store:
    """Finished runs in a JSON-lines file, for one writing process.

    Two stores join with `cat`. A last line that an interrupted write left without its
    end is cut off when the store is opened.

    Parameters
    ----------
    path : path of the .jsonl file; its folder is made when missing

    Raises
    ------
    InputError
        When the file cannot be written, or holds a line that is no record of this
        format.
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
            self.records = self._read()
        except InputError:
            self.close()
            raise
        self._known = {self._key(record): record for record in self.records}
        self.records = list(self._known.values())  # joined stores may share runs

    def _read(self):
        self.file.seek(0)
        content = self.file.read()
        whole = content[: content.rfind(b"\n") + 1]
        records = []
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                record = json.loads(line)
                if record["format"] != RECORD_FORMAT:
                    raise InputError(
                        f"{self.path}, line {number}: a result of format {record['format']}, this "
                        f"version reads {RECORD_FORMAT}; choose another --out"
                    )
                self._key(record)
            except (ValueError, KeyError, TypeError) as error:
                if isinstance(error, InputError):
                    raise
                raise InputError(
                    f"{self.path}, line {number}: not a result of minipw; choose another --out"
                ) from None
            records.append(record)
        if len(whole) < len(content):
            self.file.truncate(len(whole))
        return records

    @staticmethod
    def _key(record):
        data = f"{record['dataset']} {record.get('digest', '')}".rstrip()
        return run_key(record["settings"], record["seed"], data)

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
        self._known[self._key(record)] = record

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
