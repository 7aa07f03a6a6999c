"""Data sets of one's own: .npz files, and .csv files with a column of classes."""

import csv
import math
import os
import zipfile

import numpy as np

from minipw import InputError
from minipw.datasets import user_files
from minipw.datasets.dataset import Dataset, content_digest, pixel_statistics
from minipw.datasets.reading import NUMBERS, SAVE, reading, require

ENDINGS = (".npz", ".csv")
TEST_EVERY = 5
"""Of a .csv file every fifth sample of each class is for testing."""
CONSTANT = 1e-12
"""A column is taken as constant up to this deviation, as a share of its mean: rounding."""


def load(path, label=None, raw=False):
    """Dataset of a file.

    Parameters
    ----------
    path : str
        Ends in .npz or .csv.
    label : str or None
        The column of a .csv file that holds the classes.
    raw : bool
        Features as float64, as they are, for a learner that standardizes.

    Raises
    ------
    InputError
    """
    if os.fspath(path).lower().endswith(".csv"):
        if label is None:
            raise InputError(f"{path}: which column holds the classes? give --label COLUMN")
        return from_csv(path, label, raw)
    if label is not None:
        raise InputError(f"{path}: --label is for .csv files: leave it out")
    return from_npz(path, raw)


def from_npz(path, raw=False):
    """Dataset of a .npz file with x_train, y_train, x_test and y_test.

    With task_train and task_test, numbers from 0, the tasks of `--exp split` are those.
    """
    *arrays, tasks = user_files.read_npz(path, np.float64 if raw else np.float32)
    tasks_train, tasks_test = tasks
    x_train, y_train, _, y_test = arrays
    mean, std = (0.0,), (1.0,)
    if x_train.dtype == np.uint8:
        mean, std = pixel_statistics(x_train)
    classes = int(max(y_train.max(), y_test.max())) + 1
    content = [*arrays, *(numbers for numbers in tasks if numbers is not None)]
    return Dataset(
        os.fspath(path),
        *arrays,
        classes,
        mean,
        std,
        digest=content_digest(*content),
        tasks_train=tasks_train,
        tasks_test=tasks_test,
    )


def from_csv(path, label, raw=False):
    """Dataset of a .csv file: its own order, every fifth sample of a class for testing.

    Features are standardized by the mean and standard deviation of the training part,
    unless `raw`; then a class may also be too small to be tested. Classes are numbered in
    the order of their names, of numbers if they all are.
    """
    x, texts, columns = user_files.read_csv(path, label)
    names = sorted(sorted(set(texts)), key=class_order(texts))  # names of equal numbers by text
    number = {name: n for n, name in enumerate(names)}
    y = np.array([number[text] for text in texts])
    test = np.zeros(len(y), bool)
    for n, name in enumerate(names):
        rows = np.flatnonzero(y == n)
        if rows.size < TEST_EVERY and not raw:
            raise InputError(
                f"{path}: class {name!r} has {rows.size} samples; give at least {TEST_EVERY}, "
                "one of which is for testing"
            )
        test[rows[TEST_EVERY - 1 :: TEST_EVERY]] = True
    if not test.any():
        raise InputError(
            f"{path}: no class has {TEST_EVERY} samples, one of which would be for testing; "
            "give more"
        )
    if not raw:
        mean, std = x[~test].mean(0), x[~test].std(0)
        std[std <= CONSTANT * np.abs(mean)] = 1
        x = ((x - mean) / std).astype(np.float32)
    return Dataset(
        os.fspath(path),
        *(x[~test], y[~test], x[test], y[test]),
        len(names),
        (0.0,),
        (1.0,),
        digest=content_digest(x, y),
        labels=tuple(names),
        columns=columns,
    )


def class_order(texts):
    """The key that sorts class names: as numbers when every one is a number."""
    try:
        values = {text: float(text) for text in texts}
    except ValueError:
        return str
    return values.get if all(map(np.isfinite, values.values())) else str


def npz_samples(where, x, dtype):
    """Samples of an array of a .npz: uint8 is pixels, anything else of `dtype`."""
    require(x.dtype.kind in "biuf", where, f"holds {x.dtype}, not numbers", SAVE)
    shapes = "give (N, D), (N, height, width) or (N, height, width, channels)"
    require(x.ndim in (2, 3, 4), where, f"has shape {x.shape}", shapes)
    require(x.size, where, "is empty", SAVE)
    if x.dtype != np.uint8:
        with np.errstate(over="ignore"):
            finite = np.isfinite(x.astype(np.float32))
        place = np.unravel_index(int(finite.argmin()), x.shape)
        fault = f"{x[place]} at {[*map(int, place)]} is not finite in float32"
        require(finite.all(), where, fault, "remove such values")
        x = x.astype(dtype)
    return x[..., None] if x.ndim == 3 else x


