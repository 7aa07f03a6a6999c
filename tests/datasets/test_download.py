"""Downloading, from a local server that behaves in every bad way."""

import gzip
import hashlib
import io
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from data_files import (
    CIFAR,
    FILES,
    TEST_IMAGES,
    TEST_LABELS,
    TRAIN_IMAGES,
    TRAIN_LABELS,
    check_cifar,
    error,
    idx,
    leftovers,
    tar_gz,
    write,
)

from minipw import datasets
from minipw.datasets import catalog, download

pytestmark = pytest.mark.usefixtures("isolated")


class Server(ThreadingHTTPServer):
    """Answers /<behaviour>/<file> from FILES; counts what it is asked for."""

    daemon_threads = True

    def __init__(self, packed):
        super().__init__(("127.0.0.1", 0), Handler)
        self.packed, self.asked, self.agents = packed, [], set()
        self.release = threading.Event()


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        _, behaviour, name = self.path.split("/")
        self.server.asked.append((behaviour, name))
        self.server.agents.add(self.headers["User-Agent"])
        body = self.server.packed[name]
        if behaviour == "missing":
            self.send_error(404)
            return
        if behaviour == "moved":
            self.send_response(302)
            self.send_header("Location", f"/good/{name}")
            self.end_headers()
            return
        if behaviour == "silent":
            self.server.release.wait(20)
            return
        if behaviour == "corrupt":
            body = body[:-20] + bytes(20)
        if behaviour == "other":
            body = gzip.compress(b"other")
        self.send_response(200)
        if behaviour != "unmeasured":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:20] if behaviour in ("cut", "stalled") else body)
        if behaviour == "stalled":
            self.wfile.flush()
            self.server.release.wait(20)


@pytest.fixture
def server():
    packed = {name + ".gz": gzip.compress(data) for name, data in FILES.items()}
    server = Server({**packed, catalog.ARCHIVE: tar_gz(CIFAR)})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.release.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def mirrors(server, monkeypatch):
    """Set the mirrors of a data set to behaviours of the local server."""

    def choose(*behaviours, name="mnist"):
        base = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setitem(catalog.MIRRORS, name, tuple(f"{base}/{b}/" for b in behaviours))

    return choose


def fetch(tmp_path, name="mnist", **kwargs):
    return datasets.load(name, tmp_path / "new" / "data", **kwargs)


@pytest.mark.parametrize("behaviour", ["good", "moved", "unmeasured"])
def test_download(tmp_path, server, mirrors, capfd, behaviour):
    mirrors(behaviour)
    data = fetch(tmp_path)
    assert idx(data.x_train[..., 0]) == FILES[TRAIN_IMAGES]
    assert leftovers(tmp_path) == sorted(f"new/data/mnist/{name}.gz" for name in FILES)
    assert server.agents == {"minipw"}
    server.asked.clear()
    assert fetch(tmp_path).x_train.shape == data.x_train.shape and not server.asked
    assert capfd.readouterr().out == ""


def test_download_of_cifar(tmp_path, server, mirrors, monkeypatch):
    archive = server.packed[catalog.ARCHIVE]
    monkeypatch.setitem(catalog.SHA256, "cifar-10", (hashlib.sha256(archive).hexdigest(),))
    mirrors("corrupt", "good", name="cifar-10")
    check_cifar(fetch(tmp_path, "cifar-10"))
    assert leftovers(tmp_path) == [f"new/data/cifar-10/{catalog.ARCHIVE}"]


def test_only_missing_files_are_downloaded(tmp_path, server, mirrors):
    mirrors("good")
    files = {name: FILES[name] for name in (TRAIN_IMAGES, TEST_LABELS)}
    write(tmp_path / "new" / "data" / "mnist", files)
    fetch(tmp_path)
    assert server.asked == [("good", TRAIN_LABELS + ".gz"), ("good", TEST_IMAGES + ".gz")]


@pytest.mark.parametrize("bad", ["missing", "cut", "corrupt", "other"])
def test_second_mirror(tmp_path, server, mirrors, bad):
    mirrors(bad, "good")
    assert fetch(tmp_path).x_test.shape == (10, 28, 28, 1)
    assert leftovers(tmp_path) == sorted(f"new/data/mnist/{name}.gz" for name in FILES)
    assert len(server.asked) == 5  # the bad one once


