"""`bench --device cuda`: kernels against memory's floor, cells of the paper, all of it.

A cell's step is timed over many, from the first launch until the device is done. The
baseline in the same run is the same step as `nn/` and `rules.py` define it, without the
kernels. The kernels of the first cell's step are timed alone, see `bench_kernels.py`.
"""

import json
import time

import numpy as np

from minipw import datasets
from minipw.backend import cuda
from minipw.backend.cuda import device_text, free_memory, release_memory, without_kernels
from minipw.bench.kernels import dense_times, kernel_times, rates, report_kernels
from minipw.experiments.run_times import duration, estimated_seconds
from minipw.network.cost import step_operations
from minipw.paper.cells import OUTLINES, cells, select
from minipw.training.many_seeds import create_runs, run_seeds, seeds_that_fit
from minipw.training.settings import resolve
from minipw.training.stacked_runs import Stack

CASES = (
    ("table1", "split mnist single mlp-700-1 pairwise adagrad"),
    ("table1", "split mnist single mlp-700-1 pairwise s-mas"),
    ("table1", "split mnist single mlp-1000-1 fc adagrad"),
    ("table1", "split mnist single cnn-s pairwise adagrad"),
    ("table3", "permuted mnist single mlp-700-1 pairwise adagrad"),
)
"""The cells that are timed; the first is also done whole, and its kernels are timed."""
STEPS, BASELINE_STEPS = 200, 5


def settings_of(part, label, dataset):
    """A cell of the paper and its settings, for the data set at hand."""
    (cell,) = [cell for cell in select(cells(part), label) if cell.label == label]
    return cell, resolve(dataset, **cell.request)[0]


def wait(xp):
    """Until the device has done what was launched."""
    xp.zeros(1).get()


def loaded_stack(settings, seeds, dataset, xp, steps):
    """Runs at the beginning of their first task, with so many batches at the most."""
    runs = create_runs(settings, seeds, dataset, xp)
    stack, size = Stack(runs), settings.batch_size
    tasks = [run.tasks[0] for run in runs]
    steps = min(steps, *(task.steps(size, 1) for task in tasks))
    rows = np.stack([task.train[: steps * size].reshape(steps, size) for task in tasks])
    stack.load(tasks, rows)
    return stack, steps


def step_seconds(xp, stack, steps):
    """Seconds of a step over the batches of a stack: of all, until the device is done."""
    stack.rewind()
    stack.step()  # compiles
    wait(xp)
    began = time.perf_counter()
    for _ in range(steps - 1):
        stack.step()
    wait(xp)
    return (time.perf_counter() - began) / (steps - 1)


def baseline(xp, settings, count, dataset):
    """Seconds of a step without kernels and the runs it was done with, or None for both.

    The products of all pairs are held, so fewer runs may fit than with kernels.
    """
    while count:
        try:
            with without_kernels():
                stack, steps = loaded_stack(settings, range(count), dataset, xp, BASELINE_STEPS)
                return step_seconds(xp, stack, steps), count
        except MemoryError:
            stack, count = None, count // 2
        release_memory()
    return None, None


