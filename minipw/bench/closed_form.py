"""Times of the closed form against the machine's matrix products and symmetric updates.

The floor of the patches' pass is its product with the filters at the SGEMM rate; that of the
sums is the triangle of z^T z at the rate of BLAS's SSYRK, one on each thread.
"""

import numpy as np
from scipy import linalg

from minipw.backend.threads import THREADS
from minipw.bench.clocks import median_seconds
from minipw.nn.patches import patch_features
from minipw.online import StreamingRidgeClassifier
from minipw.ridge import Statistics, solve

FILTERS, IMAGES, FEATURES, SAMPLES = 400, 500, 3200, 4096
INPUTS, SMALL, CALL = 64, 1000, 1000
"""Inputs and features of the online learner, and samples of a call."""
HEADINGS = f"{'the closed form':62s} {'ms':>9s} {'samples':>12s} {'share':>6s}"


def ssyrk_rate(size=1536, repeats=9):
    """Floating point operations a second of z^T z in float32, a triangle on each thread."""
    z = np.random.default_rng(0).standard_normal((size, size), np.float32).T
    copies = [z.copy("F") for _ in range(THREADS.count)]
    seconds = median_seconds(
        lambda: THREADS.map(lambda a: linalg.blas.ssyrk(1.0, a), copies), repeats
    )
    return THREADS.count * size**3 / seconds


def measure(sgemm):
    """Rows of the table: list of dict, `share` being the floor's time over the measured one."""
    rng = np.random.default_rng(0)
    images = rng.random((IMAGES, 32, 32, 3), np.float32)
    z = patch_features(images, FILTERS, rng)
    seconds = median_seconds(lambda: z(images), 5)
    places, patch = (32 - z.sizes[0] + 1) ** 2, len(z.filters[0][0])
    floor = 2 * IMAGES * places * patch * FILTERS / sgemm
    rows = [row(f"features of images 32x32x3, {FILTERS} patches", seconds, IMAGES, floor)]
    features, labels = rng.standard_normal((SAMPLES, FEATURES), np.float32), np.arange(SAMPLES) % 10
    sums = Statistics.empty(FEATURES, 10)
    seconds = median_seconds(lambda: sums.add(features, labels), 5)
    floor = SAMPLES * FEATURES**2 / ssyrk_rate()
    rows.append(row(f"sums of {FEATURES:,} features", seconds, SAMPLES, floor))
    rows.append(
        row(f"lambda and weights, {FEATURES:,} features", median_seconds(lambda: solve(sums), 3))
    )
    x, y = rng.standard_normal((2 * CALL, INPUTS)), np.arange(2 * CALL) % 10
    learner = StreamingRidgeClassifier("random", SMALL).partial_fit(x, y)
    what = f"{INPUTS} inputs, {SMALL:,} random features: "
    seconds = median_seconds(lambda: learner.predict(x[:CALL]), 30)
    rows.append(row(f"{what}{CALL:,} a call predicted", seconds, CALL))
    seconds = median_seconds(lambda: learner.partial_fit(x[:1], y[:1]), 300)
    rows.append(row(f"{what}one learned", seconds, 1))
    seconds = median_seconds(
        lambda: learner.predict(x[:1]) is learner.partial_fit(x[:1], y[:1]), 100
    )
    return [*rows, row(f"{what}one predicted, learned", seconds, 1)]


def row(operation, seconds, samples=None, floor=None):
    """A line of the table, with samples a second and the share of the floor's rate."""
    rate, share = samples and samples / seconds, floor and floor / seconds
    return {"operation": operation, "ms": 1e3 * seconds, "per_second": rate, "share": share}


def text(row):
    """A line of the table for a terminal."""
    rate = "" if row["per_second"] is None else f"{row['per_second']:,.0f}/s"
    share = "" if row["share"] is None else f"{row['share']:.2f}"
    return f"{row['operation']:62s} {row['ms']:9.2f} {rate:>12s} {share:>6s}"
