"""What an array lives on: NumPy or CuPy, threads, device, memory. Alone imports cupy."""

from minipw.backend.arrays import array_module, to_device, to_host
from minipw.backend.cuda import has_kernels, without_kernels
from minipw.backend.threads import THREADS, keep_freed_memory

__all__ = [
    "THREADS",
    "array_module",
    "has_kernels",
    "keep_freed_memory",
    "to_device",
    "to_host",
    "without_kernels",
]
