"""A run of the closed form: features that never change, sums, a solution after each task."""

import numpy as np

from minipw.backend.memory import available_memory
from minipw.network.feature_map import feature_count, feature_map, for_shape, require_map_memory
from minipw.nn.loss import require_labels
from minipw.training.closed_form import HEADS
from minipw.training.streams import seed_generators, tasks_for

FIRST = 1000
"""Samples that make the features; also the samples of a step, learned or tested at once."""


class ClosedFormRun:
    """The state of a run, as of `training.run.Run`, which it stands for.

    Every sample is learned, none is dropped. The accuracy matrix begins with chance. There is
    no test-then-train accuracy: it would tell how often the sums are solved. The sums are
    large and soon made again, so a run that is interrupted is not saved.

    Attributes
    ----------
    map_words : MapWords
    features : int, H
    facts : dict
        What the last solution says of itself.
    """

    xp, resumable, curve, warning = np, False, (), ""

    def __init__(self, settings, seed, dataset):
        if settings.held_out:
            dataset = dataset.hold_out(settings.held_out)
        self.settings, self.seed, self.dataset = settings, seed, dataset
        for labels in (dataset.y_train, dataset.y_test):
            require_labels(labels, dataset.classes)
        require_map_memory(settings.backbone, dataset.shape, dataset.classes)
        self.map_words = for_shape(settings.backbone, dataset.shape)
        self.features = feature_count(settings.backbone, dataset.shape)
        generators = seed_generators(seed)
        self.tasks = tasks_for(settings, dataset, generators["tasks"])
        self.samples = generators["samples"]
        none = np.empty((0, *dataset.shape), np.float32), np.empty(0, np.int64)
        self.first, self.map, self.sums, self.scores, self.facts = none, None, None, None, {}
        self.matrix, self.steps, self.tasks_done = [], 0, 0
        self.tested = {}  # features of test images, by task and first row, where they fit
        tests = 4 * self.features * sum(task.test.size for task in self.tasks)
        free = available_memory()
        self.keeps = free is None or tests < (free - 24 * self.features**2) / 2

    @property
    def total_steps(self):
        """Parts of at most `FIRST` samples."""
        return sum(-(-task.train.size // FIRST) for task in self.tasks)

    def learn(self, after_step):
        """Learn the stream; `after_step` as in `Run.learn`."""
        classes = [task.classes.sum() for task in self.tasks]
        if not self.settings.multi_head:
            classes = [self.dataset.classes] * len(self.tasks)
        self.matrix.append([100 / int(count) for count in classes])
        for task in self.tasks:
            rows = next(task.batches(self.samples, task.train.size, 1))
            for start in range(0, rows.size, FIRST):
                x, labels, _ = task.training_batch(self.dataset, rows[start : start + FIRST])
                self.add(x, labels)
                self.steps += 1
                after_step(self)
            self.solve()
            self.matrix.append(self.evaluate(after_step))
            self.tasks_done += 1

    def add(self, x, labels):
        """Learn samples (B, *shape) with labels (B,)."""
        if self.first is not None:  # the features are made, or made again
            x, labels = (
                np.concatenate(parts) for parts in zip(self.first, (x, labels), strict=True)
            )
            self.first = (x, labels) if len(x) < FIRST else None
            draws = seed_generators(self.seed)["weights"]
            self.map = feature_map(self.settings.backbone, x[:FIRST], draws)
            self.sums = HEADS[self.settings.head][0](self.features, self.dataset.classes)
            self.tested.clear()
        self.sums.add(self.map(x), labels)

    def solve(self):
        """Find the scores of what was learned."""
        self.scores = None  # its arrays make room
        self.scores, self.facts = HEADS[self.settings.head][1](self.sums)

    def evaluate(self, after_test):
        """Accuracy on every task's test images, per cent: list of T float."""
        row = []
        for n, task in enumerate(self.tasks):
            correct = 0
            for start in range(0, task.test.size, FIRST):
                rows = task.test[start : start + FIRST]
                scores = self.test_scores(n, start, rows)
                scores = np.maximum(scores, np.finfo(scores.dtype).min)  # any class before none
                if self.settings.multi_head:
                    scores = np.where(task.classes, scores, -np.inf)
                correct += int((scores.argmax(1) == self.dataset.y_test[rows]).sum())
            row.append(100 * correct / task.test.size)
            after_test(self)
        return row

    def test_scores(self, n, start, rows):
        """Scores (B, C) of rows of the test set as task n has them."""
        z = self.tested.get((n, start))
        if z is None:
            z = self.map(self.tasks[n].inputs(self.dataset, self.dataset.x_test[rows]))
            if self.keeps:
                self.tested[n, start] = z
        return self.scores(z)

    def results(self):
        """What the record says of the learner."""
        weights = self.features * self.dataset.classes
        return {"parameters": weights, "online_accuracy": None, **self.facts}
