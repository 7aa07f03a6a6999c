"""The online classifiers as estimators of scikit-learn."""

from numbers import Real

import numpy as np
from scipy.special import softmax

from minipw import InputError
from minipw.online import validation
from minipw.online.classifier import OnlineClassifier
from minipw.online.labels import label_array, label_list
from minipw.online.ridge import StreamingRidgeClassifier as _StreamingRidgeClassifier

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(f"{error}: pip install 'minipw[sklearn]'") from error


class _OnlineEstimator(ClassifierMixin, BaseEstimator):
    """What the estimators have in common; `_kind` is the learner's class."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = bool(self.missing)
        tags.input_tags.sparse = True
        return tags

    def __sklearn_is_fitted__(self):
        return hasattr(self, "learner_")

    @property
    def classes_(self):
        return np.unique(_array(self.learner_.classes_))

    def fit(self, X, y, sample_weight=None):
        """Learn a whole data set once, in its order; forget what was learned before."""
        vars(self).pop("learner_", None)
        names = validation.column_names(X)
        X, y, weights = self._validated(X, y, sample_weight, reset=True)
        learner = self._learner(np.unique(y))
        learner.columns = names
        self.learner_ = learner.partial_fit(X, y, weights).flush()
        return self

    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """Go on learning; any call may announce `classes`, none must.

        Parameters that are set after the first call take effect with the next `fit`.
        """
        first, names = not hasattr(self, "learner_"), validation.column_names(X)
        X, y, weights = self._validated(X, y, sample_weight, reset=first)
        learner = self._learner(classes) if first else self.learner_
        if not first and classes is not None:
            learner.add_classes(classes)
        self.learner_ = learner.partial_fit(X, y, weights)
        learner.columns = names or learner.columns
        return self

    def flush(self):
        """Learn the samples that wait for a full batch, as a smaller one; returns self."""
        check_is_fitted(self)
        self.learner_.flush()
        return self

    def decision_function(self, X):
        """Logits (N, C); for two classes (N,), above 0 for the second."""
        z = self._columns(X, "decision_function")
        return z[:, 1] - z[:, 0] if z.shape[1] == 2 else z

    def predict_proba(self, X):
        """Probabilities (N, C) of `classes_`."""
        return self._columns(X, "predict_proba")

    def predict(self, X):
        """Labels (N,)."""
        best = self._columns(X, "decision_function").argmax(1)
        return self.classes_[best]

    def _columns(self, X, method):
        """What a method of the learner returns, in the order of `classes_`."""
        check_is_fitted(self)
        X = self._samples(X, reset=False)
        order = np.argsort(_array(self.learner_.classes_))
        return getattr(self.learner_, method)(X)[:, order]

    def _learner(self, classes):
        settings = self.get_params(deep=False)
        if isinstance(self.class_weight, dict):
            settings["class_weight"] = None
        seed = check_random_state(settings.pop("random_state")).randint(2**31)
        return self._kind(seed=seed, classes=classes, **settings)

    def _validated(self, X, y, sample_weight, reset):
        plain = isinstance(getattr(y, "dtype", np.dtype(float)), np.dtype)  # Int64 of pandas is not
        if not plain or isinstance(y, (list, tuple, np.ma.MaskedArray)):
            y = _array(label_list(y, "y", []))
        if reset:
            self._class_weight = given = self.class_weight
            values = given.values() if isinstance(given, dict) else ()
            if not all(isinstance(v, Real) and 0 <= v < np.inf for v in values):
                raise InputError(f"class_weight is {given}: use numbers of at least 0")
        X, y = self._samples(X, reset, y)
        if y.dtype.kind == "O":
            label_list(y, "y", [])
        check_classification_targets(y)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
        return X, y, sample_weight

    def _weights_of(self, labels):
        """The numbers that a dict `class_weight` gives labels (N,), 1 unless it says; or None."""
        if isinstance(self._class_weight, dict):
            return np.array([self._class_weight.get(label, 1.0) for label in labels.tolist()])
        return None

    def _samples(self, X, reset, *y):
        """X, or X and y, as scikit-learn checks them; what is marked as missing is NaN."""
        names, X = validation.column_names(X), validation.marked_as_nan(X)
        finite = "allow-nan" if self.missing else True
        allowed = {"allow_nd": True, "accept_sparse": "csr", "ensure_all_finite": finite}
        checked = validate_data(self, X, *y, reset=reset, **allowed)
        if not reset:
            validation.check_columns(names, self.learner_.columns)
        return checked


def _array(labels):
    """Labels as an ndarray that scikit-learn takes: ints beside floats are numbers of one type."""
    array = np.array(labels) if {*map(type, labels)} == {int, float} else label_array(labels)
    return array if array.tolist() == list(labels) else label_array(labels)


class PairwiseClassifier(_OnlineEstimator):
    """`OnlineClassifier` for pipelines, searches and cross-validation.

    Parameters
    ----------
    random_state : int, RandomState or None
        The source of the learner's seed.
    class_weight : dict of label to float, "balanced" or None
    backbone, ..., smas_norm
        Those of `OnlineClassifier`.

    Attributes
    ----------
    learner_ : OnlineClassifier
    classes_ : ndarray of shape (C,), sorted
    n_features_in_ : int
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
        missing=False,
        bias=True,
        class_weight=None,
        half_life=None,
        kwta_threshold="k+1",
        gelu="tanh",
        smas_norm="mean",
        random_state=None,
    ):
        # Each argument becomes the attribute of its name.
        vars(self).update((name, value) for name, value in locals().items() if name != "self")

    def _validated(self, X, y, sample_weight, reset):
        X, y, weights = super()._validated(X, y, sample_weight, reset)
        if (factors := self._weights_of(y)) is not None:
            weights = factors if weights is None else factors * weights
        return X, y, weights


class StreamingRidgeClassifier(_OnlineEstimator):
    """The closed form, `minipw.online.StreamingRidgeClassifier`, with the same tools.

    The order of the samples matters to the features alone, which the first of them fix; all
    do where `fit` gets fewer than `first`. Whole-number weights are repeats.

    Parameters
    ----------
    random_state : int, RandomState or None
        The source of the learner's seed.
    class_weight : dict of label to float, "balanced" or None
        Acts on predictions alone: a dict multiplies the classes' frequencies, "balanced"
        makes them equal.
    features, size, first, missing
        Those of the learner.

    Attributes
    ----------
    learner_ : minipw.online.StreamingRidgeClassifier
    classes_ : ndarray of shape (C,), sorted
    n_features_in_ : int
    """

    _kind = _StreamingRidgeClassifier

    def __init__(
        self,
        features="auto",
        size=None,
        first=1000,
        missing=False,
        class_weight=None,
        random_state=None,
    ):
        # Each argument becomes the attribute of its name.
        vars(self).update((name, value) for name, value in locals().items() if name != "self")

    def _columns(self, X, method):
        z = super()._columns(X, "decision_function")
        if (factors := self._weights_of(self.classes_)) is not None:
            z = z + np.log(np.maximum(factors, 1e-300))
        z = z.astype(np.float32)  # which the features are
        return softmax(z, axis=1) if method == "predict_proba" else z
