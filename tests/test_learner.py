"""The online classifier: how a stream is cut, classes that come later, what it refuses."""

import gc
import sys
import tracemalloc
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minipw import InputError, datasets, memory
from minipw.learner import OnlineClassifier

SMALL = {"backbone": "mlp-40-1", "learning_rate": 0.01, "reserve": 2, "density": 0.25}
LABELS = st.one_of(
    st.text(max_size=3),
    st.integers(),
    st.booleans(),
    st.none(),
    st.tuples(st.integers(0, 2), st.text(max_size=1)),
    st.floats(allow_nan=False),
)


def stream(count=60, features=5, classes=3, seed=0):
    """Noise around a random centre for each class, in random order."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, count)
    return rng.normal(0, 4, (classes, features))[y] + rng.standard_normal((count, features)), y


def images(count=12, shape=(9, 8, 2), classes=2):
    rng = np.random.default_rng(1)
    y = np.arange(count) % classes
    centres = rng.integers(0, 200, (classes, *shape))
    return (centres[y] + rng.integers(0, 55, (count, *shape))).astype(np.uint8), y


def assert_same(a, b):
    """Two learners hold the same bits."""
    assert a.classes_ == b.classes_ and (a.steps, a.samples) == (b.steps, b.samples)
    assert a.waiting == b.waiting and a.loss == b.loss
    np.testing.assert_array_equal(a.standardizer.state(), b.standardizer.state())
    for name, w in a.network.parameters.items():
        np.testing.assert_array_equal(w, b.network.parameters[name])
        np.testing.assert_array_equal(a.importance[name], b.importance[name])


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
    with pytest.raises(InputError, match=r"cnn-s needs images \(height, width, channels\)"):
        OnlineClassifier("cnn-s").partial_fit(x, y)


@settings(max_examples=25, deadline=None)
@given(
    size=st.integers(1, 9),
    cuts=st.lists(st.integers(0, 60), max_size=8),
    labels=st.lists(LABELS, min_size=1, max_size=4),
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
    monkeypatch.setattr("minipw.learner.COPIED_AT_ONCE", 1)
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
    learner.add_classes(["new", "newer"])
    assert learner.classes_ == [y[0], 1 - y[0], "new", "newer"]
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
@given(labels=st.lists(LABELS, min_size=1, max_size=12))
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
        ([1, "1"], np.object_),
        ([None, 1], np.object_),
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
    labels = [frozenset([1]), b"bytes", complex(1, 2), range(3)]
    learner = OnlineClassifier(**SMALL).partial_fit(np.eye(4), labels)
    assert learner.classes_ == labels and learner.predict(np.eye(4))[0] in labels


def resident():
    """Bytes of this process in memory, or 0 where the system does not say."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * 4096 if statm.exists() else 0


def test_ten_thousand_calls_take_no_more_memory():
    learner = OnlineClassifier("mlp-20-1", density=0.2)
    x, y = stream(200)

    def learn(calls):
        for n in range(calls):
            learner.partial_fit(x[n % 200, None], y[n % 200, None])
        gc.collect()
        return sys.getallocatedblocks(), resident()

    blocks, size = learn(300)
    blocks_after, size_after = learn(10_000)
    assert learner.samples == 10_300
    assert blocks_after - blocks < 1000  # one object kept a call would be 10,000
    assert size_after - size < 4 << 20  # 400 bytes kept a call


