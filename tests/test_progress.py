"""The progress bar where tqdm is not installed."""

import sys

from minipw.progress import NoBar, progress_bar


def test_without_tqdm(command, tiny_npz, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert isinstance(progress_bar(5, " steps"), NoBar)
    flags = ("--exp", "split", "--dataset", tiny_npz, "--backbone", "mlp-20-1", "--batch-size", 8)
    status, out, err = command(*flags, "--out", tmp_path)
    assert (status, err) == (0, "") and "accuracy" in out


def test_what_is_written_is_seen(capsys):
    with NoBar() as bar:
        bar.update(3)
        bar.update()
        bar.write("failed: seed 1", sys.stderr)
        assert bar.n == 4
    assert capsys.readouterr().err == "failed: seed 1\n"
