"""Data sets: readers, searching, downloading from a local server, the bundled subset."""

import gzip
import hashlib
import io
import os
import socket
import struct
import tarfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib import request

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from minipw import InputError, datasets

RNG = np.random.default_rng(0)
TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS = datasets.IDX_FILES


def idx(array):
    """Bytes of an IDX file of unsigned bytes."""
    array = np.asarray(array, np.uint8)
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.tobytes()


def images(count):
    return RNG.integers(0, 256, (count, 28, 28), np.uint8)


FILES = {TRAIN_IMAGES: idx(images(12)), TRAIN_LABELS: idx(np.arange(12) % 10),
         TEST_IMAGES: idx(images(10)), TEST_LABELS: idx(np.arange(10))}


def digests(files):
    return tuple(hashlib.sha256(files[name]).hexdigest() for name in datasets.IDX_FILES)


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


@pytest.fixture(autouse=True)
def isolated(monkeypatch, tmp_path):
    """No environment, no data of this machine, synthetic files as the published MNIST."""
    monkeypatch.delenv("MINIPW_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(datasets, "HOME_DATA", str(tmp_path / "home"))
    monkeypatch.setattr(datasets, "SHA256", dict(datasets.SHA256, mnist=digests(FILES)))
    monkeypatch.setattr(datasets, "MIRRORS", dict.fromkeys(datasets.MIRRORS, ()))


def load(name="mnist", data_dir=None, **kwargs):
    return datasets.load(name, data_dir, **{"download": False, **kwargs})


# The bundled subset and Dataset


def test_bundled_subset():
    data = load("mnist-5k")
    assert data.x_train.shape == (4000, 28, 28, 1) and data.x_test.shape == (1000, 28, 28, 1)
    assert data.x_train.dtype == data.x_test.dtype == np.uint8
    assert data.y_train.dtype == data.y_test.dtype == np.int64
    assert np.bincount(data.y_train).tolist() == [400] * 10
    assert np.bincount(data.y_test).tolist() == [100] * 10
    assert data.x_train.min() == 0 and data.x_train.max() == 255
    assert data.shape == (28, 28, 1) and data.classes == 10 and data.note == ""
    # a twelfth of the images: the mean brightness is within 1 per cent of full scale of MNIST's
    assert abs(data.x_train.mean() / 255 - data.mean[0]) < 0.01
    assert len({image.tobytes() for image in np.concatenate([data.x_train, data.x_test])}) == 5000


def test_batch_standardises_pixels_by_channel():
    x = RNG.integers(0, 256, (2, 3, 4, 4, 3), np.uint8)
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
    data = datasets.Dataset("x", x[0], np.zeros(3, int), x[1], np.zeros(3, int), 1, mean, std)
    y = data.batch(x)
    assert y.dtype == np.float32 and y.shape == x.shape
    # float32 has 24 bits and |y| < 3: errors stay near 3e-7
    np.testing.assert_allclose(y, (x / 255 - np.array(mean)) / np.array(std), rtol=0, atol=2e-6)


def test_batch_leaves_float32_as_it_is():
    x = RNG.normal(size=(5, 3)).astype(np.float32)
    data = datasets.Dataset("x", x, np.zeros(5, int), x, np.zeros(5, int), 1, (0.0,), (1.0,))
    np.testing.assert_array_equal(data.batch(x[None]), x[None])
    assert data.batch(x).dtype == np.float32 and data.shape == (3,)


# Layouts


@pytest.mark.parametrize("end", ["", ".gz"])
@pytest.mark.parametrize("layout", ["mnist", "MNIST/raw", "."])
def test_mnist_layouts(tmp_path, layout, end):
    write(tmp_path / layout, FILES, end)
    data = load("mnist", tmp_path)
    assert idx(data.x_train[..., 0]) == FILES[TRAIN_IMAGES]
    assert idx(data.y_test) == FILES[TEST_LABELS]
    assert data.name == "mnist" and data.mean == (0.1307,) and data.std == (0.3081,)


def test_dotted_names(tmp_path):
    write(tmp_path / "mnist", {k.replace("-idx", ".idx"): v for k, v in FILES.items()}, ".gz")
    assert load("mnist", tmp_path).x_test.shape == (10, 28, 28, 1)


@pytest.mark.parametrize("layout", ["fashion-mnist", "FashionMNIST/raw"])
def test_fashion_layouts(tmp_path, monkeypatch, layout):
    monkeypatch.setitem(datasets.SHA256, "fashion-mnist", digests(FILES))
    write(tmp_path / layout, FILES)
    data = load("fashion-mnist", tmp_path)
    assert data.name == "fashion-mnist" and data.mean == (0.2859,)


def test_files_of_another_set_in_the_folder_itself_are_skipped(tmp_path):
    write(tmp_path, {**FILES, TEST_LABELS: idx(np.arange(10)[::-1])})
    assert "mnist is not in" in error(load, "mnist", tmp_path)


def test_order_of_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("MINIPW_DATA", str(tmp_path / "variable"))
    sets = {}
    for name in ("home", "variable", "given"):  # each is looked in before the one above
        files = {f"data_batch_{i}.bin": cifar_records(3) for i in range(1, 6)}
        sets[name] = files["test_batch.bin"] = cifar_records(2)
        write(tmp_path / name / "cifar-10" / "cifar-10-batches-bin", files)
        data = load("cifar-10", tmp_path / "given")
        first = np.frombuffer(sets[name], np.uint8)[1:3073].reshape(3, 32, 32)
        np.testing.assert_array_equal(data.x_test[0], first.transpose(1, 2, 0))


def test_data_dir_that_is_a_file(tmp_path):
    (tmp_path / "f").write_text("x")
    assert "is not a folder" in error(load, "mnist", tmp_path / "f")


def test_unknown_name():
    assert "mnist-5k" in error(load, "mnits")


# IDX files

IMAGES, LABELS = FILES[TRAIN_IMAGES], FILES[TRAIN_LABELS]


@pytest.mark.parametrize("name, data, text", [
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
])
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
    monkeypatch.setattr(datasets, "LONGEST", 10_000)
    (tmp_path / "f.gz").write_bytes(gzip.compress(bytes(5_000_000)))
    assert len(datasets.read_bytes(tmp_path / "f.gz")) == 10_001


def test_unreadable_paths(tmp_path, monkeypatch):
    assert "Is a directory" in error(datasets.read_bytes, tmp_path)
    assert "No such file" in error(datasets.read_bytes, tmp_path / "f")

    def refuse(*args):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    assert "cannot be read: Permission denied" in error(datasets.read_bytes, "f")


# CIFAR-10


def check_cifar(data):
    """Five synthetic batches of 1 to 5 records, in order, and 4 test records."""
    assert data.x_train.shape == (15, 32, 32, 3) and data.x_test.shape == (4, 32, 32, 3)
    assert data.y_train.tolist() == [0, 0, 1, 0, 1, 2, 0, 1, 2, 3, 0, 1, 2, 3, 4]
    record = CIFAR["data_batch_2.bin"][3073:]
    for row, column, channel in ((0, 0, 0), (3, 5, 1), (31, 30, 2)):
        expected = record[1 + 1024 * channel + 32 * row + column]
        assert data.x_train[2, row, column, channel] == expected
    assert data.note == "" and data.classes == 10 and len(data.mean) == 3


@pytest.mark.parametrize("layout", ["cifar-10/cifar-10-batches-bin", "cifar-10",
                                    "cifar-10-batches-bin"])
def test_cifar_folder(tmp_path, layout):
    write(tmp_path / layout, CIFAR)
    check_cifar(load("cifar-10", tmp_path))


@pytest.mark.parametrize("layout", ["cifar-10", "."])
def test_cifar_archive(tmp_path, layout):
    write(tmp_path / layout, {datasets.ARCHIVE: tar_gz({"readme.html": b"x", **CIFAR})})
    before = leftovers(tmp_path)
    check_cifar(load("cifar-10", tmp_path))
    assert leftovers(tmp_path) == before


def test_cifar_with_two_training_batches(tmp_path):
    files = {name: CIFAR[name] for name in ("data_batch_3.bin", "data_batch_5.bin",
                                            "test_batch.bin")}
    write(tmp_path / "cifar-10", {datasets.ARCHIVE: tar_gz(files)})
    said = []
    data = load("cifar-10", tmp_path, say=said.append)
    assert len(data.x_train) == 8
    assert said == [data.note]
    assert data.note == "cifar-10: 2 of 5 training batches found, training on 8 images"


@pytest.mark.parametrize("change, text", [
    ({"test_batch.bin": None}, "lacks test_batch.bin"),
    ({f"data_batch_{i}.bin": None for i in range(1, 6)}, "every data_batch_N.bin"),
    ({"data_batch_2.bin": CIFAR["data_batch_2.bin"][:-1]}, "not a whole number of records"),
    ({"data_batch_2.bin": b""}, "0 bytes are not a whole number of records"),
    ({"test_batch.bin": b"\x0a" + bytes(3072)}, "label 10 of item 0 is out of range 0..9"),
])
@pytest.mark.parametrize("packed", [False, True])
def test_damaged_cifar(tmp_path, change, text, packed):
    files = {k: v for k, v in {**CIFAR, **change}.items() if v is not None}
    write(tmp_path, {datasets.ARCHIVE: tar_gz(files)} if packed else files)
    message = error(load, "cifar-10", tmp_path)
    assert text in message and str(tmp_path) in message


def test_damaged_archive(tmp_path):
    path, whole = tmp_path / datasets.ARCHIVE, tar_gz(CIFAR)
    path.write_bytes(whole[:-5000])
    assert "ends early: truncated download" in error(load, "cifar-10", tmp_path)
    path.write_bytes(whole[:-8] + bytes(8))
    assert "is corrupt" in error(load, "cifar-10", tmp_path)
    path.write_bytes(b"PK not gzip")
    assert "is corrupt" in error(load, "cifar-10", tmp_path)
    path.write_bytes(gzip.compress(b"not tar" * 500))
    assert "is corrupt" in error(load, "cifar-10", tmp_path)


def test_long_member_of_an_archive_is_not_read(tmp_path, monkeypatch):
    write(tmp_path, {datasets.ARCHIVE: tar_gz(CIFAR)})
    monkeypatch.setattr(datasets, "LONGEST", 3073 * 4)  # batch 5 has 5 records
    data = load("cifar-10", tmp_path, say=[].append)
    assert "4 of 5 training batches" in data.note


# .npz files


def arrays(**change):
    """A valid set of arrays, with changes; None leaves one out."""
    base = {"x_train": np.arange(24.0).reshape(6, 4), "y_train": np.array([0, 1, 2, 0, 1, 2]),
            "x_test": np.ones((2, 4)), "y_test": np.array([1, 3])}
    return {k: v for k, v in {**base, **change}.items() if v is not None}


def npz(folder, **change):
    np.savez(folder / "d.npz", **arrays(**change))
    return str(folder / "d.npz")


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


@pytest.mark.parametrize("key, value, text", [
    ("x_test", None, "is missing"),
    ("y_train", None, "is missing"),
    ("y_train", np.arange(5), "has shape (5,) for 6 samples"),
    ("y_train", np.zeros((6, 1)), "has shape (6, 1) for 6 samples"),
    ("x_train", NAN, "not finite"),
    ("x_train", HUGE, "not finite"),
    ("x_train", np.full((6, 4), "a"), "not numbers"),
    ("x_train", np.full((6, 4), 1j), "not numbers"),
    ("x_train", np.full((6, 4), {}), "pickle"),
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
])
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
    path.write_bytes(whole[:start] + b"\xff" + whole[start + 1:])
    assert "x_train: is corrupt (BadZipFile" in error(load, str(path))


# Random damage


def npz_bytes():
    out = io.BytesIO()
    np.savez_compressed(out, **arrays())
    return out.getvalue()


def read_images(path):
    return datasets.read_idx(path, (28, 28))


def read_batches(path):
    return datasets.read_cifar(path, print)


TWO_BATCHES = {"test_batch.bin": cifar_records(1), "data_batch_1.bin": cifar_records(1)}
READERS = {"idx": (read_images, idx(images(1))),
           "idx.gz": (read_images, gzip.compress(idx(images(1)))),
           "tar.gz": (read_batches, tar_gz(TWO_BATCHES)),
           "npz": (datasets.read_npz, npz_bytes())}


@pytest.mark.parametrize("kind", READERS)
@settings(max_examples=60, deadline=None, derandomize=True,
          suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_damage_is_an_input_error_or_harmless(tmp_path, kind, data):
    read, whole = READERS[kind]
    damage = data.draw(st.sampled_from(["noise", "cut", "change"]))
    if damage == "noise":
        content = whole[:data.draw(st.integers(0, 8))] + data.draw(st.binary(max_size=200))
    elif damage == "cut":
        content = whole[:data.draw(st.integers(0, len(whole) - 1))]
    else:
        start = data.draw(st.integers(0, len(whole) - 1))
        patch = data.draw(st.binary(min_size=1, max_size=8))
        content = whole[:start] + patch + whole[start + len(patch):]
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


@settings(max_examples=60, deadline=None, derandomize=True,
          suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200) | st.integers(1, 3072).map(bytes))
@example(content=b"\x0a" + bytes(3072))
def test_random_cifar_batch_is_an_input_error(tmp_path, content):
    write(tmp_path, {"data_batch_1.bin": cifar_records(1), "test_batch.bin": content})
    assert "test_batch.bin" in error(datasets.read_cifar, str(tmp_path), print)


# Downloads


class Server(ThreadingHTTPServer):
    """Answers /<behaviour>/<file> from FILES; counts what it is asked for."""

    daemon_threads = True

    def __init__(self, packed):
        super().__init__(("127.0.0.1", 0), Handler)
        self.packed, self.asked, self.agents = packed, [], set()
        self.release = threading.Event()


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        _, behaviour, name = self.path.split("/")
        self.server.asked.append((behaviour, name))
        self.server.agents.add(self.headers["User-Agent"])
        body = self.server.packed[name]
        if behaviour == "missing":
            self.send_error(404)
            return
        if behaviour == "moved":
            self.send_response(302)
            self.send_header("Location", f"/good/{name}")
            self.end_headers()
            return
        if behaviour in ("silent", "late"):
            self.server.release.wait(20)
            if behaviour == "silent":
                return
        if behaviour == "corrupt":
            body = body[:-20] + bytes(20)
        if behaviour == "other":
            body = gzip.compress(b"other")
        self.send_response(200)
        if behaviour != "unmeasured":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:20] if behaviour in ("cut", "stalled") else body)
        if behaviour == "stalled":
            self.wfile.flush()
            self.server.release.wait(20)


