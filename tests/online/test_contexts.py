"""Streams of images whose pixels are permuted now and then, and nobody says when."""

import numpy as np
import pytest

from minipw import InputError, datasets
from minipw.online import ContextRidgeClassifier, StreamingRidgeClassifier, layout, load

DATA = datasets.load("mnist-5k")
COUNT = 1600
X, Y = DATA.x_train[:COUNT], DATA.y_train[:COUNT]
SETTINGS = {"size": 720, "first": 500}


def permuted(x, seed):
    """Images with their pixels in a random order, the same for one seed; None is the grid."""
    if seed is None:
        return x
    order = np.random.default_rng(seed).permutation(784)
    return x.reshape(len(x), 784)[:, order].reshape(x.shape)


@pytest.fixture(scope="module")
def learner():
    """What has learned two permutations, one after the other."""
    learner = ContextRidgeClassifier(**SETTINGS)
    for seed in (1, 2):
        learner.partial_fit(permuted(X, seed), Y)
    return learner


def test_every_image_is_smooth_on_the_grid_and_rough_elsewhere():
    flat = X.reshape(COUNT, 784).astype(float)
    grid = np.arange(784)
    assert layout.roughness(flat, grid, (28, 28)).max() < 0.64
    rng = np.random.default_rng(0)
    assert layout.roughness(flat, rng.permutation(784), (28, 28)).min() > 0.85
    ramp = np.arange(12.0).reshape(1, 12)  # neighbours 1 apart in a row, 4 in a column
    expected = (9 * 1 + 8 * 16) / 17 / (2 * ramp.var())
    np.testing.assert_allclose(layout.roughness(ramp, np.arange(12), (3, 4)), expected)


def test_the_layout_of_permuted_pixels_is_found():
    flat = X.reshape(COUNT, 784).astype(float)
    order = np.random.default_rng(3).permutation(784)
    found = layout.find_order(flat[:1000][:, order], (28, 28))
    assert sorted(found) == list(range(784))
    own = layout.roughness(flat[1000:][:, order], found, (28, 28))
    assert own.max() < 0.8 and own.mean() < 0.4  # 0.25 on the grid itself
    row, column = np.divmod(order[found].reshape(28, 28), 28)  # where each pixel came from
    far = np.hypot(np.diff(row, axis=1), np.diff(column, axis=1))
    assert np.median(far[8:20, 8:20]) < 1.5  # pixels beside each other were so before


def test_permutations_are_told_apart_and_none_is_forgotten(learner):
    assert len(learner.orders) == 3 and learner.strangers.counts == [0] * 10
    assert [sum(one.counts) for one in learner.learners] == [0, COUNT, COUNT]
    assert sum(learner.counts) == 2 * COUNT
    for seed in (1, 2):
        assert learner.score(permuted(DATA.x_test, seed), DATA.y_test) > 0.94
    p = learner.predict_proba(permuted(DATA.x_test, 1))
    np.testing.assert_allclose(p.sum(1), 1)


def test_shuffled_permutations_are_told_apart():
    learner = ContextRidgeClassifier(**SETTINGS)
    x = np.concatenate([permuted(X, seed) for seed in (1, 2)])
    order = np.random.default_rng(0).permutation(2 * COUNT)
    for rows in np.array_split(order, 9):
        learner.partial_fit(x[rows], np.tile(Y, 2)[rows])
    assert len(learner.orders) == 3 and sum(learner.strangers.counts) < 20
    for seed in (1, 2):
        assert learner.score(permuted(DATA.x_test, seed), DATA.y_test) > 0.94


def test_images_as_they_are_need_no_other_context():
    learner = ContextRidgeClassifier(**SETTINGS).partial_fit(X, Y)
    plain = StreamingRidgeClassifier(**SETTINGS).partial_fit(X, Y)
    test = DATA.x_test[:100]
    np.testing.assert_array_equal(learner.decision_function(test), plain.decision_function(test))
    assert len(learner.orders) == 1
    colours = np.random.default_rng(0).random((50, 1, 1, 3)) * np.ones((50, 9, 9, 3))
    assert (
        ContextRidgeClassifier(size=50)
        .partial_fit(colours, np.arange(50) % 2)
        .predict(colours)
        .shape
    )


