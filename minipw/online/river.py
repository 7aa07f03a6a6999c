"""The online classifier as a classifier of River."""

import numpy as np

from minipw import InputError
from minipw.online.classifier import OnlineClassifier

try:
    import pandas as pd
    from river import base
except ImportError as error:
    raise ImportError(f"{error}: pip install 'minipw[river]'") from error

NO_FEATURE = ("no feature",)
"""The columns of a stream that begins with an empty sample: one, of missing values."""


class PairwiseClassifier(base.MiniBatchClassifier):
    """`OnlineClassifier` for samples that are dicts of numbers.

    A feature that comes later widens the first layer; a missing one counts as its mean so
    far. Predictions ignore features that were never learned.

    Parameters
    ----------
    seed : int
    backbone, ..., smas_norm
        Those of `OnlineClassifier`.
    """

    def __init__(
        self,
        backbone="mlp-500-1",
        head="pairwise",
        rule="adagrad",
        learning_rate=1.5e-3,
        density=0.2,
        importance_lambda=0.3,
        batch_size=1,
        pair_weights_per_class=None,
        reserve=10,
        running_standardize=True,
        standardized_limit=3.0,
        kwta_threshold="k+1",
        gelu="tanh",
        smas_norm="mean",
        seed=0,
    ):
        # Each argument becomes the attribute of its name.
        vars(self).update((name, value) for name, value in locals().items() if name != "self")
        self._learner = OnlineClassifier(**self._get_params(), missing=True)
        self._columns = {}  # from each feature to its column

    @classmethod
    def _unit_test_params(cls):
        yield {"backbone": "mlp-50-1"}

    @property
    def _multiclass(self):
        return True

    def learn_one(self, x, y):
        """Learn one sample."""
        self._learn([x], [y])

    def learn_many(self, X, y):
        """Learn the rows of a DataFrame in their order."""
        self._learn(X.to_dict("records"), y)

    def flush(self):
        """Learn the samples that wait for a full batch, with a `batch_size` above 1."""
        self._learner.flush()

    def predict_proba_one(self, x):
        """The probability of each class seen so far: dict, empty before the first sample."""
        (probabilities,) = self._predict([x])
        return dict(zip(self._learner.classes_, probabilities.tolist(), strict=True))

    def predict_proba_many(self, X):
        """The probability of each class for the rows of a DataFrame."""
        probabilities = self._predict(X.to_dict("records"))
        return pd.DataFrame(probabilities, X.index, self._learner.classes_)

    def _learn(self, samples, labels):
        if not len(samples):
            return
        known = self._columns
        new = {feature for x in samples for feature in x} - known.keys()
        if not known and not new:
            new = NO_FEATURE
        new = sorted(new, key=lambda feature: (str(type(feature)), feature))
        columns = known | {feature: n for n, feature in enumerate(new, len(known))}
        rows = self._rows(samples, columns)
        if new and self._learner.input_shape is not None:
            self._learner.add_features(len(new))
        self._columns = columns
        self._learner.partial_fit(rows, labels)

    def _predict(self, samples):
        if self._learner.network is None:
            return np.zeros((len(samples), 0))
        return self._learner.predict_proba(self._rows(samples, self._columns))

    def _rows(self, samples, columns):
        """The samples as float64 ndarray of shape (N, D), NaN where a feature is missing."""
        rows = np.full((len(samples), len(columns)), np.nan)
        for row, x in zip(rows, samples, strict=True):
            for feature, value in x.items():
                if feature in columns and value is not None and value is not pd.NA:
                    try:
                        row[columns[feature]] = float(value)
                    except (TypeError, ValueError, OverflowError):
                        raise InputError(
                            f"feature {feature!r} is {value!r}: encode it as a number first"
                        ) from None
        return rows