def npz_labels(where, y, count):
    """Labels of an array of a .npz, int64."""
    require(y.dtype.kind in "biuf", where, f"holds {y.dtype}, not numbers", NUMBERS)
    require(y.shape == (count,), where, f"has shape {y.shape} for {count} samples", SAVE)
    whole = np.isfinite(y).all() and (y == np.floor(y)).all()
    fault = f"holds {y.min()} to {y.max()}, not class numbers"
    right = whole and y.min() >= 0 and y.max() < 1 << 20
    require(right, where, fault, NUMBERS)
    return y.astype(np.int64)


def read_npz(path, dtype=np.float32):
    """Arrays of a .npz file.

    Parameters
    ----------
    path : str
    dtype : float32 or float64, of samples that are no pixels

    Returns
    -------
    x_train, y_train, x_test, y_test : ndarray
    tasks : two int64 ndarray of shape (N,) and (M,), or (None, None)
        task_train and task_test, where the file has them.
    """
    path, arrays = os.fspath(path), {}
    with reading(path), open(path, "rb") as file:
        require(zipfile.is_zipfile(file), path, "is not a whole .npz file", SAVE)
        file.seek(0)
        with np.load(file, allow_pickle=False) as archive:
            tasks = [key for key in ("task_train", "task_test") if key in archive]
            for key in ("x_train", "y_train", "x_test", "y_test", *tasks):
                require(key in archive, path, f"{key} is missing", SAVE)
                with reading(f"{path}: {key}"):
                    arrays[key] = np.asarray(archive[key])
    x_train, x_test = (
        npz_samples(f"{path}: {key}", arrays[key], dtype) for key in ("x_train", "x_test")
    )
    fault = (
        f"samples {x_test.shape[1:]} {x_test.dtype} where x_train has "
        f"{x_train.shape[1:]} {x_train.dtype}"
    )
    alike = x_train.shape[1:] == x_test.shape[1:] and x_train.dtype == x_test.dtype
    require(alike, f"{path}: x_test", fault, SAVE)
    y_train = npz_labels(f"{path}: y_train", arrays["y_train"], len(x_train))
    y_test = npz_labels(f"{path}: y_test", arrays["y_test"], len(x_test))
    if not tasks:
        return x_train, y_train, x_test, y_test, (None, None)
    require(len(tasks) == 2, path, f"has {tasks[0]} alone", "save task_train and task_test")
    train = npz_labels(f"{path}: task_train", arrays["task_train"], len(x_train))
    test = npz_labels(f"{path}: task_test", arrays["task_test"], len(x_test))
    return x_train, y_train, x_test, y_test, (train, test)


def read_csv(path, label):
    """Features and classes of a .csv file with a header line.

    Parameters
    ----------
    path : str
    label : str
        The column that holds the classes, any text; all others must hold numbers.

    Returns
    -------
    x : float64 ndarray of shape (N, D)
    classes : list of N str
    features : tuple of D str, their names
    """
    path, rows, classes = os.fspath(path), [], []
    with reading(path), open(path, newline="", encoding="utf-8-sig") as file:
        first = file.readline()
        require(first.strip(), path, "does not begin with a line of column names", "add one")
        headers = {
            d: [name.strip() for name in next(csv.reader([first], delimiter=d))] for d in ",;\t"
        }
        # The one that gives the label's column, and of several the one with most columns.
        delimiter = max(headers, key=lambda d: (label in headers[d], len(headers[d])))
        file.seek(0)
        lines = csv.reader(file, delimiter=delimiter)
        header = [name.strip() for name in next(lines)]
        names = f"the columns are {', '.join(header[:8])}{', ...' * (len(header) > 8)}"
        require(label in header, path, f"has no column {label!r}", names)
        require(header.count(label) == 1, path, f"has several columns {label!r}", "rename one")
        require(len(header) > 1, path, "has no column beside the label", "add features")
        column = header.index(label)
        features = (*header[:column], *header[column + 1 :])
        for line in lines:
            if not any(map(str.strip, line)):
                continue
            where = f"{path}, line {lines.line_num}"
            fault = f"has {len(line)} values, not {len(header)}"
            require(len(line) == len(header), where, fault, "mend the line")
            classes.append(" ".join(line.pop(column).split()))
            require(classes[-1], where, "has no label", "fill it in or remove the line")
            rows.append(csv_numbers(where, line, features))
    require(rows, path, "holds no samples", "add lines under the header")
    return np.array(rows), classes, features


def csv_numbers(where, line, names):
    """The float64 values of a line, shape (D,), each finite in float32."""
    try:
        values = np.array(line, np.float64)
    except ValueError:
        values = np.array([number_or_nan(text) for text in line])
    with np.errstate(over="ignore"):
        finite = np.isfinite(values.astype(np.float32))
    if not finite.all():
        n = int(np.argmin(finite))
        fault = f"{line[n]!r} in column {names[n]!r} is no number, or too large"
        require(False, where, fault, "write numbers below 3e38 alone, and no empty fields")
    return values


def number_or_nan(text):
    """A text as a float; NaN when it is no number."""
    try:
        return float(text)
    except ValueError:
        return math.nan