@pytest.fixture
def server():
    packed = {name + ".gz": gzip.compress(data) for name, data in FILES.items()}
    server = Server({**packed, datasets.ARCHIVE: tar_gz(CIFAR)})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.release.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def mirrors(server, monkeypatch):
    """Set the mirrors of a data set to behaviours of the local server."""
    def choose(*behaviours, name="mnist"):
        base = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setitem(datasets.MIRRORS, name, tuple(f"{base}/{b}/" for b in behaviours))
    return choose


def fetch(tmp_path, name="mnist", **kwargs):
    return datasets.load(name, tmp_path / "new" / "data", **{"time_limit": 10, **kwargs})


@pytest.mark.parametrize("behaviour", ["good", "moved", "unmeasured"])
def test_download(tmp_path, server, mirrors, capfd, behaviour):
    mirrors(behaviour)
    data = fetch(tmp_path)
    assert idx(data.x_train[..., 0]) == FILES[TRAIN_IMAGES]
    assert leftovers(tmp_path) == sorted(f"new/data/mnist/{name}.gz" for name in FILES)
    assert server.agents == {"minipw"}
    server.asked.clear()
    assert fetch(tmp_path).x_train.shape == data.x_train.shape and not server.asked
    assert capfd.readouterr().out == ""


def test_download_of_cifar(tmp_path, server, mirrors, monkeypatch):
    archive = server.packed[datasets.ARCHIVE]
    monkeypatch.setitem(datasets.SHA256, "cifar-10", (hashlib.sha256(archive).hexdigest(),))
    mirrors("corrupt", "good", name="cifar-10")
    check_cifar(fetch(tmp_path, "cifar-10"))
    assert leftovers(tmp_path) == [f"new/data/cifar-10/{datasets.ARCHIVE}"]


