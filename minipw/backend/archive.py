"""Arrays of a .npz file that nobody vouches for: sizes are known before a byte is inflated.

The directory and the header of each array are read first, and are short. An array is
inflated only when it is asked for, its header, its member and the file agree on its size,
and the memory is there. No pickle.
"""

import contextlib
import errno
import io
import math
import os
import stat
import zipfile
from typing import NamedTuple

import numpy as np

from minipw.backend.memory import require_memory

BLOCK, HEADER = 1 << 18, 1 << 10
"""Bytes at most of a directory, and of what is read at a time; of an array's header."""
EXPANSION = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1032}
"""Bytes that one byte of a member can stand for, of each way of packing that is read."""
HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


class Header(NamedTuple):
    """What an array is: its type, its shape, whether its first axis runs fastest."""

    dtype: np.dtype
    shape: tuple
    fortran: bool
    start: int  # bytes before the first value

    @property
    def size(self):
        """Bytes of the values."""
        return math.prod(self.shape) * self.dtype.itemsize


class _Reader(io.BufferedReader):
    """A file of which nobody reads much at a time."""

    def read(self, size=-1):
        if size > BLOCK:
            raise ValueError(f"its directory has {size:,} bytes, more than {BLOCK:,}")
        return super().read(size)


@contextlib.contextmanager
def opened(path):
    """The `Archive` in a file. Damage raises ValueError, OSError or one of a dozen others."""
    kind = os.stat(path).st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):  # opening a pipe would wait
        raise OSError(errno.EINVAL, "not a regular file", path)
    with _Reader(io.FileIO(path)) as file, zipfile.ZipFile(file) as packed:
        yield Archive(path, packed)


class Archive:
    """The arrays of an open .npz file: `names` at once, headers and contents on request."""

    def __init__(self, path, packed):
        self.path, self._zip, self._headers = path, packed, {}
        self._members = {m.filename.removesuffix(".npy"): m for m in packed.infolist()}
        self.names = list(self._members)
        if len(self.names) < len(packed.infolist()):
            raise ValueError("two arrays have the same name")

    def header(self, name):
        """The `Header` of an array, once it agrees with the sizes of member and file."""
        if name in self._headers:
            return self._headers[name]
        member = self._members[name]
        most = EXPANSION.get(member.compress_type, 0) * member.compress_size
        if member.file_size > most or member.compress_size > os.stat(self.path).st_size:
            raise ValueError(f"{member.compress_size:,} bytes cannot hold {member.file_size:,}")
        with self._zip.open(member) as values:
            text = io.BytesIO(values.read(HEADER))
        version = np.lib.format.read_magic(text)
        if version not in HEADERS:
            raise ValueError(f"its header has version {version}")
        shape, fortran, dtype = HEADERS[version](text)
        if dtype.hasobject:
            raise ValueError("Object arrays are not read")
        header = self._headers[name] = Header(dtype, shape, fortran, text.tell())
        promised = header.start + header.size
        if min(shape, default=0) < 0 or promised != member.file_size:
            raise ValueError(f"its header promises {promised:,} bytes of {member.file_size:,}")
        return header

    def check(self, names, packed=True):
        """Raise ValueError or InputError unless these are numbers that the memory can hold.

        Parameters
        ----------
        names : iterable of str
        packed : bool
            Whether they may be compressed. Otherwise they are no longer than the file.
        """
        headers = {name: self.header(name) for name in names}
        for name, header in headers.items():
            if not packed and self._members[name].compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"{name} is compressed, which minipw does not do")
            if header.dtype.kind not in "biuf":
                raise ValueError(f"{name} holds {header.dtype}, not numbers")
        size = sum(header.size for header in headers.values())
        require_memory(size, f"{self.path} is too large: use a smaller file")

    def read(self, name):
        """An array that passed `check`, in C order: ndarray."""
        header, done = self.header(name), 0
        array = np.empty(header.shape[::-1] if header.fortran else header.shape, header.dtype)
        view = memoryview(array.reshape(-1).view(np.uint8))
        with self._zip.open(self._members[name]) as values:
            values.read(header.start)
            while part := values.read(BLOCK):  # the last one compares the checksum
                view[done : done + len(part)] = part
                done += len(part)
        if done < header.size:
            raise EOFError(f"{name} ends early")
        return np.ascontiguousarray(array.T) if header.fortran else array
