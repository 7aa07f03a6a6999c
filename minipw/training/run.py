"""One run: a network learns a stream, task after task, and is tested after each."""

import math
import sys
import time
from itertools import islice

import numpy as np

from minipw import InputError, parameters
from minipw.backend.arrays import array_module, to_device
from minipw.network.cost import require_host_memory
from minipw.network.diagnostics import (
    divergence,
    frozen_parameter,
    nonfinite_parameter,
    unused_units,
)
from minipw.network.network import Network
from minipw.nn.loss import mask_logits, require_labels
from minipw.parameters import CLOSED_FORM
from minipw.rules import update, zero_importance
from minipw.training.closed_form_run import ClosedFormRun
from minipw.training.context_run import ContextRun
from minipw.training.metrics import online_accuracy
from minipw.training.record import result
from minipw.training.streams import seed_generators, tasks_for

TEST_IMAGES_AT_ONCE = 2000
CURVE_SAMPLES = 2000
"""Test images of each task that a point of a learning curve is measured on."""
PROGRESS = ("matrix", "curve", "steps", "seen", "correct", "tasks_done", "batches_done")
PROGRESS += ("samples_state", "warning")
"""What a checkpoint holds of a run beside its arrays."""


class Run:
    """The state of a run between two steps.

    Attributes
    ----------
    matrix : list of the rows of the accuracy matrix so far
    curve : list of [step, accuracies on the tasks seen so far], per cent
    steps : int
        Done so far.
    seen, correct : int
        Samples of the first epochs, and those predicted correctly before the update.
    tasks_done, batches_done : int
        Whole tasks, and batches of the task in progress.
    samples_state : dict or None
        State of the generator `samples` before the task in progress.
    warning : str
        What stopped learning without an error, or "".

    Parameters
    ----------
    settings : Settings
    seed : int
    dataset : Dataset
    xp : module
        numpy or cupy: where the network lives.

    Raises
    ------
    InputError
        When the settings do not fit the data or the memory.
    """

    resumable = True

    def __init__(self, settings, seed, dataset, xp=np):
        if settings.held_out:
            dataset = dataset.hold_out(settings.held_out)
        self.settings, self.seed, self.dataset = settings, seed, dataset
        for labels in (dataset.y_train, dataset.y_test):
            require_labels(labels, dataset.classes)
        generators = seed_generators(seed)
        architecture = settings.architecture(dataset)
        if xp is np:
            require_host_memory(architecture, settings.batch_size)
        draws = generators["weights"], generators["pairs"]
        self.network = Network.create(architecture, *draws, batch_size=settings.batch_size, xp=xp)
        self.importance = zero_importance(self.network.parameters)
        self.rule = settings.learning_rule()
        self.tasks = tasks_for(settings, dataset, generators["tasks"])
        self.samples, self.samples_state = generators["samples"], None
        self.matrix, self.curve, self.warning = [], [], ""
        self.steps = self.seen = self.correct = self.tasks_done = self.batches_done = 0

    @property
    def total_steps(self):
        """Training steps of the whole run."""
        settings = self.settings
        return sum(task.steps(settings.batch_size, settings.epochs) for task in self.tasks)

    @property
    def remedy(self):
        """What to do when values are not finite."""
        return f"use a smaller learning rate (--learning-rate {self.settings.learning_rate / 10:g})"

    def learn(self, after_step):
        """Learn the rest of the stream.

        after_step : callable of this run
            Called after every step and every test. It may raise to stop the run.
        """
        for task, batches in self.stretches(after_step):
            for rows in batches:
                self.count(1, self.step(task, rows))
                after_step(self)

    def stretches(self, after_test):
        """The rest of the stream, cut where something is measured.

        This generator measures the accuracy matrix and the learning curve, and calls
        `after_test` after every test. The caller trains on each stretch and calls `count`
        before it asks for the next one.

        Yields
        ------
        task : Task
        batches : list of int ndarray of shape (B,)
            Of one epoch at most.
        """
        batch_size, every = self.settings.batch_size, self.settings.evaluate_every
        if not self.matrix:
            self.matrix.append(self.evaluate(after_test))
        while self.tasks_done < len(self.tasks):
            task = self.tasks[self.tasks_done]
            epoch = task.steps(batch_size)
            if self.samples_state is None:
                self.samples_state = self.samples.bit_generator.state
            batches = task.batches(self.samples, batch_size, self.settings.epochs)
            batches = islice(batches, self.batches_done, None)
            self._extend_curve()
            while self.batches_done < task.steps(batch_size, self.settings.epochs):
                size = epoch - self.batches_done % epoch
                if every:
                    size = min(size, every - self.steps % every)
                yield task, list(islice(batches, size))
                self._extend_curve()
            next(batches, None)  # one resumed at the end of a task draws its samples too
            self.check_weights()
            self.matrix.append(self.evaluate(after_test))
            self.tasks_done, self.batches_done, self.samples_state = self.tasks_done + 1, 0, None

    def count(self, steps, correct):
        """Count steps of one epoch and the predictions that were correct in them."""
        batch_size = self.settings.batch_size
        if self.batches_done < self.tasks[self.tasks_done].steps(batch_size):  # the first epoch
            self.seen += steps * batch_size
            self.correct += correct
        self.steps += steps
        self.batches_done += steps

    def _extend_curve(self):
        """Measure the next point of the learning curve if it is due."""
        every = self.settings.evaluate_every
        measured = self.curve[-1][0] if self.curve else 0
        if every and self.steps % every == 0 and self.steps > measured:
            seen = self.tasks[: self.tasks_done + 1]
            self.curve.append([self.steps, [self.accuracy(task, CURVE_SAMPLES) for task in seen]])

    def step(self, task, rows):
        """Test on a batch of rows (B,), then train on it.

        Returns
        -------
        correct : int
            Samples predicted correctly before the update.
        """
        x, labels, classes = task.training_batch(self.dataset, rows)
        mask = classes if self.settings.multi_head else None
        loss, logits, gradients = self.network.loss_gradients(
            x, labels, self.rule, mask, self.settings.class_mask
        )
        if not math.isfinite(loss):
            raise InputError(divergence(self.network, x, self.steps + 1, self.remedy))
        for name, gradient in gradients.items():
            update(self.rule, self.network.parameters[name], self.importance[name], gradient)
        return int((self.predict(logits, mask) == labels).sum())

    def predict(self, logits, mask):
        """Classes of the largest logits, among those of the mask in multi-head."""
        return mask_logits(logits, mask, self.settings.class_mask).argmax(-1)

    def check_weights(self):
        """Raise InputError when a weight is not finite; called at the end of a task.

        Say once that importance is infinite: such a weight never changes again.
        """
        if name := nonfinite_parameter(self.network):
            what = f"layer {name} holds weights that are not finite after step {self.steps}"
            raise InputError(f"{what}: {self.remedy}")
        if not self.warning and (frozen := frozen_parameter(self.importance)):
            self.warning = f"seed {self.seed}: {frozen} after step {self.steps}"
            print(f"warning: {self.warning}", file=sys.stderr)

    def evaluate(self, after_test=lambda run: None):
        """Accuracy on every task's test images, per cent: list of T float."""
        row = []
        for task in self.tasks:
            row.append(self.accuracy(task))
            after_test(self)
        return row

    def accuracy(self, task, count=None):
        """Accuracy on a task's test images, or on `count` spread over them, per cent."""
        data, test, xp = self.dataset, task.test, array_module(self.dataset.x_test)
        if count is not None and count < test.size:
            test = test[np.linspace(0, test.size - 1, count).astype(int)]
        mask = to_device(xp, task.classes) if self.settings.multi_head else None
        size = self.network.evaluation_batch or TEST_IMAGES_AT_ONCE
        correct = 0
        for start in range(0, test.size, size):
            rows = to_device(xp, test[start : start + size])
            x = task.inputs(data, data.x_test.take(rows, axis=0))
            predicted = self.predict(self.network.logits(x), mask)
            correct = correct + (predicted == data.y_test[rows]).sum()
        return 100 * int(correct) / test.size

    @property
    def xp(self):
        """The module that the network lives on."""
        return array_module(self.network.parameters["head"])

    def results(self):
        """What the record says of the learner."""
        return {
            "parameters": self.network.parameter_count,
            "online_accuracy": online_accuracy(self.correct, self.seen),
            "unused_units": unused_units(self.network, self.importance, self.rule),
        }

    def state(self):
        """What a checkpoint holds, all that the seed does not say: arrays and facts by name."""
        arrays = {f"parameter/{name}": w for name, w in self.network.parameters.items()}
        arrays |= {f"importance/{name}": omega for name, omega in self.importance.items()}
        return arrays, {name: getattr(self, name) for name in PROGRESS}

    def restore(self, arrays, facts):
        """Go back to what `state` returned."""
        for name in self.importance:
            self.network.parameters[name][...] = arrays[f"parameter/{name}"]
            self.importance[name][...] = arrays[f"importance/{name}"]
        for name in PROGRESS:
            setattr(self, name, facts[name])
        if self.samples_state is not None:
            self.samples.bit_generator.state = self.samples_state


