"""A run of the closed form with a context for each layout of the pixels."""

import numpy as np

from minipw import InputError
from minipw.online import ContextRidgeClassifier
from minipw.training.closed_form_run import FIRST, ClosedFormRun


class ContextRun(ClosedFormRun):
    """As `ClosedFormRun`; a `ContextRidgeClassifier` learns and predicts."""

    def __init__(self, settings, seed, dataset):
        super().__init__(settings, seed, dataset)
        if settings.head != "ridge":
            raise InputError(f"{settings.backbone} is of head ridge alone: use --head ridge")
        chosen = self.map_words
        self.learner = ContextRidgeClassifier(
            chosen.kind, chosen.size, seed, FIRST, classes=range(dataset.classes)
        )

    def add(self, x, labels):
        self.learner.partial_fit(x, labels)

    def solve(self):
        pass  # the learner does, where it is asked

    def test_scores(self, n, start, rows):
        """Scores as in `ClosedFormRun`; those of contexts that learned nothing since stay."""
        x = self.tasks[n].inputs(self.dataset, self.dataset.x_test[rows])
        context = self.learner.context_of(x)
        learned = np.array([sum(one.counts) for one in self.learner.learners] + [np.nan])
        now = np.column_stack([context, learned[context]])  # strangers, -1, are never the same
        empty = np.full_like(now, -1), np.empty((len(x), self.dataset.classes))
        before, scores = self.tested.get((n, start), empty)
        changed = (now != before).any(1)
        scores[changed] = self.learner.decision_function(x[changed])
        self.tested[n, start] = now, scores
        return scores
