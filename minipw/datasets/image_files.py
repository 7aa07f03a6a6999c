"""The published image formats: IDX and CIFAR-10 records."""

import gzip
import hashlib
import itertools
import math
import os
import struct
import tarfile

import numpy as np

from minipw.datasets.reading import LONGEST, read_bytes, reading, require

CIFAR_BATCHES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
ARCHIVE, MEMBERS = 1 << 28, 100
"""Bytes of an unpacked archive and files in it, at most; the published one has 184,380,000."""
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
    arrays : list of ndarray, in the order of IDX_FILES
        uint8 images (N, 28, 28, 1), int64 labels (N,), and M of both to test on.
    digests : dict of str to str
        From the path of each file to its uncompressed SHA-256.
    """
    arrays, digests = [], {}
    for images, labels in (IDX_FILES[:2], IDX_FILES[2:]):
        paths = [locate(folder, file) or os.path.join(folder, file) for file in (images, labels)]
        x, digests[paths[0]] = read_idx(paths[0], (28, 28))
        y, digests[paths[1]] = read_idx(paths[1], ())
        require(len(x) == len(y), paths[1], f"{len(y):,} labels beside {len(x):,} images")
        check_labels(paths[1], y)
        arrays += [x[..., None], y.astype(np.int64)]
    return arrays, digests


def cifar_batch(where, data):
    """Images (N, 32, 32, 3) and labels (N,) of records of 1 + 3072 bytes, channels first."""
    fault = f"{len(data):,} bytes are not a whole number of records of 3,073: truncated download"
    require(data and len(data) % 3073 == 0, where, fault)
    records = np.frombuffer(data, np.uint8).reshape(-1, 3073)
    check_labels(where, records[:, 0])
    return records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), records[:, 0]


class _Inflated(gzip.GzipFile):
    """An unpacked archive, refused where it is longer than any that was published."""

    def read(self, size=-1):
        if size > LONGEST or self.tell() > ARCHIVE:
            raise ValueError("it is longer than the published archive")
        return super().read(size)

    def seek(self, offset, whence=os.SEEK_SET):
        if offset > ARCHIVE:
            raise ValueError("it is longer than the published archive")
        return super().seek(offset, whence)


def read_cifar(path):
    """Binary CIFAR-10 batches in a folder, or in the archive, read in place.

    Returns
    -------
    count : int, of training batches that are there
    x_train, y_train, x_test, y_test : ndarray
        uint8 images (N, 32, 32, 3), int64 labels (N,), and M of both to test on.
    """
    found = {}
    if os.path.isdir(path):
        for batch in CIFAR_BATCHES:
            if os.path.isfile(file := os.path.join(path, batch)):
                found[batch] = cifar_batch(file, read_bytes(file))
    else:
        with reading(path), _Inflated(path) as inflated:
            with tarfile.open(fileobj=inflated, mode="r:") as archive:
                for member in itertools.islice(archive, MEMBERS):
                    batch = os.path.basename(member.name)
                    if member.isfile() and batch in CIFAR_BATCHES and member.size <= LONGEST:
                        data = archive.extractfile(member).read()
                        found[batch] = cifar_batch(f"{path}: {batch}", data)
            while inflated.read(min(LONGEST, 1 << 20)):  # gzip compares its checksum at the end
                pass
    *train, test = (found.get(batch) for batch in CIFAR_BATCHES)
    train = [batch for batch in train if batch]
    require(train and test, path, "lacks test_batch.bin or every data_batch_N.bin", "add them")
    x, y = (np.ascontiguousarray(np.concatenate(parts)) for parts in zip(*train, strict=True))
    x_test, y_test = map(np.ascontiguousarray, test)
    return len(train), x, y.astype(np.int64), x_test, y_test.astype(np.int64)
