"""The online classifiers as classifiers of River."""

import numpy as np
from scipy.sparse import csr_array

from minipw import InputError
from minipw.online.classifier import OnlineClassifier
from minipw.online.drift import DriftingRidgeClassifier as _DriftingRidgeClassifier
from minipw.online.labels import as_labels
from minipw.online.ridge import StreamingRidgeClassifier as _StreamingRidgeClassifier
from minipw.online.validation import number

try:
    import pandas as pd
    from river import base
except ImportError as error:
    raise ImportError(f"{error}: pip install 'minipw[river]'") from error

FIRST, DENSE = 20, 0.5
"""Samples after which a stream counts as sparse, where they have under this share of the
features that occurred in them. It is then begun again, without centring."""
SPARE = 4
"""A sparse stream's first layer grows by a quarter in advance."""
NO_FEATURE = ("no feature",)
"""The columns of a stream that begins with an empty sample: one, of missing values."""


class _OnlineClassifier(base.MiniBatchClassifier):
    """What the classifiers have in common; `_kind` is the learner's class."""

    def _begin(self, parameters):
        """Each parameter becomes the attribute of its name."""
        vars(self).update((name, value) for name, value in parameters.items() if name != "self")
        if self.absent not in ("zero", "mean"):
            raise InputError(f"absent is {self.absent!r}: use zero or mean")
        self._columns = {}  # from each feature to its column
        self._first, self._sparse = [], False
        self._learner = self._new_learner()

    def _new_learner(self):
        settings = {k: v for k, v in self._get_params().items() if k != "absent"}
        return self._kind(**settings, missing=True)

    @property
    def _multiclass(self):
        return True

    def learn_one(self, x, y):
        """Learn one sample."""
        self._learn([x], [y])

    def learn_many(self, X, y):
        """Learn the rows of a DataFrame in their order."""
        rows = _records(X)
        self._learn(rows, as_labels(y, len(rows), self._learner.classes_))

    def flush(self):
        """Learn what waits: for a full batch, or to fix the features of the closed form."""
        self._learner.flush()

    def predict_one(self, x):
        """The most likely class, None before the first sample."""
        logits = self._predict([x], "decision_function")
        return self._learner.classes_[logits.argmax()] if logits.size else None

    def predict_proba_one(self, x):
        """The probability of each class seen so far: dict, empty before the first sample."""
        (probabilities,) = self._predict([x])
        return dict(zip(self._learner.classes_, probabilities.tolist(), strict=False))

    def predict_proba_many(self, X):
        """The probability of each class for the rows of a DataFrame."""
        probabilities = self._predict(_records(X))
        return pd.DataFrame(probabilities, X.index, self._learner.classes_)

    def _learn(self, samples, labels):
        begins = max(0, FIRST - len(self._first)) if self.absent == "zero" else 0
        for x, y in zip(samples[:begins], labels[:begins], strict=True):
            self._learn_rows([x], [y])
            self._first.append((dict(x), y))
            if len(self._first) == FIRST and self._filled() < DENSE:
                self._learner, self._columns, self._sparse = self._new_learner(), {}, True
                self._learn_rows(*zip(*self._first, strict=True))
        if len(samples) > begins:
            self._learn_rows(samples[begins:], labels[begins:])

    def _filled(self):
        """The share of the features so far that a sample has, of the first ones."""
        return np.mean([len(x) for x, _ in self._first]) / max(len(self._columns), 1)

    def _learn_rows(self, samples, labels):
        known, learner = self._columns, self._learner
        new = {feature for x in samples for feature in x} - known.keys()
        if not known and not new:
            new = NO_FEATURE
        try:
            new = sorted(new, key=lambda feature: (str(type(feature)), feature))
        except TypeError:  # no order among features of one type
            new = sorted(new, key=repr)
        columns = known | {feature: n for n, feature in enumerate(new, len(known))}
        width = 0 if learner.input_shape is None else learner.input_shape[0]
        rows = self._rows(samples, columns, max(width, len(columns)))
        if width and len(columns) > width:  # in advance, as each time copies the first layer
            spare = len(columns) // SPARE if self._sparse else 0
            earlier = 0.0 if self.absent == "zero" else np.nan
            learner.add_features(len(columns) - width + spare, earlier)
            rows = self._rows(samples, columns, learner.input_shape[0])
        self._columns = columns
        learner.partial_fit(rows, labels)

    def _predict(self, samples, method="predict_proba"):
        if not any(self._learner.counts):
            return np.zeros((len(samples), 0))
        rows = self._rows(samples, self._columns, self._learner.input_shape[0])
        return getattr(self._learner, method)(rows)

    def _rows(self, samples, columns, width):
        """The samples as float64 (N, width), sparse or not; NaN is a value that is not known."""
        known = [
            {
                columns[f]: v if type(v) is float else _number(f, v)
                for f, v in x.items()
                if f in columns
            }
            for x in samples
        ]
        if self._sparse:
            places = [(n, place) for n, x in enumerate(known) for place in x]
            values = [value for x in known for value in x.values()]
            shape = len(samples), width
            return csr_array(
                (np.array(values, float), np.array(places, int).reshape(-1, 2).T), shape
            )
        absent = np.nan if self.absent == "mean" else 0.0
        dense = np.full((len(known), width), absent)
        for row, x in zip(dense, known, strict=True):
            row[list(x)] = list(x.values())
        return dense


