"""Opening a data file; what is wrong with it, in one line."""

import contextlib
import gzip
import sys

from minipw import InputError
from minipw.backend.arrays import channels_first

LONGEST = 1 << 26
"""Bytes read of a file at most; the longest published one has 47,040,016."""

REPLACE = "replace it with the published file"
NUMBERS = "save only numbers, the classes as 0, 1, 2, ..."
SAVE = "save x_train, y_train, x_test and y_test with numpy.savez"


def require(condition, where, fault, remedy=REPLACE):
    """Raise the InputError "where: fault; remedy" unless the condition holds."""
    if not condition:
        raise InputError(f"{where}: {fault}; {remedy}".replace("\n", " "))


def warn(where, fault, remedy):
    """Print "warning: where: fault; remedy" on standard error."""
    print(f"warning: {where}: {fault}; {remedy}".replace("\n", " "), file=sys.stderr)


def require_channels_last(where, shape):
    """Raise InputError when arrays of shape (N, ...) look like images with channels first."""
    fault = f"has shape {shape}, which looks like channels first"
    require(not channels_first(shape[1:]), where, fault, "turn it: x.transpose(0, 2, 3, 1)")


@contextlib.contextmanager
def reading(where):
    """Turn any error of reading a file into an InputError."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except UnicodeDecodeError:
        require(False, where, "is not UTF-8 text", "save it as UTF-8")
    except EOFError:
        require(False, where, "ends early: truncated download", "replace the file")
    except Exception as error:  # zlib, tarfile, zipfile and numpy raise a dozen types on damage
        if isinstance(error, OSError) and error.errno:  # gzip's own OSError has no number
            fault = f"cannot be read: {error.strerror}"
            require(False, where, fault, "check the path and its permissions")
        objects = "Object arrays" in str(error)  # numpy's words for what needs pickle
        require(not objects, where, "holds Python objects", NUMBERS)
        fault = f"is corrupt ({type(error).__name__}: {error})"
        require(False, where, fault, "replace the file")


@contextlib.contextmanager
def inflated(path):
    """An open binary file, unpacked where its content, not its name, is gzip."""
    with reading(path), open(path, "rb") as raw:
        is_gzip = raw.peek(2)[:2] == b"\x1f\x8b"
        with gzip.GzipFile(fileobj=raw) if is_gzip else raw as file:
            yield file


def read_bytes(path):
    """Bytes of a file, inflated if they are gzip, at most LONGEST + 1 of them."""
    parts, room = [], LONGEST + 1
    with inflated(path) as file:
        while room and (part := file.read(min(room, 1 << 20))):
            parts.append(part)
            room -= len(part)
    return b"".join(parts)
