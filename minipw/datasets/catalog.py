"""Data sets: find the files or download them, check them, read them.

Every check ends in an InputError of one line. Where files are looked for, and
where a download lands, is in data/README.md.
"""

import os
import sys

import numpy as np

from minipw import InputError
from minipw.datasets import image_files, user_files
from minipw.datasets.dataset import Dataset, content_digest
from minipw.datasets.download import fetch, writable_folder
from minipw.datasets.image_files import CIFAR_BATCHES, IDX_FILES
from minipw.datasets.reading import require

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CHECKOUT = os.path.dirname(PACKAGE)  # of an installed package: a folder without pyproject.toml
HOME_DATA, BUNDLED = "data", os.path.join(PACKAGE, "data", "mnist-5k")
if os.path.isfile(os.path.join(CHECKOUT, "pyproject.toml")):
    HOME_DATA = os.path.join(CHECKOUT, "data")
    BUNDLED = os.path.join(HOME_DATA, "mnist-5k")

ARCHIVE = "cifar-10-binary.tar.gz"

# Of the uncompressed IDX files in the order of IDX_FILES, and of the archive itself.
SHA256 = {
    "mnist": (
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    "fashion-mnist": (
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    "mnist-5k": (
        "01c279c669c4632ea8b97298fee28d0f4c5fe2bf2039e7f822f3feaac779d017",
        "daf1c61ba276c5ec7656a0a9c541c2f61cb96d7af3a019906cdb4cf08ef09728",
        "48e7795fc2f307cac39d091315c695780f904df73fef72545ee5b40d8e7948c3",
        "9f9f83403fa89036e5960042fa3fdded854d1e4a5602fe4b476f8ff0e7865ff8",
    ),
    "cifar-10": ("c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",),
}
MIRRORS = {
    "mnist": (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    "fashion-mnist": (
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
    "cifar-10": ("https://www.cs.toronto.edu/~kriz/",),
}
LAYOUTS = {
    "mnist": ("mnist", "MNIST/raw", "."),
    "fashion-mnist": ("fashion-mnist", "FashionMNIST/raw", "."),
    "cifar-10": ("cifar-10", "."),
}
# Mean and standard deviation of each channel, after scaling to [0, 1].
PIXELS = {
    "mnist": ((0.1307,), (0.3081,)),
    "mnist-5k": ((0.1307,), (0.3081,)),
    "fashion-mnist": ((0.2859,), (0.3530,)),
    "cifar-10": ((0.5071, 0.4866, 0.4409), (0.2673, 0.2564, 0.2762)),
}


def to_stderr(line):
    """Print a line on standard error."""
    print(line, file=sys.stderr)


def read_idx_set(name, folder, note=""):
    """Dataset of the four IDX files in a folder, which must be the published ones."""
    (x_train, y_train, x_test, y_test), digests = image_files.read_idx_set(folder)
    for (path, digest), published in zip(digests.items(), SHA256[name], strict=True):
        require(digest == published, path, f"is not the published file of {name} (SHA-256 differs)")
    return Dataset(
        name,
        x_train[..., None],
        y_train.astype(np.int64),
        x_test[..., None],
        y_test.astype(np.int64),
        10,
        *PIXELS[name],
        note,
    )


def read_cifar(path, say):
    """Dataset of the binary CIFAR-10 batches in a folder or in the archive."""
    train, (x_test, y_test) = image_files.read_cifar(path)
    x, y = (np.concatenate(arrays) for arrays in zip(*train, strict=True))
    note = ""
    if len(train) < 5:
        note = f"cifar-10: {len(train)} of 5 training batches found, training on {len(y):,} images"
        say(note)
    return Dataset(
        "cifar-10",
        np.ascontiguousarray(x),
        y.astype(np.int64),
        np.ascontiguousarray(x_test),
        y_test.astype(np.int64),
        10,
        *PIXELS["cifar-10"],
        note,
        content_digest(x, y) if note else "",
    )


def missing(name, folder):
    """Names of the files, as downloaded, that a folder lacks, and their SHA-256."""
    files = (ARCHIVE,) if name == "cifar-10" else [file + ".gz" for file in IDX_FILES]
    pairs = zip(files, SHA256[name], strict=True)
    return {
        file: digest
        for file, digest in pairs
        if not image_files.locate(folder, file.removesuffix(".gz"))
    }


def fetch_missing(name, directories, seconds):
    """Download what is missing to the first writable directory, and return that directory."""
    with writable_folder([os.path.join(path, name) for path in directories]) as folder:
        fetch(missing(name, folder), MIRRORS[name], folder, seconds)
    return os.path.dirname(folder)


def find(name, directory, say):
    """Dataset of the files in a directory, in any of the usual layouts, or None."""
    for layout in LAYOUTS[name]:
        folder = os.path.normpath(os.path.join(directory, layout))
        if name == "cifar-10":
            for path in (
                os.path.join(folder, "cifar-10-batches-bin"),
                folder,
                os.path.join(folder, ARCHIVE),
            ):
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


def load(
    name,
    data_dir=None,
    named=True,
    download=True,
    time_limit=15.0,
    say=to_stderr,
    label=None,
    raw=False,
):
    """Find, or else download, a data set.

    Parameters
    ----------
    name : "mnist", "fashion-mnist", "cifar-10", "mnist-5k" or the path of a .npz or .csv file
    data_dir : looked in before $MINIPW_DATA and data/; the first writable one takes downloads
    named : if False, the bundled mnist-5k may stand in for an mnist that cannot be had
    download : bool
    time_limit : seconds to spend on mirrors that do not deliver, all files together
    say : function of one line of text, for what the user should know
    label, raw : of a .csv file, as in `user_files.load`

    Returns
    -------
    Dataset

    Raises
    ------
    InputError : a file cannot be used, or none can be had
    """
    if os.fspath(name).lower().endswith(user_files.ENDINGS):
        return user_files.load(name, label, raw)
    require(label is None, name, "--label is for .csv files", "leave it out")
    if name == "mnist-5k":
        return read_idx_set(name, BUNDLED)
    require(
        name in LAYOUTS,
        name,
        "is no data set",
        f"choose {', '.join(SHA256)} or a .npz or .csv file",
    )
    candidates = (data_dir, os.environ.get("MINIPW_DATA"), HOME_DATA)
    directories = [os.path.expanduser(path) for path in candidates if path]
    for path in directories:
        require(
            os.path.isdir(path) or not os.path.exists(path),
            path,
            "is not a folder",
            "give a folder with --data-dir or MINIPW_DATA",
        )
    for path in directories:
        if dataset := find(name, path, say):
            return dataset
    try:
        if not download:
            raise InputError("downloading is off")
        path = fetch_missing(name, directories, time_limit)
    except InputError as error:
        fault = f"{name} is not in {', '.join(directories)} and cannot be downloaded: {error}"
    else:
        return find(name, path, say)
    target = os.path.join(directories[0], name)
    if named or name != "mnist":
        raise InputError(f"{fault}; put {', '.join(missing(name, target))} in {target}")
    say(f"warning: {fault}; training on the bundled 5,000 images of mnist-5k instead")
    return read_idx_set("mnist-5k", BUNDLED, "the 5,000 bundled images stand in for MNIST")
