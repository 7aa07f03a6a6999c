"""The record of a finished run: what the store keeps and `--json` prints."""

from dataclasses import asdict

import numpy as np

from minipw import __version__
from minipw.backend.arrays import array_module
from minipw.backend.cuda import device_facts, device_versions
from minipw.network.diagnostics import unused_units
from minipw.training import metrics

RECORD_FORMAT = 1
"""Of the record of a run, in case a later one differs."""


def result(state, seconds, runs_together=None):
    """The record of a finished run, as JSON can hold it.

    Parameters
    ----------
    state : Run
    seconds : float
        That the run took; of runs trained together, their time divided by their number.
    runs_together : int or None
        R, of runs trained together.
    """
    a = np.array(state.matrix)
    xp = array_module(state.network.parameters["head"])
    return {
        "format": RECORD_FORMAT,
        "settings": asdict(state.settings),
        "seed": state.seed,
        "dataset": state.dataset.name,
        "digest": state.dataset.digest,
        "note": state.dataset.note,
        **device_facts(xp),
        **({} if runs_together is None else {"runs_together": runs_together}),
        "parameters": state.network.parameter_count,
        "accuracy": metrics.overall_accuracy(a, [task.test.size for task in state.tasks]),
        "average_accuracy": metrics.average_accuracy(a),
        "tasks": [task.name for task in state.tasks],
        "task_accuracy": state.matrix[-1],
        "accuracy_matrix": state.matrix,
        "curve": state.curve,
        "forgetting": metrics.forgetting(a),
        "backward_transfer": metrics.backward_transfer(a),
        "forward_transfer": metrics.forward_transfer(a),
        "online_accuracy": metrics.online_accuracy(state.correct, state.seen),
        "unused_units": unused_units(state.network, state.importance, state.rule),
        "steps": state.steps,
        "seconds": seconds,
        "versions": versions(xp),
    }


def versions(xp=np):
    """Versions of what a result depends on."""
    import platform

    import scipy

    return {
        "minipw": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        **device_versions(xp),
    }