def begin(settings, seed, dataset, xp=np):
    """A run before its first step: a `Run`, or a `ClosedFormRun` for a head without a network."""
    seed = parameters.check(seed=seed)["seed"]
    if settings.head in CLOSED_FORM:
        if xp is not np:
            raise InputError(f"head {settings.head} runs on the CPU alone: leave out --device cuda")
        kind = ContextRun if settings.backbone.startswith("contexts") else ClosedFormRun
        return kind(settings, seed, dataset)
    return Run(settings, seed, dataset, xp)


def train(settings, seed, dataset, progress=None, checkpointer=None, run=None):
    """Train on a stream and measure.

    Parameters
    ----------
    settings, seed, dataset : as in `Run`
    progress : tqdm bar or None
        Its count follows the steps; its description names the task.
    checkpointer : Checkpointer or None
        Saves the run now and then, and resumes it where it stopped.
    run : Run, ClosedFormRun or None
        The run before its first step, if the caller has it.

    Returns
    -------
    dict
        The record of the run (`record.result`).
    """
    began = time.perf_counter()
    run = run or begin(settings, seed, dataset)
    earlier = checkpointer.resume(run) if checkpointer is not None else 0.0

    def after_step(run):
        if progress is not None:
            number = min(run.tasks_done + 1, len(run.tasks))
            progress.set_description(f"task {number} of {len(run.tasks)}", refresh=False)
            progress.update(run.steps - progress.n)
        if checkpointer is not None:
            checkpointer.after_step(run, earlier + time.perf_counter() - began)

    # A loss that is not finite is reported once, with its layer, instead of by warnings.
    with np.errstate(over="ignore", invalid="ignore"):
        run.learn(after_step)
    record = result(run, earlier + time.perf_counter() - began)
    if checkpointer is not None:
        checkpointer.finish()
    return record
