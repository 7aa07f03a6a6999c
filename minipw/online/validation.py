"""Samples and labels of a user, checked and turned into arrays."""

import contextlib
from collections.abc import Iterable, Mapping

import numpy as np
from scipy.sparse import csr_array

from minipw import InputError
from minipw.online.labels import plain, shown

LARGEST, LARGEST_UNSCALED = 1e100, 1e30
"""The largest inputs. Squares of standardized ones are summed in float64; others are float32."""
CHECKED_AT_ONCE = 4096


def as_samples(x, shape, standardized, missing):
    """Samples as an ndarray of real numbers, if possible without a copy.

    Parameters
    ----------
    x : array-like of shape (N, D), (N, height, width) or (N, height, width, channels)
        Or a row with names (a Series, a dict), a list of these, or a sparse matrix (N, D).
    shape : tuple of int or None
        Of the samples seen before.
    standardized : bool
        Whether they will be, which lets them be larger.
    missing : bool
        Whether NaN is allowed.

    Returns
    -------
    ndarray of shape (N, ...), or csr_array of shape (N, D)

    Raises
    ------
    InputError
        For another shape, and for values that are not numbers or not finite.
    """
    x = csr_array(x) if (sparse := is_sparse(x)) else _real_numbers(_values(x))
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
        if x.dtype.itemsize < 8:
            largest = min(largest, float(np.finfo(x.dtype).max))
        for start in range(0, len(x.data) if sparse else len(x), CHECKED_AT_ONCE):
            part = (x.data if sparse else x)[start : start + CHECKED_AT_ONCE]
            allowed = np.abs(part) <= largest
            if missing:
                allowed |= np.isnan(part)
            if not allowed.all():
                place = np.argwhere(~allowed)[0]
                fault = _fault(part[tuple(place)], largest)
                place[0] += start
                if sparse:
                    row = np.searchsorted(x.indptr, place[0], "right") - 1
                    place = row, x.indices[place[0]]
                raise InputError(f"X[{', '.join(map(str, place))}] is {fault}")
    return x


def _values(x):
    """The ndarray of samples without their names, NaN where a value is missing."""
    if type(x) is np.ndarray:
        return x
    if hasattr(x, "collect") and hasattr(x, "lazy"):
        raise InputError(f"X of type {type(x).__name__} holds no values yet: use X.collect()")
    kinds = getattr(x, "dtypes", ())
    for n, kind in enumerate(kinds if isinstance(kinds, Iterable) else ()):
        if getattr(kind, "is_temporal", bool)():  # polars makes numbers of them
            raise InputError(f"X has times in column {x.columns[n]!r}: encode them first")
    if _row_names(x) is not None:  # one sample
        if isinstance(x, Mapping) and any(map(np.ndim, x.values())):
            raise InputError("X is a dict of columns: use pandas.DataFrame(X)")
        x = [x]
    if isinstance(x, (list, tuple)) and len(x) and (names := _row_names(x[0])) is not None:
        for n, row in enumerate(x):
            if _row_names(row) != names:
                raise InputError(f"X[{n}] has other names than X[0]: give each row {names}")
        x = [list(row.values() if isinstance(row, Mapping) else row) for row in x]
    try:
        values = np.asarray(x := _unmasked(x))
        mixed = values.dtype.kind in "US" and isinstance(x, (list, tuple))
        return np.asarray(x, object) if mixed else values
    except ValueError:
        advice = "give every sample the same number of values"
        raise InputError(f"X has samples of different lengths: {advice}") from None
    except (TypeError, OverflowError) as error:
        raise InputError(f"X is not an array of numbers ({error}): use an array") from None


def marked_as_nan(x):
    """x with NaN where a value is marked as missing; a table stays one, and its text stays."""
    if hasattr(x, "notna") and hasattr(x, "columns"):
        marked = any(kind.kind == "O" and kind.name == "object" for kind in x.dtypes)
        return x.astype(object).where(x.notna(), np.nan) if marked else x
    if isinstance(x, (list, tuple, np.ndarray)) or _row_names(x) is not None:
        x = _values(x)
        if x.dtype.kind == "O" and x.size:
            cells = [np.nan if plain(value) is None else value for value in x.flat]
            x = np.fromiter(cells, object, x.size).reshape(x.shape)
    return x


def _unmasked(x):
    """x with NaN where a value is masked, in lists and tuples, too."""
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x) and x.dtype.kind in "biufO":
        return (x if x.dtype.kind == "O" else x.astype(np.float64)).filled(np.nan)
    nested = (list, tuple, np.ma.MaskedArray)
    if isinstance(x, (list, tuple)) and any(isinstance(item, nested) for item in x):
        return [_unmasked(item) for item in x]
    return x


