"""Classes, labels and features that come later; standardization and missing values."""

import numpy as np
import pytest
from hypothesis import given, settings
from learner_streams import SMALL, assert_same, label_lists, stream

from minipw import InputError
from minipw.backend.sparse_gradient import to_dense
from minipw.kernels.pairwise_cpu import most_repeats
from minipw.kernels.pairwise_growing import GrowingPairs
from minipw.nn.pairwise import Pairs, pairwise_backward, pairwise_forward
from minipw.online import growth
from minipw.online.classifier import OnlineClassifier


@pytest.mark.parametrize("head", ["pairwise", "fc"])
@pytest.mark.parametrize("reserve", [0, 1, 3])
@pytest.mark.parametrize("width", [24, 150])
def test_a_class_that_comes_later_changes_nothing_of_the_others(head, reserve, width):
    x, y = stream(80, classes=2)
    learner = OnlineClassifier(f"mlp-{width}-1", head, reserve=reserve).partial_fit(x, y)
    outputs = 2 + reserve
    logits = learner.decision_function(x)
    head_before = learner.network.parameters["head"].reshape(-1, outputs).copy()
    omega_before = learner.importance["head"].reshape(-1, outputs).copy()
    backbone_before = learner.network.parameters["dense0"].copy()
    learner.add_classes([7, 9])
    assert learner.classes_ == [y[0], 1 - y[0], 7, 9]
    np.testing.assert_array_equal(learner.decision_function(x)[:, :2], logits)
    head_after = learner.network.parameters["head"].reshape(-1, outputs + 2)
    omega_after = learner.importance["head"].reshape(-1, outputs + 2)
    np.testing.assert_array_equal(head_after[:, :outputs], head_before)
    np.testing.assert_array_equal(omega_after[:, :outputs], omega_before)
    np.testing.assert_array_equal(learner.network.parameters["dense0"], backbone_before)
    assert head_after[:, outputs:].any(0).all() and not omega_after[:, outputs:].any()


@pytest.mark.parametrize("head", ["pairwise", "fc"])
def test_a_known_class_starts_as_one_that_comes_later(head):
    x, y = stream(20, classes=1)
    early = OnlineClassifier(head=head, classes=[0, 1, 2], **SMALL).partial_fit(x, y)
    late = OnlineClassifier(head=head, classes=[0], **SMALL).partial_fit(x, y)
    late.add_classes([1, 2])
    first = early.network.parameters["head"].reshape(-1, 3)[:, 2]
    if head == "pairwise":
        np.testing.assert_array_equal(early.network.pairs.i, late.network.pairs.i)
        np.testing.assert_array_equal(early.network.pairs.j, late.network.pairs.j)
        changed = early.importance["head"].reshape(-1, 3)[:, 2] != 0
        first = np.where(changed, np.nan, first)  # those that no sample touched
    drawn = late.network.parameters["head"].reshape(-1, 3)[:, 2]
    same = np.isnan(first) | (first == drawn)
    assert same.all() if head == "pairwise" else drawn.any()


@settings(max_examples=30, deadline=None)
@given(labels=label_lists(1, 12))
def test_labels_come_back_as_they_were_given(labels):
    x = np.arange(2 * len(labels)).reshape(-1, 2)
    learner = OnlineClassifier(**SMALL).partial_fit(x, labels)
    assert learner.classes_ == list(dict.fromkeys(labels))
    for label in learner.predict(x).tolist():
        same = [known for known in labels if known == label]
        assert same and type(label) in {type(known) for known in same}
    proba = learner.predict_proba(x)
    assert proba.shape == (len(x), len(learner.classes_))
    np.testing.assert_allclose(proba.sum(1), 1, atol=1e-12)  # float64 sums of a few terms


@pytest.mark.parametrize(
    "y, kind",
    [
        ([1, 2], np.int64),
        (["a", "b"], np.str_),
        ([True, False], np.bool_),
        ([2**70, 1], np.object_),
        ([1.5, 2], np.object_),
        ([(1, 2), (3, 4)], np.object_),
    ],
)
def test_predictions_have_the_type_of_the_labels(y, kind):
    learner = OnlineClassifier(**SMALL).partial_fit([[0.0], [1.0]], y)
    assert learner.predict([[0.0]]).dtype.type is kind


def test_numpy_labels_are_python_labels():
    learner = OnlineClassifier(**SMALL)
    learner.partial_fit([[0.0], [1.0]], [np.int8(3), np.float32(0.5)])
    learner.partial_fit([[0.0], [1.0]], np.array([3, 4], np.uint16))
    assert learner.classes_ == [3, 0.5, 4]
    assert [type(label) for label in learner.classes_] == [int, float, int]


def test_any_hashable_label():
    labels = [frozenset([n]) for n in range(4)]
    learner = OnlineClassifier(**SMALL).partial_fit(np.eye(4), labels)
    assert learner.classes_ == labels and learner.predict(np.eye(4))[0] in labels


def test_raw_features_are_standardized():
    """Scale and offset of a feature do not matter."""
    x, y = stream(200)
    scale, offset = np.array([1e-6, 1e6, 1, 1, 1e3]), np.array([1e3, -1e8, 0, 1e5, 0])
    learner = OnlineClassifier(**SMALL).partial_fit(x, y)
    scaled = OnlineClassifier(**SMALL).partial_fit(x * scale + offset, y)
    assert scaled.score(x * scale + offset, y) == learner.score(x, y) > 0.9
    raw = OnlineClassifier(running_standardize=False, **SMALL)
    assert raw.partial_fit(x, y).score(x, y) > 0.8


