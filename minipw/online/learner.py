"""What every online learner does with samples and labels: checks, classes, predictions."""

import math
import threading
from collections import Counter

import numpy as np

from minipw import InputError, parameters
from minipw.backend.cuda import device_module
from minipw.online import model_file, validation
from minipw.online.labels import as_labels, label_array, label_list

COPIED_AT_ONCE = 16 << 20
"""Bytes of samples that a call converts to float64, and makes dense, at a time."""


class Lock:
    """A reentrant lock; a copy of it, and what a file holds of it, is a free one."""

    def __init__(self):
        self._lock = threading.RLock()

    def __enter__(self):
        self._lock.acquire()

    def __exit__(self, *_):
        self._lock.release()

    def __reduce__(self):
        return Lock, ()


class Learner:
    """Learns labelled samples one after the other, and predicts at any time.

    Threads may call every method. Each raises an InputError that says what is wrong, where,
    and what to do. A subclass has

        kind, batch_size            a word for it in files; samples that are learned together
        _begin(shape, centred)      fixes the shape of a sample
        _announce(count)            makes room for so many classes more, if it must
        _take(x, labels, weights)   learns samples, float64, whose shape is fixed
        _require_learned()          raises InputError where nothing can be predicted yet
        _logits(x)                  logits (N, C or more), float64 samples
        _state(), _restore(...)     arrays and facts for a file; the learner that they are of

    Attributes
    ----------
    classes_ : list of the labels, in the order they were first seen
    counts : list of int, the samples learned of each
    input_shape, columns : tuple or None
        Shape of a sample, and the names of its features where a table gave them.
    """

    kind, batch_size = None, 1

    def __init__(self, settings):
        self.settings = settings
        self.classes_, self.counts, self._index = [], [], {}
        self.input_shape = self.columns = None
        self._lock, self._learning = Lock(), Lock()

    def add_classes(self, labels):
        """Add outputs for classes that are known to come."""
        labels = label_list(labels, "classes", self.classes_)
        new = [label for label in dict.fromkeys(labels) if label not in self._index]
        with self._lock:
            if new:
                self._announce(len(new))
            for label in new:
                self._index[label] = len(self.classes_)
                self.classes_.append(label)
                self.counts.append(0)

    def partial_fit(self, x, y, sample_weight=None, classes=None):
        """Learn samples, in their order; returns self.

        When a batch fails, those before it are learned; the rest, and what waited, is dropped.

        Parameters
        ----------
        x : array-like of shape (N, D), (N, height, width) or (N, height, width, channels)
            Real numbers of any type, or a sparse matrix (N, D).
        y : list or array of N hashable labels
            `save` accepts only text, numbers, times, True, False, None, tuples of these.
        sample_weight : array-like of shape (N,), or None
            How much each sample counts, at least 0; those of weight 0 are left out.
        classes : sequence of labels or None
            Classes that are known to come; see `add_classes`.
        """
        with self._learning:
            if classes is not None:
                self.add_classes(classes)
            for part in self._parts(x, y, sample_weight):
                self._take(*part)
        return self

    def _parts(self, x, y, sample_weight):
        """Yield samples (float64), labels (a list) and weights that `x` and `y` hold, checked."""
        columns, x = validation.column_names(x) or self.columns, self._checked(x)
        labels = as_labels(y, x.shape[0], self.classes_)
        weights = validation.as_weights(sample_weight, x.shape[0])
        if self.input_shape is None:
            self._begin(x.shape[1:], centred=not validation.is_sparse(x))
        self.columns = columns
        rows = -(-self._rows() // self.batch_size) * self.batch_size
        for n in range(0, x.shape[0], rows):
            part = slice(n, n + rows)
            dense, chosen, factors = validation.dense(x[part]), labels[part], weights[part]
            if not factors.all():
                kept = factors != 0
                dense, factors = dense[kept], factors[kept]
                chosen = [label for label, keep in zip(chosen, kept, strict=True) if keep]
            if chosen:
                yield dense, chosen, factors

    def _rows(self):
        """Samples that are converted at a time."""
        return max(1, COPIED_AT_ONCE // (8 * math.prod(self.input_shape)))

    def decision_function(self, x):
        """Logits of the classes in `classes_`: float ndarray of shape (N, C)."""
        classes = len(self.classes_)
        empty = np.zeros((0, classes), np.float32)
        return self._over(x, empty, lambda part: self._logits(part)[:, :classes])

    def _over(self, x, empty, function):
        """What a function gives for the parts of x, joined; `empty` for no samples."""
        x = self._checked(x)
        self._require_learned()
        found, rows = [empty], self._rows()
        for start in range(0, x.shape[0], rows):
            with self._lock:
                if x.shape[1:] != self.input_shape:  # another thread has added features
                    self._checked(x)
                found.append(function(validation.dense(x[start : start + rows])))
        return np.concatenate(found)

    def predict_proba(self, x):
        """Softmax of the logits over `classes_`: float64 ndarray of shape (N, C)."""
        z = self.decision_function(x).astype(np.float64)
        e = np.exp(z - z.max(1, keepdims=True, initial=-np.inf))
        return e / e.sum(1, keepdims=True)

    def predict(self, x):
        """The most likely label of each sample: ndarray of shape (N,)."""
        z = self.decision_function(x)
        return label_array(self.classes_[: z.shape[1]])[z.argmax(1)]

    def score(self, x, y):
        """Fraction of the samples whose label is predicted, in [0, 1]."""
        best = self.decision_function(x).argmax(1).tolist()
        labels = as_labels(y, len(best), self.classes_)
        if not best:
            raise InputError("no samples to score")
        correct = [self.classes_[b] == label for b, label in zip(best, labels, strict=True)]
        return sum(correct) / len(best)

    def save(self, path):
        """Replace the file at `path`; what `load` reads from it goes on as this one would."""
        with self._learning, self._lock:
            arrays, facts = self._state()
            model_file.save(path, arrays, facts | {"kind": self.kind})

    @classmethod
    def load(cls, path, device=None):
        """The learner that `save` wrote, on `device`: "cpu", "cuda", or None for the same."""
        parameters.check(device=device or "cpu")
        arrays, facts = model_file.load(path)
        with model_file.refusing_damage(path):
            kind = facts.pop("kind", "network")  # older files do not say it
            kinds = {cls.kind: cls} if cls.kind else {c.kind: c for c in cls.__subclasses__()}
            if kind not in kinds:
                raise InputError(f"it is a {kind}, not a {cls.kind}: use minipw.online.load")
            facts["settings"]["device"] = device = device or facts["settings"]["device"]
        device_module(device)  # that it is not there is not the file's fault
        with model_file.refusing_damage(path):
            return kinds[kind]._restore(arrays, facts)

    def _checked(self, x):
        validation.check_columns(validation.column_names(x), self.columns)
        standardized = self.settings.get("running_standardize", True)
        return validation.as_samples(x, self.input_shape, standardized, self.settings["missing"])

    def _announce(self, count):
        pass

    def _require_learned(self):
        if not any(self.counts):
            raise InputError("nothing is learned yet: call partial_fit first")

    def _require_counts(self, labels):
        """Raise InputError where more samples of a class are to be forgotten than it has."""
        for label, count in Counter(labels).items():
            learned = self.counts[self._index[label]] if label in self._index else 0
            if count > learned:
                raise InputError(f"{count} of {label!r} to forget: {learned} were learned")

    def _count(self, labels, sign=1):
        for label in labels:
            self.counts[self._index[label]] += sign

    def _more_columns(self, features, earlier):
        """The columns with those to add, None for nameless ones, and how many come."""
        if type(earlier) not in (int, float) or abs(earlier) > validation.LARGEST:
            raise InputError(f"earlier is {earlier!r}: use a number, NaN where it is unknown")
        if self.input_shape is None or len(self.input_shape) != 1:
            raise InputError("features can be added only behind samples of shape (N, D)")
        (inputs,) = self.input_shape
        columns = validation.more_columns(self.columns or (None,) * inputs, features)
        return columns, len(columns) - inputs

    def _widen(self, columns):
        self.input_shape = (len(columns),)
        self.columns = columns if any(name is not None for name in columns) else None
