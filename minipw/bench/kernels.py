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
from minipw.kernels import launcher

CALLS = 20
"""Launches of a kernel between two events."""
COPIED = 1 << 27
"""Numbers in the array that is copied: 512 MiB, many times a device's cache."""
SIDE = 4096
"""Rows and columns of the matrices that are multiplied."""
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


def kernel_times(stack, bandwidth):
    """Time, bytes and floor of every kernel of a step; the parameters end up meaningless."""
    plain, found, network = launcher.launch, {}, stack.network
    share = network.winners / network.architecture.units

    def launch(sources, kernel, template, grid, arguments, *rest, **named):
        call = partial(plain, sources, kernel, template, grid, arguments, *rest, **named)
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
