"""The closed form as an estimator, under scikit-learn's own checks."""

import inspect
import pickle

import numpy as np
import pytest
from learner_streams import images, stream

from minipw import InputError
from minipw.online import StreamingRidgeClassifier as Ridge

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

import joblib
import pandas as pd
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, load_iris
from sklearn.ensemble import AdaBoostClassifier, VotingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from minipw.online.sklearn import StreamingRidgeClassifier

SMALL = {"size": 60, "random_state": 0}


@pytest.fixture(scope="module")
def iris():
    """In random order."""
    x, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return x[order], np.array(["setosa", "versicolor", "virginica"])[y[order]]


@pytest.mark.parametrize(
    "options",
    [{}, {"size": 100}, {"first": 10, "missing": True, "size": 50}, {"features": "identity"}],
)
def test_the_checks_of_scikit_learn(options):
    """All that apply, and those of weights as repeats where all samples fix the features."""
    count, skipped = 0, []
    for estimator, check in estimator_checks_generator(StreamingRidgeClassifier(**options)):
        if "first" in options and "sample_weight_equivalence" in check.func.__name__:
            continue  # ten samples with weights are others than ten repeats
        try:
            check(estimator)
            count += 1
        except pytest.skip.Exception:
            raise
        except BaseException as stop:
            if type(stop).__name__ != "SkipTest":
                raise
            skipped.append(str(stop))
    assert count > 50 and all("SCIPY_ARRAY_API" in reason for reason in skipped)


def test_the_logic_is_the_learner_s():
    x, y = stream(60)
    seed = np.random.RandomState(0).randint(2**31)
    estimator = StreamingRidgeClassifier(**SMALL).fit(x[::-1], y[::-1])
    learner = Ridge(size=60, seed=seed, classes=[0, 1, 2]).partial_fit(x[::-1], y[::-1]).flush()
    assert estimator.learner_.waiting == 0
    np.testing.assert_array_equal(
        estimator.decision_function(x), learner.decision_function(x).astype(np.float32)
    )
    np.testing.assert_array_equal(estimator.predict(x), learner.predict(x))
    # The last bits of float32.
    np.testing.assert_allclose(estimator.predict_proba(x), learner.predict_proba(x), atol=1e-5)


def test_the_parameters_are_the_learner_s():
    own = inspect.signature(StreamingRidgeClassifier).parameters
    other = inspect.signature(Ridge).parameters
    assert own.keys() - other.keys() == {"random_state"}
    assert other.keys() - own.keys() == {"classes", "seed", "device", "like"}
    assert all(own[name].default == other[name].default for name in own.keys() & other.keys())
    with pytest.raises(InputError, match="size is 0"):
        StreamingRidgeClassifier(size=0).fit([[0.0], [1.0]], [0, 1])


