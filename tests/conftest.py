"""Fixtures that several test files share."""

import os

if "PYTEST_XDIST_WORKER" in os.environ:  # a process a core: one BLAS thread each, before NumPy
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import shutil
import subprocess
import sys
from pathlib import Path

import device_stand_in
import numpy as np
import pytest
from data_files import FILES, digests
from host_kernels import Host

from minipw.backend import cuda
from minipw.cli import main
from minipw.datasets import catalog
from minipw.datasets.dataset import Dataset
from minipw.kernels import launcher


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
def cupy(monkeypatch):
    """The stand-in for CuPy in its place, for tests of what needs no true device."""
    return device_stand_in.install(monkeypatch)


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


@pytest.fixture
def isolated(monkeypatch, tmp_path):
    """No environment, no data of this machine, synthetic files as the published MNIST."""
    monkeypatch.delenv("MINIPW_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(catalog, "HOME_DATA", str(tmp_path / "home"))
    monkeypatch.setattr(catalog, "SHA256", dict(catalog.SHA256, mnist=digests(FILES)))
    monkeypatch.setattr(catalog, "MIRRORS", dict.fromkeys(catalog.MIRRORS, ()))


@pytest.fixture
def tiny_npz(tiny_dataset, tmp_path):
    """Path of a .npz with 200 + 80 images of 8 by 8 pixels in 4 classes."""
    data = tiny_dataset(train=200, test=80)
    path = tmp_path / "tiny.npz"
    np.savez(
        path,
        x_train=data.x_train[..., 0],
        y_train=data.y_train,
        x_test=data.x_test[..., 0],
        y_test=data.y_test,
    )
    return str(path)


@pytest.fixture
def command(capsys):
    """A function that runs the command line in this process: exit status, stdout, stderr."""

    def run(*flags):
        capsys.readouterr()
        try:
            status = main.main([str(flag) for flag in flags])
        except SystemExit as stop:  # argparse: --help, --version, a mistake
            status = stop.code
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def process():
    """A function that runs the command line as a process of its own, in the repository."""

    def run(*flags, options=(), **kwargs):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.run(
            [sys.executable, *options, "run.py", *map(str, flags)],
            cwd=Path(__file__).parent.parent,
            text=True,
            timeout=60,
            **{**pipes, **kwargs},
        )

    return run


@pytest.fixture
def on_host(monkeypatch, tmp_path_factory):
    """A function that sends operations on NumPy arrays to kernels compiled for the host.

    Blocks have 32 threads unless said otherwise: each is a thread of the process.
    """
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    folder = tmp_path_factory.getbasetemp()

    def use(block=32, *settings, **named):
        monkeypatch.setitem(cuda.KERNELS, "numpy", Host(folder, *settings, **named))
        monkeypatch.setattr(launcher, "BLOCK", block)
        return cuda.KERNELS["numpy"]

    return use
