"""Data sets by name: find the files or download them, check them, read them.

data/README.md says where files are looked for, and where a download lands.
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
CHECKOUT = os.path.dirname(PACKAGE)  # without pyproject.toml where the package is installed
HOME_DATA, BUNDLED = "data", os.path.join(PACKAGE, "data", "mnist-5k")
if os.path.isfile(os.path.join(CHECKOUT, "pyproject.toml")):
    HOME_DATA = os.path.join(CHECKOUT, "data")
    BUNDLED = os.path.join(HOME_DATA, "mnist-5k")

ARCHIVE = "cifar-10-binary.tar.gz"

# Of the uncompressed IDX files in the order of IDX_FILES, and of the archive as it is.
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


def idx_dataset(name, folder, note=""):
    """Dataset of the four IDX files in a folder, which must be the published ones."""
    arrays, digests = image_files.read_idx_set(folder)
    for (path, digest), published in zip(digests.items(), SHA256[name], strict=True):
        require(digest == published, path, f"is not the published file of {name} (SHA-256 differs)")
    return Dataset(name, *arrays, 10, *PIXELS[name], note)


def cifar_dataset(path):
    """Dataset of the binary CIFAR-10 batches in a folder or in the archive."""
    count, *arrays = image_files.read_cifar(path)
    note = digest = ""
    if count < 5:
        x, y = arrays[:2]
        note = f"cifar-10: {count} of 5 training batches found, training on {len(y):,} images"
        digest = content_digest(x, y.astype(np.uint8))  # stored results are found by it
        print(note, file=sys.stderr)
    return Dataset("cifar-10", *arrays, 10, *PIXELS["cifar-10"], note, digest)


def missing_files(name, folder):
    """The files that a folder lacks: dict of str to str, from name to SHA-256 as published."""
    files = (ARCHIVE,) if name == "cifar-10" else [file + ".gz" for file in IDX_FILES]
    return {
        file: digest
        for file, digest in zip(files, SHA256[name], strict=True)
        if not image_files.locate(folder, file.removesuffix(".gz"))
    }


def find(name, directory):
    """Dataset of the files in a directory, in any of the usual layouts, or None."""
    for layout in LAYOUTS[name]:
        folder = os.path.normpath(os.path.join(directory, layout))
        if name == "cifar-10":
            unpacked, archive = (os.path.join(folder, n) for n in ("cifar-10-batches-bin", ARCHIVE))
            for path in (unpacked, folder, archive):
                batches = (os.path.join(path, batch) for batch in CIFAR_BATCHES)
                if os.path.isfile(path) or any(map(os.path.isfile, batches)):
                    return cifar_dataset(path)
        elif not missing_files(name, folder):
            try:
                return idx_dataset(name, folder)
            except InputError:  # files without a folder of their own may be another data set's
                if layout != ".":
                    raise
    return None


def load(name, data_dir=None, named=True, download=True, label=None, raw=False, missing=False):
    """Find, or else download, a data set; warnings go to standard error.

    Parameters
    ----------
    name : "mnist", "fashion-mnist", "cifar-10", "mnist-5k" or the path of a .npz, .csv or
        .tsv file, the last two also packed by gzip
    data_dir : looked in before $MINIPW_DATA and data/; the first writable one takes downloads
    named : if False, the bundled mnist-5k may stand in for an mnist that cannot be had
    download : bool
    label : the column of the classes of a .csv file
    raw : samples of one's own file as they are, in float64, for a learner that standardizes;
        "untested": even if they are too few to test on
    missing : with `raw`, whether values may be missing, and become NaN

    Returns
    -------
    Dataset

    Raises
    ------
    InputError
        When a file cannot be used, or none can be had.
    """
    fault = f"a data set of type {type(name).__name__}"
    require(isinstance(name, (str, os.PathLike)), fault, "has no name", "give one, or a path")
    name = os.path.expanduser(name)
    if user_files.is_table(name):
        require(label is not None, name, "has a column of classes", "name it with --label COLUMN")
        return user_files.from_csv(name, label, raw, missing)
    require(label is None, name, "--label is for .csv files", "leave it out")
    if name.lower().endswith(".npz"):
        return user_files.from_npz(name, raw, missing)
    if name == "mnist-5k":
        return idx_dataset(name, BUNDLED)
    choices = f"choose {', '.join(SHA256)} or a .npz or .csv file"
    require(name in LAYOUTS, name, "is not a data set", choices)
    candidates = (data_dir, os.environ.get("MINIPW_DATA"), HOME_DATA)
    directories = [os.path.expanduser(path) for path in candidates if path]
    for path in directories:
        is_folder = os.path.isdir(path) or not os.path.exists(path)
        require(is_folder, path, "is not a folder", "give a folder with --data-dir or MINIPW_DATA")
    for path in directories:
        if dataset := find(name, path):
            return dataset
    try:
        if not download:
            raise InputError("downloading is off")
        with writable_folder([os.path.join(path, name) for path in directories]) as folder:
            fetch(missing_files(name, folder), MIRRORS[name], folder)
    except InputError as error:
        fault = f"{name} is not in {', '.join(directories)} and cannot be downloaded: {error}"
    else:
        return find(name, os.path.dirname(folder))
    target = os.path.join(directories[0], name)
    if named or name != "mnist":
        raise InputError(f"{fault}; put {', '.join(missing_files(name, target))} in {target}")
    instead = "training on the bundled 5,000 images of mnist-5k instead"
    print(f"warning: {fault}; {instead}", file=sys.stderr)
    return idx_dataset("mnist-5k", BUNDLED, "the 5,000 bundled images stand in for MNIST")
