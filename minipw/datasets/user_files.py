"""Data sets of one's own: .npz files, and .csv files with a column of classes."""

import contextlib
import csv
import io
import itertools
import math
import os
import re
import zipfile

import numpy as np

from minipw.backend.archive import opened
from minipw.backend.memory import require_memory
from minipw.datasets.dataset import Dataset, content_digest, pixel_statistics
from minipw.datasets.reading import (
    NUMBERS,
    SAVE,
    inflated,
    reading,
    require,
    require_channels_last,
    warn,
)

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
TEST_EVERY = 5
"""Every fifth sample of a class of a .csv file is for testing."""
CONSTANT = 1e-12
"""A column is constant when it deviates by no more than this share of its mean: rounding."""
LINE = 1 << 24
"""Letters of a line of a .csv file, at most."""
UNNAMED = re.compile(r"(Unnamed: [0-9.]+)?")
"""The header of a column without a name, also as pandas gives it one."""
NOTHING = ("", "na", "n/a", "#n/a", "<na>", "nan", "-nan", "null", "none", "?")
WORDS = {"true": 1.0, "false": 0.0, **dict.fromkeys(NOTHING, math.nan)}
"""What the words in a cell stand for, in small letters."""
ONE_LABEL = "save one number a sample, as y.ravel() of one column, y.argmax(1) of one-hot rows"
QUOTES = "close or remove the quotes"
MISSING_CELL = "fill it in, or use `stream --missing` from the first file on"


def is_table(path):
    """Whether a path is named like a .csv or .tsv file, packed or not."""
    return os.fspath(path).lower().endswith((".csv", ".tsv", ".gz"))


def from_npz(path, raw=False, missing=False):
    """Dataset of a .npz file with x_train, y_train, x_test and y_test.

    With task_train and task_test, numbers from 0, the tasks of `--exp split` are those. Other
    arrays are not looked at.

    Samples that are not pixels become float32, or float64 where they are to be `raw`, for a
    learner that standardizes; then NaN is allowed where it is `missing`.
    """
    path, arrays = os.fspath(path), {}
    with reading(path), open_npz(path) as archive:
        tasks = [key for key in ("task_train", "task_test") if key in archive.names]
        both = "save task_train and task_test"
        require(len(tasks) != 1, path, f"has {', '.join(tasks)} alone", both)
        keys = (*ARRAYS, *tasks)
        for key in keys:
            require(key in archive.names, path, f"{key} is missing", SAVE)
            with reading(f"{path}: {key}"):
                check_header(f"{path}: {key}", archive, key)
        archive.check(keys)
        for key in keys:
            with reading(where := f"{path}: {key}"):
                values = archive.read(key)
            samples = key.startswith("x_")
            arrays[key] = check_samples(where, values, raw, missing) if samples else values
            if not samples:
                arrays[key] = check_labels(where, values)
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


@contextlib.contextmanager
def open_npz(path):
    """The `Archive` of a .npz file."""
    with contextlib.ExitStack() as stack:
        try:
            archive = stack.enter_context(opened(path))
        except zipfile.BadZipFile:
            require(False, path, "is not a whole .npz file", SAVE)
        yield archive


def check_header(where, archive, key):
    """Raise InputError where an array cannot be samples, labels or tasks, before it is read."""
    dtype, shape, *_ = archive.header(key)
    samples = key.startswith("x_")
    fault = f"holds {dtype}, not numbers"
    require(dtype.kind in "biuf", where, fault, SAVE if samples else NUMBERS)
    if samples:
        shapes = "give (N, D), (N, height, width) or (N, height, width, channels)"
        require(len(shape) in (2, 3, 4), where, f"has shape {shape}", shapes)
        require(math.prod(shape), where, "is empty", SAVE)
        require_channels_last(where, shape)
    else:
        count = archive.header(f"x_{key[2:] if key[0] == 'y' else key[5:]}").shape[0]
        require(shape == (count,), where, f"has shape {shape} for {count} samples", ONE_LABEL)


def check_samples(where, x, raw, missing):
    """Samples of a .npz file: pixels are left as uint8, other numbers become floats."""
    if x.dtype != np.uint8:
        with np.errstate(over="ignore"):
            right = np.isfinite(x.astype(np.float32))
        if missing:
            right |= np.isnan(x)
        place = np.unravel_index(int(right.argmin()), x.shape)
        fault = f"{x[place]} at {[*map(int, place)]} is not finite in float32"
        require(right.all(), where, fault, "remove such values; NaN: or use `stream --missing`")
        if not raw:
            check_scale(where, x)
        x = x.astype(np.float64 if raw else np.float32)
    return x[..., None] if x.ndim == 3 else x


def check_scale(where, x):
    """Refuse pixels that are not uint8; warn of other numbers that are far from 1."""
    low, high, flat = float(x.min()), float(x.max()), x.reshape(-1)
    pixels = low >= 0 and 127 < high <= 255 and (x.ndim > 2 or (x == np.floor(x)).all())
    fault = f"holds {low:g} to {high:g} as {x.dtype}, which look like pixels that are not scaled"
    require(not pixels, where, fault, "save x.astype(numpy.uint8), which is standardized")
    squares = np.einsum("i,i", flat, flat, dtype=np.float64, casting="unsafe")  # no copy
    size = math.sqrt(squares / x.size)
    if not 1e-3 < size < 5:
        fault = f"holds {low:g} to {high:g}, and numbers are used as they are"
        warn(where, fault, "scale them: (x - x.mean(0)) / x.std(0), of the training samples")


