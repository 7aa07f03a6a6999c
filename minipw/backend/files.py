"""Arrays and facts in one .npz file: written whole or not at all, no pickle."""

import contextlib
import errno
import json
import os
import re
import stat
import threading

import numpy as np

from minipw import InputError
from minipw.backend import archive

FACTS = "facts"
"""Name of the array that holds the facts as JSON."""


def write(path, arrays, facts):
    """Replace the file at `path`: a reader finds the old one or the new one, whole.

    A link stays: the file that it points to is replaced. The new file has the mode of the old
    one. When writing fails, OSError is raised and the old file is still there. What processes
    that are gone left of their writing is removed.

    Parameters
    ----------
    path : str
        Of a file that `write` wrote, of an empty file, or of none. Others are not replaced.
    arrays : dict of str to ndarray
    facts : anything that JSON can hold
    """
    text = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    target = os.path.realpath(path)
    check_replaceable(target)
    remove_leftovers(*os.path.split(target))
    # Each thread of each process writes its own.
    temporary = f"{target}.{os.getpid()}.{threading.get_native_id()}.part"
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


def check_replaceable(path, check=lambda facts: None):
    """Raise OSError or InputError when there is a file at `path` that `write` did not write.

    Of the file only the facts are read, for `check`, which may raise.
    """
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(found.st_mode):
        fault = "no regular file; it is not replaced, choose another path"
        raise OSError(errno.EINVAL, fault, path)
    if found.st_size:
        try:
            with archive.opened(path) as old:
                facts = _facts(old)
        except PermissionError:
            raise
        except Exception:  # of a dozen types: it is no whole archive
            facts = None
        if facts is None:
            fault = "damaged or not of minipw; it is not replaced, choose another path"
            raise OSError(errno.EEXIST, fault, path)
        check(facts)


def remove_leftovers(folder, name=None):
    """Remove what processes that are gone left of writing a file, or any .npz, in a folder."""
    start = r".*\.npz" if name is None else re.escape(name)
    left = re.compile(rf"{start}\.([1-9][0-9]*)(\.[0-9]+)?\.part")
    with contextlib.suppress(OSError):
        for file in os.listdir(folder):
            if (process := left.fullmatch(file)) and not _lives(int(process[1])):
                os.unlink(os.path.join(folder, file))


def _lives(process):
    """Whether a process may be there; its number is all that is known."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


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
    remove_leftovers(*os.path.split(os.path.realpath(path)))
    with archive.opened(path) as found:
        facts = _facts(found)
        check(facts)
        names = [name for name in found.names if name != FACTS]
        found.check(names, packed=False)
        return {name: found.read(name) for name in names}, facts


def _facts(found):
    if FACTS not in found.names:
        return None
    found.check([FACTS], packed=False)
    return json.loads(found.read(FACTS).tobytes())


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
