"""Data sets: where they are looked for, what a Dataset is, the bundled subset."""

import numpy as np
import pytest
from data_files import (
    CIFAR,
    FILES,
    RNG,
    TEST_LABELS,
    TRAIN_IMAGES,
    check_cifar,
    cifar_records,
    digests,
    error,
    idx,
    leftovers,
    load,
    tar_gz,
    write,
)

from minipw import InputError
from minipw.datasets import catalog

pytestmark = pytest.mark.usefixtures("isolated")

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
    data = catalog.Dataset("x", x[0], np.zeros(3, int), x[1], np.zeros(3, int), 1, mean, std)
    y = data.batch(x)
    assert y.dtype == np.float32 and y.shape == x.shape
    # float32 has 24 bits and |y| < 3: errors stay near 3e-7
    np.testing.assert_allclose(y, (x / 255 - np.array(mean)) / np.array(std), rtol=0, atol=2e-6)


def test_batch_leaves_float32_as_it_is():
    x = RNG.normal(size=(5, 3)).astype(np.float32)
    data = catalog.Dataset("x", x, np.zeros(5, int), x, np.zeros(5, int), 1, (0.0,), (1.0,))
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
    monkeypatch.setitem(catalog.SHA256, "fashion-mnist", digests(FILES))
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


@pytest.mark.parametrize(
    "layout", ["cifar-10/cifar-10-batches-bin", "cifar-10", "cifar-10-batches-bin"]
)
def test_cifar_folder(tmp_path, layout):
    write(tmp_path / layout, CIFAR)
    check_cifar(load("cifar-10", tmp_path))


@pytest.mark.parametrize("layout", ["cifar-10", "."])
def test_cifar_archive(tmp_path, layout):
    write(tmp_path / layout, {catalog.ARCHIVE: tar_gz({"readme.html": b"x", **CIFAR})})
    before = leftovers(tmp_path)
    check_cifar(load("cifar-10", tmp_path))
    assert leftovers(tmp_path) == before


def test_cifar_with_two_training_batches(tmp_path, capsys):
    files = {
        name: CIFAR[name] for name in ("data_batch_3.bin", "data_batch_5.bin", "test_batch.bin")
    }
    write(tmp_path / "cifar-10", {catalog.ARCHIVE: tar_gz(files)})
    data = load("cifar-10", tmp_path)
    assert len(data.x_train) == 8
    assert capsys.readouterr() == ("", data.note + "\n")
    assert data.note == "cifar-10: 2 of 5 training batches found, training on 8 images"


# The bundled subset in place of MNIST


def test_no_fallback_for_a_damaged_file(tmp_path):
    write(tmp_path / "mnist", {**FILES, TRAIN_IMAGES: FILES[TRAIN_IMAGES][:-1]})
    assert "ends early" in error(load, "mnist", tmp_path, named=False)


def test_no_fallback_for_a_named_set(tmp_path):
    message = error(load, "mnist", tmp_path)
    assert f"put {TRAIN_IMAGES}.gz" in message and str(tmp_path / "mnist") in message
    message = error(load, "cifar-10", tmp_path, named=False)
    assert f"put {catalog.ARCHIVE} in {tmp_path / 'cifar-10'}" in message


@pytest.mark.parametrize("name", [None, 3, np.eye(2)])
def test_what_is_no_name_is_refused(name):
    with pytest.raises(InputError, match="has no name; give one, or a path"):
        load(name)