def test_only_missing_files_are_downloaded(tmp_path, server, mirrors):
    mirrors("good")
    files = {name: FILES[name] for name in (TRAIN_IMAGES, TEST_LABELS)}
    write(tmp_path / "new" / "data" / "mnist", files)
    fetch(tmp_path)
    assert server.asked == [("good", TRAIN_LABELS + ".gz"), ("good", TEST_IMAGES + ".gz")]


@pytest.mark.parametrize("bad", ["missing", "cut", "corrupt", "other"])
def test_second_mirror(tmp_path, server, mirrors, bad):
    mirrors(bad, "good")
    assert fetch(tmp_path).x_test.shape == (10, 28, 28, 1)
    assert leftovers(tmp_path) == sorted(f"new/data/mnist/{name}.gz" for name in FILES)
    assert len(server.asked) == 8


@pytest.mark.parametrize("bad, reason", [
    ("missing", "404"), ("cut", "truncated: got 20 of"), ("corrupt", "SHA-256 differs"),
    ("other", "SHA-256 differs"),
])
def test_all_mirrors_bad(tmp_path, mirrors, bad, reason):
    mirrors(bad, "missing")
    message = error(fetch, tmp_path)
    assert reason in message and "404" in message
    assert f"{TEST_LABELS}.gz in {tmp_path / 'new' / 'data' / 'mnist'}" in message
    assert not list(tmp_path.iterdir())


