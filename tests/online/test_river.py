"""The classifiers of River, under River's own checks."""

import copy
import inspect
import pickle

import numpy as np
import pytest
from learner_streams import stream

from minipw import InputError
from minipw.online import DriftingRidgeClassifier as Drift
from minipw.online import OnlineClassifier
from minipw.online import StreamingRidgeClassifier as Ridge

pytest.importorskip("river", reason="river is not installed")

import pandas as pd
from river import datasets, linear_model, metrics, preprocessing
from river.checks import yield_checks
from river.evaluate import progressive_val_score

from minipw.online.river import (
    DriftingRidgeClassifier,
    PairwiseClassifier,
    StreamingRidgeClassifier,
)

MODELS = (
    PairwiseClassifier(backbone="mlp-20-1"),
    StreamingRidgeClassifier(size=30, first=20),
    DriftingRidgeClassifier(size=20),
)
CHECKS = [(model, check) for model in MODELS for check in yield_checks(model)]


def test_flush_learns_what_waits():
    model = PairwiseClassifier(backbone="mlp-20-1", batch_size=10)
    for n in range(13):
        model.learn_one({"a": n, "b": -n}, n % 2)
    assert (model._learner.samples, model._learner.waiting) == (10, 3)
    model.flush()
    assert (model._learner.samples, model._learner.waiting) == (13, 0)


@pytest.mark.parametrize(("model", "check"), CHECKS, ids=lambda given: "")
def test_the_checks_of_river(model, check):
    """All of them; `_unit_test_skips` names none."""
    check(model.clone())


def test_no_check_is_left_out():
    assert all(model._unit_test_skips() == set() for model in MODELS) and len(CHECKS) > 3 * 25


def samples(count=60):
    x, y = stream(count)
    return [{"abcde"[n]: value for n, value in enumerate(row)} for row in x.tolist()], y.tolist()


def test_progressive_validation():
    model = preprocessing.StandardScaler() | PairwiseClassifier(backbone="mlp-50-1")
    found = progressive_val_score(datasets.Phishing().take(600), model, metrics.Accuracy())
    assert found.get() > 0.75
    found = progressive_val_score(
        datasets.ImageSegments().take(600), PairwiseClassifier("mlp-50-1"), metrics.Accuracy()
    )
    assert found.get() > 0.6  # seven classes, raw features


def test_the_logic_is_the_learner_s():
    x, y = samples()
    model = PairwiseClassifier("mlp-20-1")
    for one, label in zip(x, y, strict=True):
        model.learn_one(one, label)
    learner = OnlineClassifier("mlp-20-1", missing=True)
    rows = np.array([list(one.values()) for one in x])
    learner.partial_fit(rows, y)
    expected = learner.predict_proba(rows[:1])[0].tolist()
    assert model.predict_proba_one(x[0]) == dict(zip(learner.classes_, expected, strict=True))
    assert model.predict_one(x[0]) == learner.predict(rows[:1])[0]


@pytest.mark.parametrize(
    ("model", "learner", "left_out"),
    [
        (PairwiseClassifier, OnlineClassifier, {"device"}),
        (StreamingRidgeClassifier, Ridge, {"device", "like"}),
        (DriftingRidgeClassifier, Drift, set()),
    ],
)
def test_the_parameters_are_the_learner_s(model, learner, left_out):
    own, other = (inspect.signature(kind).parameters for kind in (model, learner))
    assert own.keys() - other.keys() == {"absent"}
    assert other.keys() - own.keys() == {"classes", "missing"} | left_out
    shared = own.keys() - {"absent"}
    assert all(own[name].default == other[name].default for name in shared)


@pytest.mark.parametrize("size", [1, 7])
def test_many_equals_one_by_one(size):
    x, y = samples()
    one, many = (PairwiseClassifier("mlp-20-1", batch_size=size) for _ in range(2))
    for sample, label in zip(x, y, strict=True):
        one.learn_one(sample, label)
    frame = pd.DataFrame(x, index=range(100, 160))
    many.learn_many(frame[:30], pd.Series(y[:30]))
    many.learn_many(frame[30:][["c", "a", "e", "d", "b"]], pd.Series(y[30:]))
    found = many.predict_proba_many(frame)
    assert found.index.tolist() == list(range(100, 160))
    for sample, (_, row) in zip(x, found.iterrows(), strict=True):
        # A product of one row and one of many round differently in float32.
        assert one.predict_proba_one(sample) == pytest.approx(row.to_dict(), abs=1e-5)
    assert many.predict_many(frame).isin(y).all()


def test_before_the_first_sample():
    model = PairwiseClassifier()
    assert model.predict_proba_one({"a": 1.0}) == {} and model.predict_one({"a": 1.0}) is None
    frame = pd.DataFrame({"a": [1.0, 2.0]})
    assert model.predict_proba_many(frame).shape == (2, 0)
    assert len(model.predict_many(frame)) == 2


