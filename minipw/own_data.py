"""Data sets of one's own: .npz files, and .csv files with a column of classes."""

import os

import numpy as np

from minipw import InputError, readers
from minipw.dataset import Dataset, content_digest, pixel_statistics

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
    *arrays, tasks = readers.read_npz(path, np.float64 if raw else np.float32)
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
    x, texts, columns = readers.read_csv(path, label)
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
