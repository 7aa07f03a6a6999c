"""Hostile .npz files: refused at once, in little memory, whoever reads them."""

import io
import resource
import struct
import time
import tracemalloc
import zipfile

import numpy as np
import pytest

from minipw import InputError
from minipw.backend import archive, memory
from minipw.datasets import user_files
from minipw.online.classifier import OnlineClassifier
from minipw.training import checkpoint

ARRAYS = {
    "x_train": np.arange(24.0).reshape(6, 4),
    "y_train": np.array([0, 1, 2, 0, 1, 2]),
    "x_test": np.ones((2, 4)),
    "y_test": np.array([1, 2]),
}
READERS = (user_files.from_npz, OnlineClassifier.load, checkpoint.load)


def header(text, version=b"\1\0"):
    """The bytes of a .npy header."""
    size = struct.pack("<H" if version == b"\1\0" else "<I", len(text))
    return b"\x93NUMPY" + version + size + text.encode()


def described(shape, descr="'<f8'"):
    return header(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n")


def npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def write(path, members, method=zipfile.ZIP_DEFLATED):
    """An archive of members, by name: bytes, or how many zeros."""
    with zipfile.ZipFile(path, "w", method) as file:
        for name, data in members.items():
            if isinstance(data, bytes):
                file.writestr(name + ".npy", data)
                continue
            with file.open(name + ".npy", "w", force_zip64=True) as member:
                for _ in range(data >> 24):
                    member.write(bytes(1 << 24))


def whole(**change):
    """Members of a data file that are right but for the changes."""
    return {name: npy(array) for name, array in ARRAYS.items()} | change


def patched(path, find, put):
    """Replace bytes of a file, everywhere."""
    data = path.read_bytes()
    assert find in data
    path.write_bytes(data.replace(find, put))


def promise(shape, descr="'<f8'"):
    return lambda path: write(path, whole(x_train=described(shape, descr) + bytes(999)))


def bzip2(path):
    write(path, whole(x_train=1 << 26), zipfile.ZIP_BZIP2)


def long_header(path):
    """Version 2 has room for a header of 4 GiB; this one has 64 MiB of zeros."""
    write(path, whole(x_train=1 << 26))
    with zipfile.ZipFile(path) as file:
        assert file.getinfo("x_train.npy").file_size == 1 << 26


def many_members(path):
    """A directory of two million entries that share one empty member."""
    entry = struct.pack("<4s4B4HL2L5H2L", b"PK\1\2", 20, 0, 20, 0, *[0] * 14)
    count = 2_000_000
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, len(entry) * count, 0, 0)
    path.write_bytes(entry * count + end)


def longer_than_it_says(path):
    """A member of 64 MiB whose directory says that it has 320 bytes."""
    true = described((1 << 23,)) + bytes(1 << 26)
    write(path, whole(x_train=true))
    said = len(described((6, 4))) + 192
    patched(path, struct.pack("<L", len(true)), struct.pack("<L", said))


def directory_promises(path):
    """The directory and the header agree on 2 GiB; the file has 1 KiB."""
    shape = (1 << 18, 1 << 10)
    true = described(shape) + bytes(1000)
    write(path, whole(x_train=true))
    size = len(described(shape)) + (1 << 31)
    patched(path, struct.pack("<L", len(true)), struct.pack("<L", size))


HOSTILE = {
    "a shape of 8e15": promise((10**15, 1)),
    "a shape of 1e300": promise((10**300, 4)),
    "a negative shape": promise((-6, -4)),
    "no shape": promise("'x'"),
    "elements of 2 GB": promise((6, 4), "'<U500000000'"),
    "elements of nothing": promise((10**15,), "'S0'"),
    "nested brackets": promise("(" * 400),
    "long sums": promise("-" * 900 + "1"),
    "a subarray": promise((6, 4), "('<f8', (9999999,))"),
    "bzip2": bzip2,
    "a header of zeros": long_header,
    "two million members": many_members,
    "longer than it says": longer_than_it_says,
    "shorter than it says": directory_promises,
    "two of a name": lambda path: (
        write(path, whole(), zipfile.ZIP_STORED) or patched(path, b"x_test.npy", b"y_test.npy")
    ),
}


