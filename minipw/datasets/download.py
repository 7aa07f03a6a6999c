"""Downloads: a file appears under its name only when it is whole and right."""

import contextlib
import gzip
import hashlib
import os
import tempfile
import threading
import time
import zlib

from minipw import InputError
from minipw.progress import progress_bar

BLOCK = 1 << 16
STALL = 5.0
"""Seconds without a byte after which a running download fails."""


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
    """Write a response to `path`, which appears only when it is whole and right.

    Parameters
    ----------
    response, block : from `connect`
    path : str
    digest : str
        SHA-256 of a .tar.gz as it is, of any other file without its gzip packing.
    """
    from http.client import HTTPException

    partial, got = f"{path}.{os.getpid()}.part", 0
    length = response.headers.get("Content-Length") or ""
    total = int(length) if length.isdecimal() else None
    bar = progress_bar(total, "B", desc=os.path.basename(path), unit_scale=True)
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
    """The first folder that can be written; those made on the way go again if left empty.

    Raises
    ------
    InputError
        When none can be.
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
        for path in made:  # empty ones alone can be removed
            with contextlib.suppress(OSError):
                os.rmdir(path)


def fetch(files, mirrors, folder, seconds):
    """Download files to a folder, each from the first mirror that delivers it.

    Parameters
    ----------
    files : dict of str to str
        From the name of each file to its SHA-256, as `transfer` takes it.
    mirrors : sequence of str
        Addresses that end in a slash.
    folder : str
    seconds : float
        Bounds the time spent on mirrors that do not deliver, all files together, but
        for a stall of `STALL` at the end; a transfer that goes on may last.

    Raises
    ------
    InputError
        When no mirror delivers a file, or the folder cannot be written.
    """
    for file, digest in files.items():
        reasons = []
        for rest, mirror in zip(range(len(mirrors), 0, -1), mirrors, strict=True):
            started = time.monotonic()
            try:
                response, block = connect(mirror + file, seconds / rest)
                transfer(response, block, os.path.join(folder, file), digest)
                break
            except Unavailable as error:
                seconds -= time.monotonic() - started
                reasons.append(f"{mirror.split('/')[2]}: {error}")
            except OSError as error:
                raise InputError(f"{folder} cannot be written: {error.strerror}") from None
        else:
            raise InputError(f"no mirror delivers {file} ({', '.join(reasons)})")
