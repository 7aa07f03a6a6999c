"""Stacked runs on the stand-in's arrays with the kernels' own text, compiled for the host."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from device_stand_in import DeviceArray, counts, unwrap
from host_kernels import Host
from stacked_cases import BASE

from minipw.backend import cuda
from minipw.training.many_seeds import create_runs
from minipw.training.run import Run
from minipw.training.stacked_runs import Stack


class OnStandIn(Host):
    """The host's compiler for arrays of the stand-in; no host array reaches a kernel."""

    def compile(self, source, name):
        start = super().compile(source, name)

        def launch(grid, block, arguments, shared_mem=0):
            assert not any(isinstance(a, np.ndarray) for a in arguments)
            counts.launches += 1
            given = tuple(unwrap(a) if isinstance(a, DeviceArray) else a for a in arguments)
            return start(grid, block, given, shared_mem)

        return launch


@pytest.fixture
def kernels(cupy, monkeypatch, tmp_path_factory):
    """The stand-in, with kernels for it; its blocks have few threads, each a true one."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    monkeypatch.setitem(cuda.KERNELS, cupy.__name__, OnStandIn(tmp_path_factory.getbasetemp()))
    monkeypatch.setattr("minipw.kernels.launcher.BLOCK", 32)
    return cupy


LAUNCHES = {
    "pairwise adagrad": ({}, 17),
    "pairwise s-mas": ({"rule": "s-mas"}, 22),
    "pairwise, multi-head": ({"multi_head": True}, 20),
    "pairwise, permuted": ({"experiment": "permuted", "tasks": 2}, 17),
    "fc adagrad": ({"head": "fc"}, 14),
}
"""What a step of stacked runs starts on a device; with few runs the host is what it waits for."""


@pytest.mark.parametrize("name", LAUNCHES)
def test_launches_of_a_step(kernels, tiny_dataset, name):
    changes, expected = LAUNCHES[name]
    stack = Stack(create_runs(replace(BASE, **changes), (0, 1), tiny_dataset(train=80), kernels))
    tasks = [run.tasks[0] for run in stack.runs]
    stack.load(tasks, np.stack([task.train[:10].reshape(1, 10) for task in tasks]))
    before = counts.launches
    stack.step()
    assert counts.launches - before == expected


@pytest.mark.parametrize(
    "changes",
    [{}, {"rule": "s-mas"}, {"multi_head": True, "rule": "sgd"}, {"density": None}],
    ids=" ".join,
)
def test_three_runs(kernels, tiny_dataset, changes):
    settings = replace(BASE, **changes)
    data = tiny_dataset(train=40, test=12)
    runs = create_runs(settings, (0, 1, 2), data, kernels)
    stack, waited = Stack(runs), []
    assert (
        stack.network.pairs.implementation is not None
        and runs[0].network.pairs.implementation is not None
    )
    plain = stack.step

    def step():
        before = counts.synchronisations
        plain()
        waited.append(counts.synchronisations - before)

    stack.step = step
    stack.learn(lambda _: None)
    assert len(waited) == 4 and set(waited) == {0}
    for stacked in runs:
        alone = Run(settings, stacked.seed, data)
        alone.learn(lambda _: None)
        assert stacked.matrix == alone.matrix
        for name, w in alone.network.parameters.items():
            # The kernels add in another order; of four float32 steps 1e-4 is a wide margin.
            ours = stacked.network.parameters[name].get()
            np.testing.assert_allclose(ours, w, rtol=0, atol=1e-4 * np.abs(w).max())
