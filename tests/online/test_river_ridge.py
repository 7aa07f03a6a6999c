"""The closed form for streams of dicts; `test_river` has River's own checks of it."""

import copy
import pickle

import numpy as np
import pytest

pytest.importorskip("river", reason="river is not installed")

import pandas as pd
from river import datasets, metrics
from river.evaluate import progressive_val_score
from test_river import documents, progressive, samples

from minipw import InputError
from minipw.online import StreamingRidgeClassifier as Ridge
from minipw.online.river import StreamingRidgeClassifier

SMALL = {"size": 40, "first": 30}


def test_the_logic_is_the_learner_s():
    x, y = samples()
    model, learner = StreamingRidgeClassifier(**SMALL), Ridge(**SMALL, missing=True)
    rows = np.array([list(one.values()) for one in x])
    for n, (one, label) in enumerate(zip(x, y, strict=True)):
        model.learn_one(one, label)
        learner.partial_fit(rows[n : n + 1], [label])
        if n % 10 == 0:  # also while the first samples wait
            found = model.predict_proba_one(x[0])
            assert list(found.values()) == learner.predict_proba(rows[:1])[0].tolist()
            assert model.predict_one(x[0]) == learner.predict(rows[:1])[0]


def test_many_are_one_by_one_in_any_order_behind_the_first():
    x, y = samples(100)
    one, many = (StreamingRidgeClassifier(**SMALL) for _ in range(2))
    for sample, label in zip(x, y, strict=True):
        one.learn_one(sample, label)
    order = [*range(30), *np.random.default_rng(0).permutation(range(30, 100))]
    many.learn_many(pd.DataFrame([x[n] for n in order]), pd.Series([y[n] for n in order]))
    found = many.predict_proba_many(pd.DataFrame(x))
    for sample, (_, row) in zip(x, found.iterrows(), strict=True):
        # A product of one row and one of many round differently in float32.
        assert one.predict_proba_one(sample) == pytest.approx(row.to_dict(), abs=1e-4)


def test_progressive_validation_of_raw_features():
    found = progressive_val_score(
        datasets.ImageSegments().take(400),
        StreamingRidgeClassifier(size=200, first=100),
        metrics.Accuracy(),
    )
    assert found.get() > 0.8  # seven classes


@pytest.mark.parametrize("first", [30, 150])
def test_features_come_and_go(first):
    """Before or after the features are fixed."""
    x, y = samples(200)
    model = StreamingRidgeClassifier(size=100, first=first)
    for sample, label in zip(x[:50], y, strict=False):
        model.learn_one({name: sample[name] for name in "bd"}, label)
    assert model._learner.input_shape == (2,)
    for n in range(50, 200):
        model.learn_one({name: x[n][name] for name in "abcde" if (n + ord(name)) % 5}, y[n])
    assert model._learner.input_shape == (5,)
    right = [model.predict_one({**x[n], "never learned": 1e9}) == y[n] for n in range(200)]
    assert np.mean(right) > 0.8
    assert model.predict_one({}) in y


def test_what_is_absent_was_zero_before_a_feature_came():
    x, y = samples()
    late = [
        {**one, **({"late": 50.0 + n % 5} if n % 3 == 0 and n > 15 else {})}
        for n, one in enumerate(x[:100])
    ]
    model, written = (StreamingRidgeClassifier(size=40, first=60) for _ in range(2))
    for one, label in zip(late, y, strict=False):
        model.learn_one(one, label)
        written.learn_one({**one, "late": one.get("late", 0.0)}, label)
    assert model.predict_proba_one(late[0]) == written.predict_proba_one(late[0])


@pytest.mark.parametrize("names", [(("w", 1), ("w", "x")), (None, 1j), (frozenset("a"), 2j)])
def test_features_need_no_order(names):
    model = StreamingRidgeClassifier(**SMALL)
    model.learn_one(dict.fromkeys(names, 1.0), "a")
    assert model.predict_one(dict.fromkeys(names, 1.0)) == "a"


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.eye(2), [0, 1], "X of type ndarray: use a pandas.DataFrame"),
        (pd.DataFrame(np.eye(2), columns=["a", "a"]), [0, 1], "several columns 'a': rename them"),
        (pd.DataFrame(np.eye(2)), [0], "y has 1 labels for 2 samples of X"),
    ],
)
def test_rows_that_are_no_table(x, y, message):
    with pytest.raises(InputError, match=message):
        StreamingRidgeClassifier(**SMALL).learn_many(x, y)


def test_other_features_keep_their_columns():
    model = StreamingRidgeClassifier(features="identity")
    model.learn_one({"a": 1.0}, 0)
    with pytest.raises(InputError, match="use random features"):
        model.learn_one({"a": 1.0, "b": 2.0}, 0)


def test_text_that_comes_word_by_word_is_learned():
    """Room for new words is made in advance, not at each sample."""
    model, widths = StreamingRidgeClassifier(size=400, first=50), []

    def watched():
        for sample in documents(400):
            yield sample
            widths.append(model._learner.input_shape)

    assert progressive(model, watched(), 150) > 0.85  # 0.89 to 0.91 at three seeds
    assert widths[-1][0] > 1000 and len(set(widths[20:])) < 12


def test_copies_go_their_own_way():
    x, y = samples()
    model = StreamingRidgeClassifier(**SMALL)
    for sample, label in zip(x[:45], y, strict=False):
        model.learn_one(sample, label)
    before = model.predict_proba_one(x[0])
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    for other in copies:
        assert other.predict_proba_one(x[0]) == before
        other.learn_many(pd.DataFrame(x[45:]), y[45:])
        assert other.predict_proba_one(x[0]) != before
    assert model.predict_proba_one(x[0]) == before
    assert copies[0].predict_proba_one(x[0]) == copies[1].predict_proba_one(x[0])


def test_a_rare_class_is_balanced_and_flush_fixes_the_features():
    rng = np.random.default_rng(0)
    rows = [({"a": v, "b": rng.normal()}, v > 2) for v in rng.normal(size=400)]
    plain, balanced = (
        StreamingRidgeClassifier(size=50, class_weight=weight) for weight in (None, "balanced")
    )
    for model in (plain, balanced):
        for x, y in rows:
            model.learn_one(x, y)
        assert model._learner.waiting == 400
        model.flush()
        assert model._learner.waiting == 0
    x = {"a": 1.9, "b": 0.0}
    assert balanced.predict_proba_one(x)[True] > plain.predict_proba_one(x)[True]
