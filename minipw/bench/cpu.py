"""Step times against the machine's own floor.

The floor of a step is the least time that this machine needs for its arithmetic:

    matrix products of the step / measured SGEMM rate
    + one read and one write of parameters, importance and gradient
      / measured copy bandwidth

The gathers of the pairwise head are not in the floor: their cost shows in the ratio.
"""

import json
import time
from dataclasses import dataclass

import numpy as np

from minipw import datasets
from minipw.backend.threads import THREADS
from minipw.bench import closed_form
from minipw.bench.clocks import median_seconds
from minipw.network.cost import step_operations
from minipw.network.network import SMALLEST_SHARE
from minipw.rules import update
from minipw.training.run import Run
from minipw.training.settings import resolve


@dataclass(frozen=True)
class Case:
    """A network, rule and batch size to time."""

    backbone: str
    head: str
    rule: str = "adagrad"
    batch_size: int = 64
    steps: int = 60


UNCOUNTED = 3
"""Steps before the first that counts."""
CASES = [
    Case("mlp-700-1", "pairwise"),
    Case("mlp-700-1", "pairwise", "s-mas"),
    Case("mlp-700-1", "pairwise", "sgd"),
    Case("mlp-700-1", "pairwise", batch_size=1, steps=300),
    Case("mlp-1000-1", "fc"),
    Case("cnn-s", "pairwise"),
    Case("cnn-m", "pairwise", steps=30),
    Case("mlp-700-3", "pairwise", steps=20),
    Case("mlp-3000-1", "pairwise", steps=20),
    Case("mlp-10000-1", "fc", steps=20),
]
HEADINGS = (
    "network               rule     batch  forward  backward  update  step ms  steps/s  samples/s"
    "  floor ms  ratio"
)
ROW = (
    "{network:21s} {rule:8s} {batch_size:5d} {forward_ms:8.2f} {backward_ms:9.2f} {update_ms:7.2f}"
    " {step_ms:8.2f} {steps_per_second:8.1f} {samples_per_second:10,.0f} {floor_ms:9.2f}"
    " {ratio:6.1f}"
)


def sgemm_rate(size=1536, repeats=9):
    """Floating point operations a second of A @ B in float32; threads share the rows of A."""
    a, b = (np.random.default_rng(n).standard_normal((size, size), np.float32) for n in (0, 1))
    c, shares = np.empty_like(a), THREADS.shares(size, SMALLEST_SHARE)

    def product():
        THREADS.map(lambda rows: np.matmul(a[rows], b, out=c[rows]), shares)

    return 2 * size**3 / median_seconds(product, repeats)


def copy_bandwidth(size=1 << 26, repeats=9):
    """Bytes read and written a second by a copy that is too large for any cache."""
    a, b = np.ones(size // 4, np.float32), np.zeros(size // 4, np.float32)
    shares = THREADS.shares(a.size, SMALLEST_SHARE)

    def copy():
        THREADS.map(lambda part: np.copyto(b[part], a[part]), shares)

    return 2 * a.nbytes / median_seconds(copy, repeats)


def measure(case, dataset, rate, bandwidth):
    """Median times of a training step on images of `dataset`, and the floor.

    The step holds the preparation of the batch, forward, backward and update. A forward
    pass is timed on its own; backward is what the gradients of a step take beyond it.

    Returns
    -------
    dict
        Times in milliseconds; rates a second.
    """
    given = {"batch_size": case.batch_size}
    settings, _ = resolve(dataset, "split", False, case.backbone, case.head, case.rule, given=given)
    run = Run(settings, 0, dataset)
    network, importance, rng = run.network, run.importance, np.random.default_rng(0)
    shares = THREADS.shares(case.batch_size, SMALLEST_SHARE)
    clocks = np.zeros((case.steps + UNCOUNTED, 5))
    for clock in clocks:
        rows = rng.integers(0, len(dataset.x_train), case.batch_size)
        clock[0] = time.perf_counter()
        x, labels = dataset.batch(dataset.x_train[rows]), dataset.y_train[rows]
        clock[1] = time.perf_counter()
        _, _, gradients = network.loss_gradients(x, labels, run.rule)
        clock[2] = time.perf_counter()
        for name in gradients:
            update(run.rule, network.parameters[name], importance[name], gradients[name])
        clock[3] = time.perf_counter()
        THREADS.map(lambda share, x=x: network.forward(x[share]), shares)
        clock[4] = time.perf_counter()
    clocks = clocks[UNCOUNTED:]
    parts = np.median(np.diff(clocks), axis=0)  # prepare, gradients, update, forward
    step = float(np.median(clocks[:, 3] - clocks[:, 0]))
    arrays = 2 if case.rule == "sgd" else 3
    moved = 2 * arrays * 4 * network.parameter_count
    operations = step_operations(network.architecture, case.batch_size, case.rule)
    floor = operations / rate + moved / bandwidth
    return {
        "network": f"{case.backbone} {case.head}",
        "rule": case.rule,
        "batch_size": case.batch_size,
        "parameters": network.parameter_count,
        "forward_ms": 1e3 * parts[3],
        "backward_ms": 1e3 * (parts[1] - parts[3]),
        "update_ms": 1e3 * parts[2],
        "step_ms": 1e3 * step,
        "steps_per_second": 1 / step,
        "samples_per_second": case.batch_size / step,
        "floor_ms": 1e3 * floor,
        "ratio": step / floor,
    }


def main(as_json=False):
    """Time every case and print a table, or one JSON object; returns the exit status."""
    dataset = datasets.load("mnist-5k")
    rate, bandwidth = sgemm_rate(), copy_bandwidth()
    say = (lambda *_, **__: None) if as_json else print
    say(
        f"{THREADS.count} threads, SGEMM {rate / 1e9:.0f} GFLOP/s, "
        f"copy {bandwidth / 1e9:.1f} GB/s (read + written)\n\n{HEADINGS}"
    )
    rows = []
    for case in CASES:
        rows.append(measure(case, dataset, rate, bandwidth))
        say(ROW.format(**rows[-1]), flush=True)
    say(f"\n{closed_form.HEADINGS}")
    closed = closed_form.measure(rate)
    say("\n".join(map(closed_form.text, closed)))
    if as_json:
        machine = {"threads": THREADS.count, "sgemm_gflops": rate / 1e9}
        machine["copy_gb_per_second"] = bandwidth / 1e9
        print(json.dumps({"machine": machine, "cases": rows, "closed_form": closed}))
    return 0