def _real_numbers(x):
    """x where it holds no objects or text, else float64, with NaN for what is missing."""
    if x.dtype.kind not in "OUS":
        return x
    if x.ndim == 0:
        raise InputError(f"X of type {type(x.item()).__name__} is not an array: use list(X)")
    result = np.empty(x.shape)
    for place, value in np.ndenumerate(x):
        try:
            if x.dtype.kind != "O":
                raise TypeError
            result[place] = number(value)
        except (TypeError, ValueError, OverflowError, ArithmeticError):
            where = ", ".join(map(str, place))
            fault = f"X[{where}] is {shown(value)}, not a number: encode it first"
            raise InputError(fault) from None
    return result


def number(value):
    """A cell as float, NaN where it is missing; TypeError or ValueError if it is no number."""
    value = plain(value)
    if isinstance(value, str) and "_" in value:  # Python reads 1_5 as 15
        raise ValueError
    return float("nan" if value is None else value)


def _fault(value, largest):
    if np.isnan(value):  # scikit-learn's users know the words "NaN" and "infinity"
        return f"{value}: X contains NaN; fill in what is missing, or missing=True"
    if np.isinf(value):
        return f"{value}: X contains infinity; clean the data"
    return f"{value}: its magnitude is above {largest:g}; scale the data"


def _row_names(row):
    """The names of one sample's values, or None: those of a dict, a named tuple or a Series."""
    if is_sparse(row):  # SciPy's dictionary of keys is a dict
        return None
    if isinstance(row, Mapping) or hasattr(row, "_fields"):
        return tuple(row if isinstance(row, Mapping) else row._fields)
    series = getattr(row, "ndim", 0) == 1 and hasattr(row, "index")
    return tuple(row.index) if series else None


def column_names(x):
    """The names of a table's columns or a row's values: tuple of str, int and tuples, or None."""
    if type(x) is np.ndarray:  # most are: half the time of a single sample's checks
        return None
    row = x[0] if isinstance(x, (list, tuple)) and len(x) else x
    names = _row_names(x) or _row_names(row)
    if names is None:
        names = getattr(x, "column_names", getattr(x, "columns", None))
    return tuple(map(_name, names)) if isinstance(names, Iterable) else None


def _name(name):
    """The name of a column as JSON can hold it."""
    if isinstance(name, tuple):
        return tuple(map(_name, name))
    name = plain(name)
    return name if type(name) is int else str(name).strip()


def check_columns(names, known):
    """Raise InputError, which names the columns, when they are not the known ones.

    Parameters
    ----------
    names, known : tuple or None, as from `column_names`
        None passes, as do known names that are None.
    """
    if names is None or known is None:
        return
    pairs = enumerate(zip(names, known, strict=False))
    n = next((n for n, (a, b) in pairs if a != b is not None), min(len(names), len(known)))
    if n == len(names) == len(known):
        return
    new = [name for name in names if name not in known][known.count(None) :]
    gone = [name for name in known if name not in names and name is not None]
    if new and gone:
        advice = (
            f"rename it, or give an array without names (new: {shown(new)}, gone: {shown(gone)})"
        )
    elif new:
        advice = f"add_features({shown(new)}) takes new columns, after the others"
    elif gone:
        advice = f"give {shown(gone)}, NaN with missing=True where it is not known"
    else:
        advice = f"keep their order, {shown(list(known))}"
    here, before = (repr(x[n]) if n < len(x) else "nothing" for x in (names, known))
    raise InputError(f"column {n + 1} is {here} where {before} was before: {advice}")


def more_columns(known, features):
    """The known columns and those to add, each None where only their number is given.

    Raises
    ------
    InputError
        Unless `features` is a whole number of at least 1, or a list of new names.
    """
    new = ()
    if type(features) is not bool and isinstance(features, (int, np.integer)):
        new = (None,) * max(int(features), 0)
    elif isinstance(features, Iterable) and not isinstance(features, (str, bytes, Mapping)):
        new = tuple(map(_name, features))
    named = [name for name in (*known, *new) if name is not None]
    if not new or len(set(named)) < len(named):
        advice = "use a whole number of at least 1, or a list of new names"
        raise InputError(f"{features!r} features to add: {advice}")
    return (*known, *new)


def is_sparse(x):
    """Whether samples are a sparse matrix of SciPy."""
    return hasattr(x, "tocsr")


def dense(x):
    """Rows as a float64 ndarray."""
    return np.asarray(x.toarray() if is_sparse(x) else x).astype(np.float64)


def as_weights(weights, count):
    """Sample weights, float64 ndarray of shape (count,), finite and at least 0; None is 1."""
    if weights is None:
        return np.ones(count)
    with contextlib.suppress(TypeError, ValueError):
        weights = _real_numbers(np.asarray(_unmasked(weights)))
    if getattr(getattr(weights, "dtype", None), "kind", "O") not in "biuf":
        raise InputError("sample_weight is not numeric: use an array of numbers")
    weights = weights.astype(np.float64)
    if weights.ndim == 0:
        weights = np.full(count, weights)
    if weights.shape != (count,):
        raise InputError(f"sample_weight has shape {weights.shape} for {count} samples of X")
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise InputError("sample_weight has a value that is negative or not finite")
    if weights.max(initial=0) > LARGEST:
        raise InputError(f"sample_weight has {weights.max():g}: use {LARGEST:g} at most")
    return weights
