"""The closed form on a device: features and sums of Split CIFAR-10, the solution, its accuracy.

    python tests/gpu_closed_form.py

1,600 patches, 12,800 features. Prints one JSON object. Without CIFAR-10 images are drawn.
"""

import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from minipw import InputError, datasets
from minipw.backend import cuda
from minipw.backend.arrays import to_device, to_host
from minipw.nn.patches import patch_features
from minipw.ridge import Statistics, solve

FILTERS, FIRST, ROWS = 1600, 1000, 4096


def drawn(train, test, shape=(32, 32, 3), classes=10):
    """A data set of waves under noise, their length by class."""
    rng = np.random.default_rng(0)
    phase = np.arange(1, classes + 1)[:, None, None, None] * np.arange(shape[1])[:, None]
    waves = (40 + 40 * np.sin(phase / 8)).astype(np.uint8)  # (C, 1, width, 1)

    def samples(count):
        y = rng.integers(0, classes, count)
        return rng.integers(0, 170, (count, *shape), np.uint8) + waves[y], y

    (x, y), (x_test, y_test) = samples(train), samples(test)
    names = {"x_train": x, "y_train": y, "x_test": x_test, "y_test": y_test}
    return SimpleNamespace(name="drawn", classes=classes, **names)


def closed_form(xp, data, filters, first=FIRST):
    """Times, a dict, and what was found: the solution, and its outputs for the test images.

    The training images come class by class, in pairs of classes, as in the split stream.
    """
    order = np.argsort(data.y_train // 2, kind="stable")
    x, y, x_test = (
        to_device(xp, a) for a in (data.x_train[order], data.y_train[order], data.x_test)
    )
    began = time.perf_counter()
    z = patch_features(x[:first], filters, np.random.default_rng(0))
    features = z(x[:1]).shape[1]
    made = time.perf_counter()
    sums = Statistics.empty(features, data.classes, xp)
    for start in range(0, len(x), ROWS):
        sums.add(z(x[start : start + ROWS]), y[start : start + ROWS])
    float(sums.counts.sum())  # waits
    added = time.perf_counter()
    solution = solve(sums)
    solved = time.perf_counter()
    parts = [x_test[start : start + ROWS] for start in range(0, len(x_test), ROWS)]
    outputs = np.concatenate([to_host(solution.logits(z(part))) for part in parts])
    scores = solution.densities(outputs)
    tested = time.perf_counter()
    row = {
        "data": data.name,
        "images": len(x),
        "features": features,
        "filters_seconds": made - began,
    }
    row |= {"sums_seconds": added - made, "solve_seconds": solved - added}
    row |= {"test_seconds": tested - solved}
    row["accuracy"] = 100 * float((scores.argmax(1) == data.y_test).mean())
    return row, (solution, outputs)


def main():
    """Do it on the device and print the times."""
    xp = cuda.device_module("cuda")
    try:
        data = datasets.load("cifar-10", download=False)
    except InputError:
        data = drawn(50_000, 10_000)
    closed_form(xp, drawn(2_000, 200), 20)  # compiles
    print(json.dumps(closed_form(xp, data, FILTERS)[0]))


if __name__ == "__main__":
    main()
