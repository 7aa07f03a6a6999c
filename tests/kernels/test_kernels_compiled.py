"""The kernels under sanitizers, compiled for GPUs, and packed into a wheel."""

import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
from host_kernels import TEXTS, Host, compile_text, instances, read, write_records

from minipw.backend.cuda import KERNELS
from minipw.kernels import launcher, loss_gpu, step_gpu
from minipw.kernels.pairwise_gpu import DevicePairs
from minipw.nn.gelu import gelu_backward, gelu_forward
from minipw.nn.kwta import kwta_backward, kwta_forward
from minipw.rules import Rule, update

ROOT = Path(__file__).parents[2]
SANITIZERS = {"address": "-fsanitize=address,undefined", "thread": "-fsanitize=thread"}
FILES = dict.fromkeys(name for sources in TEXTS for name in sources)
"""Every file once, in an order in which they make up one text."""


def exercise(rng, dtype):
    """Start every kernel at least once, on sizes that no block divides."""
    x = rng.standard_normal((2, 2, 33)).astype(dtype)
    dy = rng.standard_normal((2, 2, 2, 33)).astype(dtype)
    for approximate in (True, False):
        _, cache = gelu_forward(x, approximate)
        gelu_backward(dy, cache)
        gelu_backward(dy[0, ..., 1:], gelu_forward(x[..., 1:], approximate)[1])  # packs of 4
    for rule in (Rule("sgd", 0.1), Rule("adagrad", 0.1), Rule("s-mas", 0.1)):
        for size in (32, 33):
            gradient = dy[..., :size] if rule.needs_output_norm else x[..., :size]
            theta = x[..., :size].copy()
            update(rule, theta, abs(theta), gradient)
    x[0, 0] = 0.5
    _, cache = kwta_forward(x, 10)
    kwta_backward(dy, cache)
    labels = rng.integers(0, 33, (2, 2))
    loss, _ = loss_gpu.forward(x, labels, None)
    counted = np.zeros(2, int), np.ones(2, bool), np.zeros(2, int), np.zeros(1, int)
    step_gpu.tally(x, labels, loss, *counted)
    if dtype == np.float32:  # inputs have one type
        rows, scale = rng.integers(0, 5, (3, 2, 2)), np.ones(3, np.float32)
        for data in (rng.random((5, 33), np.float32), rng.integers(0, 99, (5, 33), np.uint8)):
            for permutation in (None, rng.permuted(np.tile(np.arange(33), (2, 1)), axis=1)):
                given = rng.integers(0, 9, 5), rows, np.ones(1, int), permutation, scale, scale
                step_gpu.gather_batch(data, *given)
    i, j = rng.integers(0, 67, (2, 2, 210))
    x = (rng.standard_normal((2, 33, 67)) * rng.binomial(1, 0.3, (2, 33, 67))).astype(dtype)
    w, dy = (rng.standard_normal(n).astype(dtype) for n in ((2, 210), (2, 2, 33, 3)))
    for winners in (40, 1):  # the lists fit into shared memory, and do not
        form = DevicePairs(i, j, 3, 67, winners)
        _, cache = form.forward(x, w)
        form.backward(dy, cache)
        form.backward(dy[0], cache)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The launches of `exercise`, with blocks of two warps."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    host = Host(tmp_path_factory.getbasetemp())
    host.records = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(KERNELS, "numpy", host)
        patch.setattr(launcher, "BLOCK", 64)
        for dtype in (np.float32, np.float64):
            exercise(np.random.default_rng(0), dtype)
    return [record for _, record in host.records]


