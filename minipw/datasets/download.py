"""Downloads: a file appears under its name only when it is whole and right."""

import contextlib
import gzip
import hashlib
import os
import tempfile
import zlib

from minipw import InputError
from minipw.backend.files import remove_leftovers
from minipw.progress import progress_bar

BLOCK = 1 << 16
STALL = 5.0
"""Seconds without a byte after which a connection or a transfer fails."""


class Unavailable(Exception):
    """A mirror does not deliver a file; the text is the reason."""


def connect(url):
    """The open response of a URL, else Unavailable."""
    from urllib import error, request  # imported late: few commands download

    try:
        if not url.startswith(("http://", "https://")):
            raise ValueError("not http or https")
        return request.urlopen(
            request.Request(url, headers={"User-Agent": "minipw"}), timeout=STALL
        )
    except error.HTTPError as refusal:  # which is an open response, too
        refusal.close()
        raise Unavailable(str(refusal)) from None
    except Exception as fault:  # of any type, it is this mirror's reason
        raise Unavailable(getattr(fault, "reason", fault) or type(fault).__name__) from None


def transfer(response, path, digest):
    """Write a response to `path`, which appears only when it is whole and right.

    `digest` is the SHA-256 of a .tar.gz as it is, of any other file without its gzip packing.
    """
    from http.client import HTTPException

    remove_leftovers(*os.path.split(path))
    partial, got = f"{path}.{os.getpid()}.part", 0
    length = response.headers.get("Content-Length") or ""
    total = int(length) if length.isdecimal() else None
    bar = progress_bar(total, "B", desc=os.path.basename(path), unit_scale=True)
    try:
        with response, bar, open(partial, "wb") as file:
            while True:
                try:
                    block = response.read1(BLOCK)
                except (OSError, HTTPException) as error:
                    raise Unavailable(f"stopped after {got:,} bytes: {error}") from None
                if not block:
                    break
                file.write(block)
                bar.update(len(block))
                got += len(block)
            file.flush()
            os.fsync(file.fileno())
        if total is not None and got != total:
            raise Unavailable(f"truncated: got {got:,} of {total:,} bytes")
        opened = open if path.endswith(".tar.gz") else gzip.open
        try:
            with opened(partial, "rb") as file:
                right = hashlib.file_digest(file, "sha256").hexdigest() == digest
        except EOFError:
            raise Unavailable(f"truncated: the archive ends early after {got:,} bytes") from None
        except (gzip.BadGzipFile, zlib.error):
            right = False
        if not right:
            raise Unavailable("not the published file, SHA-256 differs")
        os.replace(partial, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(partial)


@contextlib.contextmanager
def writable_folder(folders):
    """The first folder that can be written. Folders made on the way are removed if left empty.

    Raises
    ------
    InputError
        When none can be written.
    """
    refused, made = [], []
    try:
        for folder in map(os.path.abspath, folders):
            parent = folder
            while not os.path.isdir(parent):
                made.append(parent)
                parent = os.path.dirname(parent)
            try:
                os.makedirs(folder, exist_ok=True)
                with tempfile.TemporaryFile(dir=folder):
                    pass
            except OSError as error:
                refused.append(f"{folder} ({error.strerror})")
                continue
            yield folder
            return
        raise InputError(f"no folder to download to can be written: {', '.join(refused)}")
    finally:
        for path in made:
            with contextlib.suppress(OSError):  # it is not empty
                os.rmdir(path)


def fetch(files, mirrors, folder):
    """Download files to a folder, each from the first mirror that delivers it.

    A mirror that failed is asked last for the files after that.

    Parameters
    ----------
    files : dict of str to str, from the name of each file to its `digest`
    mirrors : sequence of str
        Addresses that end in a slash.
    folder : str

    Raises
    ------
    InputError
        When no mirror delivers a file, or the folder cannot be written.
    """
    mirrors = list(mirrors)
    for file, digest in files.items():
        reasons = []
        for mirror in mirrors.copy():
            try:
                transfer(connect(mirror + file), os.path.join(folder, file), digest)
                break
            except Unavailable as error:
                mirrors.remove(mirror)
                mirrors.append(mirror)
                reasons.append(f"{mirror.split('/')[2]}: {error}")
            except OSError as error:
                raise InputError(f"{folder} cannot be written: {error.strerror}") from None
        else:
            raise InputError(f"no mirror delivers {file} ({', '.join(reasons)})")