def test_features_come_and_go():
    x, y = samples(200)
    model = PairwiseClassifier("mlp-60-1")
    for sample, label in zip(x[:50], y, strict=False):
        model.learn_one({name: sample[name] for name in "bd"}, label)
    assert model._learner.input_shape == (2,)
    for n in range(50, 200):
        model.learn_one({name: x[n][name] for name in "abcde" if (n + ord(name)) % 5}, y[n])
    assert model._learner.input_shape == (5,)
    right = [model.predict_one({**x[n], "never learned": 1e9}) == y[n] for n in range(200)]
    assert np.mean(right) > 0.8
    assert model.predict_one({}) in y


def test_copies_go_their_own_way():
    x, y = samples()
    model = PairwiseClassifier("mlp-20-1")
    for sample, label in zip(x[:30], y, strict=False):
        model.learn_one(sample, label)
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    before = model.predict_proba_one(x[0])
    for other in copies:
        other.learn_many(pd.DataFrame(x[30:]), y[30:])
        assert other.predict_proba_one(x[0]) != before
    assert model.predict_proba_one(x[0]) == before
    assert copies[0].predict_proba_one(x[0]) == copies[1].predict_proba_one(x[0])


def test_a_first_sample_without_features():
    x, y = samples(100)
    model = PairwiseClassifier("mlp-40-1")
    model.learn_one({}, 9)
    assert model.predict_proba_one({}) == {9: 1.0}
    for sample, label in zip(x, y, strict=True):
        model.learn_one(sample, label)
    assert np.mean([model.predict_one(one) == label for one, label in zip(x, y, strict=True)]) > 0.8
    again = pickle.loads(pickle.dumps(model))
    assert again.predict_proba_one(x[0]) == model.predict_proba_one(x[0])


def test_a_feature_that_is_not_a_number_is_named():
    model = PairwiseClassifier("mlp-20-1")
    for bad in ("red", [1, 2], {}):
        with pytest.raises(InputError, match=r"feature 'colour' is .*encode it as a number"):
            model.learn_one({"size": 1.0, "colour": bad}, 0)
    model.learn_one({"size": 1.0}, 0)
    with pytest.raises(InputError, match="feature 'colour' is 'red'"):
        model.learn_one({"size": 1.0, "colour": "red"}, 1)
    assert model._learner.input_shape == (1,) and model._learner.classes_ == [0]
    with pytest.raises(InputError, match="feature 'size' is 'big'"):
        model.predict_one({"size": "big"})


def test_missing_values_of_pandas():
    model = PairwiseClassifier("mlp-20-1")
    frame = pd.DataFrame({"a": [1, None, 3]}, dtype="Int64")
    model.learn_many(frame, pd.Series([0, 1, 0]))
    assert model._learner.standardizer.count.tolist() == [2]
    assert model.predict_many(frame).isin([0, 1]).all()
    assert model.predict_one({"a": None}) == model.predict_one({"a": pd.NA})


def test_no_rows_change_nothing():
    model = PairwiseClassifier(backbone="mlp-40-1")
    model.learn_many(pd.DataFrame({"a": []}), pd.Series([], dtype=object))
    model.learn_one({"a": 1}, "x")
    assert list(model._columns) == ["a"]


def documents(count, new_words=True):
    """Bags of words of two topics; later ones have words that were not there before."""
    rng = np.random.default_rng(0)
    for n in range(count):
        topic = int(rng.integers(2))
        latest = 400 + 2 * n if new_words else 400
        words = [f"{topic}-{w}" for w in rng.integers(0, 40, 4)]
        words += [f"common-{w}" for w in rng.integers(0, latest, 15)]
        yield dict.fromkeys(words, 1), topic


def progressive(model, stream, last):
    """Test-then-train accuracy on the last samples of a stream."""
    right = []
    for x, y in stream:
        right.append(model.predict_one(x) == y)
        model.learn_one(x, y)
    return np.mean(right[-last:])


def test_text_that_comes_word_by_word_is_learned_as_by_a_linear_model():
    ours = progressive(PairwiseClassifier(seed=0), documents(600), 200)
    linear = progressive(linear_model.LogisticRegression(), documents(600), 200)
    assert ours > linear - 0.02 and ours > 0.95


def test_what_is_absent_is_zero_or_the_mean():
    """Indicators of which one alone tells the class: absent must not count as its mean."""
    rng = np.random.default_rng(0)

    def stream():
        for n in range(600):
            y = n % 2
            yield {f"f{w}": 1 for w in (*rng.integers(2, 12, 3), y)}, y

    assert progressive(PairwiseClassifier("mlp-100-1", seed=0), stream(), 200) > 0.97
    with pytest.raises(InputError, match="absent is 'none': use zero or mean"):
        PairwiseClassifier(absent="none")
    mean = PairwiseClassifier("mlp-100-1", seed=0, absent="mean")
    assert progressive(mean, stream(), 200) < 0.6  # every feature is constant where it is


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT, np.ma.masked], ids=repr)
def test_marked_values_are_missing(missing):
    model = PairwiseClassifier("mlp-20-1")
    model.learn_one({"a": 1.0, "b": 2.0}, 0)
    model.learn_one({"a": missing, "b": np.array(3.0)}, 1)
    assert model._learner.standardizer.count.tolist() == [1, 2]
    with pytest.raises(InputError, match=r"y\[0\] is missing"):
        model.learn_one({"a": 1.0, "b": 2.0}, missing)
