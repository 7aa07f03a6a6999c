"""Streams whose classes move, and nobody says when."""

import numpy as np
import pytest
from scipy.sparse import csr_array

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from sklearn.datasets import load_digits, load_wine

from minipw import InputError
from minipw.online import DriftingRidgeClassifier, StreamingRidgeClassifier, load
from minipw.online.drift import MADE, WIDEST
from minipw.online.experts import EVERY, RIDGE, SHRINKAGE, Experts

SMALL = {"size": 20, "half_lives": (50, 200)}


def turning(count, seed=0):
    """Two classes on either side of a line through (N, 4), whose sides change half way."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 4))
    y = x @ [2.0, -1.0, 0.5, 0.0] > 0
    return x, y ^ (np.arange(count) >= count // 2)


def prequential(learner, x, y):
    """Whether each sample but the first was predicted before it was learned."""
    hits = []
    for n in range(len(y)):
        if n:
            hits.append(learner.predict(x[n : n + 1])[0] == y[n])
        learner.partial_fit(x[n : n + 1], y[n : n + 1])
    return np.array(hits)


def shuffled(make, count):
    x, y = make(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))[:count]
    return x[order], y[order]


def taught(experts, z, labels, weight):
    """The weights with which samples, learned one after the other, enter the sums."""
    weights = []
    for row, label in zip(z, labels, strict=True):
        best = row @ experts.W[:, experts.mistakes.argmin()]
        weights.append(weight / (1 + (abs(best[1] - best[0]) / 0.5) ** 2))
        experts.learn(row, label, weight)
    return np.array(weights)


def test_the_weights_solve_the_sums_of_all_samples():
    """Against the sums of the docstring, made at once: with ages, and for both blocks."""
    rng = np.random.default_rng(0)
    lives, inputs, size, count = (30, 120, None), 3, 4, 3 * EVERY[-1]
    experts = Experts(lives, inputs, size, 2)
    z = np.concatenate([np.ones((count, 1)), rng.normal(size=(count, inputs + size))], 1)
    labels = rng.integers(2, size=count)
    weights = taught(experts, z, labels, 3.0)
    assert experts.waiting == 0 and min(weights) < 2 < max(weights) == 3
    blocks = [(30, 0), (120, 0), (120, 1), (None, 0), (None, 1)]  # 30 is short
    for e, (life, block) in enumerate(blocks):
        w = weights * (0.5 ** (np.arange(count)[::-1] / life) if life else np.ones(count))
        h, lam = (1 + inputs, z.shape[1])[block], SHRINKAGE[block]
        part = z[:, :h]
        A = (part.T * w) @ part + np.diag([0.0] + (h - 1) * [lam * w.sum()])
        expected = np.linalg.solve(A + RIDGE * np.eye(h), (part.T * w) @ np.eye(2)[labels])
        np.testing.assert_allclose(experts.W[:h, e], expected, rtol=1e-9, atol=1e-12)  # float64
        assert not experts.W[h:, e].any()


@pytest.mark.parametrize("count", [3, 25, 60, 130, 173])
def test_flushed_sums_have_every_sample_once(count):
    rng = np.random.default_rng(0)
    experts = Experts((30, 120, None), 3, 4, 2)
    weights = taught(experts, rng.normal(size=(count, 8)), rng.integers(2, size=count), 1.0)
    for _ in range(2):  # again: nothing waits any more
        experts.solve()
        for N, factor in zip(experts.N, experts.factors, strict=True):
            assert pytest.approx(weights @ factor ** np.arange(count)[::-1]) == N


def test_the_cut_of_a_stream_changes_nothing():
    x, y = turning(MADE[-1] + 60)
    one, many = (DriftingRidgeClassifier(**SMALL) for _ in range(2))
    for n in range(len(y)):
        one.partial_fit(x[n : n + 1], y[n : n + 1])
    for part in np.split(np.arange(len(y)), [3, 90, 120, 870]):
        many.partial_fit(csr_array(x[part]), y[part])
    assert np.array_equal(one.decision_function(x), many.decision_function(x))


def test_a_world_that_turns_is_followed():
    x, y = turning(3000)
    hits = prequential(DriftingRidgeClassifier(), x, y)
    assert hits[200:1499].mean() > 0.95  # 0.98
    assert hits[1499:1520].mean() < 0.2  # it has turned
    assert hits[1800:].mean() > 0.95  # 0.97, some hundred samples later
    still = StreamingRidgeClassifier(size=100).partial_fit(x, y)
    assert still.score(x[1800:], y[1800:]) < 0.75  # 0.51


def test_long_half_lives_alone_predict_from_the_first_features_on():
    x, y = turning(200)
    for lives in ((None,), (500,), (200, 1000)):
        hits = prequential(DriftingRidgeClassifier(lives), x[:100], y[:100])
        assert hits[25:].mean() > 0.8, lives  # 0.5 where nothing is solved before 100


@pytest.mark.parametrize(("make", "count"), [(load_digits, 1200), (load_wine, 178)])
def test_what_stays_is_learned_nearly_as_well(make, count):
    x, y = shuffled(make, count)
    train = count * 3 // 4
    drifting, still = DriftingRidgeClassifier(), StreamingRidgeClassifier()
    for learner in (drifting, still):
        learner.partial_fit(x[:train], y[:train]).flush()
    scores = [learner.score(x[train:], y[train:]) for learner in (drifting, still)]
    assert scores[0] > scores[1] - 0.03  # 5 of 300 digits and 1 of 45 wines behind


def test_probabilities_are_as_sure_as_they_are_right():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 3))
    y = (x[:, 0] > 0) ^ (rng.random(3000) < 0.2)  # one label in five is wrong
    learner = DriftingRidgeClassifier(size=40).partial_fit(x, y)
    p = learner.predict_proba(x)
    np.testing.assert_allclose(p.sum(1), 1)
    assert abs(p.max(1).mean() - 0.8) < 0.07
    sure = DriftingRidgeClassifier(size=40).partial_fit(x, x[:, 0] > 0)
    assert sure.predict_proba(x).max(1).mean() > 0.9


@pytest.mark.parametrize("count", [10, 60, 2000])
def test_classes_come_at_any_time(count):
    x, y = shuffled(load_digits, 1700)
    x, y = np.tile(x, (2, 1)), np.tile(y, 2)
    old, new = np.flatnonzero(y < 5)[:count], np.flatnonzero(y >= 5)[:200]
    learner = DriftingRidgeClassifier(classes=["none yet"] if count == 60 else None)
    labels = y.astype(str)
    learner.partial_fit(x[old], labels[old])
    assert learner.predict_proba(x[:3]).shape == (3, len(learner.classes_))
    learner.partial_fit(x[new], labels[new]).flush()
    assert learner.score(x[new], labels[new]) > 0.95
    if count == 60:
        assert not learner.predict_proba(x[:50])[:, 0].any()  # no sample of that class


def test_one_class_and_one_constant_column():
    learner = DriftingRidgeClassifier(**SMALL).partial_fit(np.ones((130, 1)), ["a"] * 130)
    assert learner.predict([[1.0], [2.0]]).tolist() == ["a", "a"]
    learner.partial_fit(np.full((50, 1), 2.0), ["b"] * 50)
    assert learner.predict([[2.0]]).tolist() == ["b"]


def test_a_huge_value_spoils_nothing():
    x, y = turning(2000)
    for n in (5, 40, 400, 1600):
        x[n, n % 3] = 1e12
    hits = prequential(DriftingRidgeClassifier(size=60), x, y)
    assert hits[200:999].mean() > 0.94 and hits[1400:].mean() > 0.94


def test_missing_values_stand_for_the_mean():
    x, y = turning(1200)
    x[np.random.default_rng(1).random(x.shape) < 0.1] = np.nan
    learner = DriftingRidgeClassifier(missing=True, **SMALL)
    assert prequential(learner, x, y)[100:600].mean() > 0.85
    with pytest.raises(InputError, match="missing=True"):
        DriftingRidgeClassifier().partial_fit(x, y)


def test_weights():
    x, y = turning(300)
    weights = np.random.default_rng(1).integers(0, 2, 300)
    one, other = (DriftingRidgeClassifier(**SMALL) for _ in range(2))
    one.partial_fit(x, y, weights)  # samples of weight 0 have no age either
    other.partial_fit(x[weights > 0], y[weights > 0])
    assert np.array_equal(one.decision_function(x), other.decision_function(x))
    x, y = x[:140], np.arange(140) % 2  # a label for nothing: the heavier class wins
    one = DriftingRidgeClassifier(**SMALL).partial_fit(x, y, np.where(y, 9.0, 1.0)).flush()
    assert one.predict(x).mean() > 0.9
    with pytest.raises(InputError, match="sample_weight has 1e\\+200"):
        one.partial_fit(x[:1], [0], [1e200])


@pytest.mark.parametrize("count", [0, 10, 30, 310, MADE[-1] + 7])
def test_a_saved_one_goes_on_bit_for_bit(tmp_path, count):
    x, y = turning(1200)
    one = DriftingRidgeClassifier(missing=True, seed=3, **SMALL)
    one.partial_fit(x[:count], y[:count])
    one.save(tmp_path / "model.npz")
    other = load(tmp_path / "model.npz")
    assert type(other) is DriftingRidgeClassifier and other.settings == one.settings
    for learner in (one, other):
        learner.partial_fit(x[count:], y[count:])
    assert other.counts == one.counts
    assert np.array_equal(one.predict_proba(x), other.predict_proba(x))
    with pytest.raises(InputError, match=r"cpu alone|CuPy"):
        load(tmp_path / "model.npz", device="cuda")


@pytest.mark.parametrize("count", [50, MADE[-1] + 30])
def test_columns_can_come_later(tmp_path, count):
    """What they were before is the mean, so nothing that is predicted of it changes."""
    x, y = turning(3000)
    learner = DriftingRidgeClassifier(missing=True).partial_fit(x[:count, 1:], y[:count])
    before = learner.decision_function(x[:9, 1:])
    learner.add_features(1)
    x = np.roll(x, -1, 1)
    unknown = np.concatenate([x[:9, :3], np.full((9, 1), np.nan)], 1)
    # A sum of as many products in another order.
    np.testing.assert_allclose(learner.decision_function(unknown), before, atol=1e-9)
    learner.save(tmp_path / "model.npz")
    other = load(tmp_path / "model.npz").partial_fit(x[count:1490], y[count:1490])
    learner.partial_fit(x[count:1490], y[count:1490])
    assert np.array_equal(other.decision_function(x), learner.decision_function(x))
    assert learner.score(x[:1490], y[:1490]) > 0.95  # 0.67 without it


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"half_lives": ()}, r"half_lives are \(\): use a list"),
        ({"half_lives": 100}, "half_lives are 100: use a list"),
        ({"half_lives": (100, 0)}, "half_life is 0"),
        ({"size": 1}, "at least 2"),
        ({"size": None}, "at least 2"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_bad_settings(settings, fault):
    with pytest.raises(InputError, match=fault):
        DriftingRidgeClassifier(**settings)


def test_bad_samples():
    learner = DriftingRidgeClassifier()
    with pytest.raises(InputError, match="StreamingRidgeClassifier"):
        learner.partial_fit(np.zeros((2, 8, 8)), [0, 1])
    with pytest.raises(InputError, match="StreamingRidgeClassifier"):
        learner.partial_fit(np.zeros((2, WIDEST + 1)), [0, 1])
    with pytest.raises(InputError, match="nothing is learned"):
        learner.predict([[1.0]])
    learner.partial_fit(np.zeros((2, WIDEST)), [0, 1])
    with pytest.raises(InputError, match="StreamingRidgeClassifier"):
        learner.add_features(1)
    assert learner.input_shape == (WIDEST,) and learner.flush() is learner


def test_a_file_whose_half_lives_were_solved_at_other_times_is_refused(tmp_path):
    x, y = turning(1030)
    learner = DriftingRidgeClassifier(**SMALL).partial_fit(x, y)
    assert learner.experts.every == [25, 100]
    learner.experts.every = [5, 50]
    learner.save(tmp_path / "model.npz")
    with pytest.raises(InputError, match="or are of an older minipw"):
        load(tmp_path / "model.npz")
