"""The step in PyTorch that speed is compared with computes what ours does."""

from dataclasses import replace

import numpy as np
import pytest
from stacked_cases import BASE

from minipw.training.many_seeds import create_runs
from minipw.training.stacked_runs import Stack

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def test_steps_are_the_same(tiny_dataset):
    from torch_baseline import Batches, Learner

    data = tiny_dataset(train=200)
    settings = replace(BASE, experiment="iid", learning_rate=0.001)
    stack = Stack(create_runs(settings, (0, 1, 2), data, np))
    network = stack.network
    learner = Learner(
        network.parameters["dense0"],
        network.parameters["head"],
        network.pairs.i,
        network.pairs.j,
        settings,
        network.winners,
        4,
        "cpu",
    )
    rows = np.random.default_rng(0).integers(0, 200, (3, 10, 10))  # (R, steps, B)
    stack.load([run.tasks[0] for run in stack.runs], rows)
    batches = Batches(data, rows.swapaxes(0, 1), "cpu")
    start = {name: w.copy() for name, w in network.parameters.items()}
    for number in range(10):
        stack.step()
        losses = learner.step(*batches[number])
    assert losses.shape == (3,)
    for name, theirs in zip(network.parameters, learner.parameters, strict=True):
        change = network.parameters[name] - start[name]
        difference = theirs.detach().numpy() - start[name] - change
        # Float32 sums in other orders, ten times through a k-WTA that may swap equal units.
        assert np.linalg.norm(difference) < 1e-3 * np.linalg.norm(change)


def test_command(capsys, isolated):
    import json

    import torch_baseline

    assert torch_baseline.main(["--runs", "1", "--steps", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["runs"] == 1 and found["step_ms"] > 0
