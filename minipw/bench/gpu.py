"""Step times on a GPU: cells of the paper, their kernels, an estimate of the whole paper.

A cell's step is timed over many steps, from the first launch until the device is done. The
baseline is the same step without kernels, as `nn/` and `rules.py` define it. `bench.kernels`
times each kernel of the first cell's step on its own.
"""

import json
import statistics
import time

import numpy as np

from minipw import datasets
from minipw.backend import cuda
from minipw.backend.cuda import device_text, free_memory, release_memory, without_kernels
from minipw.bench.kernels import (
    dense_times,
    kernel_times,
    rates,
    report_kernels,
    report_variants,
    variant_times,
)
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
"""The cells that are timed. The first one is also done whole, and its kernels are timed."""
STEPS, BASELINE_STEPS = 200, 5
HEADINGS = (
    f"{'cell':50s}    runs  step ms steps x runs/s  TFLOP/s  cell s  plain ms (runs) speed-up"
)
ROW = (
    "{cell:50s} {together:>7s} {step_ms:8.3f} {steps_times_runs_per_second:14,.0f} {tflops:8.2f} "
    "{cell_seconds:7.1f} {plain:>16s} {times:>8s}"
)


def settings_of(part, label, dataset):
    """A cell of the paper and its settings on `dataset`."""
    (cell,) = [cell for cell in select(cells(part), label) if cell.label == label]
    return cell, resolve(dataset, **cell.request)[0]


def wait(xp):
    """Wait until the device has done what was launched."""
    xp.zeros(1).get()


def loaded_stack(settings, seeds, dataset, xp, steps):
    """Runs before their first step, with up to `steps` batches; and how many there are."""
    runs = create_runs(settings, seeds, dataset, xp)
    stack, size = Stack(runs), settings.batch_size
    tasks = [run.tasks[0] for run in runs]
    steps = min(steps, *(task.steps(size) for task in tasks))
    rows = np.stack([task.train[: steps * size].reshape(steps, size) for task in tasks])
    stack.load(tasks, rows)
    return stack, steps


def step_seconds(xp, stack, steps):
    """Mean seconds of a step over the batches of a stack."""
    stack.rewind()
    stack.step()  # compiles
    wait(xp)
    began = time.perf_counter()
    for _ in range(steps - 1):
        stack.step()
    wait(xp)
    return (time.perf_counter() - began) / (steps - 1)


def baseline(xp, settings, count, dataset):
    """Seconds of a step without kernels and the number of its runs, or None for both.

    The step holds the products of all pairs, so fewer runs may fit than with kernels.
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
    """Times of a cell, a dict, and its settings; `quick` leaves the baseline out."""
    cell, settings = settings_of(part, label, dataset)
    count = min(cell.runs, seeds_that_fit(settings, dataset, xp))
    began = time.perf_counter()
    stack, steps = loaded_stack(settings, range(count), dataset, xp, STEPS)
    wait(xp)
    ready = time.perf_counter() - began
    step, run = step_seconds(xp, stack, steps), stack.runs[0]
    run.evaluate()  # not counted: it compiles
    began = time.perf_counter()
    run.evaluate()
    test_seconds = (time.perf_counter() - began) / sum(task.test.size for task in run.tasks)
    outline = outline_of(settings)
    passes = settings.tasks if settings.experiment == "permuted" else 1  # over the data
    tests = passes * outline.test * (1 + len(run.tasks))  # images in the accuracy matrix
    steps_of_run = passes * settings.epochs * outline.train / settings.batch_size
    stacks = -(-cell.runs // count)
    operations = step_operations(run.network.architecture, settings.batch_size, settings.rule)
    row = {
        "cell": label,
        "runs": cell.runs,
        "runs_together": count,
        "step_ms": 1e3 * step,
        "steps_times_runs_per_second": count / step,
        "tflops": count * operations / step / 1e12,
        "ready_seconds": ready,
        "cell_seconds": stacks * (ready + steps_of_run * step + count * tests * test_seconds),
    }
    del run, stack
    release_memory()
    if not quick:
        slow, fewer = baseline(xp, settings, count, dataset)
        row |= {"baseline_runs": fewer, "baseline_step_ms": slow and 1e3 * slow}
        row["speed_up"] = slow and (count / step) / (fewer / slow)
    return row, settings


def outline_of(settings):
    """The sizes of the published data set, MNIST's where there is none."""
    return OUTLINES.get(settings.dataset, OUTLINES["mnist"])


