"""The record of a finished run: what a store keeps and `--json` prints."""

import platform
from dataclasses import asdict

import numpy as np
import scipy

from minipw import __version__
from minipw.backend.arrays import array_module
from minipw.backend.cuda import device_facts, device_versions
from minipw.network.diagnostics import unused_units
from minipw.training import metrics

RECORD_FORMAT = 1
"""Version of the format of records."""


def result(run, seconds, runs_together=None):
    """The record of a finished run: a dict that JSON can hold.

    Parameters
    ----------
    run : Run
    seconds : float
        What the run took; for runs trained together, their time divided by their number.
    runs_together : int or None
        R, for runs trained together.
    """
    a = np.array(run.matrix)
    xp = array_module(run.network.parameters["head"])
    return {
        "format": RECORD_FORMAT,
        "settings": asdict(run.settings),
        "seed": run.seed,
        "dataset": run.dataset.name,
        "digest": run.dataset.digest,
        "note": run.dataset.note,
        **device_facts(xp),
        **({} if runs_together is None else {"runs_together": runs_together}),
        **({"warning": run.warning} if run.warning else {}),
        "parameters": run.network.parameter_count,
        "accuracy": metrics.overall_accuracy(a, [task.test.size for task in run.tasks]),
        "average_accuracy": metrics.average_accuracy(a),
        "tasks": [task.name for task in run.tasks],
        "task_accuracy": run.matrix[-1],
        "accuracy_matrix": run.matrix,
        "curve": run.curve,
        "forgetting": metrics.forgetting(a),
        "backward_transfer": metrics.backward_transfer(a),
        "forward_transfer": metrics.forward_transfer(a),
        "online_accuracy": metrics.online_accuracy(run.correct, run.seen),
        "unused_units": unused_units(run.network, run.importance, run.rule),
        "steps": run.steps,
        "seconds": seconds,
        "versions": {
            "minipw": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            **device_versions(xp),
        },
    }
