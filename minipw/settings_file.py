"""Settings in a JSON file: what `--tune` writes and `--settings` reads."""

import json
from dataclasses import fields
from pathlib import Path
from typing import get_args

from minipw import InputError
from minipw.settings import Settings

NOT_IN_FILES = ("held_out", "evaluate_every")
"""Settings that no flag sets."""
KINDS = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}


def read_settings(path):
    """Settings from a JSON file, for `--settings`.

    Raises
    ------
    InputError
        For a file that is missing, is no JSON object, names no setting, or has a value
        of another kind than the setting's.
    """
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read settings {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"settings {path} are not JSON: {error}") from None
    if not isinstance(values, dict):
        raise InputError(f"settings {path} must be one JSON object")
    known = {field.name: field for field in fields(Settings) if field.name not in NOT_IN_FILES}
    unknown = set(values) - set(known)
    if unknown:
        raise InputError(f"settings {path}: {', '.join(sorted(unknown))} is no setting")
    for name, value in values.items():
        kinds = get_args(known[name].type) or (known[name].type,)
        if not any(is_a(kind, value) for kind in kinds):
            allowed = " or ".join(KINDS[kind] for kind in kinds if kind in KINDS)
            raise InputError(f"settings {path}: {name} is {value!r}: use {allowed}")
    return values


def is_a(kind, value):
    """Whether a JSON value is of a setting's type; true and false are no numbers."""
    if kind in (int, float):
        types = (int, float) if kind is float else (int,)
        return type(value) in types and abs(value) < 1e300
    return isinstance(value, kind)
