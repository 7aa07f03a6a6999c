"""A run of the closed form with a context for each layout of the pixels."""

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
        self.scores = self.learner.decision_function

    def test_features(self, n, start, rows):
        return self.tasks[n].inputs(self.dataset, self.dataset.x_test[rows])