def replay(folder, records, sanitizer, change=lambda text: text, select=None):
    """Run recorded launches again in a program with a sanitizer; see host/replay.cpp."""
    if select is not None:
        records = [record for record in records if record[0].startswith(select)][:1]
    names = sorted({name for name, *_ in records})
    text = change(read(FILES))
    flags = ("-O0", SANITIZERS[sanitizer], "-fno-sanitize-recover=all")
    try:
        program = compile_text(text, folder, flags, shared=False, names=names)
    except RuntimeError as error:
        if re.search(r"cannot find .*(asan|tsan|ubsan)", str(error)):
            pytest.skip(f"the compiler has no {sanitizer} sanitizer")
        raise
    write_records(folder / "records", names, records)
    settings = {"TSAN_OPTIONS": "halt_on_error=1", "ASAN_OPTIONS": "detect_leaks=0"}
    command = [program, folder / "records"]
    if shutil.which("setarch"):  # thread sanitizers of some versions want fixed addresses
        command = ["setarch", "-R", *command]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env={**os.environ, **settings}
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_sanitizers_find_nothing(recorded, tmp_path, sanitizer):
    started = {name.split("<")[0] for name, *_ in recorded}
    assert started == {name.split("<")[0] for name in instances(read(FILES))}
    if sanitizer == "thread":  # the order of accesses does not depend on the type
        recorded = [record for record in recorded if "float" in record[0]]
    status, output = replay(tmp_path, recorded, sanitizer)
    assert (status, output) == (0, f"{len(recorded)} launches, 0 arguments differ\n")


WRONG = {
    "no barrier before the counts are cleared": (
        "thread",
        "kwta_forward<float>",
        ("__syncthreads();  // before the counts are cleared", ""),
        "data race",
    ),
    "no barrier within a warp": (
        "thread",
        "pairwise_dx<float, unsigned short, 1, 16, true>",
        ("__syncwarp();\n            T sum", "T sum"),
        "data race",
    ),
    "one entry past a row": (
        "address",
        "kwta_backward<float>",
        ("h < units; h += threads) {\n        // y", "h <= units; h += threads) {\n        // y"),
        "heap-buffer-overflow",
    ),
    "more shared memory than asked for": (
        "address",
        "kwta_backward<float>",
        ("sums[thread] = sum", "sums[thread + 1] = sum"),
        "use-after-poison",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_sanitizers_find_what_is_wrong(recorded, tmp_path, name):
    sanitizer, kernel, (right, wrong), message = WRONG[name]
    assert right in read(FILES)
    status, output = replay(
        tmp_path, recorded, sanitizer, lambda text: text.replace(right, wrong), kernel
    )
    assert status != 0 and message in output


def test_a_replay_compares(recorded, tmp_path):
    def change(text):
        return text.replace("] = -sums[0]", "] = sums[0]")

    status, output = replay(tmp_path, recorded, "address", change, "kwta_backward<double>")
    assert status == 1 and "1 launches, 2 arguments differ" in output  # in both block orders


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_nvcc_compiles_every_kernel_without_spills(tmp_path):
    text = read(FILES)
    # The types of numbers with one type of index each: the other pairings differ by a load.
    names = [
        name
        for name in instances(text)
        if ("float" in name) != (", int" in name) or not re.search(r"int|short", name)
    ]
    source = tmp_path / "kernels.cu"
    table = ", ".join(f"(void*)&{name}" for name in names)
    source.write_text(f"{text}\nvoid* table[] = {{{table}}};\n")
    targets = [f"-gencode=arch=compute_{n},code=sm_{n}" for n in (75, 80, 90)]
    command = ["nvcc", "-std=c++17", "-fatbin", "-Xptxas", "-v", "--threads", "3", *targets]
    done = subprocess.run(
        [*command, "-o", tmp_path / "kernels.fatbin", source], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    compiled = re.findall(
        r"Compiling entry function '(\w+)' for '(\w+)'.*?"
        r"(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers",
        done.stderr,
        flags=re.S,
    )
    assert len(compiled) == 3 * len(names)
    print(*(f"{target} {name}: {used} registers" for name, target, *_, used in compiled), sep="\n")
    for name, target, stores, loads, used in compiled:
        assert (stores, loads) == ("0", "0"), f"{name} spills on {target}"
        if re.search("list_active|pairwise_forward|pairwise_dw", name):
            assert int(used) <= 64, f"{name} on {target}: blocks of 1024 threads have no more"


def test_the_text_needs_no_header_of_the_host():
    for name in FILES:
        text = (ROOT / "minipw" / "kernels" / name).read_text()
        assert "#include" not in text and "std::" not in text
        assert len(text.splitlines()) <= 300


def test_a_wheel_has_the_kernels(tmp_path):
    build = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed")
    wheel = next(build.WheelBuilder(str(ROOT)).build(directory=str(tmp_path)))
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    assert {f"minipw/kernels/{name}" for name in FILES} <= packed
    for name in FILES:
        assert (launcher.files("minipw.kernels") / name).is_file()
