"""R runs of the same settings as one: every step trains all of them.

The runs differ in their seeds: in weights, pairs, order of tasks or permutations, and
order of samples. All of these are drawn on the host, as for single runs, and then moved.
The network, the batches and the updates have the leading axis R. Each run keeps its own
tasks, accuracy matrix and counts (`run.Run`) and is tested alone, through its part of the
stacked parameters.

Between two measurements the host only launches work: the device gathers the batches by
row numbers that were uploaded before, and keeps the counts.
"""

import numpy as np

from minipw import InputError
from minipw.backend.arrays import array_module, to_device, to_host
from minipw.backend.cuda import free_memory, has_kernels
from minipw.kernels import step_gpu
from minipw.network import cost
from minipw.network.diagnostics import divergence
from minipw.network.network import Network
from minipw.nn.loss import mask_logits
from minipw.rules import update, zero_importance
from minipw.training.tasks import inputs


class Stack:
    """R runs that are trained together.

    Attributes
    ----------
    runs : list of Run
        Their networks hold views of the stacked parameters.
    network : Network
        Parameters of shape (R, ...).
    failures : dict of int to InputError
        Why each run failed, by its position. A failed run goes on with zeros.
    steps : int
        Launched so far.

    Parameters
    ----------
    runs : list of Run
        Before their first step, on one module, with the same settings and data.

    Raises
    ------
    ValueError
        When the runs do not have equally many steps, or their boundaries are blurred.
    """

    def __init__(self, runs):
        self.runs, self.settings, self.data = runs, runs[0].settings, runs[0].dataset
        if len({run.total_steps for run in runs}) != 1:
            raise ValueError("stacked runs must have equally many steps")
        if self.settings.blur:
            raise ValueError("stacked runs must have sharp boundaries")
        self.rule, self.failures, self.steps = runs[0].rule, {}, 0
        self.network = Network.stack([run.network for run in runs])
        self.importance = zero_importance(self.network.parameters)
        for r, run in enumerate(runs):
            run.network.parameters = {n: w[r] for n, w in self.network.parameters.items()}
            run.importance = {n: omega[r] for n, omega in self.importance.items()}
        self._prepare()

    def _prepare(self):
        """The arrays that a step reads and counts in; they never move."""
        self.xp = xp = array_module(self.network.parameters["head"])
        settings, count, task = self.settings, len(self.runs), self.runs[0].tasks[0]
        longest = max(t.steps(settings.batch_size) for t in self.runs[0].tasks)
        self.rows = xp.zeros((longest, count, settings.batch_size), np.int64)
        self.position = xp.zeros(1, np.int64)  # of the next batch in `rows`
        self.permutation = self.mask = None
        if task.permutation is not None:
            self.permutation = xp.zeros((count, task.permutation.size), np.int64)
        if settings.multi_head:
            self.mask = xp.zeros((count, 1, task.classes.size), bool)
        self.correct = xp.zeros(count, np.int64)
        self.finite_steps = xp.zeros(count, np.int64)  # before the first loss that is not
        self.finite = xp.ones(count, bool)
        if xp is not np:
            pairs = self.network.pairs
            defining_form = pairs is not None and pairs.implementation is None
            size = cost.samples_that_fit(free_memory()[0], self.network.architecture, defining_form)
            for run in self.runs:
                run.network.evaluation_batch = size

    def learn(self, after_step):
        """Train on the streams to their end, or until every run has failed.

        after_step : callable of this stack
            Called after every launch of a step and every test. It may raise to stop.
        """
        streams = [run.stretches(lambda _: after_step(self)) for run in self.runs]
        current = [next(stream, None) for stream in streams]
        while None not in current and len(self.failures) < len(self.runs):
            size = min(len(batches) for _, batches in current)
            rows = np.array([batches[:size] for _, batches in current])
            correct = self._stretch([task for task, _ in current], rows, after_step)
            for r, (task, batches) in enumerate(current):
                self.runs[r].count(size, int(correct[r]))
                rest = batches[size:]
                if not rest:
                    self._check_weights(r)
                current[r] = (task, rest) if rest else next(streams[r], None)

    def _stretch(self, tasks, rows, after_step):
        """Train on batches of rows (R, n, B) without waiting for the device.

        Returns
        -------
        correct : int ndarray of shape (R,)
            Samples predicted correctly before each update.
        """
        size = rows.shape[1]
        self.load(tasks, rows)
        arrays = [*self.network.parameters.values(), *self.importance.values()]
        kept = [array.copy() for array in arrays]
        for _ in range(size):
            self.step()
            self.steps += 1
            after_step(self)
        correct, good = to_host(self.correct), to_host(self.finite_steps)
        if (good < size).any():
            for array, old in zip(arrays, kept, strict=True):
                array[...] = old
            self._find_failures(good, size)
        return correct

    def load(self, tasks, rows):
        """Fill the arrays that the steps of a stretch read; see `_stretch`."""
        xp, (_, size, _) = self.xp, rows.shape
        self.rows[:size] = to_device(xp, np.ascontiguousarray(rows.swapaxes(0, 1)))
        if self.permutation is not None:
            self.permutation[...] = to_device(xp, np.stack([task.permutation for task in tasks]))
        if self.mask is not None:
            self.mask[:, 0] = to_device(xp, np.stack([task.classes for task in tasks]))
        self.rewind()

    def rewind(self):
        """Go back to the first batch of `rows`."""
        for array in (self.position, self.correct, self.finite_steps):
            array[...] = 0
        self.finite[...] = True

    def step(self):
        """Test every run on its next batch, then train on it."""
        xp, masking = self.xp, self.settings.class_mask
        x, labels = self._batch()
        loss, logits, gradients = self.network.loss_gradients(
            x, labels, self.rule, self.mask, masking
        )
        for name, gradient in gradients.items():
            update(self.rule, self.network.parameters[name], self.importance[name], gradient)
        z = mask_logits(logits, self.mask, masking)
        if has_kernels(xp):
            counted = self.correct, self.finite, self.finite_steps, self.position
            step_gpu.tally(z, labels, loss, *counted)
            return
        self.correct += (z.argmax(-1) == labels).sum(-1)
        self.finite &= xp.isfinite(loss)
        self.finite_steps += self.finite
        self.position += 1

    def _batch(self):
        """Inputs (R, B, *shape) and labels (R, B) at `position`."""
        data, permutation = self.data, self.permutation
        if has_kernels(self.xp):
            where = self.rows, self.position, permutation
            return step_gpu.gather_batch(data.x_train, data.y_train, *where, *data.scale_and_shift)
        rows = self.rows.take(self.position, axis=0)[0]
        x = inputs(data, data.x_train.take(rows, axis=0), permutation)
        return x, data.y_train.take(rows)

    def _find_failures(self, good, size):
        """Repeat a stretch of `size` steps and say what is not finite in the failed runs.

        good : int ndarray of shape (R,)
            Steps of each run before the loss that is not finite.
        """
        self.rewind()
        for n in range(size):
            for r in np.flatnonzero(good == n):
                run, (x, _) = self.runs[r], self._batch()
                reason = divergence(run.network, x[r], run.steps + n + 1, run.remedy)
                self._fail(int(r), reason)
            self.step()

    def _check_weights(self, r):
        """Let a run fail if its weights are not finite, as when it is trained alone."""
        try:
            self.runs[r].check_weights()
        except InputError as error:
            self._fail(r, error)

    def _fail(self, r, reason):
        """Keep the first reason why a run failed, and set the run to zero."""
        run = self.runs[r]
        self.failures.setdefault(r, InputError(f"seed {run.seed}: {reason}"))
        for values in (*run.network.parameters.values(), *run.importance.values()):
            values[...] = 0
