"""Files of trained models: .npz without pickle, with a format version and a checksum."""

import contextlib
import hashlib
import json
import os

import numpy as np

from minipw import InputError, __version__
from minipw.backend import files

FORMAT = "minipw model"
VERSION = 2
"""Of the format; later ones are refused."""


def save(path, arrays, facts):
    """Replace the model at `path`, or nothing, by arrays, a dict, and facts that JSON can hold.

    Raises
    ------
    InputError
        When there is a file that is no model, which stays; when the file cannot be written.
    """
    path = os.path.expanduser(path)
    check_replaceable(path)
    head = {"format": FORMAT, "version": VERSION, "written_by": f"minipw {__version__}"}
    head |= {"checksum": checksum(arrays, facts), "facts": facts}
    with _writing(path):
        files.write(path, arrays, head)


@contextlib.contextmanager
def _writing(path):
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"cannot write the model to {path}: {reason}") from None


def check_replaceable(path):
    """Raise InputError when something that is no model is at `path`; reads its head alone."""

    def check(head):
        try:
            _check_head(path, head)
        except InputError as error:
            raise InputError(f"{error}; it is not replaced, choose another path") from None

    with _writing(path):
        files.check_replaceable(path, check)


def load(path):
    """The arrays and facts that `save` wrote.

    Raises
    ------
    InputError
        When the file cannot be read, is not a model, is of a later version, or is damaged.
    """
    path = os.path.expanduser(path)
    try:
        arrays, head = files.read(path, lambda head: _check_head(path, head))
        facts = head["facts"]
        whole = checksum(arrays, facts) == head["checksum"]
    except InputError:
        raise
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"cannot read the model {path}: {reason}") from None
    except Exception as error:  # a damaged archive raises a dozen types
        fault = f"{path} is damaged or not a model of minipw ({type(error).__name__})"
        raise InputError(f"{fault}: use another copy") from None
    if not whole:
        raise InputError(f"{path} is damaged (its checksum differs): use another copy")
    return arrays, facts


def _check_head(path, head):
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise InputError(f"{path} is not a model of minipw: use a file that `save` wrote")
    version = head["version"]
    if type(version) is not int or version > VERSION:
        raise InputError(
            f"{path} has format version {version}, this minipw reads up to {VERSION}: "
            f"it was written by {head.get('written_by')}, update minipw"
        )


def checksum(arrays, facts):
    """SHA-256 of names, types, shapes and bytes, in hexadecimal."""
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array))
    return digest.hexdigest()


@contextlib.contextmanager
def refusing_damage(path):
    """Turn any error in the contents of a model file into an InputError."""
    try:
        yield
    except Exception as error:
        reason = error if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        raise InputError(f"{path} is not such a model ({reason}): use another file") from None
