"""The record of a finished run: what a store keeps and `--json` prints."""

import platform
from dataclasses import asdict, fields, replace

import numpy as np
import scipy

from minipw import __version__
from minipw.backend.cuda import device_facts, device_versions
from minipw.parameters import CLOSED_FORM, OF_NETWORKS, PARAMETERS, Parameter
from minipw.training import metrics
from minipw.training.settings import DEFAULTS, Settings

RECORD_FORMAT = 1
"""Version of the format of records."""
RESULTS = 1
"""Version of the results. Whoever changes what a run computes raises it: the records of before
then no longer stand for the same runs. A record without it is of the first."""

TEXT, COUNT, AT_LEAST_ONE = Parameter(str), Parameter(int, low=0), Parameter(int, low=1)
PER_CENT = Parameter(float, low=0, high=100 + 1e-9)  # a mean may round up
POINTS = Parameter(float, low=-100 - 1e-9, high=100 + 1e-9, optional=True)
FIELDS = {
    "format": Parameter(int, low=RECORD_FORMAT, high=RECORD_FORMAT),
    "results": AT_LEAST_ONE,
    "settings": {field.name: PARAMETERS[field.name] for field in fields(Settings)},
    "seed": PARAMETERS["seed"],
    "dataset": TEXT,
    "digest": TEXT,
    "note": TEXT,
    "device": PARAMETERS["device"],
    "gpu": TEXT,
    "threads": AT_LEAST_ONE,
    "runs_together": AT_LEAST_ONE,
    "warning": TEXT,
    "parameters": AT_LEAST_ONE,
    "accuracy": PER_CENT,
    "average_accuracy": PER_CENT,
    "tasks": [TEXT],
    "task_accuracy": [PER_CENT],
    "accuracy_matrix": [[PER_CENT]],
    "curve": [(COUNT, [PER_CENT])],
    "forgetting": POINTS,
    "backward_transfer": POINTS,
    "forward_transfer": POINTS,
    "online_accuracy": replace(PER_CENT, optional=True),
    "lambda": Parameter(float, low=0),
    "freedom": Parameter(float, low=0),
    "unused_units": {"units": COUNT, "unread": COUNT, "never_won": replace(COUNT, optional=True)},
    "steps": AT_LEAST_ONE,
    "seconds": Parameter(float, low=0, open=True),
    "versions": {"minipw": TEXT, "python": TEXT, "numpy": TEXT, "scipy": TEXT, "cupy": TEXT},
}
"""The format: what each field holds. A list has any number of its one kind, a tuple these."""
OPTIONAL = {"results", "digest", "gpu", "runs_together", "warning", "curve", "unused_units", "cupy"}
OPTIONAL |= {"lambda", "freedom"}
"""Fields that only some records have, or that older ones lack."""


def fault(record):
    """Why a value that was read from JSON is no record, or None."""
    number = record.get("format") if isinstance(record, dict) else None
    if type(number) is int and number != RECORD_FORMAT:
        return f"a result of format {number}, this version reads {RECORD_FORMAT}"
    if found := next(_faults(record, FIELDS, "it"), None):
        return f"not a result of minipw ({found})"
    tasks, matrix = len(record["tasks"]), record["accuracy_matrix"]
    rows = {len(row) for row in (record["task_accuracy"], *matrix)}
    points = {len(accuracies) for _, accuracies in record.get("curve", ())}
    if not tasks or rows != {tasks} or len(matrix) != tasks + 1 or points - {*range(1, tasks + 1)}:
        return f"not a result of minipw (its accuracies do not fit {tasks} tasks)"
    return None


def _faults(value, form, place):
    """Yield what is wrong with a value; `form` as in `FIELDS`."""
    kind = type(form) if isinstance(form, dict) else list
    if isinstance(form, Parameter):
        if not form.allows(value):
            yield f"{place} is {value!r:.40}: use {form.expected()}"
    elif type(value) is not kind or (isinstance(form, tuple) and len(value) != len(form)):
        yield f"{place} is {value!r:.40}"
    elif kind is dict:
        optional = DEFAULTS if place == "settings" else OPTIONAL
        if place == "settings" and value.get("head") in CLOSED_FORM:
            optional = {*DEFAULTS, *OF_NETWORKS}
        if missing := [name for name in form if name not in {*value, *optional}]:
            yield f"{place} has no {missing[0]}"
        if place == "settings" and (unknown := value.keys() - form.keys()):
            yield f"{min(unknown)!r:.40} is no setting"
        for name in (name for name in form if name in value):
            yield from _faults(value[name], form[name], name)
    else:
        forms = form if isinstance(form, tuple) else form * len(value)
        for part, one in zip(value, forms, strict=True):
            yield from _faults(part, one, place)


def result(run, seconds, runs_together=None):
    """The record of a finished run: a dict that JSON can hold.

    Parameters
    ----------
    run : Run or ClosedFormRun
    seconds : float
        What the run took; for runs trained together, their time divided by their number.
    runs_together : int or None
        R, for runs trained together.
    """
    a, settings = np.array(run.matrix), asdict(run.settings)
    unused = OF_NETWORKS if run.settings.head in CLOSED_FORM else ()
    return {
        "format": RECORD_FORMAT,
        "results": RESULTS,
        "settings": {name: value for name, value in settings.items() if name not in unused},
        "seed": run.seed,
        "dataset": run.dataset.name,
        "digest": run.dataset.digest,
        "note": run.dataset.note,
        **device_facts(run.xp),
        **({} if runs_together is None else {"runs_together": runs_together}),
        **({"warning": run.warning} if run.warning else {}),
        **run.results(),
        "accuracy": metrics.overall_accuracy(a, [task.test.size for task in run.tasks]),
        "average_accuracy": metrics.average_accuracy(a),
        "tasks": [task.name for task in run.tasks],
        "task_accuracy": run.matrix[-1],
        "accuracy_matrix": run.matrix,
        "curve": list(run.curve),
        "forgetting": metrics.forgetting(a),
        "backward_transfer": metrics.backward_transfer(a),
        "forward_transfer": metrics.forward_transfer(a),
        "steps": run.steps,
        "seconds": seconds,
        "versions": {
            "minipw": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            **device_versions(run.xp),
        },
    }
