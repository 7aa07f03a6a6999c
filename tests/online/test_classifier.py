"""The online classifier: what it learns, however a stream is cut and its numbers are stored."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learner_streams import SMALL, assert_same, images, label_lists, stream

from minipw import InputError, datasets
from minipw.online.classifier import OnlineClassifier


@pytest.mark.parametrize(
    "head, rule", [("pairwise", "adagrad"), ("pairwise", "s-mas"), ("fc", "adagrad"), ("fc", "sgd")]
)
def test_learns(head, rule):
    x, y = stream(400)
    rate = {"sgd": 0.03}.get(rule, 0.01)
    learner = OnlineClassifier("mlp-60-1", head, rule, rate)
    assert learner.partial_fit(x[:300], y[:300]).score(x[300:], y[300:]) > 0.9


def test_class_after_class_is_remembered():
    """Without importance, k-WTA and pairs the digits but the last ones are forgotten."""
    data = datasets.load("mnist-5k")
    order = np.argsort(data.y_train[:800], kind="stable")
    x, y = data.x_train[order, ..., 0], data.y_train[order]
    learner = OnlineClassifier("mlp-200-1").partial_fit(x, y)
    forgets = OnlineClassifier("mlp-200-1", "fc", "sgd", 0.01, density=None, reserve=0)
    forgets.partial_fit(x, y)
    scores = [model.score(data.x_test[..., 0], data.y_test) for model in (learner, forgets)]
    assert scores[0] > 0.5 > 0.4 > scores[1], scores  # 0.59 and 0.37


@pytest.mark.parametrize("backbone", ["cnn-s", "mlp-20-1"])
def test_learns_images(backbone):
    x, y = images(60)
    settings = {"density": 0.2, "pair_weights_per_class": 150}
    learner = OnlineClassifier(backbone, batch_size=4, **settings)
    learner.partial_fit(x, y)
    assert learner.score(x, y) > 0.9
    assert learner.standardizer.mean.size == (2 if backbone == "cnn-s" else 9 * 8 * 2)


def test_grey_images_without_a_channel_axis():
    x, y = images(40, (6, 7))
    learner = OnlineClassifier(**SMALL).partial_fit(x, y)
    assert learner.score(x, y) > 0.9 and learner.standardizer.mean.shape == (42,)
    says = r"cnn-s needs images \(height, width, channels\).*\(6, 7\): add the axis of channels"
    with pytest.raises(InputError, match=says):
        OnlineClassifier("cnn-s").partial_fit(x, y)


class Table(np.ndarray):
    """An array with named columns, as pandas has them."""

    columns = ("a", "b", "c", "d", "e")


def test_named_columns_keep_their_order(tmp_path):
    x, y = stream(20)
    learner = OnlineClassifier(**SMALL)
    with pytest.raises(InputError, match="infinity"):
        learner.partial_fit(np.full((1, 5), np.inf).view(Table), y[:1])
    learner.partial_fit(x, y)
    assert learner.columns is None  # so far without names
    learner.predict(x.view(Table))
    assert learner.columns is None
    learner.partial_fit(x.view(Table), y).save(tmp_path / "m.npz")
    turned = x.view(Table)
    turned.columns = Table.columns[::-1]
    for one in (learner, OnlineClassifier.load(tmp_path / "m.npz")):
        assert one.columns == Table.columns
        for call in (one.predict, lambda x, one=one: one.partial_fit(x, y)):
            with pytest.raises(InputError, match="column 1 is 'e' where 'a' was before: keep"):
                call(turned)
        assert one.predict(x).shape == (20,)  # without names it is up to the caller
    learner.add_features(["f"])
    learner.add_features(1)
    assert learner.columns == (*Table.columns, "f", None)


@pytest.mark.parametrize(
    "names",
    [("a ", " b", "c", "d", "e"), 7],
)
def test_names_that_differ_by_spaces_and_tables_without_names(names):
    x, y = stream(20)
    learner, other = OnlineClassifier(**SMALL), x.view(Table)
    learner.partial_fit(x.view(Table), y)
    other.columns = names
    assert learner.predict(other).shape == (20,)


def test_a_column_with_another_name():
    x, y = stream(20)
    learner, other = OnlineClassifier(**SMALL).partial_fit(x.view(Table), y), x.view(Table)
    other.columns = ("a", "b", "x", "d", "e")
    with pytest.raises(InputError, match="column 3 is 'x' where 'c' was before: rename it, or"):
        learner.predict(other)


def test_nothing_waits_after_a_call_that_fails():
    x, y = stream(30)
    learner = OnlineClassifier(**{**SMALL, "batch_size": 4}, running_standardize=False)
    learner.partial_fit(x[:6], y[:6])
    bad = x[6:27].copy()
    bad[7] = 1e25  # in the third batch: the samples 4 to 7, 8 to 11, 12 to 15
    with pytest.raises(InputError, match="not finite"):
        learner.partial_fit(bad, y[6:27])
    assert (learner.samples, learner.waiting) == (12, 0)
    same = OnlineClassifier(**{**SMALL, "batch_size": 4}, running_standardize=False)
    same.partial_fit(x[:12], y[:12])
    learner.partial_fit(x[16:], y[16:]), same.partial_fit(x[16:], y[16:])
    np.testing.assert_array_equal(learner.decision_function(x), same.decision_function(x))


@settings(max_examples=25, deadline=None)
@given(
    size=st.integers(1, 9),
    cuts=st.lists(st.integers(0, 60), max_size=8),
    labels=label_lists(1, 4),
    head=st.sampled_from(["pairwise", "fc"]),
)
def test_the_cut_of_the_stream_does_not_matter(size, cuts, labels, head):
    x, y = stream(60, classes=len(labels))
    y = [labels[c] for c in y]
    whole = OnlineClassifier(head=head, batch_size=size, **SMALL).partial_fit(x, y)
    parts = OnlineClassifier(head=head, batch_size=size, **SMALL)
    bounds = [0, *sorted(cuts), 60]
    for start, stop in pairwise(bounds):
        parts.partial_fit(x[start:stop], y[start:stop])
    assert_same(whole, parts)
    assert whole.waiting == 60 % size
    assert_same(whole.flush(), parts.flush())
    assert whole.waiting == 0 and whole.samples == 60


def test_one_call_of_6400_equals_100_calls_of_64():
    x, y = stream(6400, features=3)
    whole = OnlineClassifier(batch_size=64, **SMALL).partial_fit(x, y)
    parts = OnlineClassifier(batch_size=64, **SMALL)
    for start in range(0, 6400, 64):
        parts.partial_fit(x[start : start + 64], y[start : start + 64])
    assert_same(whole, parts)
    assert whole.steps == 100


def test_long_calls_are_copied_in_parts(monkeypatch):
    x, y = stream(50)
    whole = OnlineClassifier(batch_size=4, **SMALL).partial_fit(x, y)
    predicted = whole.predict_proba(x)
    monkeypatch.setattr("minipw.online.learner.COPIED_AT_ONCE", 1)
    parts = OnlineClassifier(batch_size=4, **SMALL).partial_fit(x, y)
    assert_same(whole, parts)
    # A product of one row and one of many round differently in float32.
    np.testing.assert_allclose(predicted, parts.predict_proba(x), atol=1e-5)


FORMS = {
    "uint8": lambda x: x.astype(np.uint8),
    "int64": lambda x: x.astype(np.int64),
    "float16": lambda x: x.astype(np.float16),
    "float32": lambda x: x.astype(np.float32),
    "longdouble": lambda x: x.astype(np.longdouble),
    "big-endian": lambda x: x.astype(">f8"),
    "object": lambda x: x.astype(object),
    "list": lambda x: x.tolist(),
    "fortran": np.asfortranarray,
    "strided": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "reversed": lambda x: x[::-1].copy()[::-1],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [1, 4])
def test_types_and_layouts_do_not_matter(form, size):
    x, y = stream(30)
    x = np.clip(np.round(x) + 20, 0, 255)  # every type holds these exactly
    plain = OnlineClassifier(batch_size=size, **SMALL).partial_fit(x, y)
    given = FORMS[form](x)
    if isinstance(given, np.ndarray):
        given.setflags(write=False)
    labels = y.astype("uint8")
    labels.setflags(write=False)
    other = OnlineClassifier(batch_size=size, **SMALL).partial_fit(given, labels)
    assert_same(plain, other)
    np.testing.assert_array_equal(plain.predict_proba(x), other.predict_proba(given))


def test_what_the_caller_changes_later_does_not_matter():
    x, y = stream(10)
    learner, other = (OnlineClassifier(batch_size=4, **SMALL) for _ in range(2))
    mine = x.copy()
    learner.partial_fit(mine[:6], y[:6])
    mine[:] = 77
    assert_same(learner.partial_fit(x[6:], y[6:]), other.partial_fit(x, y))
