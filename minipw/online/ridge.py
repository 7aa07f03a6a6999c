"""A classifier whose order does not matter and that has nothing to tune: the closed form."""

import math

import numpy as np

from minipw import InputError, parameters
from minipw.backend.arrays import to_device, to_host
from minipw.backend.cuda import device_module, known_module
from minipw.backend.threads import share_large
from minipw.online import merging, ridge_state
from minipw.online.features import Features
from minipw.online.learner import Learner
from minipw.online.waiting import Early, Waiting
from minipw.ridge import Statistics, solve

GROWTH = 1.25
"""Where predictions come between calls, lam is found again, and features that are not fixed
yet are made again, once there are so many times the samples they came from."""
FOLLOWED = 16
"""Calls of up to a 16th as many samples as features follow without solving again."""
NOTHING = 1e-100
"""Of a sample: what decay has left is forgotten."""
BYTES = 64 << 20
"""Of inputs or features that a call holds at a time."""


class StreamingRidgeClassifier(Learner):
    """Ridge regression of the labels on fixed features, solved from sums; see `minipw.ridge`.

    The first samples wait until they have fixed the features. From then on the order of the
    stream and its cut into calls change nothing, save that lam can be that of up to a fifth
    fewer samples where predictions come between single ones, and that a feature that was
    constant before, in another unit than the others, takes its scale from its first ten other
    values. Learners with the same features (`like`) merge, and samples can be taken out again.
    There is no learning rate; lam follows from the sums. Memory grows with the square of the
    features.

    Parameters
    ----------
    features : {"auto", "random", "scales", "patches", "identity"}
        auto: scales, patches of two sizes, for images of 8 pixels a side or more, else random.
    size : int or None
        Features, random (1,000) or of scales (3,600), or filters of patches of one size (200).
    seed : int, at least 0
    first : int, at least 1
        Samples that wait: they give inputs their scale and patches their filters.
    missing : bool
        True: NaN is an unknown value and stands for the mean. False: NaN is refused.
    class_weight : {None, "balanced"}
        "balanced": predictions hold all classes for equally frequent, so rare ones are found.
    classes : sequence of labels or None
        Classes that are known to come.
    like : StreamingRidgeClassifier or None
        Another learner, whose features this one takes, and all settings but `class_weight`.
        Inputs that were constant so far share the others' scale for good, in both.
    device : {"cpu", "cuda"}

    Attributes
    ----------
    statistics : Statistics or None
        None while the first samples wait.
    lam : float, of the weights that predict now
    classes_, counts, input_shape, columns : as in `Learner`
    """

    kind = "ridge"

    def __init__(
        self,
        features="auto",
        size=None,
        seed=0,
        first=1000,
        missing=False,
        class_weight=None,
        classes=None,
        like=None,
        device="cpu",
    ):
        given = {"features": features, "size": size, "seed": seed, "first": first}
        given |= {"missing": missing, "class_weight": class_weight, "device": device}
        super().__init__(parameters.check(**given))
        device_module(self.settings["device"])
        self.features = self.statistics = None
        self._first, self._ahead = Waiting(), None  # and the learner that predicts then
        self._early = Early()
        self._solved, self._found_at, self._asked = None, 0.0, False
        if like is not None:
            merging.take_features(self, like)
        self.add_classes(() if classes is None else classes)

    def add_classes(self, labels):
        """Add outputs for classes that are known to come."""
        with self._lock:
            super().add_classes(labels)
            if self._ahead is not None:
                self._ahead.add_classes(self.classes_)

    @property
    def _xp(self):
        return known_module(self.settings["device"])

    @property
    def waiting(self):
        """Samples that wait until they fix the features."""
        return self._first.count

    @property
    def lam(self):
        """lam of the weights that predict now."""
        self._require_learned()
        with self._lock:
            return self._predictor()._solution().lam

    def flush(self):
        """Fix the features by the samples that wait, however few; returns self."""
        with self._learning, self._lock:
            if self.waiting:
                self._fix_features()
        return self

    def merge(self, other):
        """Learn what another learner has learned; returns self.

        Both have the same features (`like`), unless the other's samples still wait.
        """
        if not isinstance(other, StreamingRidgeClassifier):
            raise InputError(f"{type(other).__name__} does not merge with StreamingRidgeClassifier")
        one, two = sorted((self, other), key=id)
        with one._learning, two._learning, one._lock, two._lock:
            merging.merge(self, other)
        return self

    def forget(self, x, y, sample_weight=None):
        """Take out samples that were learned, as if they had never come; returns self.

        The features stay, also where these samples are among those that fixed them. After a
        decay, give the weights that it has left of theirs.
        """
        with self._learning:
            parts = list(self._parts(x, y, sample_weight))
            self._require_counts(label for _, labels, _ in parts for label in labels)
            with self._lock:
                for x, labels, weights in parts:
                    if self.statistics is None:
                        self._first.take_out(x, labels, weights, self.settings["missing"])
                    else:
                        early = self._early.recall(x)
                        z, numbers, factors = self._of_device(x, labels, weights, early)
                        self.statistics.subtract(z, numbers, factors)
                    self._count(labels, -1)
                self._solved = self._ahead = None
        return self

    def decay(self, factor):
        """Let all that was learned count `factor` times as much, in (0, 1]; returns self."""
        with self._learning, self._lock:
            Statistics.empty(1, 1).decay(factor)  # refuses another factor
            self._first.decay(factor)
            left = self._first.total
            if self.statistics is not None:
                self.statistics.decay(factor)
                left = float(self.statistics.counts.sum())
            if left < NOTHING:
                self._first, self.counts = Waiting(), [0] * len(self.counts)
                if self.statistics is not None:
                    self.statistics.decay(NOTHING)  # to zeros, or as good as that
            self._solved = self._ahead = None
        return self

    def novelty(self, x):
        """How unlike all that was learned: ndarray of shape (N,), 1 on average for that itself.

        The squared distance from the mean in units of the spread in that direction, as far
        as lam lets it count. InputError where nothing varied yet.
        """

        def of_part(x):
            predictor = self._predictor()
            return predictor._solution().novelty(predictor.features(x))

        return self._over(x, np.zeros(0), of_part)

    def add_features(self, features, earlier=math.nan):
        """Append features, by their number or names, to samples of shape (N, D).

        In samples that wait they count as `earlier`, NaN being the mean, in those before as
        the mean. Only random features take more inputs.
        """
        with self._learning, self._lock:
            columns, count = self._more_columns(features, earlier)
            self.features.widen(count, self.settings["seed"])
            self._first.widen(count, earlier)
            self._widen(columns)
            self._ahead = None

    # what `Learner` asks for

    def _announce(self, count):
        if self.statistics is not None:
            self.statistics.add_classes(count)
        if self._solved is not None:
            self._solved.refresh(self.statistics)

    def _begin(self, shape, centred=True):
        """Fix the shape of a sample, or raise InputError where no features can have it."""
        kind, size, missing = (self.settings[name] for name in ("features", "size", "missing"))
        features = Features(kind, size, shape, missing, self.settings["device"])
        features.require_memory(len(self.classes_))
        self.features, self.input_shape = features, shape

    def _rows(self):
        return max(1, BYTES // (4 * self.features.width))

    def _take(self, x, labels, weights):
        """Learn samples; the first wait until they fix the features."""
        with self._lock:
            self.add_classes(label for label in labels if label not in self._index)
            if self.statistics is None:
                room = self.settings["first"] - self.waiting
                part = x[:room], labels[:room], weights[:room]
                self._first.add(*part)
                self._count(part[1])
                if self.waiting == self.settings["first"]:
                    self._fix_features()
                elif self._ahead is not None:
                    self._ahead._take(*part)
                x, labels, weights = x[room:], labels[room:], weights[room:]
            if labels:
                self._learn(x, labels, weights)
                self._count(labels)

    def _logits(self, x):
        predictor = self._predictor()
        z = predictor.features(x).astype("float64")  # scores may differ by little
        scores = to_host(predictor._solution().scores(z))
        if self.settings["class_weight"] is None:
            return scores
        counts = to_host(predictor.statistics.counts)  # the log priors go
        return scores - np.log(np.where(counts > 0, counts, 1) / counts.sum())

    def _of_device(self, x, labels, weights, early=None):
        """Features (N, H), numbers of the classes and weights, on the device."""
        numbers = np.array([self._index[label] for label in labels])
        return self.features(x, True, early), *(to_device(self._xp, a) for a in (numbers, weights))

    def _learn(self, x, labels, weights):
        """Add samples to the sums; few of them, where somebody predicts, to the weights, too."""
        solved, self._solved = self._solved, None  # also where learning fails
        early = self.features.settle(x)
        self._early.note(x, early)
        z, numbers, factors = self._of_device(x, labels, weights, early)
        few = solved is not None and len(z) * FOLLOWED <= z.shape[1]
        if few and self._asked and self.statistics.samples() < GROWTH * self._found_at:
            for n, row in enumerate(to_host(z).astype(np.float64)):
                solved.update(self.statistics, row, int(numbers[n]), weights[n])
                self.statistics.add(z[n : n + 1], numbers[n : n + 1], factors[n : n + 1])
            solved.refresh(self.statistics)
            self._solved = solved
        else:
            with share_large(z.size):
                self.statistics.add(z, numbers, factors)
        self._asked = False

    def _solution(self):
        """The weights of all samples so far."""
        if self._solved is None:
            self._solved = solve(self.statistics)
            self._found_at = self.statistics.samples()
        self._asked = True
        return self._solved

    def _predictor(self):
        """This learner, or while the first samples wait one that fewer of them have fixed."""
        if self.statistics is not None:
            return self
        count = int(GROWTH ** int(math.log(self.waiting, GROWTH) + 1e-9))
        if self._ahead is None or self._ahead.settings["first"] != count:
            settings = self.settings | {"first": count, "classes": self.classes_}
            self._ahead = StreamingRidgeClassifier(**settings)
            self._ahead._begin(self.input_shape)
            self._ahead._take(*self._first.joined())
        return self._ahead

    def _fix_features(self):
        first = self._first.joined()
        self.features.fix(first[0], first[2], self.settings["seed"])
        self._first, self._ahead = Waiting(), None
        self.statistics = Statistics.empty(self.features.count, len(self.classes_), self._xp)
        self._learn(*first)

    def _state(self):
        return ridge_state.state(self)

    @classmethod
    def _restore(cls, arrays, facts):
        return ridge_state.restore(cls, arrays, facts)
