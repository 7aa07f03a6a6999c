"""Data sets: find the files or download them, check them, read them.

Every check ends in an InputError of one line. Where files are looked for, and
where a download lands, is in data/README.md.
"""

import contextlib
import gzip
import hashlib
import math
import os
import struct
import sys
import tarfile
import tempfile
import threading
import time
import zipfile
import zlib
from dataclasses import dataclass

import numpy as np

from minipw import InputError

PACKAGE = os.path.dirname(os.path.abspath(__file__))
CHECKOUT = os.path.dirname(PACKAGE)  # of an installed package: a folder without pyproject.toml
HOME_DATA, BUNDLED = "data", os.path.join(PACKAGE, "data", "mnist-5k")
if os.path.isfile(os.path.join(CHECKOUT, "pyproject.toml")):
    HOME_DATA = os.path.join(CHECKOUT, "data")
    BUNDLED = os.path.join(HOME_DATA, "mnist-5k")

ARCHIVE = "cifar-10-binary.tar.gz"
CIFAR_BATCHES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
IDX_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte",
             "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

# Of the uncompressed IDX files in the order of IDX_FILES, and of the archive itself.
SHA256 = {
    "mnist": ("ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
              "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
              "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
              "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
    "fashion-mnist": ("c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
                      "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
                      "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
                      "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"),
    "mnist-5k": ("01c279c669c4632ea8b97298fee28d0f4c5fe2bf2039e7f822f3feaac779d017",
                 "daf1c61ba276c5ec7656a0a9c541c2f61cb96d7af3a019906cdb4cf08ef09728",
                 "48e7795fc2f307cac39d091315c695780f904df73fef72545ee5b40d8e7948c3",
                 "9f9f83403fa89036e5960042fa3fdded854d1e4a5602fe4b476f8ff0e7865ff8"),
    "cifar-10": ("c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",),
}
MIRRORS = {
    "mnist": ("https://ossci-datasets.s3.amazonaws.com/mnist/",
              "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    "fashion-mnist": (
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"),
    "cifar-10": ("https://www.cs.toronto.edu/~kriz/",),
}
LAYOUTS = {"mnist": ("mnist", "MNIST/raw", "."),
           "fashion-mnist": ("fashion-mnist", "FashionMNIST/raw", "."),
           "cifar-10": ("cifar-10", ".")}
# Mean and standard deviation of each channel, after scaling to [0, 1].
PIXELS = {"mnist": ((0.1307,), (0.3081,)), "mnist-5k": ((0.1307,), (0.3081,)),
          "fashion-mnist": ((0.2859,), (0.3530,)),
          "cifar-10": ((0.5071, 0.4866, 0.4409), (0.2673, 0.2564, 0.2762))}

LONGEST = 1 << 26  # bytes read of one file; the longest published one has 47,040,016
BLOCK = 1 << 16
STALL = 20.0  # seconds without a byte after which a running download fails
REPLACE = "replace it with the published file"
SAVE = "save x_train, y_train, x_test and y_test with numpy.savez"


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

    @property
    def shape(self):
        """Shape of one sample: (height, width, channels) or (D,)."""
        return self.x_train.shape[1:]

    def batch(self, x):
        """Samples as float32: (x / 255 - mean) / std for pixels, other values as they are."""
        if x.dtype != np.uint8:
            return np.asarray(x, np.float32)
        mean, std = np.array(self.mean), np.array(self.std)
        y = x * (1 / (255 * std)).astype(np.float32)
        y += (-mean / std).astype(np.float32)
        return y


def to_stderr(line):
    """Print a line on standard error."""
    print(line, file=sys.stderr)


def require(condition, where, fault, remedy=REPLACE):
    """Raise the InputError "where: fault; remedy" unless the condition holds."""
    if not condition:
        raise InputError(f"{where}: {fault}; {remedy}".replace("\n", " "))


@contextlib.contextmanager
def reading(where):
    """Turn whatever goes wrong while a file is read into an InputError."""
    try:
        yield
    except InputError:
        raise
    except EOFError:
        require(False, where, "ends early: truncated download", "replace the file")
    except Exception as error:  # zlib, tarfile, zipfile and numpy raise a dozen types on damage
        if isinstance(error, OSError) and error.errno:  # gzip's own OSError has no number
            require(False, where, f"cannot be read: {error.strerror}",
                    "check the path and its permissions")
        require(False, where, f"is corrupt ({type(error).__name__}: {error})", "replace the file")


def read_bytes(path):
    """Bytes of a file, inflated if they are gzip, at most LONGEST + 1 of them."""
    parts, room = [], LONGEST + 1
    with reading(path), open(path, "rb") as raw:
        is_gzip = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        with gzip.GzipFile(fileobj=raw) if is_gzip else raw as file:
            while room and (part := file.read(min(room, 1 << 20))):
                parts.append(part)
                room -= len(part)
    return b"".join(parts)


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


def locate(folder, name):
    """Path of an IDX file under one of its usual names in a folder, or None."""
    stems = (os.path.join(folder, name), os.path.join(folder, name.replace("-idx", ".idx")))
    return next(filter(os.path.isfile, (s + end for s in stems for end in ("", ".gz"))), None)


def read_idx_set(name, folder, note=""):
    """Dataset of the four IDX files in a folder."""
    arrays, digests = {}, {}
    for file in IDX_FILES:
        path = locate(folder, file) or os.path.join(folder, file)
        arrays[path], digests[path] = read_idx(path, (28, 28) if "images" in file else ())
    (_, x_train), (train, y_train), (_, x_test), (test, y_test) = arrays.items()
    for path, x, y in ((train, x_train, y_train), (test, x_test, y_test)):
        require(len(x) == len(y), path, f"{len(y):,} labels beside {len(x):,} images")
        check_labels(path, y)
    for (path, digest), published in zip(digests.items(), SHA256[name], strict=True):
        require(digest == published, path, f"is not the published file of {name} (SHA-256 differs)")
    return Dataset(name, x_train[..., None], y_train.astype(np.int64), x_test[..., None],
                   y_test.astype(np.int64), 10, *PIXELS[name], note)


def cifar_batch(where, data):
    """Images (N, 32, 32, 3) and labels (N,) of records of 1 + 3072 bytes, channels first."""
    require(data and len(data) % 3073 == 0, where, f"{len(data):,} bytes are not a whole number "
            "of records of 3,073: truncated download")
    records = np.frombuffer(data, np.uint8).reshape(-1, 3073)
    check_labels(where, records[:, 0])
    return records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), records[:, 0]


def read_cifar(path, say):
    """Dataset of the binary CIFAR-10 batches in a folder, or in the archive, read in place."""
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
    x, y = (np.concatenate(arrays) for arrays in zip(*train, strict=True))
    note = ""
    if len(train) < 5:
        note = f"cifar-10: {len(train)} of 5 training batches found, training on {len(y):,} images"
        say(note)
    return Dataset("cifar-10", np.ascontiguousarray(x), y.astype(np.int64),
                   np.ascontiguousarray(test[0]), test[1].astype(np.int64), 10,
                   *PIXELS["cifar-10"], note)


def npz_samples(where, x):
    """Samples of an array of a .npz: uint8 is pixels, anything else float32."""
    require(x.dtype.kind in "biuf", where, f"holds {x.dtype}, not numbers", SAVE)
    require(x.ndim in (2, 3, 4), where, f"has shape {x.shape}", "give (N, D), (N, height, width) "
            "or (N, height, width, channels)")
    require(x.size, where, "is empty", SAVE)
    if x.dtype != np.uint8:
        with np.errstate(over="ignore"):
            x = x.astype(np.float32)
        require(np.isfinite(x).all(), where, "holds values not finite in float32", "remove them")
    return x[..., None] if x.ndim == 3 else x


def npz_labels(where, y, count):
    """Labels of an array of a .npz, int64."""
    require(y.dtype.kind in "biuf", where, f"holds {y.dtype}, not numbers", SAVE)
    require(y.shape == (count,), where, f"has shape {y.shape} for {count} samples", SAVE)
    whole = np.isfinite(y).all() and (y == np.floor(y)).all()
    require(whole and y.min() >= 0 and y.max() < 1 << 20, where,
            f"holds {y.min()} to {y.max()}, not class numbers", "number the classes 0, 1, 2, ...")
    return y.astype(np.int64)


def read_npz(path):
    """Dataset of a .npz file with x_train, y_train, x_test and y_test."""
    path, arrays = os.fspath(path), {}
    with reading(path), open(path, "rb") as file:
        require(zipfile.is_zipfile(file), path, "is not a whole .npz file", SAVE)
        file.seek(0)
        with np.load(file, allow_pickle=False) as archive:
            for key in ("x_train", "y_train", "x_test", "y_test"):
                require(key in archive, path, f"{key} is missing", SAVE)
                with reading(f"{path}: {key}"):
                    arrays[key] = np.asarray(archive[key])
    x_train, x_test = (npz_samples(f"{path}: {k}", arrays[k]) for k in ("x_train", "x_test"))
    require(x_train.shape[1:] == x_test.shape[1:] and x_train.dtype == x_test.dtype,
            f"{path}: x_test", f"samples {x_test.shape[1:]} {x_test.dtype} where x_train has "
            f"{x_train.shape[1:]} {x_train.dtype}", SAVE)
    y_train = npz_labels(f"{path}: y_train", arrays["y_train"], len(x_train))
    y_test = npz_labels(f"{path}: y_test", arrays["y_test"], len(x_test))
    mean, std = (0.0,), (1.0,)
    if x_train.dtype == np.uint8:
        pixels = x_train.reshape(-1, x_train.shape[-1] if x_train.ndim == 4 else 1)
        average = pixels.mean(axis=0) / 255
        # einsum adds in int64 without a copy of the images in a wider type
        squares = np.einsum("ij,ij->j", pixels, pixels, dtype=np.int64, casting="unsafe")
        spread = np.sqrt(np.maximum(squares / (255**2 * len(pixels)) - average**2, 0))
        spread[spread < 1e-6] = 1  # a constant channel, up to rounding
        mean, std = tuple(average.tolist()), tuple(spread.tolist())
    classes = int(max(y_train.max(), y_test.max())) + 1
    return Dataset(path, x_train, y_train, x_test, y_test, classes, mean, std)


class Unavailable(Exception):
    """A mirror does not deliver a file; the text is the reason."""


def connect(url, seconds):
    """Response and first block of a URL, at most `seconds` later, else Unavailable."""
    from urllib import request

    reply = []  # the first entry counts: the thread's, or the one that gives up

    def ask():
        response = None
        try:
            if not url.startswith(("http://", "https://")):
                raise ValueError("not http or https")
            query = request.Request(url, headers={"User-Agent": "minipw"})
            response = request.urlopen(query, timeout=STALL)
            reply.append((response, response.read1(BLOCK)))
            if reply[0][0] is not response:
                response.close()
        except Exception as error:  # whatever it is, it is this mirror's reason
            reason = error if hasattr(error, "code") else getattr(error, "reason", error)
            reply.append((None, str(reason) or type(error).__name__))
            if hasattr(response or error, "close"):  # an HTTPError is an open response
                (response or error).close()

    thread = threading.Thread(target=ask, daemon=True)  # name resolution obeys no timeout
    thread.start()
    thread.join(max(seconds, 0))
    reply.append((None, "no answer in time"))
    response, block = reply[0]
    if response is None:
        raise Unavailable(block)
    return response, block


def transfer(response, block, path, digest):
    """Write a response to `path`, which appears only when it is whole and right."""
    from http.client import HTTPException

    from tqdm import tqdm

    partial, got = f"{path}.{os.getpid()}.part", 0
    length = response.headers.get("Content-Length") or ""
    total = int(length) if length.isdecimal() else None
    bar = tqdm(total=total, desc=os.path.basename(path), unit="B", unit_scale=True,
               file=sys.stderr, leave=False, disable=None)
    try:
        with response, bar, open(partial, "wb") as file:
            while block:
                file.write(block)
                bar.update(len(block))
                got += len(block)
                try:
                    block = response.read1(BLOCK)
                except (OSError, HTTPException) as error:
                    raise Unavailable(f"stopped after {got:,} bytes: {error}") from None
            file.flush()
            os.fsync(file.fileno())
        if total is not None and got != total:
            raise Unavailable(f"truncated: got {got:,} of {total:,} bytes")
        opened = open if path.endswith(ARCHIVE) else gzip.open
        try:
            with opened(partial, "rb") as file:
                right = hashlib.file_digest(file, "sha256").hexdigest() == digest
        except (EOFError, gzip.BadGzipFile, zlib.error):
            right = False
        if not right:
            raise Unavailable("not the published file, SHA-256 differs")
        os.replace(partial, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(partial)


def missing(name, folder):
    """Names of the files, as downloaded, that a folder lacks, and their SHA-256."""
    files = (ARCHIVE,) if name == "cifar-10" else [file + ".gz" for file in IDX_FILES]
    pairs = zip(files, SHA256[name], strict=True)
    return {file: sha for file, sha in pairs if not locate(folder, file.removesuffix(".gz"))}


def fetch(name, directories, seconds):
    """Download what is missing to the first writable directory, and return that directory.

    `seconds` bounds the waiting for mirrors, all files together; a transfer that has
    begun may last.
    """
    refused, made = [], []
    for directory in directories:
        parent = folder = os.path.join(os.path.abspath(directory), name)
        while not os.path.isdir(parent):
            made.append(parent)
            parent = os.path.dirname(parent)
        try:
            os.makedirs(folder, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                break
        except OSError as error:
            refused.append(f"{folder} ({error.strerror})")
    else:
        raise InputError(f"no folder to download to can be written: {', '.join(refused)}")
    try:
        for file, digest in missing(name, folder).items():
            reasons = []
            for rest, mirror in zip(range(len(MIRRORS[name]), 0, -1), MIRRORS[name], strict=True):
                started = time.monotonic()
                try:
                    try:
                        response, block = connect(mirror + file, seconds / rest)
                    finally:
                        seconds -= time.monotonic() - started
                    transfer(response, block, os.path.join(folder, file), digest)
                    break
                except Unavailable as error:
                    reasons.append(f"{mirror.split('/')[2]}: {error}")
            else:
                raise InputError(f"no mirror delivers {file} ({', '.join(reasons)})")
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}") from None
    finally:
        for path in made:  # empty ones alone can be removed
            with contextlib.suppress(OSError):
                os.rmdir(path)
    return directory


def find(name, directory, say):
    """Dataset of the files in a directory, in any of the usual layouts, or None."""
    for layout in LAYOUTS[name]:
        folder = os.path.normpath(os.path.join(directory, layout))
        if name == "cifar-10":
            for path in (os.path.join(folder, "cifar-10-batches-bin"), folder,
                         os.path.join(folder, ARCHIVE)):
                batches = (os.path.join(path, batch) for batch in CIFAR_BATCHES)
                if os.path.isfile(path) or any(map(os.path.isfile, batches)):
                    return read_cifar(path, say)
        elif not missing(name, folder):
            try:
                return read_idx_set(name, folder)
            except InputError:  # files without a folder of their own may be another data set's
                if layout != ".":
                    raise
    return None


def load(name, data_dir=None, named=True, download=True, time_limit=20.0, say=to_stderr):
    """Find, or else download, a data set.

    Parameters
    ----------
    name : "mnist", "fashion-mnist", "cifar-10", "mnist-5k" or the path of a .npz file
    data_dir : looked in before $MINIPW_DATA and data/; the first writable one takes downloads
    named : if False, the bundled mnist-5k may stand in for an mnist that cannot be had
    download : bool
    time_limit : seconds to wait for mirrors to answer, all files together
    say : function of one line of text, for what the user should know

    Returns
    -------
    Dataset

    Raises
    ------
    InputError : a file cannot be used, or none can be had
    """
    if os.fspath(name).endswith(".npz"):
        return read_npz(name)
    if name == "mnist-5k":
        return read_idx_set(name, BUNDLED)
    require(name in LAYOUTS, name, "is no data set", f"choose {', '.join(SHA256)} or a .npz file")
    candidates = (data_dir, os.environ.get("MINIPW_DATA"), HOME_DATA)
    directories = [os.path.expanduser(path) for path in candidates if path]
    for path in directories:
        require(os.path.isdir(path) or not os.path.exists(path), path, "is not a folder",
                "give a folder with --data-dir or MINIPW_DATA")
    for path in directories:
        if dataset := find(name, path, say):
            return dataset
    try:
        if not download:
            raise InputError("downloading is off")
        path = fetch(name, directories, time_limit)
    except InputError as error:
        fault = f"{name} is not in {', '.join(directories)} and cannot be downloaded: {error}"
    else:
        return find(name, path, say)
    target = os.path.join(directories[0], name)
    if named or name != "mnist":
        raise InputError(f"{fault}; put {', '.join(missing(name, target))} in {target}")
    say(f"warning: {fault}; training on the bundled 5,000 images of mnist-5k instead")
    return read_idx_set("mnist-5k", BUNDLED, "the 5,000 bundled images stand in for MNIST")
