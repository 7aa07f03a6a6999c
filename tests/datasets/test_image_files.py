"""The file formats: IDX, CIFAR-10 records, .npz; whole, damaged, random."""

import gzip
import io
import struct
import tarfile
import tracemalloc

import numpy as np
import pytest
from data_files import (
    CIFAR,
    FILES,
    RNG,
    TEST_IMAGES,
    TRAIN_IMAGES,
    TRAIN_LABELS,
    arrays,
    cifar_records,
    error,
    idx,
    images,
    load,
    npz,
    tar_gz,
    write,
)
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from minipw import InputError
from minipw.datasets import catalog, image_files, reading, user_files

pytestmark = pytest.mark.usefixtures("isolated")

# IDX files

IMAGES, LABELS = FILES[TRAIN_IMAGES], FILES[TRAIN_LABELS]


@pytest.mark.parametrize(
    "name, data, text",
    [
        (TRAIN_IMAGES, b"<html>", "is not an IDX file"),
        (TRAIN_IMAGES, b"", "ends early: truncated download, 0 bytes"),
        (TRAIN_IMAGES, IMAGES[:10], "ends early: truncated download, 10 bytes"),
        (TRAIN_IMAGES, IMAGES[:-1], "9,423 bytes of 9,424"),
        (TRAIN_IMAGES, IMAGES + b"x", "trailing bytes after the expected 9,424"),
        (TRAIN_IMAGES, IMAGES[:2] + b"\x0d" + IMAGES[3:], "IDX type 0x0d"),
        (TRAIN_IMAGES, LABELS + bytes(20), "has 1 dimensions, not 3"),
        (TRAIN_LABELS, IMAGES, "has 3 dimensions, not 1"),
        (TRAIN_IMAGES, idx(np.zeros((12, 20, 20))), "(20, 20), not (28, 28)"),
        (TRAIN_IMAGES, idx(np.zeros((0, 28, 28))), "holds no items"),
        (TRAIN_IMAGES, struct.pack(">4I", 0x803, 2**32 - 1, 28, 28), "of 3,367,254,359,296"),
        (TRAIN_LABELS, idx(np.zeros(11)), "11 labels beside 12 images"),
        (TRAIN_LABELS, idx([0] * 7 + [10] + [0] * 4), "label 10 of item 7 is out of range 0..9"),
        (TRAIN_LABELS, idx([0] * 12), "is not the published file of mnist (SHA-256 differs)"),
        (TEST_IMAGES, idx(images(10)), "is not the published file of mnist (SHA-256 differs)"),
    ],
)
@pytest.mark.parametrize("end", ["", ".gz"])
def test_damaged_idx(tmp_path, name, data, text, end):
    write(tmp_path / "mnist", FILES, end)
    write(tmp_path / "mnist", {name: data}, end)
    message = error(load, "mnist", tmp_path)
    assert text in message and name in message and "; replace it" in message


def test_damaged_gz(tmp_path):
    folder = tmp_path / "mnist"
    write(folder, FILES, ".gz")
    path = folder / (TRAIN_IMAGES + ".gz")
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    assert "ends early: truncated download" in error(load, "mnist", tmp_path)
    path.write_bytes(whole[:500] + bytes(500) + whole[1000:])
    assert "is corrupt" in error(load, "mnist", tmp_path)
    path.write_bytes(whole[:-8] + bytes(8))  # the checksum of gzip
    assert "is corrupt" in error(load, "mnist", tmp_path)
    path.write_bytes(whole)
    assert load("mnist", tmp_path).x_train.shape == (12, 28, 28, 1)


def test_long_file_is_not_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "LONGEST", 10_000)
    (tmp_path / "f.gz").write_bytes(gzip.compress(bytes(5_000_000)))
    assert len(reading.read_bytes(tmp_path / "f.gz")) == 10_001


def test_unreadable_paths(tmp_path, monkeypatch):
    assert "Is a directory" in error(reading.read_bytes, tmp_path)
    assert "No such file" in error(reading.read_bytes, tmp_path / "f")

    def refuse(*args):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    assert "cannot be read: Permission denied" in error(reading.read_bytes, "f")


# CIFAR-10