def paper_seconds(results):
    """Estimated seconds of every run of the paper on this device, by table or figure.

    Each run's estimate for a core is scaled as the measured cells of the same head are.
    """
    ratios = {}
    for row, settings in results:
        estimate = row["runs"] * estimated_seconds(settings, outline_of(settings))
        ratios.setdefault(settings.head, []).append(row["cell_seconds"] / estimate)
    means = {head: statistics.mean(values) for head, values in ratios.items()}
    runs = {}  # those of a cell that stands in two parts count where it comes first
    for cell in cells("all"):
        settings, _ = resolve(OUTLINES[cell.dataset], **cell.request)
        part, count = runs.get(settings, (cell.part, 0))
        runs[settings] = part, max(cell.runs, count)
    other, seconds = statistics.mean(means.values()), {}
    for settings, (part, count) in runs.items():
        estimate = count * estimated_seconds(settings, outline_of(settings))
        estimate *= means.get(settings.head, other)
        seconds[part] = seconds.get(part, 0) + estimate
    return seconds


def main(args):
    """Time everything and print tables, or one JSON object; returns the exit status."""
    xp = cuda.device_module("cuda")
    dataset = datasets.load("mnist", data_dir=args.data_dir, named=False, download=False)
    say = (lambda *_, **__: None) if args.json else print
    bandwidth, rate = rates(xp)
    say(
        f"{device_text()}: copy {bandwidth / 1e9:.0f} GB/s (read + written), "
        f"SGEMM {rate / 1e12:.1f} TFLOP/s; {dataset.name}"
    )
    results = [measure(xp, *case, dataset, quick=n > 1) for n, case in enumerate(CASES)]
    rows = [row for row, _ in results]
    say(f"\n{HEADINGS}")
    for row in rows:
        together, plain, speed_up = f"{row['runs_together']}/{row['runs']}", "-", "-"
        if slow := row.get("baseline_step_ms"):
            plain, speed_up = f"{slow:.1f} ({row['baseline_runs']})", f"{row['speed_up']:.1f}"
        say(ROW.format(**row, together=together, plain=plain, times=speed_up))
    first, settings = results[0]
    stack, _ = loaded_stack(settings, range(first["runs_together"]), dataset, xp, STEPS)
    kernels = dense_times(xp, stack, bandwidth, rate) + kernel_times(stack, bandwidth)
    report_kernels(kernels, first, say)
    variants = variant_times(stack, bandwidth)
    report_variants(variants, say)
    del stack
    began = time.perf_counter()
    list(run_seeds(settings, range(first["runs"]), dataset, xp, first["runs_together"]))
    whole = time.perf_counter() - began
    say(f"\nfirst cell, {first['runs']} runs from start to end on {dataset.name}: {whole:.1f} s")
    parts = paper_seconds(results)
    text = ", ".join(f"{part} {duration(seconds)}" for part, seconds in parts.items())
    say(f"every run of the paper, estimated from these: {duration(sum(parts.values()))} ({text})")
    if args.json:
        report = {
            "device": cuda.device_name(),
            "memory_bytes": free_memory()[1],
            "dataset": dataset.name,
            "copy_gb_per_second": bandwidth / 1e9,
            "sgemm_tflops": rate / 1e12,
            "cells": rows,
            "kernels": kernels,
            "variants": variants,
            "first_cell_seconds": whole,
            "paper_seconds": sum(parts.values()),
            "paper_parts": parts,
        }
        print(json.dumps(report))
    return 0
