"""The CUDA device: whether there is one, what it is, and what compiles its kernels."""

import os
from contextlib import contextmanager

import numpy as np

from minipw import InputError
from minipw.backend.threads import THREADS


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


def known_module(name):
    """`device_module` for a word that it accepted before: without its checks."""
    if name == "cpu":
        return np
    import cupy

    return cupy


def first_line(error):
    """What an error says, cut to a line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def device_facts(xp):
    """What a record says about the device of the module `xp`."""
    if xp is np:
        return {"device": "cpu", "threads": THREADS.count}
    return {"device": "cuda", "gpu": device_name(), "threads": 1}


def device_versions(xp):
    """Versions of the packages that the device of `xp` needs besides NumPy."""
    return {} if xp is np else {"cupy": xp.__version__}


def device_name():
    """The name of the CUDA device in use."""
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    return properties["name"].decode()


def device_text():
    """Name and memory of the CUDA device in use."""
    return f"{device_name()}, {free_memory()[1] / 2**30:.0f} GiB"


def free_memory():
    """Bytes of the CUDA device: free ones, those in CuPy's pool included, and all."""
    import cupy

    free, total = cupy.cuda.runtime.memGetInfo()
    return free + cupy.get_default_memory_pool().free_bytes(), total


def release_memory():
    """Return unused memory of CuPy's pool to the device."""
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()


FILLERS, FILLER_BYTES = 16, 1 << 28
"""Copies queued before a timing, about 2.5 ms: the device then never waits for the host
between the launches that are timed."""


def device_seconds(function, repeats, calls=1):
    """Median time of a call on the device by CUDA events, each around `calls` calls."""
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
    """Compiles kernels for the current CUDA device; tests replace it by the host's compiler."""

    def device(self):
        """Number of the current device."""
        from cupy.cuda import runtime

        return runtime.getDevice()

    def shared_memory(self):
        """Bytes of shared memory available to a block."""
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
"""What compiles the kernels for an array module, by the module's name."""


def has_kernels(xp):
    """Whether operations on arrays of `xp` go to CUDA kernels."""
    return xp.__name__ in KERNELS


@contextmanager
def without_kernels():
    """Within a with block operations are computed as `nn` and `rules` define them.

    It holds for all threads. Pairs keep the implementation that they have.
    """
    kept = dict(KERNELS)
    KERNELS.clear()
    try:
        yield
    finally:
        KERNELS.update(kept)
