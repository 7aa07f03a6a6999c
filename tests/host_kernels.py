"""The kernels on the host: the same text, compiled by g++ under `host/cuda_words.h`."""

import ctypes
import hashlib
import itertools
import re
import subprocess
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent / "host"
KERNEL_FOLDER = Path(__file__).parents[1] / "minipw" / "kernels"
TEXTS = [("kwta.cu",), ("pack.cu", "gelu.cu"), ("pack.cu", "update.cu")]
TEXTS += [("pack.cu", "loss.cu"), ("step.cu",)]
TEXTS += [("active.cu", "pairwise_forward.cu"), ("active.cu", "pairwise_backward.cu")]
"""Files that are compiled together."""
TEMPLATE = re.compile(r"template <([^<>]*)>\s*__global__ void (\w+)\(")
ARGUMENTS = {
    "typename T": ("float", "double"),
    "typename I": ("unsigned short", "int"),
    "typename S": ("unsigned char", "float"),
    "int G": ("1", "2"),
    "int N": ("1", "4"),
    "int S": ("16",),
    "bool": ("false", "true"),
}
COMPILE = (
    "g++",
    "-std=c++20",
    "-pthread",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unknown-pragmas",
    "-ffp-contract=off",
)


def read(sources):
    return "\n".join((KERNEL_FOLDER / name).read_text() for name in sources)


def instances(text):
    """Every kernel of a text with every choice of template arguments."""
    names = []
    for parameters, kernel in TEMPLATE.findall(text):
        choices = [
            next(words for kind, words in ARGUMENTS.items() if parameter.startswith(kind))
            for parameter in re.split(r",\s*", parameters)
        ]
        names += [f"{kernel}<{', '.join(words)}>" for words in itertools.product(*choices)]
    return names


def compile_text(text, folder, flags, shared, names=None):
    """A library of all kernels, or a program that replays launches of some: the path of it."""
    names = names or instances(text)
    entries = "\n".join(f"[](const Launch& l) {{ run(&{name}, l); }}," for name in names)
    described = "\n".join(f"[](char* s) {{ signature(&{name}, s); }}," for name in names)
    parts = [
        '#include "cuda_words.h"\n#line 1 "kernels"',
        text,
        f"static void (*const KERNELS[])(const Launch&) = {{{entries}}};",
    ]
    if shared:
        parts += [
            f"static void (*const SIGNATURES[])(char*) = {{{described}}};",
            'extern "C" void launch(int n, const Launch& l) { KERNELS[n](l); }',
            'extern "C" void describe(int n, char* s) { SIGNATURES[n](s); }',
        ]
    else:
        parts.append('#include "replay.cpp"')
    program = "\n".join(parts)
    options = [*COMPILE, *flags, f"-I{HERE}", *(["-shared", "-fPIC"] if shared else [])]
    digest = hashlib.sha256((program + repr(options)).encode()).hexdigest()[:16]
    source, path = Path(folder) / f"{digest}.cpp", Path(folder) / digest
    if not path.exists():
        source.write_text(program)
        done = subprocess.run([*options, "-o", path, source], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)
    return path


class Launch(ctypes.Structure):
    """`Launch` of cuda_words.h."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("threads", ctypes.c_uint),
        ("shared", ctypes.c_size_t),
        ("backwards", ctypes.c_bool),
        ("arguments", ctypes.POINTER(ctypes.c_void_p)),
    )


class Host:
    """Stands in for `minipw.backend.Cuda`.

    Parameters
    ----------
    folder : path
        For what is compiled.
    shared : int
        Bytes of shared memory that a block may have.
    change : callable of a text, or None
        Makes a wrong kernel of a right one.
    level : str
        Of optimization.
    """

    def __init__(self, folder, shared=64 << 10, change=None, level="-O1"):
        self.folder, self.shared, self.change, self.level = folder, shared, change, level
        self.records = None

    def device(self):
        return 0

    def shared_memory(self):
        return self.shared

    def compile(self, source, name):
        if self.change is not None:
            source = self.change(source)
        library = ctypes.CDLL(str(compile_text(source, self.folder, (self.level,), shared=True)))
        number = instances(source).index(name)
        text = ctypes.create_string_buffer(100)
        library.describe(number, text)
        expected = text.value.decode()

        def start(grid, block, arguments, shared_mem=0):
            assert shared_mem <= self.shared and block[0] <= 1024
            kinds = "".join(_kind(argument) for argument in arguments)
            assert kinds == expected, f"{name} takes {expected}, was given {kinds}"
            held = [np.asarray(a) if a.ndim == 0 else np.array(a.ctypes.data) for a in arguments]
            places = (ctypes.c_void_p * len(held))(*(a.ctypes.data for a in held))
            sizes = (*grid, 1, 1)[:3]
            launch = Launch((ctypes.c_uint * 3)(*sizes), block[0], shared_mem, False, places)
            before = [a.tobytes() for a in arguments] if self.records is not None else None
            library.launch(number, ctypes.byref(launch))
            if before is not None:
                after = [a.tobytes() for a in arguments]
                array = [a.ndim > 0 for a in arguments]
                record = (name, (*sizes, block[0], shared_mem), array, before, after)
                self.records.append((source, record))

        return start


def _kind(argument):
    if argument.ndim:
        return "p"
    return f"{'f' if argument.dtype.kind == 'f' else 'i'}{argument.dtype.itemsize}"


def write_records(path, names, records):
    """What replay.cpp reads."""

    def number(n):
        return int(n).to_bytes(8, "little")

    with open(path, "wb") as file:
        file.write(number(len(records)))
        for name, sizes, array, before, after in records:
            file.write(b"".join(number(n) for n in (names.index(name), *sizes, len(before))))
            for is_array, old, new in zip(array, before, after, strict=True):
                file.write(number(is_array) + number(len(old)) + old + new)
