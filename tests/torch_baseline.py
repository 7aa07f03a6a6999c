"""The training step of the first cell in plain PyTorch, for R seeds at once.

    python tests/torch_baseline.py [--data-dir DIR] [--runs R] [--steps N]

What somebody who knows PyTorch would write: data on the device, one batched product a
layer for all seeds, `topk`, `gather`, autograd, fused in-place updates. It is what the
speed of `--device cuda` is compared with; `test_torch_baseline.py` checks that it
computes the same. Prints one JSON object.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parents[1]))

from minipw import datasets
from minipw.network.initialization import he_normal, sample_pairs
from minipw.training.settings import resolve

EPSILON = 1e-6


class Learner:
    """R networks of one hidden layer with pairwise heads, and Adagrad's importance.

    Parameters
    ----------
    w : float32 ndarray of shape (R, D, H)
    head : float32 ndarray of shape (R, P)
    i, j : int ndarray of shape (R, P)
    settings : Settings
        Learning rate and lambda; tanh GELU.
    winners, classes : int
    device : str
    """

    def __init__(self, w, head, i, j, settings, winners, classes, device):
        self.device, self.winners, self.classes = device, winners, classes
        self.rate, self.growth = settings.learning_rate, settings.importance_lambda
        self.parameters = [torch.tensor(a, device=device, requires_grad=True) for a in (w, head)]
        self.importance = [torch.zeros_like(p) for p in self.parameters]
        self.i, self.j = (torch.tensor(a, device=device)[:, None, :] for a in (i, j))

    def forward(self, x):
        """Logits (R, B, C) of inputs (R, B, D)."""
        w, head = self.parameters
        h = functional.gelu(torch.bmm(x, w), approximate="tanh")
        v = h.topk(self.winners + 1, sorted=False).values.amin(-1, keepdim=True)
        h = functional.relu(h - v)
        shape = (*h.shape[:2], -1)
        products = h.gather(2, self.i.expand(*shape)) * h.gather(2, self.j.expand(*shape))
        return (products * head[:, None]).view(*h.shape[:2], -1, self.classes).sum(2)

    def step(self, x, labels):
        """One step of every run; returns the losses (R,)."""
        logits = self.forward(x)
        losses = functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), reduction="none"
        ).view(labels.shape).mean(1)  # fmt: skip
        gradients = torch.autograd.grad(losses.sum(), self.parameters)
        with torch.no_grad():
            for theta, omega, g in zip(self.parameters, self.importance, gradients, strict=True):
                omega.addcmul_(g, g, value=self.growth)
                theta.addcdiv_(g, (omega + EPSILON).sqrt_(), value=-self.rate)
        return losses.detach()


class Batches:
    """Pixels and labels on the device, and the rows of every step."""

    def __init__(self, dataset, rows, device):
        self.pixels = torch.tensor(dataset.x_train.reshape(len(dataset.x_train), -1), device=device)
        self.labels = torch.tensor(dataset.y_train, device=device)
        self.rows = torch.tensor(rows, device=device)  # (steps, R, B)
        self.mean, self.std = dataset.mean[0], dataset.std[0]

    def __getitem__(self, number):
        rows = self.rows[number]
        x = self.pixels[rows].float().div_(255).sub_(self.mean).div_(self.std)
        return x, self.labels[rows]


def measure(dataset, settings, runs, steps, device):
    """Seconds of a step of so many runs, over many, with everything from one seed a run."""
    architecture = settings.architecture(dataset)
    units, classes = architecture.units, architecture.classes
    rngs = [np.random.default_rng(seed) for seed in range(runs)]
    w = np.stack([he_normal(rng, (784, units), np.float32) for rng in rngs])
    pairs = [
        sample_pairs(rng, units, settings.pair_weights, classes, settings.pairs) for rng in rngs
    ]
    i, j = (np.stack(part) for part in zip(*pairs, strict=True))
    head = np.stack([0.001 * rng.standard_normal(i.shape[1]) for rng in rngs]).astype(np.float32)
    learner = Learner(w, head, i, j, settings, architecture.winners, classes, device)
    rows = rngs[0].integers(0, len(dataset.y_train), (steps + 2, runs, settings.batch_size))
    batches = Batches(dataset, rows, device)
    for number in range(2):
        learner.step(*batches[number])
    wait(device)
    began = time.perf_counter()
    for number in range(2, steps + 2):
        learner.step(*batches[number])
    wait(device)
    return (time.perf_counter() - began) / steps


def wait(device):
    """Until the device has done what was launched."""
    if device == "cuda":
        torch.cuda.synchronize()


def main(flags=None):
    """Time as many runs as fit, half as many again and again where memory is short."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir")
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args(flags)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dataset = datasets.load("mnist", data_dir=args.data_dir, named=False, download=False)
    settings, _ = resolve(dataset, "split")
    runs, seconds = args.runs, None
    while seconds is None and runs:
        try:
            seconds = measure(dataset, settings, runs, args.steps, device)
        except torch.cuda.OutOfMemoryError:
            runs //= 2
        if seconds is None:
            torch.cuda.empty_cache()
    print(
        json.dumps({
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
            "runs": runs,
            "step_ms": seconds and 1e3 * seconds,
            "steps_times_runs_per_second": seconds and runs / seconds,
        })
    )  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
