"""Labels of a user as Python's own values, of one kind."""

import contextlib
import functools
import numbers
from datetime import date, datetime, timedelta

import numpy as np

from minipw import InputError

PLAIN = {bool, int, float, str}
"""Types of values that are kept as they are."""


def plain(value):
    """A value as Python's own object, whatever library it is of; None where it is missing."""
    if type(value) in PLAIN:
        return value if value == value else None
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        return None
    if isinstance(value, (datetime, timedelta)) and hasattr(value, "to_numpy"):
        value = value if getattr(value, "tzinfo", None) else value.to_numpy()
    if getattr(value, "ndim", 0) == 0:
        if getattr(getattr(value, "dtype", None), "kind", None) in ("m", "M"):
            value = _time(np.asarray(value)[()])
        for convert in ("item", "as_py", "asscalar"):
            if callable(method := getattr(value, convert, None)):
                value = method()
                break
    if isinstance(value, np.floating):  # the `item` of a long double is itself
        value = float(value)
    try:
        return value if value == value else None
    except (TypeError, ArithmeticError):  # the NA of pandas, a signalling NaN
        return None
    except ValueError:  # an array
        return value


def shown(value):
    """A value in one line for a message, cut where it is long."""
    text = " ".join(repr(value).split())
    return text if len(text) < 60 else text[:56] + " ..."


def _time(value):
    """A datetime64 or timedelta64 of any unit as datetime or timedelta; None for NaT."""
    exact = value.astype(f"{value.dtype.kind}8[us]")
    if np.isnat(value):
        return None
    if exact != value or isinstance(exact.item(), int):
        raise InputError(f"{value!r} is not a time to the microsecond: use str(label)")
    return exact.item()


def as_labels(y, count, known):
    """`label_list` of y, which must have `count` labels."""
    labels = label_list(y, "y", known)
    if len(labels) != count:
        raise InputError(f"y has {len(labels)} labels for {count} samples of X")
    return labels


def label_list(values, name, known):
    """Labels as a list of hashable Python objects; errors call them `name`.

    Times become datetime. An int and a float that are equal are one class.

    Parameters
    ----------
    known : list
        The classes so far. The kind of the first is that of all labels. None is a class only
        where "classes" announced it; then it stands for every missing label.

    Raises
    ------
    InputError
        When they are not a sequence, or one is missing, not hashable or of another kind.
    """
    labels, table = None, hasattr(values, "columns")
    if len(shape := getattr(values, "shape", ())) > 1 and not table:
        one = "ravel()" if shape[1] == 1 else "argmax(1), if its rows are one-hot"
        raise InputError(f"{name} has shape {tuple(shape)}: one label a sample is {name}.{one}")
    if not table and not isinstance(values, (str, bytes, dict, set, frozenset)):
        with contextlib.suppress(TypeError):  # what is not a sequence stays None
            labels = list(values)
    if labels is None:
        kind = type(values).__name__
        raise InputError(
            f"{name} of type {kind} is not a list of labels: use a list or an array of labels"
        )
    labels = [_label(label, f"{name}[{n}]") for n, label in enumerate(labels)]
    first = next((label for label in (*known[:2], *labels) if label is not None), None)
    kind = _kind(first)
    for n, label in enumerate(labels):
        if _missing(label) and name != "classes" and label not in known:
            advice = "leave out the samples without a label, or add_classes([None])"
            raise InputError(f"{name}[{n}] is missing: {advice}")
        if label is not None and not _alike(_kind(label), kind):
            raise InputError(
                f"{name}[{n}] is {shown(label)}, {_words(_kind(label))}, but {shown(first)}, "
                f"{_words(kind)}, is a label: use labels of one kind"
            )
    return labels


def _label(label, place):
    """One label, as a plain value or a tuple of these."""
    label = plain(label)
    if isinstance(label, tuple):
        return tuple(_label(item, place) for item in label)
    if label is None or type(label) in PLAIN:
        return label
    try:
        hash(label)
        by_identity = type(label).__hash__ is object.__hash__ or getattr(label, "ndim", 0)
    except TypeError:
        by_identity = True
    if by_identity:
        raise InputError(
            f"{place} is {shown(label)} of type {type(label).__name__}, not hashable by its value: "
            "use one label a sample, of text, numbers or tuples"
        )
    return label


def _missing(label):
    return label is None or (type(label) is tuple and any(map(_missing, label)))


def _kind(label):
    """What sort of label it is, in words; a tuple has one for each item."""
    return tuple(map(_kind, label)) if isinstance(label, tuple) else _kind_of(type(label))


@functools.cache
def _kind_of(of):
    kinds = {bool: "a truth value", numbers.Number: "a number", str: "text", datetime: "a time"}
    return next((word for kind, word in kinds.items() if issubclass(of, kind)), of.__name__)


def _words(kind):
    return kind if type(kind) is str else f"a tuple of ({', '.join(map(_words, kind))})"


def _alike(a, b):
    """Whether two kinds are one; tuples are compared as far as both reach."""
    if type(a) is tuple is type(b):
        return all(map(_alike, a, b))
    return a == b


def label_array(labels):
    """The labels as ndarray (C,): of their own type where they share one, else of objects."""
    array = np.empty(len(labels), object)
    for n, label in enumerate(labels):
        array[n] = label
    kinds = {type(label) for label in labels}
    if kinds == {datetime} and not any(label.tzinfo for label in labels):
        return array.astype("datetime64[us]")
    if len(kinds) == 1 and kinds <= PLAIN:
        typed = np.array(labels)
        if typed.tolist() == labels and {type(label) for label in typed.tolist()} == kinds:
            return typed
    return array


def encode_label(label):
    """A class label as JSON holds it, tuples as lists; InputError where it cannot."""
    if type(label) is tuple:
        return [encode_label(item) for item in label]
    if isinstance(label, date):  # or a datetime
        return {"time": label.isoformat()}
    if label is None or type(label) in (str, int, float, bool):
        return label
    raise InputError(
        f"label {label!r} of type {type(label).__name__} cannot be saved: use text, numbers, "
        "True, False, times, None or tuples of these"
    )


def decode_label(value):
    """The label that `encode_label` was given."""
    if isinstance(value, dict):
        return (datetime if "T" in value["time"] else date).fromisoformat(value["time"])
    return tuple(decode_label(item) for item in value) if isinstance(value, list) else value