def test_silent_mirrors_are_given_up_in_time(tmp_path, mirrors):
    mirrors("silent", "silent")
    started = time.monotonic()
    assert error(fetch, tmp_path, time_limit=1).count("no answer in time") == 2
    assert 0.9 < time.monotonic() - started < 2
    assert not list(tmp_path.iterdir())


def test_silent_mirror_leaves_time_for_the_next(tmp_path, server, mirrors):
    mirrors("silent", "good")  # each file waits for half of what is left: 1, 1/2, 1/4, 1/8 s
    started = time.monotonic()
    assert fetch(tmp_path, time_limit=2).x_train.shape == (12, 28, 28, 1)
    assert 1.8 < time.monotonic() - started < 4
    assert [behaviour for behaviour, _ in server.asked] == ["silent", "good"] * 4


def test_late_answer_is_closed(tmp_path, server, mirrors, monkeypatch):
    opened, urlopen = [], request.urlopen

    def remember(*args, **kwargs):
        opened.append(urlopen(*args, **kwargs))
        return opened[-1]

    mirrors("late")
    monkeypatch.setattr(request, "urlopen", remember)
    assert "no answer in time" in error(fetch, tmp_path, time_limit=0.2)
    assert not opened
    server.release.set()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and not (opened and opened[0].closed):
        time.sleep(0.01)
    assert opened[0].closed and not list(tmp_path.iterdir())


