"""Samples and labels of a user, checked and turned into arrays."""

import contextlib
from collections.abc import Iterable

import numpy as np

from minipw import InputError

LARGEST, LARGEST_UNSCALED = 1e100, 1e30
"""The largest inputs. Squares of standardized ones are summed in float64; others are float32."""
CHECKED_AT_ONCE = 4096


def as_samples(x, shape, standardized, missing):
    """Samples as an ndarray of real numbers, if possible without a copy.

    Parameters
    ----------
    x : array-like of shape (N, D), (N, height, width) or (N, height, width, channels)
    shape : tuple of int or None
        Of the samples seen before.
    standardized : bool
        Whether they will be, which lets them be larger.
    missing : bool
        Whether NaN is allowed.

    Raises
    ------
    InputError
        For another shape, and for values that are not numbers or not finite.
    """
    if hasattr(x, "toarray"):
        raise InputError("X is sparse: use X.toarray()")
    try:
        x = _nan_where_missing(x)
    except (TypeError, ValueError, OverflowError) as error:
        fault = f"X holds something that is not a number ({error})"
        raise InputError(f"{fault}: encode it first") from None
    if x.dtype.kind not in "biuf":
        raise InputError(f"X has type {x.dtype}: use real numbers")
    if x.dtype.kind == "f" and x.dtype.itemsize > 8:
        with np.errstate(over="ignore"):  # infinity is refused below
            x = x.astype(np.float64)
    if x.ndim not in (2, 3, 4) or 0 in x.shape[1:]:
        raise InputError(
            f"X has shape {x.shape}: use (samples, features), (samples, height, width) or "
            "(samples, height, width, channels); one sample x is x[None]"
        )
    if shape is not None and x.shape[1:] != shape:
        raise InputError(f"X has samples of shape {x.shape[1:]}, those before had {shape}")
    if x.dtype.kind == "f":
        largest = LARGEST if standardized else LARGEST_UNSCALED
        largest = min(largest, float(np.finfo(x.dtype).max))
        for start in range(0, len(x), CHECKED_AT_ONCE):
            part = x[start : start + CHECKED_AT_ONCE]
            allowed = np.abs(part) <= largest
            if missing:
                allowed |= np.isnan(part)
            if not allowed.all():
                row, *place = np.argwhere(~allowed)[0]
                index = ", ".join(str(int(n)) for n in (start + row, *place))
                raise InputError(f"X[{index}] is {_fault(part[(row, *place)], largest)}")
    return x


def column_names(x):
    """The names of a table's columns, its attribute `columns`: tuple of str.

    None where there are none, where one is empty, or where two are equal.
    """
    names = getattr(x, "columns", None)
    names = tuple(names) if isinstance(names, Iterable) else ()
    if not all(type(name) is str for name in names):
        return None
    names = tuple(map(str.strip, names))
    return names if names and all(names) and len(set(names)) == len(names) else None


def check_columns(names, known):
    """Raise InputError when the names of columns differ from the known ones.

    Parameters
    ----------
    names, known : tuple of str or None, as from `column_names`
        None, and tuples of different lengths, pass: the shape of the samples is checked, too.
    """
    if names is None or known is None or names == known or len(names) != len(known):
        return
    n = next(n for n, pair in enumerate(zip(names, known, strict=True)) if pair[0] != pair[1])
    same = sorted(names) == sorted(known)
    advice = "keep their order" if same else "rename it, or give an array without names"
    raise InputError(f"column {n + 1} is {names[n]!r} where {known[n]!r} was before: {advice}")


def _nan_where_missing(x):
    """The ndarray of x, with NaN where pandas has NA or a value is masked."""
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x) and x.dtype.kind in "biufO":
        return x.astype(np.float64).filled(np.nan)
    array = np.asarray(x)
    if array.dtype.kind == "O":
        if hasattr(x, "isna"):
            array = np.where(x.isna(), np.nan, array)
        array = array.astype(np.float64)
    return array


def _fault(value, largest):
    if np.isnan(value):  # scikit-learn's users know the words "NaN" and "infinity"
        return f"{value}: X contains NaN; fill in what is missing, or missing=True"
    if np.isinf(value):
        return f"{value}: X contains infinity; clean the data"
    return f"{value}: its magnitude is above {largest:g}; scale the data"


def as_labels(y, count):
    """`label_list` of y, which must have `count` labels."""
    labels = label_list(y, "y")
    if len(labels) != count:
        raise InputError(f"y has {len(labels)} labels for {count} samples of X")
    return labels


def label_list(values, name):
    """Labels as a list of hashable Python objects; errors call them `name`.

    Raises
    ------
    InputError
        When they are not a sequence, or one is masked, NaN or not hashable.
    """
    labels, table = None, hasattr(values, "columns")
    if not table and not isinstance(values, (str, bytes, dict, set, frozenset)):
        with contextlib.suppress(TypeError):  # what is not a sequence stays None
            labels = values.tolist() if hasattr(values, "tolist") else list(values)
    if not isinstance(labels, list):  # the `tolist` of a single value gives that value
        kind = type(values).__name__
        raise InputError(
            f"{name} of type {kind} is not a list of labels: use a list or an array of labels"
        )
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise InputError(f"{name} has masked labels: leave out the samples without a label")
    return [as_label(label, name) for label in labels]


def as_label(label, name):
    """One label; a NumPy scalar becomes the Python object of its value."""
    if isinstance(label, np.generic):
        label = label.item()
    if isinstance(label, tuple):
        return tuple(as_label(item, name) for item in label)
    try:
        hash(label)
    except TypeError:
        raise InputError(
            f"label {label!r} of type {type(label).__name__} is not hashable: "
            f"{name} holds one label a sample, of text, numbers or tuples"
        ) from None
    try:
        missing = bool(label != label)
    except TypeError:  # the NA of pandas is neither equal nor unequal to itself
        missing = True
    if missing:
        raise InputError(f"{name} contains NaN: leave out the samples without a label")
    return label


def feature_count(count):
    """A number of features as int; InputError unless it is whole and at least 1."""
    if type(count) is bool or not isinstance(count, (int, np.integer)) or count < 1:
        raise InputError(f"{count!r} features to add: use a whole number of at least 1")
    return int(count)


def label_array(labels):
    """The labels as ndarray (C,): of their own type where they share one, else of objects."""
    array = np.empty(len(labels), object)
    for n, label in enumerate(labels):
        array[n] = label
    kinds = {type(label) for label in labels}
    if len(kinds) == 1 and kinds <= {int, float, bool, str}:
        typed = np.array(labels)
        if typed.tolist() == labels and {type(label) for label in typed.tolist()} == kinds:
            return typed
    return array
