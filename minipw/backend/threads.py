"""The threads of the host: how many there are, and how they share a step."""

import ctypes
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise

import numpy as np


class Threads(threading.local):
    """The threads that share a step's work; one until `use` is called, in each thread apart.

    NumPy lets other threads run while it computes, so they share gathers and elementwise
    work too, where BLAS threads share only the matrix products. Against two BLAS threads,
    two of these were measured 1.1 to 1.3 times as fast in training, 1.5 to 2 in evaluation.
    """

    def __init__(self):
        self.count, self.pool = 1, None

    @contextmanager
    def use(self, count):
        """Share the calling thread's work among `count` threads within a with block."""
        before = self.count, self.pool
        quiet = {"over": "ignore", "invalid": "ignore"}  # `train.run` reports what they hide
        with ThreadPoolExecutor(count, initializer=lambda: np.seterr(**quiet)) as pool:
            self.count, self.pool = count, pool
            try:
                yield
            finally:
                self.count, self.pool = before

    def shares(self, size, smallest):
        """Slices of range(size), one a thread, fewer if they would be under `smallest`."""
        count = max(1, min(self.count, size // smallest))
        bounds = [size * n // count for n in range(count + 1)]
        return [slice(*pair) for pair in pairwise(bounds)]

    def map(self, function, items):
        """The results of `function` for every item, in order."""
        if self.count == 1 or len(items) == 1:
            return [function(item) for item in items]
        return list(self.pool.map(function, items))


THREADS = Threads()


def available_cores():
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_threads():
    """Threads that a process should use: $OMP_NUM_THREADS, else its cores."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return int(wanted) if wanted.isdecimal() and int(wanted) > 0 else available_cores()


def keep_freed_memory():
    """Let the C library keep freed arrays for the next step instead of the system.

    A training step frees and allocates the same megabytes again and again. By
    default glibc returns them to the system each time, and the page faults that
    follow cost more than the arithmetic: the pairwise head alone goes from 15 to
    3 ms. Other C libraries ignore the call or do not have it.
    """
    if not sys.platform.startswith("linux"):
        return
    trim_threshold, mmap_threshold, arena_max = -1, -3, -8  # M_... of malloc.h
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(mmap_threshold, 32 << 20)  # what every glibc accepts
        mallopt(mmap_threshold, 1 << 30)  # what newer ones do
        mallopt(trim_threshold, 1 << 30)
        mallopt(arena_max, 1)  # threads have arenas of their own, which are given back