def test_refused_connection(tmp_path, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/"
    monkeypatch.setitem(datasets.MIRRORS, "mnist", (url,))
    message = error(fetch, tmp_path)
    assert "Connection refused" in message and "urlopen" not in message


def test_progress_bar_is_on_standard_error(tmp_path, mirrors, monkeypatch, capsys):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    mirrors("good")
    monkeypatch.setattr("sys.stderr", terminal)
    fetch(tmp_path)
    assert TRAIN_IMAGES in terminal.getvalue() and capsys.readouterr().out == ""


def test_stalled_download_fails(tmp_path, mirrors, monkeypatch):
    monkeypatch.setattr(datasets, "STALL", 0.3)
    mirrors("stalled")
    assert "stopped after 20 bytes" in error(fetch, tmp_path)
    assert not list(tmp_path.iterdir())


def test_name_resolution_that_hangs(tmp_path, mirrors, monkeypatch):
    release = threading.Event()

    def hang(*args, **kwargs):
        release.wait(20)
        raise OSError("resolved too late")

    mirrors("good")
    monkeypatch.setattr("socket.getaddrinfo", hang)
    started = time.monotonic()
    assert "no answer in time" in error(fetch, tmp_path, time_limit=0.3)
    release.set()
    assert time.monotonic() - started < 2


@pytest.mark.parametrize("scheme", ["file", "ftp"])
def test_only_http(tmp_path, monkeypatch, scheme):
    monkeypatch.setitem(datasets.MIRRORS, "mnist", (f"{scheme}://localhost/tmp/",))
    assert "not http or https" in error(fetch, tmp_path)


def test_downloads_go_to_the_first_writable_folder(tmp_path, mirrors, monkeypatch):
    mirrors("good")
    (tmp_path / "variable").mkdir()
    (tmp_path / "variable" / "mnist").write_text("a file where a folder is needed")
    monkeypatch.setenv("MINIPW_DATA", str(tmp_path / "variable"))
    assert datasets.load("mnist").x_train.shape == (12, 28, 28, 1)
    assert len(leftovers(tmp_path / "home" / "mnist")) == 4


def test_no_writable_folder(tmp_path, mirrors, monkeypatch):
    def refuse(path, *args, **kwargs):
        raise OSError(30, "Read-only file system", path)

    mirrors("good")
    monkeypatch.setattr(os, "makedirs", refuse)
    message = error(fetch, tmp_path)
    assert "Read-only file system" in message and str(tmp_path / "new" / "data") in message


def test_full_disk(tmp_path, mirrors, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    mirrors("good", "good")
    monkeypatch.setattr(os, "fsync", full)
    message = error(fetch, tmp_path)
    assert "No space left on device" in message and str(tmp_path / "new" / "data") in message
    assert not list(tmp_path.iterdir())


def test_interrupt_leaves_no_file(tmp_path, mirrors, monkeypatch):
    def interrupt(handle):
        assert len(leftovers(tmp_path)) == 1
        raise KeyboardInterrupt

    mirrors("good")
    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fetch(tmp_path)
    assert not list(tmp_path.iterdir())


# The bundled subset in place of MNIST


@pytest.mark.parametrize("download", [False, True])
def test_fallback_when_no_data_set_was_named(tmp_path, mirrors, download):
    mirrors("missing")
    said = []
    data = fetch(tmp_path, named=False, download=download, say=said.append)
    assert data.name == "mnist-5k" and len(data.x_train) == 4000
    assert data.note == "the 5,000 bundled images stand in for MNIST"
    assert len(said) == 1 and said[0].startswith("warning: mnist is not in")
    assert ("404" in said[0]) == download and "\n" not in said[0]


def test_no_fallback_for_a_damaged_file(tmp_path):
    write(tmp_path / "mnist", {**FILES, TRAIN_IMAGES: IMAGES[:-1]})
    assert "ends early" in error(load, "mnist", tmp_path, named=False)


def test_no_fallback_for_a_named_set(tmp_path):
    message = error(load, "mnist", tmp_path)
    assert f"put {TRAIN_IMAGES}.gz" in message and str(tmp_path / "mnist") in message
    message = error(load, "cifar-10", tmp_path, named=False)
    assert f"put {datasets.ARCHIVE} in {tmp_path / 'cifar-10'}" in message


def test_default_say_prints_on_standard_error(tmp_path, capsys):
    load("mnist", tmp_path, named=False)
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