def check_labels(where, y):
    """Labels or tasks of a .npz file as int64."""
    whole = np.isfinite(y).all() and (y == np.floor(y)).all()
    right = whole and y.min() >= 0 and y.max() < 1 << 20
    require(right, where, f"holds {y.min()} to {y.max()}, not class numbers", NUMBERS)
    return y.astype(np.int64)


def from_csv(path, label, raw=False, missing=False):
    """Dataset of a .csv or .tsv file: its own order, every fifth sample of a class for testing.

    Features are standardized by the mean and standard deviation of the training part.
    Classes are numbered in the order of their names, as numbers where all of them are.

    `label` names the column of the classes. With `raw`, features stay as they are, in
    float64, a class may be too small to be tested, all of them where it is "untested", and a
    cell may be empty where it is `missing`.
    """
    x, texts, columns = read_csv(path, label, missing)
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
    require(test.any() or raw == "untested", path, fault, "give more")
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


def read_csv(path, label, missing=False):
    """Features and classes of a .csv or .tsv file with a header line, packed by gzip or not.

    The column `label` holds the classes, any text; all others must hold numbers, True or
    False, or nothing where cells may be `missing`. Columns without a name are left out.

    Returns
    -------
    x : float64 ndarray of shape (N, D)
        NaN where a cell is missing.
    classes : list of N str
    features : tuple of D str, their names
    """
    path, rows, classes = os.fspath(path), [], []
    with inflated(path) as file, io.TextIOWrapper(file, "utf-8-sig", newline="") as text:
        text_lines = bounded_lines(path, text)
        first = next(text_lines, "")
        require(first.strip(), path, "does not begin with a line of column names", "add one")
        packed = "unpack it, and give the .csv file in it"
        require(not first.startswith("PK\3\4"), path, "is a .zip archive", packed)
        headers = {
            d: [name.strip() for name in next(csv.reader([first], delimiter=d))] for d in ",;\t"
        }
        # The delimiter that gives a column `label`; of several, the one with most columns.
        delimiter = max(headers, key=lambda d: (label in headers[d], len(headers[d])))
        lines = csv.reader(itertools.chain([first], text_lines), delimiter=delimiter, strict=True)
        header = [name.strip() for name in next(lines)]
        names = f"the columns are {', '.join(header[:8])}{', ...' * (len(header) > 8)}"
        require(label in header, path, f"has no column {label!r}", names)
        require(header.count(label) == 1, path, f"has several columns {label!r}", "rename one")
        column = header.index(label)
        kept = [n for n, name in enumerate(header) if n != column and not UNNAMED.fullmatch(name)]
        for n in sorted({*range(len(header))} - {*kept, column}):
            fault = f"column {n + 1} has no name, like row numbers, and is left out"
            warn(path, fault, "remove it, or name it to learn from it")
        require(kept, path, "has no column beside the label", "add features")
        features = tuple(header[n] for n in kept)
        for where, line in numbered(lines, path):
            if not any(map(str.strip, line)):
                continue
            fault = f"has {len(line)} value{'s' * (len(line) != 1)}, not {len(header)}"
            require(len(line) == len(header), where, fault, "correct the line")
            classes.append(" ".join(line[column].split()))
            known = classes[-1].lower() not in ("", "na", "nan", "<na>", "n/a")
            fault = f"has no label ({classes[-1]!r})"
            require(known, where, fault, "fill it in or remove the line")
            rows.append(check_numbers(where, [line[n] for n in kept], features, missing))
            if len(rows) % 4096 == 0:
                require_memory(8 * len(rows) * len(kept), f"{path} is too large: use a part of it")
    require(rows, path, "holds no samples", "add lines under the header")
    x = np.array(rows)
    for n, name in enumerate(features):
        if len(x) > 9 and (np.diff(x[:, n]) == 1).all():
            warn(path, f"column {name!r} counts the lines", "remove it unless it means something")
    return x, classes, features


def bounded_lines(path, text):
    """The lines of an open text, none longer than LINE."""
    while line := text.readline(LINE):
        require(len(line) < LINE, path, f"has a line of over {LINE:,} letters", "correct the file")
        yield line


def numbered(lines, path):
    """Yield the lines of a csv reader behind the header, each behind the place where it begins."""
    try:
        where = f"{path}, line {lines.line_num + 1}"
        for line in lines:
            yield where, line
            where = f"{path}, line {lines.line_num + 1}"
    except csv.Error as error:
        require(False, where, f"cannot be read ({error})", QUOTES)


def check_numbers(where, line, names, missing):
    """The float64 values of a line of a .csv file, shape (D,), each finite in float32 or NaN."""
    values = np.array([as_number(text) for text in line])
    with np.errstate(over="ignore"):
        right = np.isfinite(values.astype(np.float32))
    if missing:
        right |= np.isnan(values)
    n = int(right.argmin())
    fault, remedy = "is not a number, or too large", "write only numbers below 3e38, as 1234.5"
    if np.isnan(values[n]):
        fault, remedy = "is a missing value", MISSING_CELL
    require(right.all(), where, f"{line[n]!r} in column {names[n]!r} {fault}", remedy)
    return values


def as_number(text):
    """A text as a float; infinity when it is not a number."""
    try:
        return math.inf if "_" in text else float(text)  # Python reads 1_5 as 15
    except ValueError:
        return WORDS.get(text.strip().lower(), math.inf)
