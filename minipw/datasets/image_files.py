"""The published image formats: IDX and CIFAR-10 records.

Every check ends in an InputError of one line.
"""

import gzip
import hashlib
import math
import os
import struct
import tarfile

import numpy as np

from minipw.datasets.reading import LONGEST, read_bytes, reading, require

CIFAR_BATCHES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


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