@pytest.mark.parametrize(
    "bad, reason",
    [
        ("missing", "404"),
        ("cut", "truncated: got 20 of"),
        ("corrupt", "SHA-256 differs"),
        ("other", "SHA-256 differs"),
    ],
)
def test_all_mirrors_bad(tmp_path, mirrors, bad, reason):
    mirrors(bad, "missing")
    message = error(fetch, tmp_path)
    assert reason in message and "404" in message
    assert f"{TEST_LABELS}.gz in {tmp_path / 'new' / 'data' / 'mnist'}" in message
    assert not list(tmp_path.iterdir())


def test_silent_mirrors_are_given_up(tmp_path, server, mirrors, monkeypatch):
    monkeypatch.setattr(download, "STALL", 0.1)
    mirrors("silent", "silent")
    assert error(fetch, tmp_path).count("timed out") == 2
    assert len(server.asked) == 2 and not list(tmp_path.iterdir())


def test_a_mirror_that_failed_is_asked_last(tmp_path, server, mirrors, monkeypatch):
    monkeypatch.setattr(download, "STALL", 0.1)
    mirrors("silent", "good")
    assert fetch(tmp_path).x_train.shape == (12, 28, 28, 1)
    assert [behaviour for behaviour, _ in server.asked] == ["silent", *["good"] * 4]


def test_refused_connection(tmp_path, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/"
    monkeypatch.setitem(catalog.MIRRORS, "mnist", (url,))
    message = error(fetch, tmp_path)
    assert "Connection refused" in message and "urlopen" not in message


def test_progress_bar_is_on_standard_error(tmp_path, mirrors, monkeypatch, capsys):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    mirrors("good")
    monkeypatch.setattr("sys.stderr", terminal)
    fetch(tmp_path)
    assert TRAIN_IMAGES in terminal.getvalue() and capsys.readouterr().out == ""


def test_stalled_download_fails(tmp_path, mirrors, monkeypatch):
    monkeypatch.setattr(download, "STALL", 0.1)
    mirrors("stalled")
    assert "stopped after 20 bytes" in error(fetch, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("scheme", ["file", "ftp"])
def test_only_http(tmp_path, monkeypatch, scheme):
    monkeypatch.setitem(catalog.MIRRORS, "mnist", (f"{scheme}://localhost/tmp/",))
    assert "not http or https" in error(fetch, tmp_path)


def test_downloads_go_to_the_first_writable_folder(tmp_path, mirrors, monkeypatch):
    mirrors("good")
    (tmp_path / "variable").mkdir()
    (tmp_path / "variable" / "mnist").write_text("a file where a folder is needed")
    monkeypatch.setenv("MINIPW_DATA", str(tmp_path / "variable"))
    assert datasets.load("mnist").x_train.shape == (12, 28, 28, 1)
    assert len(leftovers(tmp_path / "home" / "mnist")) == 4


def test_no_writable_folder(tmp_path, mirrors, monkeypatch):
    def refuse(path, *args, **kwargs):
        raise OSError(30, "Read-only file system", path)

    mirrors("good")
    monkeypatch.setattr(os, "makedirs", refuse)
    message = error(fetch, tmp_path)
    assert "Read-only file system" in message and str(tmp_path / "new" / "data") in message


def test_full_disk(tmp_path, mirrors, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    mirrors("good", "good")
    monkeypatch.setattr(os, "fsync", full)
    message = error(fetch, tmp_path)
    assert "No space left on device" in message and str(tmp_path / "new" / "data") in message
    assert not list(tmp_path.iterdir())


def test_interrupt_leaves_no_file(tmp_path, mirrors, monkeypatch):
    def interrupt(handle):
        assert len(leftovers(tmp_path)) == 1
        raise KeyboardInterrupt

    mirrors("good")
    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fetch(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("download", [False, True])
def test_fallback_when_no_data_set_was_named(tmp_path, mirrors, capsys, download):
    mirrors("missing")
    data = fetch(tmp_path, named=False, download=download)
    assert data.name == "mnist-5k" and len(data.x_train) == 4000
    assert data.note == "the 5,000 bundled images stand in for MNIST"
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("warning: mnist is not in") and err.count("\n") == 1
    assert ("404" in err) == download


def test_a_download_removes_what_a_killed_one_left(mirrors, tmp_path):
    mirrors("good")
    folder = tmp_path / "new" / "data" / "mnist"
    folder.mkdir(parents=True)
    names = [f"{TRAIN_IMAGES}.gz.{pid}.part" for pid in (10**12, os.getppid())]
    for name in (*names, f"own.zip.{10**12}.part"):
        (folder / name).write_bytes(b"half")
    fetch(tmp_path)
    kept = {path.name for path in folder.iterdir() if path.name.endswith(".part")}
    assert kept == {names[1], f"own.zip.{10**12}.part"}
