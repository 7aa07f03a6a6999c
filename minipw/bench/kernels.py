"""The kernels of a training step, each against the floor of its memory.

CUDA events time every kernel that a step launches, with its arguments in training. The
floor is the time of a copy, measured on the same device, of what the kernel moves: each
array once, parameters and importance twice. For a dense product it is the time of its
operations at the measured rate of a large one, if that is longer. Small arrays stay in the
device's cache between launches, so their kernels may be faster than the floor.
"""

from functools import partial

import numpy as np

from minipw.backend.cuda import device_seconds
from minipw.kernels import launcher, pairwise_gpu

CALLS = 20
"""Launches of a kernel between two events."""
COPIED = 1 << 27
"""Numbers in the array that is copied: 512 MiB, many times a device's cache."""
SIDE = 4096
"""Rows and columns of the matrices that are multiplied."""
VARIANTS = (
    (pairwise_gpu, "ROUNDS", (16, 32, 64), ("pairwise_forward", "pairwise_sum", "pairwise_dw")),
    (pairwise_gpu, "SAMPLES", (8, 16), ("pairwise_dx",)),
    (pairwise_gpu, "SPARSE", (0, 8), ("pairwise_dx",)),  # with 0 every head is sparse
    (launcher, "BLOCK", (128, 256, 512), ("pairwise_forward", "pairwise_dx")),
)
"""Constants of modules, values to time, and the kernels that depend on them."""
KERNEL = "{kernel:22s} {launches:5d} {ms:8.4f} {gb_per_second:7.0f} {floor_ms:9.4f} {ratio:6.1f}"


def rates(xp):
    """Bytes read and written a second by a copy, operations a second of a large product.

    The copy is the driver's own: CuPy's elementwise copy is far slower, no floor.
    """
    source, target = (xp.ones(COPIED, np.float32) for _ in range(2))
    copy = 2 * source.nbytes / device_seconds(lambda: xp.copyto(target, source), 9, CALLS)
    a = xp.ones((SIDE, SIDE), np.float32)
    product = 2 * len(a) ** 3 / device_seconds(lambda: a @ a, 9)
    return copy, product


def moved_bytes(arguments, share):
    """The least bytes that a kernel moves: every array once, what it updates twice.

    arguments : dict of str to ndarray or number
    share : float
        The part of the list `values` that is used: the share of units that win.
    """
    factors = {"theta": 2, "omega": 2, "values": share}
    arrays = {name: a for name, a in arguments.items() if getattr(a, "ndim", 0)}
    return sum(factors.get(name, 1) * a.nbytes for name, a in arrays.items())


def kernel_times(stack, bandwidth, only=None):
    """Time, bytes and floor of the kernels of a step; the parameters end up meaningless.

    only : tuple of str, the kernels that are timed, or None for all
    """
    plain, found, network = launcher.launch, {}, stack.network
    share = network.winners / network.architecture.units

    def launch(sources, kernel, template, grid, arguments, *rest, **named):
        call = partial(plain, sources, kernel, template, grid, arguments, *rest, **named)
        if only and kernel not in only:
            return call()
        times = found.setdefault(kernel, [0, 0.0, 0.0])
        times[0] += 1
        times[1] += device_seconds(call, 3, CALLS)
        times[2] += moved_bytes(arguments, share)

    launcher.launch = launch
    stack.rewind()
    try:
        stack.step()
    finally:
        launcher.launch = plain
    return [kernel_row(name, *times, times[2] / bandwidth) for name, times in found.items()]


def variant_times(stack, bandwidth):
    """What the kernels take with other constants: a dict a constant, value and kernel."""
    rows = []
    for module, constant, values, kernels in VARIANTS:
        is_set = getattr(module, constant)
        try:
            for value in values:
                setattr(module, constant, value)
                given = {"constant": constant, "value": value, "set": value == is_set}
                rows += [given | row for row in kernel_times(stack, bandwidth, kernels)]
        finally:
            setattr(module, constant, is_set)
    return rows


def kernel_row(name, launches, seconds, moved, floor):
    """A row of the table of kernels."""
    return {
        "kernel": name,
        "launches": launches,
        "ms": 1e3 * seconds,
        "gb_per_second": moved / seconds / 1e9,
        "floor_ms": 1e3 * floor,
        "ratio": seconds / floor,
    }


def dense_times(xp, stack, bandwidth, rate):
    """The products of the first layer, forward and weight gradient, as `kernel_times`."""
    w = next(iter(stack.network.parameters.values()))
    batch = stack.settings.batch_size
    x, dy = (xp.ones((len(w), batch, size), w.dtype) for size in w.shape[1:])
    moved, operations = x.nbytes + w.nbytes + dy.nbytes, 2 * batch * w.size
    floor = max(moved / bandwidth, operations / rate)
    calls = {"dense y = x w": lambda: x @ w, "dense dw": lambda: xp.swapaxes(x, 1, 2) @ dy}
    return [
        kernel_row(name, 1, device_seconds(call, 9, CALLS), moved, floor)
        for name, call in calls.items()
    ]


def report_kernels(kernels, row, say):
    """The table of kernels of a cell's step."""
    say(
        f"\n{row['cell']}, {row['runs_together']} runs: kernels of a step of "
        f"{row['step_ms']:.3f} ms\n"
        f"{'kernel':22s} calls       ms    GB/s  floor ms  ratio"
    )
    for kernel in kernels:
        say(KERNEL.format(**kernel))


def report_variants(variants, say):
    """The table of constants; * marks the values that are set."""
    say(f"\n{'constant':10s} {'value':>6s} {'kernel':22s}       ms  ratio")
    for row in variants:
        mark = "*" if row["set"] else ""
        text = "{constant:10s} {value:5d}{mark:1s} {kernel:22s} {ms:8.4f} {ratio:6.1f}"
        say(text.format(**row, mark=mark))