def test_noise_is_learned_by_random_features():
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((3, 10, 10))
    y = rng.integers(0, 3, 900)
    x = centres[y] + rng.standard_normal((900, 10, 10))
    learner = ContextRidgeClassifier(size=90, first=300).partial_fit(x[:700], y[:700])
    assert learner.score(x[700:], y[700:]) > 0.9
    assert sum(map(sum, [one.counts for one in learner._all()])) == 700  # each once
    assert len(learner.strangers.counts) == 3 and learner._kept.count <= 4 * 300


def test_a_saved_learner_goes_on(learner, tmp_path):
    learner.save(tmp_path / "model.npz")
    loaded = load(tmp_path / "model.npz")
    test = permuted(DATA.x_test[:50], 2)
    np.testing.assert_array_equal(loaded.decision_function(test), learner.decision_function(test))
    assert loaded.partial_fit(permuted(X[:5], 1), Y[:5]).counts != learner.counts
    fresh = ContextRidgeClassifier(**SETTINGS, classes=[1])
    fresh.save(tmp_path / "fresh.npz")
    assert load(tmp_path / "fresh.npz").classes_ == [1]


def test_forget_decay_and_novelty():
    learner = ContextRidgeClassifier(**SETTINGS)
    x = permuted(X, 1)
    learner.partial_fit(x[:800], Y[:800])
    before = learner.decision_function(x[:50])
    learner.partial_fit(x[800:900], Y[800:900]).forget(x[800:900], Y[800:900])
    after = learner.decision_function(x[:50])
    np.testing.assert_allclose(after, before, atol=1e-3 * abs(before).max())  # float32 sums
    assert sum(learner.counts) == 800
    learner.decay(0.5)
    assert learner.learners[1].statistics.counts.sum() == 400
    novelty = learner.novelty(np.concatenate([x[:50], permuted(X[:50], 9)]))
    assert np.median(novelty[50:]) > 2 * np.median(novelty[:50])
    few = ContextRidgeClassifier(**SETTINGS).partial_fit(x[:60], Y[:60])
    assert few.predict(x[:5]).shape == (5,)  # strangers, by random features
    few.forget(x[:60], Y[:60])
    assert sum(few.counts) == 0 == few._kept.count


def totals(learner):
    return learner.counts, [one.counts for one in learner._all()], learner._kept.count


def test_what_is_refused_to_be_forgotten_changes_nothing():
    x = permuted(X, 1)
    learner = ContextRidgeClassifier(**SETTINGS).partial_fit(X[:600], Y[:600])
    learner.partial_fit(x[:700][Y[:700] != 9], Y[:700][Y[:700] != 9])
    few = ContextRidgeClassifier(**SETTINGS).partial_fit(x[:60], Y[:60])
    nine = x[Y == 9][:1]
    for one, good in ((learner, X[:5]), (few, x[:5])):
        before = totals(one)
        with pytest.raises(InputError, match=r"of 9 to forget: \d+ were learned"):
            one.forget(np.concatenate([good, *[nine] * 70]), [*Y[:5], *[9] * 70])
        assert totals(one) == before


def test_strangers_that_fade_are_gone():
    x = permuted(X, 1)
    learner = ContextRidgeClassifier(size=180, first=300).partial_fit(x[:100], Y[:100])
    learner.decay(1e-60).decay(1e-60)
    assert sum(learner.counts) == 0
    learner.partial_fit(x[100:900], Y[100:900])
    assert sum(learner.counts) == 800 and len(learner.orders) == 2


def test_what_is_no_image_is_refused_in_one_line():
    with pytest.raises(InputError, match=r"contexts need images of at least 8 .* \(64,\)"):
        ContextRidgeClassifier().partial_fit(np.zeros((2, 64)), [0, 1])
    with pytest.raises(InputError, match="'random' have no layout: use 'scales' or 'patches'"):
        ContextRidgeClassifier("random")
    with pytest.raises(InputError, match="nothing is learned yet"):
        ContextRidgeClassifier().predict(X[:2])