@pytest.mark.parametrize(
    "change, text",
    [
        ({"test_batch.bin": None}, "lacks test_batch.bin"),
        ({f"data_batch_{i}.bin": None for i in range(1, 6)}, "every data_batch_N.bin"),
        ({"data_batch_2.bin": CIFAR["data_batch_2.bin"][:-1]}, "not a whole number of records"),
        ({"data_batch_2.bin": b""}, "0 bytes are not a whole number of records"),
        ({"test_batch.bin": b"\x0a" + bytes(3072)}, "label 10 of item 0 is out of range 0..9"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_damaged_cifar(tmp_path, change, text, packed):
    files = {k: v for k, v in {**CIFAR, **change}.items() if v is not None}
    write(tmp_path, {catalog.ARCHIVE: tar_gz(files)} if packed else files)
    message = error(load, "cifar-10", tmp_path)
    assert text in message and str(tmp_path) in message


def test_damaged_archive(tmp_path):
    path, whole = tmp_path / catalog.ARCHIVE, tar_gz(CIFAR)
    path.write_bytes(whole[:-5000])
    assert "ends early: truncated download" in error(load, "cifar-10", tmp_path)
    path.write_bytes(whole[:-8] + bytes(8))
    assert "is corrupt" in error(load, "cifar-10", tmp_path)
    path.write_bytes(b"PK not gzip")
    assert "is corrupt" in error(load, "cifar-10", tmp_path)
    path.write_bytes(gzip.compress(b"not tar" * 500))
    assert "is corrupt" in error(load, "cifar-10", tmp_path)


def test_long_member_of_an_archive_is_not_read(tmp_path, monkeypatch):
    write(tmp_path, {catalog.ARCHIVE: tar_gz(CIFAR)})
    monkeypatch.setattr(image_files, "LONGEST", 3073 * 4)  # batch 5 has 5 records
    data = load("cifar-10", tmp_path)
    assert "4 of 5 training batches" in data.note


@pytest.mark.parametrize("kind", ["a member", "a long name", "many members", "zeros after"])
def test_an_archive_that_unpacks_to_much_is_not_read(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(image_files, "ARCHIVE", 1 << 22)
    monkeypatch.setattr(image_files, "LONGEST", 1 << 20)
    member = tarfile.TarInfo("x")
    member.size = {"many members": 0, "zeros after": 0}.get(kind, 1 << 24)
    member.type = tarfile.GNUTYPE_LONGNAME if kind == "a long name" else tarfile.REGTYPE
    count = 500 if kind == "many members" else 1  # 100 are looked at
    content = member.tobuf(tarfile.GNU_FORMAT) * count + bytes(1 << 24)
    (tmp_path / catalog.ARCHIVE).write_bytes(gzip.compress(content))
    tracemalloc.start()
    message = error(load, "cifar-10", tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "is longer than the published" in message and peak < 8 << 20


def test_npz_of_floats(tmp_path):
    data = load(npz(tmp_path, y_train=np.array([0.0, 1, 2, 0, 1, 2])))
    assert data.x_train.dtype == data.x_test.dtype == np.float32 and data.shape == (4,)
    np.testing.assert_array_equal(data.batch(data.x_train), arrays()["x_train"])
    assert data.y_train.dtype == np.int64 and data.y_train.tolist() == [0, 1, 2, 0, 1, 2]
    assert data.classes == 4 and data.mean == (0.0,) and data.std == (1.0,)


@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 3, 2)])
def test_npz_of_pixels(tmp_path, shape):
    x = RNG.integers(0, 256, (6, *shape), np.uint8)
    data = load(npz(tmp_path, x_train=x, x_test=x[:2]))
    assert data.shape == ((5, 3, 1) if len(shape) == 2 else shape)
    assert data.x_train.dtype == data.x_test.dtype == np.uint8
    y = data.batch(data.x_train).reshape(-1, len(data.mean)).astype(float)
    np.testing.assert_allclose(y.mean(axis=0), 0, atol=1e-5)  # float32
    np.testing.assert_allclose(y.std(axis=0), 1, atol=1e-5)
    assert len(data.mean) == (2 if len(shape) == 3 else 1)


def test_npz_of_constant_pixels(tmp_path):
    x = np.full((6, 5, 5), 77, np.uint8)
    data = load(npz(tmp_path, x_train=x, x_test=x[:2]))
    assert data.std == (1.0,) and np.abs(data.batch(x)).max() < 1e-6


def test_npz_of_float_images(tmp_path):
    x = RNG.normal(size=(6, 5, 3))
    data = load(npz(tmp_path, x_train=x, x_test=x[:2]))
    assert data.shape == (5, 3, 1) and data.x_train.dtype == np.float32


NAN, HUGE = arrays()["x_train"].copy(), arrays()["x_train"].copy()
NAN[2, 1], HUGE[0, 0] = np.nan, 1e300


@pytest.mark.parametrize(
    "key, value, text",
    [
        ("x_test", None, "is missing"),
        ("y_train", None, "is missing"),
        ("y_train", np.arange(5), "has shape (5,) for 6 samples"),
        ("y_train", np.zeros((6, 1)), "has shape (6, 1) for 6 samples"),
        ("x_train", NAN, "not finite"),
        ("x_train", HUGE, "not finite"),
        ("x_train", np.full((6, 4), "a"), "not numbers"),
        ("x_train", np.full((6, 4), 1j), "not numbers"),
        ("x_train", np.full((6, 4), {}), "holds Python objects; save only numbers"),
        ("y_test", np.array(["a", "b"]), "not numbers"),
        ("y_test", np.array([0.5, 1]), "not class numbers"),
        ("y_test", np.array([np.nan, 1]), "not class numbers"),
        ("y_test", np.array([-1, 1]), "holds -1 to 1"),
        ("y_test", np.array([1, 2**63], np.uint64), "not class numbers"),
        ("x_train", np.zeros((0, 4)), "is empty"),
        ("x_train", np.zeros((6, 0)), "is empty"),
        ("x_train", np.zeros(6), "has shape (6,)"),
        ("x_test", np.zeros((2, 3)), "samples (3,) float32 where x_train has (4,) float32"),
        ("x_test", np.zeros((2, 4), np.uint8), "uint8 where x_train has (4,) float32"),
    ],
)
def test_damaged_npz(tmp_path, key, value, text):
    path = npz(tmp_path, **{key: value})
    message = error(load, path)
    assert text in message and key in message and path in message


def test_npz_that_is_not_one(tmp_path):
    path = tmp_path / "d.npz"
    assert "No such file" in error(load, str(path))
    path.write_bytes(b"not a zip")
    assert "is not a whole .npz file" in error(load, str(path))
    whole = (tmp_path / npz(tmp_path)).read_bytes()
    path.write_bytes(whole[:-30])
    assert "is not a whole .npz file" in error(load, str(path))
    start = whole.index(np.arange(24.0).tobytes())
    path.write_bytes(whole[:start] + b"\xff" + whole[start + 1 :])
    assert "x_train: is corrupt (BadZipFile" in error(load, str(path))


# Random damage


def npz_bytes():
    out = io.BytesIO()
    np.savez_compressed(out, **arrays())
    return out.getvalue()


def read_images(path):
    return image_files.read_idx(path, (28, 28))


def read_batches(path):
    return image_files.read_cifar(path)


TWO_BATCHES = {"test_batch.bin": cifar_records(1), "data_batch_1.bin": cifar_records(1)}
READERS = {
    "idx": (read_images, idx(images(1))),
    "idx.gz": (read_images, gzip.compress(idx(images(1)))),
    "tar.gz": (read_batches, tar_gz(TWO_BATCHES)),
    "npz": (user_files.from_npz, npz_bytes()),
}


@pytest.mark.parametrize("kind", READERS)
@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_random_damage_is_an_input_error_or_harmless(tmp_path, kind, data):
    read, whole = READERS[kind]
    damage = data.draw(st.sampled_from(["noise", "cut", "change"]))
    if damage == "noise":
        content = whole[: data.draw(st.integers(0, 8))] + data.draw(st.binary(max_size=200))
    elif damage == "cut":
        content = whole[: data.draw(st.integers(0, len(whole) - 1))]
    else:
        start = data.draw(st.integers(0, len(whole) - 1))
        patch = data.draw(st.binary(min_size=1, max_size=8))
        content = whole[:start] + patch + whole[start + len(patch) :]
    path = str(tmp_path / f"d.{kind}")
    with open(path, "wb") as file:
        file.write(content)
    if damage == "change":  # may be undone by chance or touch a byte that nothing reads
        try:
            read(path)
        except InputError as caught:
            assert "\n" not in str(caught)
    else:
        assert path in error(read, path)


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(content=st.binary(max_size=200) | st.integers(1, 3072).map(bytes))
@example(content=b"\x0a" + bytes(3072))
def test_random_cifar_batch_is_an_input_error(tmp_path, content):
    write(tmp_path, {"data_batch_1.bin": cifar_records(1), "test_batch.bin": content})
    assert "test_batch.bin" in error(image_files.read_cifar, str(tmp_path))