BAD = {
    "X holds what is not a number": (np.array([["a", 1]], object), [0]),
    "X has type complex128": ([[1j]], [0]),
    "X has type <U1": ([["a"]], [0]),
    r"one sample x is x\[None\]": ([1.0, 2.0], [0, 1]),
    r"X\[1, 0\] is nan": ([[1.0], [np.nan]], [0, 1]),
    r"X\[0, 1\] is -inf": ([[1.0, -np.inf]], [0]),
    "magnitude is above": ([[1e200]], [0]),
    "not hashable": ([[1.0]], [[0]]),
    "y contains NaN": ([[1.0]], [float("nan")]),
    "1 labels for 2 samples": ([[1.0], [2.0]], [0]),
    "a list or an array of labels": ([[1.0]], 0),
    "no list of labels": ([[1.0]], np.array(0)),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_samples_are_refused(message):
    with pytest.raises(InputError, match=message):
        OnlineClassifier(**SMALL).partial_fit(*BAD[message])


def test_a_bad_call_learns_nothing():
    x, y = stream(20)
    learner, other = (OnlineClassifier(**SMALL).partial_fit(x, y) for _ in range(2))
    for bad in ([[0.0] * 4], np.full((3, 5), np.nan)):
        with pytest.raises(InputError):
            learner.partial_fit(bad, [0] * len(bad))
    assert_same(learner, other)
    with pytest.raises(InputError, match=r"samples of shape \(4,\), those before had \(5,\)"):
        learner.predict(x[:, :4])


SETTINGS = {
    "batch_size": [0, 1.5, True, "1"],
    "seed": [-1, None],
    "reserve": [-1],
    "learning_rate": [0, -1, float("nan"), float("inf"), "1"],
    "importance_lambda": [-0.1],
    "standardized_limit": [0],
    "backbone": ["mlp", "cnn-l", None],
    "head": ["pair"],
    "rule": ["adam"],
    "device": ["tpu", "cuda"],
    "density": [0.0, 1.0, 1e-9, float("nan"), "0.1"],
    "pair_weights_per_class": [0, 1.5, 40 * 39 // 2 + 1],
    "gelu": ["relu"],
}


@pytest.mark.parametrize("name, value", [(k, v) for k, values in SETTINGS.items() for v in values])
def test_bad_settings_are_refused(name, value):
    word = {"gelu": "GELU"}.get(name, name.split("_")[0])
    with pytest.raises(InputError, match=f"{word}|pair weights"):
        OnlineClassifier(**{**SMALL, name: value}).partial_fit([[0.0, 1.0]], [0])


def test_nothing_is_predicted_before_something_is_learned():
    learner = OnlineClassifier(batch_size=4, **SMALL)
    with pytest.raises(InputError, match="nothing is learned yet"):
        learner.predict([[0.0]])
    learner.partial_fit([[0.0]], ["a"])
    with pytest.raises(InputError, match="1 samples wait: call flush"):
        learner.predict([[0.0]])
    with pytest.raises(InputError, match="nothing is learned yet"):
        learner.unused_units()
    assert learner.flush().predict([[0.0]]).tolist() == ["a"]


def test_no_samples():
    learner = OnlineClassifier(**SMALL).partial_fit(np.zeros((0, 3)), [])
    assert learner.steps == 0 and learner.input_shape == (3,)
    learner.partial_fit(np.zeros((1, 3)), [0])
    assert learner.predict(np.zeros((0, 3))).shape == (0,)
    assert learner.predict_proba(np.zeros((0, 3))).shape == (0, 1)
    with pytest.raises(InputError, match="no samples to score"):
        learner.score(np.zeros((0, 3)), [])


def test_a_loss_that_is_not_finite_names_layer_and_step():
    x, y = stream(20)
    learner = OnlineClassifier(**{**SMALL, "learning_rate": 1e30})
    with pytest.raises(InputError, match=r"at step \d+, first in layer \w+: .*learning_rate"):
        learner.partial_fit(x, y)
    learner = OnlineClassifier(**SMALL).partial_fit(x, y)
    learner.network.parameters["dense0"][0, 0] = np.nan
    with pytest.raises(InputError, match=r"loss is not finite at step 2., first in layer dense0"):
        learner.partial_fit(x, y)
    with pytest.raises(InputError, match=r"outputs are not finite .* layer dense0"):
        learner.predict(x)
    with pytest.raises(InputError, match="weights are not finite"):
        learner.save("nowhere.npz")


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
    filled = np.where(np.isnan(x), learner.standardizer.mean, x)
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


def test_unused_units():
    x, y = stream(60)
    learner = OnlineClassifier("mlp-30-1", density=0.1, pair_weights_per_class=2, reserve=0)
    found = learner.partial_fit(x, y).unused_units()
    network = learner.network
    read = np.union1d(network.pairs.i, network.pairs.j)
    assert found["units"] == 30 and found["unread"] == 30 - read.size > 0
    start = OnlineClassifier("mlp-30-1", density=0.1, pair_weights_per_class=2, reserve=0)
    start.partial_fit(x[:1], y[:1])  # a standardized first sample is 0 and changes nothing
    moved = (start.network.parameters["dense0"] != network.parameters["dense0"]).any(0)
    assert found["never_won"] == 30 - moved.sum() > 0


def test_more_memory_than_is_free_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "_system_memory", lambda: 1 << 20)
    learner = OnlineClassifier("mlp-700-1")
    with pytest.raises(InputError, match=r"GiB needed, 0\.0 GiB free: mlp-700-1 with 11 outputs"):
        learner.partial_fit([[0.0]], [0])
    with pytest.raises(InputError, match="GiB needed"):
        OnlineClassifier("mlp-1000000000-1").partial_fit([[0.0]], [0])


@pytest.mark.parametrize("backbone, size", [("mlp-500-1", 1), ("mlp-300-2", 64), ("mlp-40-1", 8)])
def test_the_memory_asked_for_is_enough(backbone, size, monkeypatch):
    asked = []
    monkeypatch.setattr("minipw.memory.require_memory", lambda size, what: asked.append(size))
    x, y = stream(size, features=50)
    tracemalloc.start()
    try:
        OnlineClassifier(backbone, batch_size=size).partial_fit(x, y)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < asked[0] < 10 * peak + (1 << 20)
