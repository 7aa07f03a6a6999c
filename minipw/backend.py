"""The array modules: which one an array belongs to, and how the host is used well.

The only file that may import cupy or cupyx.
"""

import ctypes
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise

import numpy as np

from minipw import InputError

BLOCK = 1 << 17
"""Elements worked on at a time on a CPU, so that what one pass leaves is still in the
cache for the next one; fewer would be spent on calls, more on memory (measured)."""


def array_module(x):
    """The module, numpy or cupy, whose functions work on `x`."""
    if isinstance(x, np.ndarray | np.generic):
        return np
    import cupy

    return cupy


def normal_distribution(x):
    """Phi(x), the distribution function of the standard normal, of x's type."""
    if array_module(x) is np:
        from scipy.special import ndtr
    else:
        from cupyx.scipy.special import ndtr
    return ndtr(x)


def blocks(part, xp):
    """Slices that cover the slice `part`: cache-sized on a CPU, a single one on a GPU."""
    if xp is not np:
        return [part]
    starts = range(part.start, part.stop, BLOCK)
    return [slice(start, min(start + BLOCK, part.stop)) for start in starts]


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


def to_module(xp, array):
    """`array`, of NumPy or of `xp`, as an array of `xp`; a copy only from host to device."""
    return array if xp is np else xp.asarray(array)


def to_host(array):
    """A copy of `array` for NumPy; waits for the device that it is on."""
    return array.copy() if isinstance(array, np.ndarray) else array.get()


def device_module(name):
    """The array module of a word after --device.

    Raises
    ------
    InputError
        For "cuda" without CuPy, without a device, or where no kernel can be compiled.
    """
    if name == "cpu":
        return np
    # What CUB would speed up here takes longer to compile.
    os.environ.setdefault("CUPY_ACCELERATORS", "")
    try:
        import cupy
    except ImportError as error:
        raise InputError(
            f"--device cuda needs CuPy ({first_line(error)}): "
            'pip install "minipw[gpu]" (from a checkout: .[gpu])'
        ) from None
    try:
        count = cupy.cuda.runtime.getDeviceCount()
        if count:
            ones = cupy.ones((2, 2, 2), np.float32)
            (ones @ ones + 1).get()  # compiles a kernel and runs it, and one of cuBLAS
    except Exception as error:  # the driver, the compiler, the toolkit: each has its own kinds
        raise InputError(f"no CUDA device to use: {first_line(error)}; use --device cpu") from None
    if not count:
        raise InputError("no CUDA device to use: none is visible; use --device cpu")
    return cupy


def first_line(error):
    """What an error says, cut to a line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def device_facts(xp):
    """What a record says of the device that runs of the module `xp` are done on."""
    if xp is np:
        return {"device": "cpu", "threads": THREADS.count}
    return {"device": "cuda", "gpu": device_name(), "threads": 1}


def device_versions(xp):
    """Versions of what a device needs beside NumPy."""
    return {} if xp is np else {"cupy": xp.__version__}


def device_name():
    """The name of the CUDA device in use."""
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    return properties["name"].decode()


def device_text():
    """The CUDA device in use for the reader: its name and memory."""
    return f"{device_name()}, {free_memory()[1] / 2**30:.0f} GiB"


def free_memory():
    """Bytes of the CUDA device that are free, or free in CuPy's pool, and all it has."""
    import cupy

    free, total = cupy.cuda.runtime.memGetInfo()
    return free + cupy.get_default_memory_pool().free_bytes(), total


def release_memory():
    """Give the freed arrays of CuPy's pool back to the device."""
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()


FILLERS, FILLER_BYTES = 16, 1 << 28
"""Copies that are queued before a timing, so that the device does not wait for the host
between the launches that are timed: about 2.5 ms."""


def device_seconds(function, repeats, calls=1):
    """Median time of a call on the device by CUDA events, after one that is not counted.

    calls : int
        Between two events.
    """
    import cupy

    source, target = (cupy.zeros(FILLER_BYTES, "uint8") for _ in range(2))
    function()
    times = []
    for _ in range(repeats):
        began, ended = cupy.cuda.Event(), cupy.cuda.Event()
        for _ in range(FILLERS):
            target[...] = source
        began.record()
        for _ in range(calls):
            function()
        ended.record()
        ended.synchronize()
        times.append(1e-3 * cupy.cuda.get_elapsed_time(began, ended) / calls)
    return sorted(times)[len(times) // 2]


class Cuda:
    """Compiles kernels for the current CUDA device; tests put the host's compiler here."""

    def device(self):
        """Number of the current device."""
        from cupy.cuda import runtime

        return runtime.getDevice()

    def shared_memory(self):
        """Bytes of shared memory that a block may have."""
        from cupy.cuda import runtime

        attribute = runtime.cudaDevAttrMaxSharedMemoryPerBlockOptin
        return runtime.deviceGetAttribute(attribute, runtime.getDevice())

    def compile(self, source, name):
        """The kernel `name`, a template with its arguments, of a text in CUDA C++.

        Returns
        -------
        callable of (grid, block, arguments, shared_mem=bytes)
        """
        import cupy

        module = cupy.RawModule(code=source, options=("--std=c++17",), name_expressions=(name,))
        kernel = module.get_function(name)
        kernel.max_dynamic_shared_size_bytes = self.shared_memory() - kernel.shared_size_bytes
        return kernel


KERNELS = {"cupy": Cuda()}
"""Array modules whose arrays kernels work on, by name, and what compiles the kernels."""


def has_kernels(xp):
    """Whether operations on arrays of `xp` go to the kernels that `kernels/` has for them."""
    return xp.__name__ in KERNELS


@contextmanager
def without_kernels():
    """Within a with block every operation is computed as `nn` and `rules` define it."""
    kept = dict(KERNELS)
    KERNELS.clear()
    try:
        yield
    finally:
        KERNELS.update(kept)
