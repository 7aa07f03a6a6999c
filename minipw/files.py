"""Arrays and facts in one .npz file: written whole or not at all, no pickle."""

import contextlib
import json
import os
import stat

import numpy as np

from minipw import InputError

FACTS = "facts"
"""Name of the array that holds the facts as JSON."""


def write(path, arrays, facts):
    """Replace the file at `path`: a reader finds the old one or the new one, whole.

    A link stays one: the file that it names is replaced. The mode of the old file is kept.

    Parameters
    ----------
    path : str
    arrays : dict of str to ndarray
    facts : what JSON can hold

    Raises
    ------
    OSError
        When the file cannot be written; the old one is then still there.
    """
    text = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    target = os.path.realpath(path)
    temporary = f"{target}.{os.getpid()}.part"  # two processes do not write into one file
    try:
        with open(temporary, "wb") as file:
            np.savez(file, **arrays, **{FACTS: text})  # last: one that is cut off is missed
            file.flush()
            os.fsync(file.fileno())
        if os.path.exists(target):
            os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
        os.replace(temporary, target)
        _sync_folder(target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _sync_folder(path):
    """Make the new name last through a power failure, where folders can be synced."""
    with contextlib.suppress(OSError):
        folder = os.open(os.path.dirname(path), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def read(path, check=lambda facts: None):
    """What `write` wrote.

    Parameters
    ----------
    path : str
    check : callable of the facts, None where there are none
        Called before the arrays are read; may raise to refuse them.

    Returns
    -------
    arrays : dict of str to ndarray
    facts : object

    Raises
    ------
    Exception
        A damaged archive raises any of a dozen kinds.
    """
    with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
        facts = json.loads(archive[FACTS].tobytes()) if FACTS in archive.files else None
        check(facts)
        arrays = {name: archive[name] for name in archive.files if name != FACTS}
    return arrays, facts


def check_writable(path, endings, what):
    """Raise InputError when a file could not be written to `path` later.

    endings : tuple of str
        Of which its name must have one.
    what : str
        What the file holds, for the message.
    """
    folder = os.path.dirname(path) or "."
    if not path.endswith(endings):
        *others, last = endings
        named = f"{', '.join(others)} or {last}" if others else last
        raise InputError(f"{what} {path}: name it {named}")
    if os.path.isdir(path):
        raise InputError(f"{what} {path}: is a folder, name a file")
    if os.path.exists(path) and not os.access(path, os.W_OK):
        raise InputError(f"{what} {path}: is there and cannot be written")
    if not (os.path.isdir(folder) and os.access(folder, os.W_OK)):
        raise InputError(f"{what} {path}: {folder} is no folder that can be written")
