"""A stand-in for CuPy on machines without a device: NumPy behind CuPy's refusals.

`install(monkeypatch)` puts it in CuPy's place. Then `--device cuda` runs to its end
here, and a test fails where the code would not run on CuPy:

- a function or method that CuPy lacks (asked of CuPy itself where it is installed,
  else of the list below), or an argument that its function does not take
- a host array among device arrays, in an operation, a function, an index or an
  assignment (CuPy allows some of the last; nothing here needs that)
- a device array where NumPy expects an array

`counts.synchronisations` counts what would make the host wait for the device,
`counts.launches` the calls that start work there, one each though some of CuPy's start
several. Results are NumPy's; what this cannot show is whether CuPy's own are right.
"""

import inspect
import sys
import time
import types
from types import SimpleNamespace

import numpy as np

from minipw import backend

try:
    import cupy as real
except ImportError:
    real = None

FUNCTIONS = """abs add arange argmax argsort array asarray ascontiguousarray bincount broadcast_to
cholesky concatenate copyto cumsum divide einsum empty empty_like exp isfinite
linalg log matmul maximum minimum moveaxis multiply ones ones_like outer pad partition
searchsorted sort sqrt stack subtract sum swapaxes take take_along_axis tanh tile unique where
zeros zeros_like"""
METHODS = """T all any argmax astype copy diagonal dtype fill flags get item itemsize max mean min
nbytes ndim ravel reshape shape size std strides sum swapaxes take tolist trace transpose"""
UFUNC_ARGUMENTS = {"out", "dtype", "casting"}

VIEWS = """T ascontiguousarray asarray broadcast_to empty empty_like flags get item moveaxis
ravel reshape stride_tricks swapaxes tolist transpose"""
"""Functions and methods that start no work."""

counts = SimpleNamespace(synchronisations=0, launches=0)


def wait():
    counts.synchronisations += 1


def launch(name=""):
    counts.launches += name not in VIEWS.split()


def unwrap(value):
    """The NumPy arrays behind device arrays, in tuples and lists too; no host array."""
    if isinstance(value, DeviceArray):
        return value.array
    if isinstance(value, np.ndarray):
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    if isinstance(value, tuple | list):
        return type(value)(unwrap(v) for v in value)
    return value


def wrap(value):
    """NumPy's arrays and numbers as device arrays: CuPy returns no bare numbers."""
    if isinstance(value, np.ndarray | np.generic):
        return DeviceArray(np.asarray(value))
    if isinstance(value, tuple | list):
        return type(value)(wrap(v) for v in value)
    return value


class DeviceArray:
    """An array on the device that is not there."""

    __array_ufunc__ = None  # NumPy's own functions and host arrays keep off
    __hash__ = None

    def __init__(self, array):
        self.array = array

    def __array__(self, *_, **__):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Use `.get()`.")

    @property
    def data(self):
        """Where the array is, for kernels that are compiled for the host."""
        return SimpleNamespace(ptr=self.array.ctypes.data)

    def get(self):
        wait()
        return self.array.copy()

    def item(self):
        wait()
        return self.array.item()

    def __bool__(self):
        wait()
        return bool(self.array)

    def __int__(self):
        wait()
        return int(self.array)

    def __float__(self):
        wait()
        return float(self.array)

    def __len__(self):
        return len(self.array)

    def __iter__(self):
        return iter([wrap(part) for part in self.array])

    def __getitem__(self, index):
        parts = index if isinstance(index, tuple) else (index,)
        if any(isinstance(part, DeviceArray) for part in parts):
            launch()
        return wrap(self.array[unwrap(index)])

    def __setitem__(self, index, value):
        launch()
        self.array[unwrap(index)] = unwrap(value)

    def __getattr__(self, name):
        known = name in METHODS.split() if real is None else hasattr(real.ndarray, name)
        if name.startswith("_") or not known:
            raise AttributeError(f"cupy.ndarray has no {name!r}")
        value = getattr(self.array, name)
        if not callable(value):
            return wrap(value) if isinstance(value, np.ndarray) else value

        def method(*args, **kwargs):
            launch(name)
            kwargs = {key: unwrap(v) for key, v in kwargs.items()}
            return wrap(value(*(unwrap(a) for a in args), **kwargs))

        return method


def _operator(name, in_place):
    def method(self, *others):
        launch()
        result = getattr(self.array, name)(*(unwrap(other) for other in others))
        return self if in_place and result is self.array else wrap(result)

    return method


