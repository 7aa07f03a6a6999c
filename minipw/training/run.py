"""One run: a network learns a stream, task after task, and is tested after each."""

import math
import time
from itertools import islice

import numpy as np

from minipw import InputError
from minipw.backend.arrays import array_module, to_device
from minipw.network.cost import require_host_memory
from minipw.network.diagnostics import advice, first_nonfinite_layer, nonfinite_parameter
from minipw.network.network import Network
from minipw.nn.loss import mask_logits
from minipw.rules import update, zero_importance
from minipw.training.record import result
from minipw.training.streams import seed_generators, tasks_for
from minipw.training.tasks import inputs

LOADED_AT_ONCE = 2000
CURVE_SAMPLES = 2000
"""Test images a task that each point of a learning curve is measured on."""


class Run:
    """The state of a run between two steps.

    Attributes
    ----------
    matrix : list of rows of the accuracy matrix so far
    curve : list of [step, accuracies on the tasks seen so far], per cent
    steps : int
        Done so far.
    seen, correct : int
        Samples of the first epochs, and those predicted correctly before the update.
    tasks_done, batches_done : int
        Whole tasks, and batches of the next one.
    loaded_at_once : int
        Test images that are made ready together.

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
        When the settings do not fit the data.
    """

    def __init__(self, settings, seed, dataset, xp=np):
        if settings.held_out:
            dataset = dataset.hold_out(settings.held_out)
        self.settings, self.seed, self.dataset = settings, seed, dataset
        generators = seed_generators(seed)
        self.samples = generators["samples"]
        architecture = settings.architecture(dataset)
        if xp is np:
            require_host_memory(architecture, settings.batch_size)
        self.network = Network.create(
            architecture,
            *(generators["weights"], generators["pairs"]),
            batch_size=settings.batch_size,
            xp=xp,
        )
        self.importance = zero_importance(self.network.parameters)
        self.rule = settings.learning_rule()
        self.tasks = tasks_for(settings, dataset, generators["tasks"])
        self.loaded_at_once = LOADED_AT_ONCE

        self.matrix, self.curve = [], []
        self.steps = self.seen = self.correct = self.tasks_done = self.batches_done = 0
        self.samples_state = None  # of `samples` before the task in progress

    @property
    def total_steps(self):
        """Training steps of the whole run."""
        settings = self.settings
        return sum(task.steps(settings.batch_size, settings.epochs) for task in self.tasks)

    def mask(self, task):
        """The classes that loss and evaluation see: all of them (None) in single-head."""
        return task.classes if self.settings.multi_head else None

    def learn(self, after_step):
        """Go on to the end of the stream.

        Parameters
        ----------
        after_step : callable of this run
            Called after every step and every test; may raise to leave.
        """
        for task, batches in self.stretches(after_step):
            for rows in batches:
                self.count(1, self.step(task, rows, self.steps + 1))
                after_step(self)

    def stretches(self, after_test):
        """The rest of the stream, in stretches between which nothing is measured.

        Between two of them this generator measures what is due. Whoever takes a stretch
        trains on it and calls `count` before asking for the next one.

        Parameters
        ----------
        after_test : callable of this run
            Called after every test.

        Yields
        ------
        task : Task
        batches : list of int ndarray of shape (B,)
            Of one epoch.
        """
        if not self.matrix:
            self.matrix.append(self.evaluate(after_test))
        every = self.settings.evaluate_every
        while self.tasks_done < len(self.tasks):
            task = self.tasks[self.tasks_done]
            if self.samples_state is None:
                self.samples_state = self.samples.bit_generator.state
            batches = task.batches(self.samples, self.settings.batch_size, self.settings.epochs)
            batches = list(islice(batches, self.batches_done, None))
            self._point_of_curve()
            while batches:
                size = task.steps(self.settings.batch_size, epochs=1)
                size -= self.batches_done % size
                if every:
                    size = min(size, every - self.steps % every)
                yield task, batches[:size]
                del batches[:size]
                self._point_of_curve()
            self.check_weights()
            self.matrix.append(self.evaluate(after_test))
            self.tasks_done, self.batches_done, self.samples_state = self.tasks_done + 1, 0, None

    def count(self, steps, correct):
        """Take note of so many steps of one epoch and their correct predictions."""
        epoch = self.tasks[self.tasks_done].steps(self.settings.batch_size, epochs=1)
        if self.batches_done < epoch:
            self.seen += steps * self.settings.batch_size
            self.correct += correct
        self.steps += steps
        self.batches_done += steps

    def _point_of_curve(self):
        """Measure a point of the learning curve if one is due and not there yet."""
        every = self.settings.evaluate_every
        measured = self.curve[-1][0] if self.curve else 0
        if every and self.steps % every == 0 and self.steps > measured:
            seen = self.tasks[: self.tasks_done + 1]
            self.curve.append([self.steps, [self.accuracy(task, CURVE_SAMPLES) for task in seen]])

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
        x, labels, classes = task.training_batch(self.dataset, rows)
        mask = classes if self.settings.multi_head else None
        loss, logits, gradients = self.network.loss_gradients(
            x, labels, self.rule, mask, self.settings.class_mask
        )
        if not math.isfinite(loss):
            raise InputError(self.divergence(x, number))
        for name, gradient in gradients.items():
            update(self.rule, self.network.parameters[name], self.importance[name], gradient)
        return int((self.predict(logits, mask) == labels).sum())

    def predict(self, logits, mask):
        """Classes of the largest logits, among those of the mask in multi-head."""
        return mask_logits(logits, mask, self.settings.class_mask).argmax(-1)

    def divergence(self, x, number):
        """Where the first value that is not finite is, and what to do.

        x : ndarray of shape (B, *input_shape)
        number : int, of the step
        """
        if not array_module(x).isfinite(x).all():
            return f"step {number}: the input holds values that are not finite: clean the data"
        layer = first_nonfinite_layer(self.network, x)
        what = f"the loss is not finite at step {number}, first in layer {layer}"
        return f"{what}: {advice(x, self._advice())}"

    def _advice(self):
        return f"use a smaller learning rate (--learning-rate {self.settings.learning_rate / 10:g})"

    def check_weights(self):
        """Raise InputError when a weight is not finite; asked for between tasks."""
        if name := nonfinite_parameter(self.network):
            what = f"layer {name} holds weights that are not finite after step {self.steps}"
            raise InputError(f"{what}: {self._advice()}")

    def evaluate(self, after_step=None):
        """Accuracy on every task's test images, per cent: list of T float."""
        row = []
        for task in self.tasks:
            row.append(self.accuracy(task))
            if after_step is not None:
                after_step(self)
        return row

    def accuracy(self, task, count=None):
        """Accuracy on a task's test images, or on `count` spread over them, per cent."""
        test = task.test
        if count is not None and count < test.size:
            test = test[np.linspace(0, test.size - 1, count).astype(int)]
        data, xp = self.dataset, array_module(self.dataset.x_test)
        mask, permutation = self.mask(task), task.permutation
        mask = None if mask is None else to_device(xp, mask)
        permutation = None if permutation is None else to_device(xp, permutation)
        correct = 0
        for start in range(0, test.size, self.loaded_at_once):
            rows = to_device(xp, test[start : start + self.loaded_at_once])
            x = inputs(data, data.x_test.take(rows, axis=0), permutation)
            predicted = self.predict(self.network.logits(x), mask)
            correct = correct + (predicted == data.y_test[rows]).sum()
        return 100 * int(correct) / test.size

    def state(self):
        """Everything that the rest of the run depends on and its seed does not say.

        Returns
        -------
        arrays : dict of str to ndarray
        facts : dict
        """
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