class PairwiseClassifier(_OnlineClassifier):
    """`OnlineClassifier` for samples that are dicts of numbers.

    A feature that comes later widens the first layer. Predictions ignore features that were
    never learned. A value of None or NaN is missing and counts as the mean.

    Parameters
    ----------
    absent : {"zero", "mean"}
        What a feature counts as that a sample does not have.
    seed : int
    backbone, ..., smas_norm
        Those of `OnlineClassifier`.
    """

    _kind = OnlineClassifier

    def __init__(
        self,
        backbone="mlp-500-1",
        head="pairwise",
        rule="adagrad",
        learning_rate=None,
        density=0.2,
        importance_lambda=0.3,
        batch_size=1,
        pair_weights_per_class=None,
        reserve=10,
        running_standardize=True,
        standardized_limit=3.0,
        bias=True,
        class_weight=None,
        half_life=None,
        absent="zero",
        kwta_threshold="k+1",
        gelu="tanh",
        smas_norm="mean",
        seed=0,
    ):
        self._begin(locals())

    @classmethod
    def _unit_test_params(cls):
        yield {"backbone": "mlp-50-1"}


class StreamingRidgeClassifier(_OnlineClassifier):
    """The closed form, `minipw.online.StreamingRidgeClassifier`, for dicts of numbers.

    Features may come and go as with `PairwiseClassifier`, where `features` are random. Counts of
    words are better left to a linear model, for random features mix them.

    Parameters
    ----------
    absent : {"zero", "mean"}
        What a feature counts as that a sample does not have.
    seed : int
    features, size, first, class_weight
        Those of the learner.
    """

    _kind = _StreamingRidgeClassifier

    def __init__(
        self,
        features="auto",
        size=None,
        first=1000,
        class_weight=None,
        absent="zero",
        seed=0,
    ):
        self._begin(locals())

    @classmethod
    def _unit_test_params(cls):
        yield {"size": 50, "first": 100}


class DriftingRidgeClassifier(_OnlineClassifier):
    """`minipw.online.DriftingRidgeClassifier` for dicts of numbers, at most 300 of them.

    Features may come and go as with `PairwiseClassifier`.

    Parameters
    ----------
    absent : {"zero", "mean"}
        What a feature counts as that a sample does not have.
    seed : int
    half_lives, size
        Those of the learner.
    """

    _kind = _DriftingRidgeClassifier

    def __init__(self, half_lives=(20, 100, 500, 3000), size=200, absent="zero", seed=0):
        self._begin(locals())

    @classmethod
    def _unit_test_params(cls):
        yield {"size": 20}


def _records(X):
    """The rows of a DataFrame as dicts."""
    if not isinstance(X, pd.DataFrame):
        raise InputError(f"X of type {type(X).__name__}: use a pandas.DataFrame")
    if not X.columns.is_unique:
        twice = X.columns[X.columns.duplicated()][0]
        raise InputError(f"X has several columns {twice!r}: rename them")
    return X.to_dict("records")


def _number(feature, value):
    """A value as a float; NaN where it is missing."""
    try:
        return number(value)
    except (TypeError, ValueError, OverflowError):
        fault = f"feature {feature!r} is {value!r}: encode it as a number first"
        raise InputError(fault) from None
