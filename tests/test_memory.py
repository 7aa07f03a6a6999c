"""How much memory is free, and what happens when it is not enough."""

import builtins
import io
import os

import numpy as np
import pytest

from minipw import InputError, memory


def test_what_is_free_is_what_can_be_had():
    free = memory.available_memory()
    assert free is None or free > 1 << 20
    if free is not None:
        memory.require_memory(1 << 20, "little")
        with pytest.raises(InputError, match=r"GiB needed, [\d,.]+ GiB free: a lot; use less"):
            memory.require_memory(2 * free + (1 << 30), "a lot; use less")


def test_a_container_s_limit_counts(tmp_path):
    assert memory._group_memory(tmp_path) is None
    (tmp_path / "memory.current").write_text("300\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert memory._group_memory(tmp_path) is None
    (tmp_path / "memory.max").write_text("1000\n")
    assert memory._group_memory(tmp_path) == 700


@pytest.mark.parametrize("text", [None, "", "MemAvailable:\n", "MemTotal: 1 kB\n"])
def test_a_system_without_meminfo(monkeypatch, text):
    def other(path, *arguments):
        if text is None:
            raise FileNotFoundError(path)
        return io.StringIO(text)

    monkeypatch.setattr(builtins, "open", other)
    monkeypatch.setattr(os, "sysconf", {"SC_AVPHYS_PAGES": 10, "SC_PAGE_SIZE": 4096}.get)
    assert memory._system_memory() == 40960
    monkeypatch.delattr(os, "sysconf")
    assert memory._system_memory() is None


def test_nothing_is_refused_where_nothing_is_known(monkeypatch):
    monkeypatch.setattr(memory, "_system_memory", lambda: None)
    monkeypatch.setattr(memory, "_group_memory", lambda: None)
    memory.require_memory(np.iinfo(np.int64).max, "everything")
