"""A training and a test set in memory."""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from minipw.backend.arrays import array_module, to_device


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training and a test set, as stored."""

    name: str
    x_train: np.ndarray  # (N, height, width, channels) or (N, D): uint8 pixels or float32
    y_train: np.ndarray  # (N,) int64, 0 to classes - 1
    x_test: np.ndarray
    y_test: np.ndarray
    classes: int
    mean: tuple[float, ...]  # a channel, of pixels scaled to [0, 1]; (0.0,) for float32
    std: tuple[float, ...]  # likewise; (1.0,) for float32
    note: str = ""  # a sentence that results carry, or ""
    digest: str = ""  # of the content, where the name does not say what it is
    labels: tuple[str, ...] = ()  # of the classes, where they have names
    columns: tuple[str, ...] | None = None  # of the features, where they have names
    tasks_train: np.ndarray | None = None  # (N,) int64, the file's own tasks
    tasks_test: np.ndarray | None = None

    @property
    def identity(self):
        """The data that a stored result belongs to."""
        return identity(self.name, self.digest)

    @property
    def shape(self):
        """Shape of one sample: (height, width, channels) or (D,)."""
        return self.x_train.shape[1:]

    def hold_out(self, share):
        """A data set of the training samples alone: the first `share` of each class for testing.

        Where the data names its tasks, of each class in each task. One sample at least is for
        testing where there are two.
        """
        tasks, group = self.tasks_train, self.y_train
        if tasks is not None:
            group = np.unique(np.stack([tasks, group]), axis=1, return_inverse=True)[1].reshape(-1)
        held = np.zeros(len(group), bool)
        for number in np.unique(group):
            rows = np.flatnonzero(group == number)
            held[rows[: max(round(share * rows.size), int(rows.size > 1))]] = True
        return replace(
            self,
            x_train=self.x_train[~held],
            y_train=self.y_train[~held],
            x_test=self.x_train[held],
            y_test=self.y_train[held],
            tasks_train=None if tasks is None else tasks[~held],
            tasks_test=None if tasks is None else tasks[held],
        )

    def label(self, number):
        """What class `number` is called."""
        return self.labels[number] if self.labels else str(number)

    def moved_to(self, xp):
        """The data set with arrays of the module `xp`, in their own types."""
        names = ("x_train", "y_train", "x_test", "y_test")
        return replace(self, **{name: to_device(xp, getattr(self, name)) for name in names})

    @cached_property
    def scale_and_shift(self):
        """What a pixel is multiplied by, and what is added: float32 ndarrays (channels,)."""
        xp, mean, std = array_module(self.x_train), np.array(self.mean), np.array(self.std)
        return [to_device(xp, a.astype(np.float32)) for a in (1 / (255 * std), -mean / std)]

    def batch(self, x):
        """Samples as float32: pixels become (x / 255 - mean) / std, other values stay."""
        if x.dtype != np.uint8:
            return x.astype(np.float32, copy=False)
        scale, shift = self.scale_and_shift
        y = x * scale
        y += shift
        return y


def identity(name, digest):
    """What tells data apart: a name, and the digest of a part; of a file the digest, wherever
    it lies.
    """
    return digest if digest and "." in name else f"{name} {digest}".rstrip()


def content_digest(*arrays):
    """Sixteen hexadecimal digits that tell the contents of arrays apart."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array))
    return digest.hexdigest()[:16]


def pixel_statistics(x):
    """Mean and standard deviation of each channel of uint8 images, scaled to [0, 1]."""
    pixels = x.reshape(-1, x.shape[-1] if x.ndim == 4 else 1)
    mean = pixels.mean(axis=0) / 255
    # einsum adds in int64 without a copy of the images in a wider type
    squares = np.einsum("ij,ij->j", pixels, pixels, dtype=np.int64, casting="unsafe")
    std = np.sqrt(np.maximum(squares / (255**2 * len(pixels)) - mean**2, 0))
    std[std < 1e-6] = 1  # a constant channel, up to rounding
    return tuple(mean.tolist()), tuple(std.tolist())