@pytest.mark.filterwarnings("ignore:Reading")  # numpy's words for an odd header
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_archive_is_refused_at_once(tmp_path, kind):
    path = tmp_path / "d.npz"
    HOSTILE[kind](path)
    for read in READERS:
        before = resource.getrusage(resource.RUSAGE_SELF)
        tracemalloc.start()
        with pytest.raises(InputError) as caught:
            read(str(path))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        after = resource.getrusage(resource.RUSAGE_SELF)
        assert str(path) in str(caught.value) and "\n" not in str(caught.value)
        assert peak < 5 << 20  # a directory, a header and what zipfile makes of them
        assert after.ru_utime - before.ru_utime < 1


@pytest.mark.parametrize("read", READERS[1:])
def test_what_minipw_writes_is_not_compressed(tmp_path, read):
    """So a model is never larger than its file; an extra member of 256 MiB is not inflated."""
    path, learner = tmp_path / "m.npz", OnlineClassifier("mlp-6-1", density=0.4)
    learner.partial_fit([[0.0], [1.0]], [0, 1]).save(path)
    assert read(str(path))
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as file,
        file.open("extra.npy", "w", force_zip64=True) as member,
    ):
        member.write(described((1 << 25,)))
        for _ in range(16):
            member.write(bytes(1 << 24))
    tracemalloc.start()
    began = time.process_time()
    with pytest.raises(InputError, match=r"m\.npz"):
        read(str(path))
    assert time.process_time() - began < 1 and tracemalloc.get_traced_memory()[1] < 5 << 20
    tracemalloc.stop()


def test_other_members_are_not_looked_at(tmp_path):
    path = tmp_path / "d.npz"
    others = {"pictures": described((10**15,)), "notes": b"text", "zeros": 1 << 26}
    write(path, whole(**others))
    with archive.opened(path) as found:
        assert set(found.names) == {*ARRAYS, *others}
    tracemalloc.start()
    data = user_files.from_npz(path)
    assert tracemalloc.get_traced_memory()[1] < 5 << 20
    tracemalloc.stop()
    np.testing.assert_array_equal(data.x_train, ARRAYS["x_train"])
    assert data.y_test.tolist() == [1, 2]


def test_labels_that_do_not_fit_are_seen_before_the_samples_are_read(tmp_path, monkeypatch):
    path = tmp_path / "d.npz"
    write(path, whole(y_test=npy(np.zeros(3, int))))
    monkeypatch.setattr(archive.Archive, "read", lambda *_: pytest.fail("read"))
    with pytest.raises(InputError, match=r"y_test: has shape \(3,\) for 2 samples"):
        user_files.from_npz(path)


def test_arrays_that_memory_cannot_hold(tmp_path, monkeypatch):
    path = tmp_path / "d.npz"
    np.savez(path, **ARRAYS)
    monkeypatch.setattr(memory, "available_memory", lambda: 300)
    with pytest.raises(InputError, match=r"not enough memory.*d\.npz is too large"):
        user_files.from_npz(path)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("dtype", ["<f8", ">f8", "<f4", "<f2", "<i8", "|u1", "|b1"])
def test_arrays_come_back(tmp_path, rng, save, dtype):
    arrays = {
        "a": rng.integers(0, 200, (3, 70_000)).astype(dtype),
        "b": np.asfortranarray(rng.integers(0, 9, (4, 3, 2)).astype(dtype)),
        "c": np.array(7).astype(dtype),
        "d": np.zeros((0, 4), dtype),
    }
    save(tmp_path / "a.npz", **arrays)
    with archive.opened(tmp_path / "a.npz") as found:
        found.check(found.names)
        read = {name: found.read(name) for name in found.names}
    for name, array in arrays.items():
        np.testing.assert_array_equal(read[name], array)
        assert read[name].dtype == array.dtype and read[name].flags.c_contiguous
