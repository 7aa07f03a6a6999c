"""The file formats: IDX, CIFAR-10 records, .npz and .csv, read into arrays and checked.

Every check ends in an InputError of one line.
"""

import contextlib
import csv
import gzip
import hashlib
import math
import os
import struct
import tarfile
import zipfile

import numpy as np

from minipw import InputError

CIFAR_BATCHES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
LONGEST = 1 << 26
"""Bytes read of one file; the longest published one has 47,040,016."""

REPLACE = "replace it with the published file"
NUMBERS = "save numbers alone, the classes as 0, 1, 2, ..."
SAVE = "save x_train, y_train, x_test and y_test with numpy.savez"


def require(condition, where, fault, remedy=REPLACE):
    """Raise the InputError "where: fault; remedy" unless the condition holds."""
    if not condition:
        raise InputError(f"{where}: {fault}; {remedy}".replace("\n", " "))


@contextlib.contextmanager
def reading(where):
    """Turn whatever goes wrong while a file is read into an InputError."""
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


def read_bytes(path):
    """Bytes of a file, inflated if they are gzip, at most LONGEST + 1 of them."""
    parts, room = [], LONGEST + 1
    with reading(path), open(path, "rb") as raw:
        is_gzip = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        with gzip.GzipFile(fileobj=raw) if is_gzip else raw as file:
            while room and (part := file.read(min(room, 1 << 20))):
                parts.append(part)
                room -= len(part)
    return b"".join(parts)


def locate(folder, name):
    """Path of an IDX file under one of its usual names in a folder, or None."""
    stems = (os.path.join(folder, name), os.path.join(folder, name.replace("-idx", ".idx")))
    return next(filter(os.path.isfile, (s + end for s in stems for end in ("", ".gz"))), None)


def read_idx(path, shape):
    """Items (N, *shape) of an IDX file of unsigned bytes, and its uncompressed SHA-256."""
    data, start = read_bytes(path), 8 + 4 * len(shape)
    size = f"ends early: truncated download, {len(data):,} bytes"
    require(not data[:2].strip(b"\0"), path, "is not an IDX file")
    require(len(data) >= start, path, size)
    require(data[2] == 8, path, f"has IDX type 0x{data[2]:02x}, not unsigned bytes, 0x08")
    require(data[3] == 1 + len(shape), path, f"has {data[3]} dimensions, not {1 + len(shape)}")
    count, *item = struct.unpack(f">{1 + len(shape)}I", data[4:start])
    require((*item,) == shape, path, f"holds items of shape {(*item,)}, not {shape}")
    require(count, path, "holds no items")
    expected = start + count * math.prod(shape)
    require(len(data) >= expected, path, f"{size} of {expected:,}")
    require(len(data) == expected, path, f"has trailing bytes after the expected {expected:,}")
    items = np.frombuffer(data, np.uint8, offset=start).reshape(count, *shape)
    return items, hashlib.sha256(data).hexdigest()


def check_labels(where, y):
    """Raise InputError where a label is not 0 to 9."""
    i = np.argmax(y > 9)
    require(y[i] <= 9, where, f"label {y[i]} of item {i} is out of range 0..9")


def read_idx_set(folder):
    """Images and labels of the four IDX files in a folder.

    Returns
    -------
    arrays : list of uint8 ndarray
        In the order of IDX_FILES: (N, 28, 28), (N,), (M, 28, 28) and (M,).
    digests : dict of str to str
        From the path of each file to its uncompressed SHA-256.
    """
    arrays, digests = {}, {}
    for file in IDX_FILES:
        path = locate(folder, file) or os.path.join(folder, file)
        arrays[path], digests[path] = read_idx(path, (28, 28) if "images" in file else ())
    (_, x_train), (train, y_train), (_, x_test), (test, y_test) = arrays.items()
    for path, x, y in ((train, x_train, y_train), (test, x_test, y_test)):
        require(len(x) == len(y), path, f"{len(y):,} labels beside {len(x):,} images")
        check_labels(path, y)
    return list(arrays.values()), digests


def cifar_batch(where, data):
    """Images (N, 32, 32, 3) and labels (N,) of records of 1 + 3072 bytes, channels first."""
    fault = f"{len(data):,} bytes are not a whole number of records of 3,073: truncated download"
    require(data and len(data) % 3073 == 0, where, fault)
    records = np.frombuffer(data, np.uint8).reshape(-1, 3073)
    check_labels(where, records[:, 0])
    return records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), records[:, 0]


def read_cifar(path):
    """Binary CIFAR-10 batches in a folder, or in the archive, read in place.

    Returns
    -------
    train : list of (images, labels), one a training batch that is there
    test : (images, labels)
    """
    found = {}
    if os.path.isdir(path):
        for batch in CIFAR_BATCHES:
            if os.path.isfile(file := os.path.join(path, batch)):
                found[batch] = cifar_batch(file, read_bytes(file))
    else:
        with reading(path), gzip.open(path) as inflated:
            with tarfile.open(fileobj=inflated, mode="r:") as archive:
                for member in filter(tarfile.TarInfo.isfile, archive):
                    batch = os.path.basename(member.name)
                    if batch in CIFAR_BATCHES and member.size <= LONGEST:
                        data = archive.extractfile(member).read()
                        found[batch] = cifar_batch(f"{path}: {batch}", data)
            while inflated.read(1 << 20):  # gzip compares its checksum at the end
                pass
    *train, test = (found.get(batch) for batch in CIFAR_BATCHES)
    train = [batch for batch in train if batch]
    require(train and test, path, "lacks test_batch.bin or every data_batch_N.bin", "add them")
    return train, test


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