def measure(xp, part, label, dataset, quick):
    """Times of a cell with its runs on the device.

    quick : bool
        Leaves the baseline out.
    """
    cell, settings = settings_of(part, label, dataset)
    count = min(cell.runs, seeds_that_fit(settings, dataset, xp))
    began = time.perf_counter()
    stack, steps = loaded_stack(settings, range(count), dataset, xp, STEPS)
    wait(xp)
    ready = time.perf_counter() - began
    step = step_seconds(xp, stack, steps)
    run = stack.runs[0]
    run.evaluate()
    began = time.perf_counter()
    run.evaluate()
    images = sum(task.test.size for task in run.tasks)
    image = (time.perf_counter() - began) / images
    outline = OUTLINES.get(settings.dataset, OUTLINES["mnist"])
    tasks = settings.tasks if settings.experiment == "permuted" else 1
    tests = 1 + len(run.tasks)  # rows of the accuracy matrix
    stacks = -(-cell.runs // count)
    whole_steps = tasks * settings.epochs * outline.train / settings.batch_size
    seconds = stacks * (ready + whole_steps * step + count * tests * tasks * outline.test * image)
    row = {
        "cell": label,
        "runs": cell.runs,
        "runs_together": count,
        "step_ms": 1e3 * step,
        "steps_times_runs_per_second": count / step,
        "tflops": count
        * step_operations(run.network.architecture, settings.batch_size, settings.rule)
        / step
        / 1e12,
        "ready_seconds": ready,
        "cell_seconds": seconds,
    }
    share = run.network.winners / run.network.architecture.units
    del run, stack
    release_memory()
    if not quick:
        slow, fewer = baseline(xp, settings, count, dataset)
        row |= {"baseline_runs": fewer, "baseline_step_ms": slow and 1e3 * slow}
        row["speed_up"] = slow and (count / step) / (fewer / slow)
    return row, settings, share


def paper_seconds(rows):
    """Seconds of every run of the paper's tables and figures on this device, estimated.

    The estimate of a run on a core, by what the measured cells of the same head took of it.

    rows : list of (row, settings) from `measure`
    """

    def guess(settings):
        outline = OUTLINES.get(settings.dataset, OUTLINES["mnist"])
        return estimated_seconds(settings, outline)

    ratios = {}
    for row, settings in rows:
        ratios.setdefault(settings.head, []).append(
            row["cell_seconds"] / row["runs"] / guess(settings)
        )
    means = {head: sum(values) / len(values) for head, values in ratios.items()}
    wanted = {}
    for cell in cells("all"):
        settings, _ = resolve(OUTLINES[cell.dataset], **cell.request)
        wanted[settings] = max(cell.runs, wanted.get(settings, 0))
    other = sum(means.values()) / len(means)
    return sum(runs * guess(s) * means.get(s.head, other) for s, runs in wanted.items())


def report_cells(rows, say):
    """The table of cells."""
    say(
        f"\n{'cell':50s} {'runs':>7s} {'step ms':>8s} {'steps x runs/s':>14s} {'TFLOP/s':>8s} "
        f"{'cell s':>7s} {'plain ms (runs)':>16s} {'speed-up':>8s}"
    )
    for row in rows:
        slow = row.get("baseline_step_ms")
        plain = f"{slow:.1f} ({row['baseline_runs']})" if slow else "-"
        speed_up = f"{row['speed_up']:.1f}" if slow else "-"
        together = f"{row['runs_together']}/{row['runs']}"
        say(
            f"{row['cell']:50s} {together:>7s} {row['step_ms']:8.3f} "
            f"{row['steps_times_runs_per_second']:14,.0f} {row['tflops']:8.2f} "
            f"{row['cell_seconds']:7.1f} {plain:>16s} {speed_up:>8s}"
        )


def main(args):
    """Time everything and print tables, or one JSON object.

    Returns
    -------
    int
        The exit status, 0.
    """
    xp = cuda.device_module("cuda")
    dataset = datasets.load("mnist", data_dir=args.data_dir, named=False, download=False)
    say = (lambda *_, **__: None) if args.json else print
    bandwidth, rate = rates(xp)
    say(
        f"{device_text()}: copy {bandwidth / 1e9:.0f} GB/s (read + written), "
        f"SGEMM {rate / 1e12:.1f} TFLOP/s; {dataset.name}"
    )
    results = [measure(xp, *case, dataset, quick=n > 1) for n, case in enumerate(CASES)]
    rows = [row for row, _, _ in results]
    report_cells(rows, say)
    _, settings, share = results[0]
    stack, _ = loaded_stack(settings, range(rows[0]["runs_together"]), dataset, xp, STEPS)
    kernels = dense_times(xp, stack, bandwidth, rate) + kernel_times(stack, share, bandwidth)
    report_kernels(kernels, rows[0], say)
    del stack
    began = time.perf_counter()
    list(run_seeds(settings, range(rows[0]["runs"]), dataset, xp, rows[0]["runs_together"]))
    whole = time.perf_counter() - began
    say(f"first cell, {rows[0]['runs']} runs from start to end on {dataset.name}: {whole:.1f} s")
    total = paper_seconds([(row, settings) for row, settings, _ in results])
    say(f"every run of the paper, estimated from these: {duration(total)}")
    if args.json:
        print(
            json.dumps(
                {
                    "device": cuda.device_name(),
                    "memory_bytes": free_memory()[1],
                    "dataset": dataset.name,
                    "copy_gb_per_second": bandwidth / 1e9,
                    "sgemm_tflops": rate / 1e12,
                    "cells": rows,
                    "kernels": kernels,
                    "first_cell_seconds": whole,
                    "paper_seconds": total,
                }
            )
        )
    return 0