def test_pipeline_search_and_cross_validation(iris):
    x, y = iris
    pipeline = make_pipeline(StandardScaler(), StreamingRidgeClassifier(**SMALL))
    grid = {"streamingridgeclassifier__size": [2, 60]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(x, y)
    assert search.best_params_ == {"streamingridgeclassifier__size": 60}
    assert cross_val_score(search.best_estimator_, x, y, cv=3).mean() > 0.9
    assert set(search.predict(x)) <= set(y)


def test_ensembles_and_calibration_take_it(iris):
    x, y = iris
    one = StreamingRidgeClassifier(**SMALL)
    pair = [("ridge", one), ("logistic", LogisticRegression(max_iter=500))]
    for model in (
        VotingClassifier(pair, voting="soft"),
        AdaBoostClassifier(one, n_estimators=3),
        CalibratedClassifierCV(one, cv=3),
    ):
        assert model.fit(x[:100], y[:100]).score(x[100:], y[100:]) > 0.9


def test_partial_fit_sorts_classes_and_takes_tables(iris):
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    x, y = iris
    frame = pd.DataFrame(x, columns=["a", "b", "c", "d"])
    order = np.argsort(y, kind="stable")[::-1]
    model, whole = (StreamingRidgeClassifier(size=60, first=90, random_state=0) for _ in range(2))
    for n in range(0, 150, 30):
        model.partial_fit(frame.iloc[order[n : n + 30]], y[order[n : n + 30]])
        assert model.predict(frame).shape == (150,)  # also while the first samples wait
    assert model.classes_.tolist() == sorted(set(y))
    assert model.feature_names_in_.tolist() == list(model.learner_.columns) == list("abcd")
    whole.fit(frame.iloc[order], y[order])
    np.testing.assert_array_equal(model.predict(frame), whole.predict(frame))
    with pytest.raises(ValueError, match=r"same order|keep their order"):
        model.predict(frame.iloc[:, ::-1])


def test_a_class_s_weight_is_its_prior(iris):
    x, y = iris
    weights = {"versicolor": 1e6, "setosa": 1e-3}
    one, other = (
        StreamingRidgeClassifier(**SMALL, class_weight=weight).fit(x[:, :1], y)
        for weight in (None, weights)
    )
    shift = other.decision_function(x[:, :1]) - one.decision_function(x[:, :1])
    expected = np.log([weights.get(label, 1) for label in one.classes_])
    np.testing.assert_allclose(shift, np.broadcast_to(expected, shift.shape), atol=1e-4)  # float32
    assert (other.predict(x[:, :1]) == "versicolor").mean() > 0.9
    balanced = StreamingRidgeClassifier(**SMALL, class_weight="balanced")
    rare = np.concatenate([np.flatnonzero(y != "virginica"), np.flatnonzero(y == "virginica")[:5]])
    plain = clone(balanced).set_params(class_weight=None)
    found = [m.fit(x[rare], y[rare]).predict(x) == "virginica" for m in (plain, balanced)]
    assert found[1].sum() >= found[0].sum() and balanced.score(x, y) > 0.85


def test_a_dict_of_weights_needs_no_class_of_a_call(iris):
    x, y = iris
    weights = {"versicolor": 5.0, "never seen": 2.0}
    model = StreamingRidgeClassifier(**SMALL, class_weight=weights)
    whole = clone(model).fit(x, y)
    for label in np.unique(y):
        model.partial_fit(x[y == label], y[y == label])
    assert model.flush().score(x, y) > 0.6
    before = whole.predict_proba(x)
    whole.set_params(class_weight={"setosa": 50.0})  # from the next fit on
    np.testing.assert_array_equal(whole.predict_proba(x), before)
    assert np.abs(whole.fit(x, y).predict_proba(x) - before).max() > 0.1
    zero = clone(model).set_params(class_weight=dict.fromkeys(np.unique(y), 0)).fit(x, y)
    assert np.isfinite(zero.predict_proba(x)).all()
    for value in (-1, "a", np.nan):
        with pytest.raises(InputError, match=r"class_weight is .*: use numbers of at least 0"):
            clone(model).set_params(class_weight={"setosa": value}).fit(x, y)


def test_numbers_of_two_types_are_one_kind_of_label(iris):
    x, _ = iris
    mixed = [0, 1.0] * (len(x) // 2)
    model = StreamingRidgeClassifier(**SMALL).fit(x, mixed)
    assert model.classes_.tolist() == [0.0, 1.0] and model.score(x, [0, 1] * (len(x) // 2)) > 0
    model.partial_fit(x[:2], [7.0, 8])
    assert model.classes_.tolist() == [0, 1, 7, 8] and model.score(x[:2], [7, 8]) >= 0
    large = [2**60, 2**60 + 1] * (len(x) // 2)
    series = pd.Series(large, dtype="Int64")
    assert clone(model).fit(x, series).classes_.tolist() == [2**60, 2**60 + 1]


def test_images_missing_values_and_text():
    x, y = images(40)
    model = StreamingRidgeClassifier("patches", size=8, random_state=0).fit(x, y)
    assert model.score(x, y) == 1 and model.learner_.features.words == "patches-8"
    x, y = stream(60)
    x[::2, 0] = np.nan
    assert StreamingRidgeClassifier(**SMALL, missing=True).fit(x, y).score(x, y) > 0.8
    with pytest.raises(ValueError, match="NaN"):
        StreamingRidgeClassifier(**SMALL).fit(x, y)
    texts = ["goal team win", "bread soup salt", "team ball goal", "oven bread pan"] * 10
    pipeline = make_pipeline(TfidfVectorizer(), StreamingRidgeClassifier(random_state=0))
    assert pipeline.fit(texts, [0, 1, 0, 1] * 10).predict(["win ball", "salt pan"]).tolist() == [
        0,
        1,
    ]


def test_clone_pickle_and_memory_maps(tmp_path):
    x, y = load_digits(return_X_y=True)
    estimator = StreamingRidgeClassifier(size=200, first=100, random_state=0)
    estimator.partial_fit(x[:60], y[:60])  # waiting
    other = pickle.loads(pickle.dumps(estimator))
    for model in (estimator, other):
        model.partial_fit(x[60:600], y[60:600])
    np.testing.assert_array_equal(estimator.predict_proba(x), other.predict_proba(x))
    joblib.dump(estimator, tmp_path / "model")
    mapped = joblib.load(tmp_path / "model", mmap_mode="r")
    assert isinstance(mapped.learner_.statistics.G, np.memmap)
    np.testing.assert_array_equal(mapped.predict_proba(x), estimator.predict_proba(x))
    parallel = joblib.Parallel(2, backend="threading")
    parts = parallel(joblib.delayed(mapped.predict)(x[n::2]) for n in range(2))
    np.testing.assert_array_equal(parts[1], estimator.predict(x[1::2]))
    with pytest.raises(NotFittedError):
        clone(estimator).predict(x)
