"""A classifier for streams that drift; its mathematics is in `minipw.online.experts`."""

import math

import numpy as np

from minipw import InputError, parameters
from minipw.backend.memory import require_memory
from minipw.online.experts import Experts, TabularFeatures
from minipw.online.labels import decode_label, encode_label
from minipw.online.learner import COPIED_AT_ONCE, Learner
from minipw.online.waiting import Waiting

MADE = 25, 100, 300, 1000
"""Samples that the features are made from; those before are then learned again."""
WIDEST = 300
"""Inputs at most."""


class DriftingRidgeClassifier(Learner):
    """Ridge regression under several half-lives; the one that erred least lately predicts.

    For tables (N, D) of at most 300 columns, whose classes move. Samples are learned one after
    the other, so the cut of a stream into calls changes nothing. Features are made from the
    first 25 samples, again from the first 100 and 300, and for good from the first 1,000;
    before 25 the most frequent class is predicted. For images, and streams that do not drift,
    there is `StreamingRidgeClassifier`.

    Parameters
    ----------
    half_lives : sequence of float above 0, or None
        Samples after which one counts half; None: nothing is forgotten.
    size : int, at least 2
        Random features; half-lives below 100 have the inputs alone.
    seed : int, at least 0
    missing : bool
        True: NaN is an unknown value and stands for the mean. False: NaN is refused.
    classes : sequence of labels or None
        Classes that are known to come.

    Attributes
    ----------
    classes_, counts, input_shape, columns : as in `Learner`
    """

    kind = "drift"

    def __init__(
        self,
        half_lives=(20, 100, 500, 3000),
        size=200,
        seed=0,
        missing=False,
        classes=None,
    ):
        given = parameters.check(size=size, seed=seed, missing=missing)
        if given["size"] is None or given["size"] < 2:
            raise InputError(f"size is {size!r}: use a whole number of at least 2")
        super().__init__(given | {"half_lives": _checked_half_lives(half_lives)})
        self.features, self.experts, self._first, self._last = None, None, Waiting(), (b"", None)
        self.add_classes(() if classes is None else classes)

    def flush(self):
        """Let the next predictions know the last samples, too, up to 99; returns self."""
        with self._learning, self._lock:
            if self.features is None and self._first.count:
                self._make()
            if self.experts is not None:
                self.experts.solve()
        return self

    def add_features(self, features, earlier=math.nan):
        """Append features, by their number or names.

        In the first 1,000 samples they count as `earlier`, NaN being the mean, in others as the
        mean.
        """
        with self._learning, self._lock:
            columns, count = self._more_columns(features, earlier)
            self._begin((len(columns),))
            self._first.widen(count, earlier)
            if self.features is not None:
                self.features.widen(count, self.settings["seed"])
                self.experts.widen(count)
            self._widen(columns)
            self._last = b"", None

    # what `Learner` asks for

    def _begin(self, shape, centred=True):
        if len(shape) != 1 or shape[0] > WIDEST:
            advice = f"use up to {WIDEST} inputs, (N, D), or StreamingRidgeClassifier"
            raise InputError(f"samples of shape {shape} are no table that drifts: {advice}")
        width = 1 + shape[0] + self.settings["size"]
        need = 8 * width * width * (len(self.settings["half_lives"]) + 2)
        require_memory(need, f"{width:,} features of a sample; use a smaller size")
        self.input_shape = shape

    def _announce(self, count):
        if self.experts is not None:
            self.experts.make_room(len(self.classes_) + count)

    def _rows(self):
        return max(1, COPIED_AT_ONCE // (8 * (1 + self.input_shape[0] + self.settings["size"])))

    def _take(self, x, labels, weights):
        with self._lock:
            for n, label in enumerate(labels):
                if label not in self._index:
                    self.add_classes([label])
                one = x[n : n + 1]
                if self.features is not None:
                    if self.features.standardizer.settle(one) is not None:
                        self._last = b"", None
                    (z,) = self._features(one)
                    self.experts.learn(z, self._index[label], weights[n])
                begins = sum(self.counts) < MADE[-1]
                self._count([label])
                if begins:
                    self._first.add(one, [label], weights[n : n + 1])
                    if self._first.count in MADE:
                        self._make()

    def _make(self):
        """Make features from all samples so far, and learn these again."""
        x, labels, weights = self._first.joined()
        (self.features, self.experts), self._last = self._new(), (b"", None)
        self.features.fix(x, weights, self.settings["seed"])
        for n, label in enumerate(labels):
            (z,) = self.features(x[n : n + 1])
            self.experts.learn(z, self._index[label], weights[n])
        self.experts.solve()
        if self._first.count == MADE[-1]:
            self._first = Waiting()

    def _new(self):
        """Features that are not made and experts that learned nothing."""
        size, missing, lives = (self.settings[n] for n in ("size", "missing", "half_lives"))
        classes = max(2, len(self.classes_))  # a margin is between two
        (inputs,) = self.input_shape
        return TabularFeatures(inputs, size, missing), Experts(lives, inputs, size, classes)

    def _features(self, x):
        """Features of x; those of a single sample are kept: it is often learned next."""
        if len(x) != 1:
            return self.features(x)
        if (key := x.tobytes()) != self._last[0]:
            self._last = key, self.features(x)
        return self._last[1]

    def _logits(self, x):
        if self.features is not None:
            learned = self.experts.logits(self._features(x))[:, : len(self.counts)]
            if all(self.counts):
                return learned
        counts = np.array(self.counts)
        with np.errstate(divide="ignore"):
            logits = np.tile(np.log(counts), (len(x), 1))  # -inf for a class without samples
        return logits if self.features is None else np.where(counts > 0, learned, logits)

    def _state(self):
        arrays, waiting = self._first.state()
        facts = {"settings": self.settings | {"device": "cpu"}, "counts": self.counts}
        facts |= {"classes": [encode_label(label) for label in self.classes_], "first": waiting}
        facts |= {"input_shape": self.input_shape, "columns": self.columns}
        if self.features is not None:
            arrays |= self.features.state() | self.experts.state()
            facts |= {"waiting": self.experts.waiting, "every": self.experts.every}
        return arrays, facts

    @classmethod
    def _restore(cls, arrays, facts):
        if facts["settings"].pop("device") != "cpu":
            raise InputError("a DriftingRidgeClassifier is on the cpu alone")
        learner = cls(**facts["settings"], classes=map(decode_label, facts["classes"]))
        learner.counts, learner.columns = list(facts["counts"]), decode_label(facts["columns"])
        if facts["input_shape"] is None:
            return learner
        learner._begin(tuple(facts["input_shape"]))
        learner._first.restore(arrays, facts["first"])
        if "G" in arrays:
            learner.features, learner.experts = learner._new()
            learner.features.restore(arrays)
            learner.experts.restore(arrays, facts["waiting"], facts.get("every"))
        return learner


def _checked_half_lives(given):
    try:
        values = [parameters.check(half_life=value)["half_life"] for value in given]
    except TypeError:
        values = []
    if not values:
        raise InputError(f"half_lives are {given!r}: use a list of numbers, like (100, 1000)")
    return values
