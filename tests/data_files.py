"""Data files that tests write: small, synthetic, whole or to be damaged."""

import gzip
import hashlib
import io
import struct
import tarfile

import numpy as np
import pytest

from minipw import InputError, datasets
from minipw.datasets.image_files import IDX_FILES

RNG = np.random.default_rng(0)
TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS = IDX_FILES


def idx(array):
    """Bytes of an IDX file of unsigned bytes."""
    array = np.asarray(array, np.uint8)
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.tobytes()


def images(count):
    return RNG.integers(0, 256, (count, 28, 28), np.uint8)


FILES = {
    TRAIN_IMAGES: idx(images(12)),
    TRAIN_LABELS: idx(np.arange(12) % 10),
    TEST_IMAGES: idx(images(10)),
    TEST_LABELS: idx(np.arange(10)),
}


def digests(files):
    return tuple(hashlib.sha256(files[name]).hexdigest() for name in IDX_FILES)


def cifar_records(count):
    """Bytes of `count` CIFAR-10 records."""
    records = RNG.integers(0, 256, (count, 3073), np.uint8)
    records[:, 0] = np.arange(count) % 10
    return records.tobytes()


CIFAR = {f"data_batch_{i}.bin": cifar_records(i) for i in range(1, 6)}
CIFAR["test_batch.bin"] = cifar_records(4)


def tar_gz(files):
    """Bytes of an archive laid out like the published one."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def write(folder, files, end=""):
    """Write files by name, packed where `end` is .gz."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / (name + end)).write_bytes(gzip.compress(data) if end == ".gz" else data)


def error(call, *args, **kwargs):
    """Text of the InputError of a call; it is one line."""
    with pytest.raises(InputError) as caught:
        call(*args, **kwargs)
    text = str(caught.value)
    assert "\n" not in text
    return text


def leftovers(folder):
    """Files anywhere below a folder."""
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir())


def arrays(**change):
    """A valid set of arrays, with changes; None leaves one out."""
    base = {
        "x_train": np.arange(24.0).reshape(6, 4),
        "y_train": np.array([0, 1, 2, 0, 1, 2]),
        "x_test": np.ones((2, 4)),
        "y_test": np.array([1, 3]),
    }
    return {k: v for k, v in {**base, **change}.items() if v is not None}


def npz(folder, **change):
    np.savez(folder / "d.npz", **arrays(**change))
    return str(folder / "d.npz")


def load(name="mnist", data_dir=None, **kwargs):
    return datasets.load(name, data_dir, **{"download": False, **kwargs})


def check_cifar(data):
    """Five synthetic batches of 1 to 5 records, in order, and 4 test records."""
    assert data.x_train.shape == (15, 32, 32, 3) and data.x_test.shape == (4, 32, 32, 3)
    assert data.y_train.tolist() == [0, 0, 1, 0, 1, 2, 0, 1, 2, 3, 0, 1, 2, 3, 4]
    record = CIFAR["data_batch_2.bin"][3073:]
    for row, column, channel in ((0, 0, 0), (3, 5, 1), (31, 30, 2)):
        expected = record[1 + 1024 * channel + 32 * row + column]
        assert data.x_train[2, row, column, channel] == expected
    assert data.note == "" and data.classes == 10 and len(data.mean) == 3