PROGRESS = ("matrix", "curve", "steps", "seen", "correct", "tasks_done")
PROGRESS += ("batches_done", "samples_state")
"""What `Run.state` keeps beside the arrays."""


def train(settings, seed, dataset, progress=None, checkpointer=None, state=None):
    """Train on a stream and measure.

    Parameters
    ----------
    settings : Settings
    seed : int
    dataset : Dataset
    progress : tqdm bar or None
        Its count follows the steps; its description names the task.
    checkpointer : Checkpointer or None
        Saves the run now and then, and takes it up where it was left.
    state : Run or None
        The run before its first step, if it is there already.

    Returns
    -------
    dict
        One result: settings, seed, data, accuracies in per cent, versions.
    """
    began = time.perf_counter()
    state = state or Run(settings, seed, dataset)
    before = checkpointer.resume(state) if checkpointer is not None else 0.0

    def after_step(state):
        if progress is not None:
            number = min(state.tasks_done + 1, len(state.tasks))
            progress.set_description(f"task {number} of {len(state.tasks)}", refresh=False)
            progress.update(state.steps - progress.n)
        if checkpointer is not None:
            checkpointer.after_step(state, before + time.perf_counter() - began)

    # A loss that is not finite is reported once, with its layer, instead of by warnings.
    with np.errstate(over="ignore", invalid="ignore"):
        state.learn(after_step)
    record = result(state, before + time.perf_counter() - began)
    if checkpointer is not None:
        checkpointer.finish()
    return record
