"""The one way to start a CUDA kernel of this folder.

CuPy hands a kernel bare pointers. It ignores strides and types, and passes a Python number
as a long long or a double. So everything is checked and cast here.
"""

from functools import cache
from importlib.resources import files

import numpy as np

from minipw.backend.arrays import array_module
from minipw.backend.cuda import KERNELS

BLOCK = 256
"""Threads of a block, a power of two and at least a warp of 32."""
TYPES = {
    "float32": "float",
    "float64": "double",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "int32": "int",
}
"""Template arguments for the types of arrays."""


def launch(sources, kernel, template, grid, arguments, shared=0, block=None):
    """Start a kernel on the device of its arrays; its first launch compiles it.

    Parameters
    ----------
    sources : tuple of str
        Files of this folder, in the order in which they are joined.
    kernel : str
    template : tuple of dtype, int or bool
        Template arguments; the first is the type of the numbers.
    grid : tuple of int
        Blocks; with a 0 nothing is launched.
    arguments : dict of str to ndarray, int, numpy integer or float
        In the kernel's order; the names are for messages. An int becomes an int32, a
        float becomes the type of the numbers, a numpy integer stays as it is.
    shared : int
        Bytes of shared memory a block.
    block : int, or None for BLOCK

    Raises
    ------
    ValueError
        For an array that is not contiguous or not on the first one's device, and for a number
        or a grid that is too large.
    """
    scalars = int, float, np.generic
    arrays = {name: a for name, a in arguments.items() if not isinstance(a, scalars)}
    first_name, first = next(iter(arrays.items()))
    place = _place(first)
    for name, array in arrays.items():
        if not array.flags.c_contiguous:
            raise ValueError(f"{name} of shape {array.shape} is not contiguous")
        if _place(array) != place:
            raise ValueError(f"{name} is on {_place(array)}, {first_name} on {place}")
    number = np.dtype(template[0]).type
    cast = tuple(_cast(name, a, number) for name, a in arguments.items())
    if 0 in grid:
        return
    if grid[0] >= 1 << 31 or max(grid[1:], default=1) >= 1 << 16:
        raise ValueError(f"{kernel}: a grid of {grid} blocks is too large")
    words = ", ".join(_template_argument(argument) for argument in template)
    target = KERNELS[array_module(first).__name__]
    compiled = _compiled(target, target.device(), sources, f"{kernel}<{words}>")
    compiled(grid, (block or BLOCK,), cast, shared_mem=shared)


def expect(name, array, shape, dtype=None):
    """Raise ValueError unless an array has the shape and type that a kernel reads.

    Without `dtype` it may be float32 or float64.
    """
    types = ("float32", "float64") if dtype is None else (np.dtype(dtype).name,)
    if array.dtype.name not in types:
        raise ValueError(f"{name} has type {array.dtype}: the kernel takes {' or '.join(types)}")
    if array.shape != tuple(shape):
        raise ValueError(f"{name} has shape {array.shape}, the kernel expects {tuple(shape)}")


def shared_memory(x):
    """Bytes of shared memory available to a block on x's device."""
    return KERNELS[array_module(x).__name__].shared_memory()


def pack_width(size, *arrays):
    """Entries that a thread reads at once: 4 where every array is aligned for that, else 1.

    Parameters
    ----------
    size : int
        Entries of an array without its axis of gradients.
    arrays : ndarrays of one type
    """
    wide = 4 * arrays[0].itemsize
    aligned = all(_pointer(array) % wide == 0 for array in arrays)
    return 4 if size % 4 == 0 and aligned else 1


def _pointer(array):
    return array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr


def _place(array):
    return getattr(array, "device", "cpu")


def _cast(name, value, number):
    if isinstance(value, float):
        return number(value)
    if isinstance(value, int):
        if not -(1 << 31) <= value < 1 << 31:
            raise ValueError(f"{name} = {value} is more than the kernel can count")
        return np.int32(value)
    return value


def _template_argument(argument):
    if isinstance(argument, bool):
        return str(argument).lower()
    return str(argument) if isinstance(argument, int) else TYPES[np.dtype(argument).name]


@cache
def _compiled(target, device, sources, name):
    folder = files("minipw.kernels")
    text = "\n".join((folder / source).read_text(encoding="utf-8") for source in sources)
    return target.compile(text, name)
