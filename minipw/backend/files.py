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

    A link stays: the file that it points to is replaced. The new file has the mode of the old
    one. When writing fails, OSError is raised and the old file is still there.

    Parameters
    ----------
    path : str
    arrays : dict of str to ndarray
    facts : anything that JSON can hold
    """
    text = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    target = os.path.realpath(path)
    temporary = f"{target}.{os.getpid()}.part"  # each process writes its own
    try:
        with open(temporary, "wb") as file:
            np.savez(file, **arrays, **{FACTS: text})  # last: a file that is cut off has none
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
    """Make a new name survive a power failure, on systems that can sync a folder."""
    with contextlib.suppress(OSError):
        folder = os.open(os.path.dirname(path), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def read(path, check=lambda facts: None):
    """What `write` wrote.

    A damaged archive raises an exception of any of a dozen kinds.

    Parameters
    ----------
    path : str
    check : callable
        Called with the facts before the arrays are read. It may raise to refuse the file.

    Returns
    -------
    arrays : dict of str to ndarray
    facts : object, or None for a file without facts
    """
    with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
        facts = json.loads(archive[FACTS].tobytes()) if FACTS in archive.files else None
        check(facts)
        arrays = {name: archive[name] for name in archive.files if name != FACTS}
    return arrays, facts


def check_writable(path, endings, what):
    """Raise InputError when a file cannot be written to `path`.

    endings : tuple of str
        The name must have one of them.
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
        raise InputError(f"{what} {path}: exists and cannot be written")
    if not (os.path.isdir(folder) and os.access(folder, os.W_OK)):
        raise InputError(f"{what} {path}: {folder} is no folder that can be written")