BINARY = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift"
for _word in BINARY.split():
    for _prefix in ("", "r", "i"):
        _name = f"__{_prefix}{_word}__"
        setattr(DeviceArray, _name, _operator(_name, _prefix == "i"))
COMPARISONS = "lt le eq ne gt ge neg pos invert abs"
for _word in COMPARISONS.split():
    setattr(DeviceArray, f"__{_word}__", _operator(f"__{_word}__", False))


class Function:
    """A function of the module: NumPy's on unwrapped arrays, with CuPy's arguments."""

    def __init__(self, name, function, cupys):
        self.name, self.function, self.signature = name, function, None
        if isinstance(cupys, types.FunctionType):
            self.signature = inspect.signature(cupys)

    def __call__(self, *args, **kwargs):
        launch(self.name)
        if self.signature is not None:
            self.signature.bind(*args, **kwargs)
        elif isinstance(self.function, np.ufunc) and not kwargs.keys() <= UFUNC_ARGUMENTS:
            raise TypeError(f"cupy.{self.name} takes none of {sorted(kwargs)}")
        out = kwargs.get("out")
        args, kwargs = unwrap(args), {key: unwrap(value) for key, value in kwargs.items()}
        result = self.function(*args, **kwargs)
        return wrap(result) if out is None else out

    def at(self, a, index, values):
        self.function.at(unwrap(a), unwrap(index), unwrap(values))


def cholesky(a):
    """NumPy's, but without a factor it raises nothing, as CuPy's."""
    try:
        return np.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        return np.full_like(a, np.nan)


class Module:
    """CuPy's names over NumPy's functions."""

    __name__ = "stand-in"  # for which there are no kernels
    __version__ = "stand-in"
    ndarray = DeviceArray

    def __init__(self, cuda, source=np, cupys=real):
        self.cuda, self.source, self.cupys = cuda, source, cupys

    def asarray(self, value, dtype=None):
        host = value if isinstance(value, np.ndarray) else unwrap(value)
        device = isinstance(value, DeviceArray)
        return wrap(np.asarray(host, dtype) if device else np.array(host, dtype))

    def array(self, value, dtype=None):
        return wrap(np.array(value if isinstance(value, np.ndarray) else unwrap(value), dtype))

    def get_default_memory_pool(self):
        return SimpleNamespace(free_bytes=lambda: 0, free_all_blocks=lambda: None)

    def __getattr__(self, name):
        known = name in FUNCTIONS.split() if self.cupys is None else hasattr(self.cupys, name)
        value = cholesky if name == "cholesky" else getattr(self.source, name, None)
        if isinstance(value, type | float) or name in ("lib", "linalg", "stride_tricks"):
            if isinstance(value, types.ModuleType):
                return Module(None, value, self.cupys and getattr(self.cupys, name))
            return value
        if (
            name.startswith("_")
            or value is None
            or not (known or name in ("as_strided", "sliding_window_view"))
        ):
            raise AttributeError(f"cupy has no {name!r}")
        return Function(name, value, self.cupys and getattr(self.cupys, name))


class Event:
    def record(self):
        self.time = time.perf_counter()

    def synchronize(self):
        wait()


def cuda(memory=1 << 32, devices=1):
    """The part `cupy.cuda` of a machine with so many devices and bytes each."""
    properties = {"name": b"Stand-in device"}
    runtime = SimpleNamespace(
        getDeviceCount=lambda: devices,
        getDeviceProperties=lambda number: properties,
        memGetInfo=lambda: (memory, memory),
    )
    return SimpleNamespace(
        runtime=runtime,
        Device=lambda: SimpleNamespace(id=0),
        Event=Event,
        get_elapsed_time=lambda a, b: 1e3 * (b.time - a.time),
    )


def install(monkeypatch, **machine):
    """Put the stand-in in CuPy's place; returns the module."""
    module = Module(cuda(**machine))
    monkeypatch.setattr(backend.cuda, "FILLER_BYTES", 1 << 10)
    from scipy.linalg import solve_triangular
    from scipy.special import ndtr

    special, linalg = (types.ModuleType(f"cupyx.scipy.{name}") for name in ("special", "linalg"))
    special.ndtr = Function("ndtr", ndtr, None)
    linalg.solve_triangular = Function("solve_triangular", solve_triangular, None)
    for name, value in {
        "cupy": module,
        "cupyx": types.ModuleType("cupyx"),
        "cupyx.scipy": types.ModuleType("cupyx.scipy"),
        "cupyx.scipy.special": special,
        "cupyx.scipy.linalg": linalg,
    }.items():
        monkeypatch.setitem(sys.modules, name, value)
    return module
