"""Fixtures that several test files share."""

import numpy as np
import pytest

from minipw.datasets import Dataset


@pytest.fixture(params=["numpy", pytest.param("cupy", marks=pytest.mark.gpu)])
def xp(request):
    """The array module under test; cupy is skipped where it cannot run."""
    if request.param == "numpy":
        return np
    try:
        import cupy
    except ImportError:
        pytest.skip("cupy is not installed")
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        pytest.skip(f"cupy finds no device: {error}")
    if count == 0:
        pytest.skip("cupy finds no device")
    return cupy


@pytest.fixture
def host():
    """A function that brings an array of either module to NumPy."""
    return lambda x: x.get() if hasattr(x, "get") else np.asarray(x)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def tiny_dataset():
    """A function that draws a learnable data set.

    Each class is a fixed random image, each sample that image under noise.
    """

    def draw(shape=(8, 8, 1), classes=4, train=40, test=12, seed=0):
        rng = np.random.default_rng(seed)
        patterns = rng.integers(0, 200, (classes, *shape))

        def samples(count):
            labels = rng.permutation(np.arange(count) % classes)
            noise = rng.integers(0, 56, (count, *shape))
            return (patterns[labels] + noise).astype(np.uint8), labels

        x_train, y_train = samples(train)
        x_test, y_test = samples(test)
        mean, std = (0.5,) * shape[-1], (0.25,) * shape[-1]
        return Dataset("tiny", x_train, y_train, x_test, y_test, classes, mean, std, "synthetic")

    return draw
