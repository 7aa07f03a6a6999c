"""One run: a network learns a stream, task after task, and is tested after each."""

import math
import time
from dataclasses import asdict

import numpy as np

from minipw import InputError, __version__, metrics
from minipw.backend import THREADS
from minipw.model import Network
from minipw.nn.loss import mask_logits
from minipw.rules import update, zero_importance
from minipw.streams import EXPERIMENTS, seed_generators

EVALUATION_BATCH = 2000
RECORD_FORMAT = 1
"""Of the record of a run, in case a later one differs."""


class Run:
    """The state of a run between two steps.

    Parameters
    ----------
    settings : Settings
    seed : int
    dataset : Dataset

    Raises
    ------
    InputError
        When the settings do not fit the data.
    """

    def __init__(self, settings, seed, dataset):
        self.settings, self.seed, self.dataset = settings, seed, dataset
        generators = seed_generators(seed)
        self.samples = generators["samples"]
        self.network = Network.create(
            settings.architecture(dataset), generators["weights"], generators["pairs"]
        )
        self.importance = zero_importance(self.network.parameters)
        self.rule = settings.learning_rule()
        self.tasks = EXPERIMENTS[settings.experiment](
            dataset, generators["tasks"], settings.classes_per_task, settings.tasks
        )
        for task in self.tasks:
            if task.train.size == 0 or task.test.size == 0:
                part = "test" if task.train.size else "training"
                raise InputError(
                    f"task '{task.name}' has no {part} samples: use more --classes-per-task"
                )
        smallest = min(self.tasks, key=lambda task: task.train.size)
        if smallest.train.size < settings.batch_size:
            raise InputError(
                f"batch size {settings.batch_size} is more than the {smallest.train.size} training "
                f"samples of task '{smallest.name}': use --batch-size {smallest.train.size} or less"
            )

    @property
    def total_steps(self):
        """Training steps of the whole run."""
        settings = self.settings
        return sum(task.steps(settings.batch_size, settings.epochs) for task in self.tasks)

    def mask(self, task):
        """The classes that loss and evaluation see: all of them (None) in single-head."""
        return task.classes if self.settings.multi_head else None

    def step(self, task, rows, number):
        """Test on a batch, then train on it.

        Parameters
        ----------
        task : Task
        rows : int ndarray of shape (B,)
        number : int
            Of the step, for the message when the loss is not finite.

        Returns
        -------
        correct : int
            Samples predicted correctly before the update.
        """
        x = task.inputs(self.dataset, self.dataset.x_train[rows])
        labels, mask = self.dataset.y_train[rows], self.mask(task)
        loss, logits, gradients = self.network.loss_gradients(
            x, labels, self.rule, mask, self.settings.class_mask
        )
        if not math.isfinite(loss):
            raise InputError(self._divergence(x, number))
        for name, gradient in gradients.items():
            update(self.rule, self.network.parameters[name], self.importance[name], gradient)
        return int((self.predict(logits, mask) == labels).sum())

    def predict(self, logits, mask):
        """Classes of the largest logits, of the task's classes alone in multi-head."""
        return mask_logits(logits, mask, self.settings.class_mask).argmax(-1)

    def _divergence(self, x, number):
        """Where the first value that is not finite is, and what to do."""
        if not np.isfinite(x).all():
            return f"step {number}: the input holds values that are not finite: clean the data"
        _, caches = self.network.forward(x)
        outputs = {  # of each layer before its GELU
            name: gelu_cache[0]
            for (name, *_), (_, gelu_cache) in zip(self.network.layers, caches, strict=False)
        }
        layer = next((name for name, y in outputs.items() if not np.isfinite(y).all()), "head")
        return (
            f"the loss is not finite at step {number}, first in layer {layer}: "
            f"use a smaller learning rate (--learning-rate {self.settings.learning_rate / 10:g})"
        )

    def evaluate(self):
        """Accuracy on every task's test images, per cent: list of T float."""
        return [self.accuracy(task) for task in self.tasks]

    def accuracy(self, task):
        """Accuracy on a task's test images, per cent."""
        correct = 0
        for start in range(0, task.test.size, EVALUATION_BATCH):
            rows = task.test[start : start + EVALUATION_BATCH]
            x = task.inputs(self.dataset, self.dataset.x_test[rows])
            predicted = self.predict(self.network.logits(x), self.mask(task))
            correct += int((predicted == self.dataset.y_test[rows]).sum())
        return 100 * correct / task.test.size


def run(settings, seed, dataset, progress=None):
    """Train on a stream and measure.

    Parameters
    ----------
    settings : Settings
    seed : int
    dataset : Dataset
    progress : tqdm bar or None
        Updated by one a step; its description names the task.

    Returns
    -------
    dict
        The record of DESIGN: settings, seed, accuracies in per cent, versions.
    """
    # A loss that is not finite is reported once, with its layer, instead of by warnings.
    with np.errstate(over="ignore", invalid="ignore"):
        return _run(settings, seed, dataset, progress)


def _run(settings, seed, dataset, progress):
    began = time.perf_counter()
    state = Run(settings, seed, dataset)
    matrix, online, step = [state.evaluate()], 0, 0
    for number, task in enumerate(state.tasks, start=1):
        if progress is not None:
            progress.set_description(f"task {number} of {len(state.tasks)}")
        for rows in task.batches(state.samples, settings.batch_size, settings.epochs):
            step += 1
            online += state.step(task, rows, step)
            if progress is not None:
                progress.update()
        matrix.append(state.evaluate())
    a = np.array(matrix)
    seen = step * settings.batch_size
    return {
        "format": RECORD_FORMAT,
        "settings": asdict(settings),
        "seed": seed,
        "dataset": dataset.name,
        "note": dataset.note,
        "device": "cpu",
        "threads": THREADS.count,
        "parameters": state.network.parameter_count,
        "accuracy": metrics.overall_accuracy(a, [task.test.size for task in state.tasks]),
        "average_accuracy": metrics.average_accuracy(a),
        "tasks": [task.name for task in state.tasks],
        "task_accuracy": matrix[-1],
        "accuracy_matrix": matrix,
        "forgetting": metrics.forgetting(a),
        "backward_transfer": metrics.backward_transfer(a),
        "forward_transfer": metrics.forward_transfer(a),
        "online_accuracy": 100 * online / seen,
        "steps": step,
        "seconds": time.perf_counter() - began,
        "versions": versions(),
    }


def versions():
    """Versions of what a result depends on."""
    import platform

    import scipy

    return {
        "minipw": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }
