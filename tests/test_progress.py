"""The progress bar is for people: on a terminal, and not when it is quiet."""

import io
import sys

import pytest

from minipw.progress import progress_bar


@pytest.mark.parametrize(
    "terminal, quiet, shown", [(True, False, True), (True, True, False), (False, False, False)]
)
def test_a_bar_is_shown_on_a_terminal(monkeypatch, terminal, quiet, shown):
    stream = io.StringIO()
    stream.isatty = lambda: terminal
    monkeypatch.setattr(sys, "stderr", stream)
    with progress_bar(5, " steps", quiet) as bar:
        bar.update(5)
    assert ("steps" in stream.getvalue()) == shown