def test_missing_values_stand_for_the_mean():
    x, y = stream(100)
    x[::3, 1] = np.nan
    with pytest.raises(InputError, match="missing=True"):
        OnlineClassifier(**SMALL).partial_fit(x, y)
    learner = OnlineClassifier(missing=True, **SMALL).partial_fit(x, y)
    known = learner.standardizer
    filled = np.where(np.isnan(x), known.origin + known.mean * known.unit, x)
    np.testing.assert_allclose(learner.predict_proba(x), learner.predict_proba(filled), atol=1e-6)
    assert learner.standardizer.count.tolist() == [100, 66, 100, 100, 100]
    raw = OnlineClassifier(missing=True, running_standardize=False, **SMALL).partial_fit(x, y)
    zeros = np.nan_to_num(x)
    np.testing.assert_array_equal(raw.predict_proba(x), raw.predict_proba(zeros))


@pytest.mark.parametrize("size", [1, 8])
def test_features_that_come_later(size):
    x, y = stream(100)
    learner = OnlineClassifier(missing=True, batch_size=size, **SMALL)
    learner.partial_fit(x[:50, :4], y[:50])
    before = learner.decision_function(x[:, :4])
    learner.add_features(1)
    unknown = np.concatenate([x[:, :4], np.full((100, 1), np.nan)], axis=1)
    # One more term, 0, may change the order of a float32 sum.
    np.testing.assert_allclose(learner.decision_function(unknown), before, rtol=1e-5, atol=1e-6)
    learner.partial_fit(x[50:], y[50:])
    assert learner.standardizer.count[-1] == 100 - 50 - learner.waiting
    assert learner.score(x[50:], y[50:]) > 0.8
    with pytest.raises(InputError, match="features can be added"):
        OnlineClassifier(**SMALL).add_features(1)


@pytest.mark.parametrize("units, count", [(9, 5), (9, 36), (30, 100), (60, 3)])
def test_tables_that_grow_are_those_of_all_outputs(units, count, rng):
    """Also after several rounds over all pairs, and with outputs that use new units."""
    tables = None
    for classes in (1, 2, 5, 9, 10):
        index = growth.draw_pairs(3, units, count, range(classes))
        i, j = (part.reshape(-1) for part in index)
        tables, whole = (GrowingPairs(i, j, classes, units, before) for before in (tables, None))
        for name in ("used", "weight", "output"):
            found, expected = getattr(tables, name), getattr(whole, name)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
        assert len(tables.weight) == most_repeats(i, j, units)
        x = np.maximum(rng.standard_normal((4, units)), 0)
        w, dy = rng.standard_normal(i.size), rng.standard_normal((4, classes))
        results = []
        for pairs in (Pairs(i, j, classes, tables), Pairs(i, j, classes)):
            y, cache = pairwise_forward(x, w, pairs)
            dx, dw = pairwise_backward(dy, cache)
            results.append((y, np.where(x > 0, dx, 0), to_dense(dw, w.size)))
        for found, expected in zip(*results, strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-12)  # float64 sums in other orders


def test_each_output_is_entered_once(monkeypatch):
    """Another class costs its own pairs, not the sorting of all."""
    entered, enter = [], GrowingPairs._add
    monkeypatch.setattr(
        GrowingPairs, "_add", lambda tables, i, j, c: (entered.append(c), enter(tables, i, j, c))
    )
    learner = OnlineClassifier("mlp-60-1", pair_weights_per_class=300)
    for n in range(20):
        learner.partial_fit([[n, -n]], [n])
    assert entered == list(range(20 + learner.reserve))


@pytest.mark.parametrize("width, count", [(24, 100), (100, 60)])
def test_a_file_goes_on_as_what_grew(tmp_path, width, count):
    """Tables that grew and tables built from a file give the same bits."""
    x, y = stream(40, classes=20)
    grown = OnlineClassifier(f"mlp-{width}-1", pair_weights_per_class=count, learning_rate=0.01)
    grown.partial_fit(x, y).save(tmp_path / "m.npz")
    loaded = OnlineClassifier.load(tmp_path / "m.npz")
    assert (
        type(grown.network.pairs.implementation)
        is type(loaded.network.pairs.implementation)
        is GrowingPairs
    )
    assert_same(grown.partial_fit(x, y), loaded.partial_fit(x, y))


@pytest.mark.parametrize("pairwise", [True, False])
def test_each_class_has_first_weights_of_its_own(pairwise):
    drawn = growth.draw_head(0, 50, pairwise, range(4))
    assert np.unique(drawn, axis=1).shape == (50, 4)
    np.testing.assert_array_equal(growth.draw_head(0, 50, pairwise, range(2, 4)), drawn[:, 2:])


def test_features_have_first_weights_of_their_own_and_no_importance():
    learner = OnlineClassifier(missing=True, **SMALL).partial_fit(*stream(20))
    for _ in range(2):
        learner.add_features(1)
    first, second = learner.network.parameters["dense0"][-2:]
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.9  # of 40 weights each
    assert not learner.importance["dense0"][-2:].any()


@pytest.mark.parametrize(
    ("units", "weights"), [(20, 190), (80, 2_500), (300, 4_485), (2000, 25_000)]
)
def test_a_class_has_a_tenth_of_the_pairs_within_bounds(units, weights):
    assert growth.pairs_a_class(units) == weights
