"""The threads of the host: how many there are, and how they share a step."""

import ctypes
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import pairwise

import numpy as np
from threadpoolctl import ThreadpoolController


class Threads(threading.local):
    """The threads that share a step's work: one until `use` is called. Each thread has its own.

    NumPy lets other threads run while it computes, so these share gathers and elementwise
    work too; BLAS threads share only matrix products. Two of these were measured 1.1 to 1.3
    times as fast in training as two BLAS threads, and 1.5 to 2 times in evaluation.
    """

    def __init__(self):
        self.count, self.pool = 1, None

    @contextmanager
    def use(self, count):
        """Share the calling thread's work among `count` threads within a with block."""
        before = self.count, self.pool
        quiet = {"over": "ignore", "invalid": "ignore"}  # `training.run` reports what they hide
        with ThreadPoolExecutor(count, initializer=lambda: np.seterr(**quiet)) as pool:
            self.count, self.pool = count, pool
            try:
                yield
            finally:
                self.count, self.pool = before

    def shares(self, size, smallest):
        """Slices of range(size): one a thread, or fewer, so that none is under `smallest`."""
        count = max(1, min(self.count, size // smallest))
        bounds = [size * n // count for n in range(count + 1)]
        return [slice(*pair) for pair in pairwise(bounds)]

    def map(self, function, items):
        """The results of `function` for every item, in order."""
        if self.count == 1 or len(items) == 1:
            return [function(item) for item in items]
        return list(self.pool.map(function, items))


THREADS = Threads()


LARGE = 1 << 20
"""Elements from which work is worth a pool of threads of its own."""


@cache
def _blas_libraries():
    from scipy import linalg  # noqa: F401  it may bring one of its own, which must be loaded

    return ThreadpoolController().select(user_api="blas").lib_controllers


@contextmanager
def one_blas_thread(elements=0):
    """Let BLAS use one thread in a with block or a decorated function, unless work is large.

    In products of small matrices threads wait for each other: a sample that was learned alone
    took 2.5 times as long with two of them on two free cores, and 10 times on busy ones.
    """
    libraries = () if elements >= LARGE else _blas_libraries()
    before = [(library, library.get_num_threads()) for library in libraries]
    more = [(library, count) for library, count in before if count != 1]
    for library, _ in more:
        library.set_num_threads(1)
    try:
        yield
    finally:
        for library, count in more:
            library.set_num_threads(count)


@contextmanager
def share_large(elements):
    """Share the work on so many elements among all cores, unless it is small or shared already."""
    if elements < LARGE or THREADS.count > 1:
        yield
    else:
        with one_blas_thread(), THREADS.use(available_threads()):
            yield


def available_cores():
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_threads():
    """Threads that a process should use: $OMP_NUM_THREADS, else its cores."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return int(wanted) if wanted.isdecimal() and int(wanted) > 0 else available_cores()


def keep_freed_memory():
    """Keep freed arrays in the process for the next step.

    A training step allocates and frees the same megabytes again and again. By default
    glibc returns them to the system each time, and the page faults that follow cost more
    than the arithmetic: the pairwise head takes 15 ms instead of 3.
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
