"""Data sets of one's own: .npz files, and .csv files with a column of classes."""

import csv
import math
import os
import zipfile

import numpy as np

from minipw.datasets.dataset import Dataset, content_digest, pixel_statistics
from minipw.datasets.reading import NUMBERS, SAVE, reading, require

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
TEST_EVERY = 5
"""Every fifth sample of a class of a .csv file is for testing."""
CONSTANT = 1e-12
"""A column is constant when it deviates by no more than this share of its mean: rounding."""


def from_npz(path, raw=False):
    """Dataset of a .npz file with x_train, y_train, x_test and y_test.

    With task_train and task_test, numbers from 0, the tasks of `--exp split` are those.

    Samples that are not pixels become float32, or float64 where they are to be `raw`, for a
    learner that standardizes.
    """
    path, arrays = os.fspath(path), {}
    with reading(path), open(path, "rb") as file:
        require(zipfile.is_zipfile(file), path, "is not a whole .npz file", SAVE)
        file.seek(0)
        with np.load(file, allow_pickle=False) as archive:
            tasks = [key for key in ("task_train", "task_test") if key in archive]
            for key in (*ARRAYS, *tasks):
                require(key in archive, path, f"{key} is missing", SAVE)
                with reading(f"{path}: {key}"):
                    arrays[key] = np.asarray(archive[key])
    require(len(tasks) != 1, path, f"has {', '.join(tasks)} alone", "save task_train and task_test")
    for part in ("train", "test"):
        key = f"x_{part}"
        x = arrays[key] = check_samples(f"{path}: {key}", arrays[key], "f8" if raw else "f4")
        for key in (f"y_{part}", f"task_{part}"):
            if key in arrays:
                arrays[key] = check_labels(f"{path}: {key}", arrays[key], len(x))
    x_train, y_train, x_test, y_test = (arrays[key] for key in ARRAYS)
    alike = x_train.shape[1:] == x_test.shape[1:] and x_train.dtype == x_test.dtype
    train, test = (f"{x.shape[1:]} {x.dtype}" for x in (x_train, x_test))
    require(alike, f"{path}: x_test", f"samples {test} where x_train has {train}", SAVE)
    pixels = x_train.dtype == np.uint8
    return Dataset(
        path,
        *(x_train, y_train, x_test, y_test),
        int(max(y_train.max(), y_test.max())) + 1,
        *(pixel_statistics(x_train) if pixels else ((0.0,), (1.0,))),
        digest=content_digest(*arrays.values()),
        tasks_train=arrays.get("task_train"),
        tasks_test=arrays.get("task_test"),
    )


def check_samples(where, x, dtype):
    """Samples of a .npz file: pixels are left as uint8, other numbers become `dtype`."""
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


def check_labels(where, y, count):
    """Labels of a .npz file as int64."""
    require(y.dtype.kind in "biuf", where, f"holds {y.dtype}, not numbers", NUMBERS)
    require(y.shape == (count,), where, f"has shape {y.shape} for {count} samples", SAVE)
    whole = np.isfinite(y).all() and (y == np.floor(y)).all()
    right = whole and y.min() >= 0 and y.max() < 1 << 20
    require(right, where, f"holds {y.min()} to {y.max()}, not class numbers", NUMBERS)
    return y.astype(np.int64)


def from_csv(path, label, raw=False):
    """Dataset of a .csv file: its own order, every fifth sample of a class for testing.

    Features are standardized by the mean and standard deviation of the training part.
    Classes are numbered in the order of their names, as numbers where all of them are.

    `label` names the column of the classes. With `raw`, features stay as they are, in
    float64, and a class may be too small to be tested.
    """
    x, texts, columns = read_csv(path, label)
    names = sorted(sorted(set(texts)), key=class_order(texts))  # names of equal numbers by text
    number = {name: n for n, name in enumerate(names)}
    y = np.array([number[text] for text in texts])
    test = np.zeros(len(y), bool)
    for n, name in enumerate(names):
        rows = np.flatnonzero(y == n)
        fault = f"class {name!r} has {rows.size} samples"
        advice = f"give at least {TEST_EVERY}, one of which is for testing"
        require(raw or rows.size >= TEST_EVERY, path, fault, advice)
        test[rows[TEST_EVERY - 1 :: TEST_EVERY]] = True
    fault = f"no class has {TEST_EVERY} samples, one of which would be for testing"
    require(test.any(), path, fault, "give more")
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


def read_csv(path, label):
    """Features and classes of a .csv file with a header line.

    The column `label` holds the classes, any text; all others must hold numbers.

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
        # The delimiter that gives a column `label`; of several, the one with most columns.
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
            require(len(line) == len(header), where, fault, "correct the line")
            classes.append(" ".join(line.pop(column).split()))
            require(classes[-1], where, "has no label", "fill it in or remove the line")
            rows.append(check_numbers(where, line, features))
    require(rows, path, "holds no samples", "add lines under the header")
    return np.array(rows), classes, features


def check_numbers(where, line, names):
    """The float64 values of a line of a .csv file, shape (D,), each finite in float32."""
    try:
        values = np.array(line, np.float64)
    except ValueError:
        values = np.array([number_or_nan(text) for text in line])
    with np.errstate(over="ignore"):
        finite = np.isfinite(values.astype(np.float32))
    n = int(finite.argmin())
    fault = f"{line[n]!r} in column {names[n]!r} is not a number, or too large"
    require(finite.all(), where, fault, "write only numbers below 3e38, and no empty fields")
    return values


def number_or_nan(text):
    """A text as a float; NaN when it is not a number."""
    try:
        return float(text)
    except ValueError:
        return math.nan
