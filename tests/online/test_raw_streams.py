"""Streams as they come: few features, rare classes, drift, sparse rows, many classes, threads."""

import copy
import math
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from minipw import InputError
from minipw.online import (
    ContextRidgeClassifier,
    DriftingRidgeClassifier,
    OnlineClassifier,
    StreamingRidgeClassifier,
    load,
    step,
)

OLD_MODEL = Path(__file__).parents[1] / "golden" / "model-of-version-1.npz"


def halves(x, y, **settings):
    """Accuracy on the second half of a learner of the first."""
    half = len(x) // 2
    learner = OnlineClassifier(seed=0, **settings).partial_fit(x[:half], y[:half])
    return learner.score(x[half:], y[half:])


# Few features: a threshold needs a constant input, or k-WTA takes the scale away.


@pytest.mark.parametrize("threshold", [1.0, 5.0, 8.0])
@pytest.mark.parametrize(("low", "high"), [(0, 10), (-1e6, 1e6), (1e-3, 2e-3)])
def test_a_threshold_of_one_feature(rng, low, high, threshold):
    x = rng.uniform(low, high, (3000, 1))
    y = x[:, 0] > low + (high - low) * threshold / 10
    assert halves(x, y.tolist()) > 0.97


def test_a_band_two_rings_and_two_spreads(rng):
    x = rng.uniform(-3, 3, (3000, 1))
    assert halves(x, (abs(x[:, 0]) < 1).tolist()) > 0.96
    y = rng.integers(0, 2, 3000)
    angle, radius = rng.uniform(0, 2 * np.pi, 3000), 1 + y + 0.1 * rng.standard_normal(3000)
    rings = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
    assert halves(rings, y) > 0.98
    spreads = rng.standard_normal((3000, 2)) * np.where(y, 3, 0.5)[:, None]
    assert halves(spreads, y) > 0.9  # the best possible is 0.945


def test_without_the_constant_input_a_threshold_is_not_learned(rng):
    """What the constant input is for: the test above would see that it is missing."""
    x = rng.uniform(0, 10, (2000, 1))
    assert halves(x, (x[:, 0] > 8).tolist(), bias=False) < 0.85


# Bad values


@pytest.mark.parametrize("bad", [9999.0, -999999.0, 1e6, 1e12])
def test_a_bad_value_costs_nothing(rng, bad):
    y = np.arange(2000) % 3
    x = rng.standard_normal((2000, 4)) + 3 * np.eye(4)[y]
    clean = halves(x, y)
    for row in (0, 5, 500):
        spoiled = x.copy()
        spoiled[row, 1] = bad
        assert halves(spoiled, y) > clean - 0.02
    assert clean > 0.9


# Weights, rare classes, drift


def test_a_rare_class_is_found(rng):
    y = (rng.random(6000) < 0.01).astype(int)
    x = rng.standard_normal((6000, 5)) + 1.5 * y[:, None]
    recalls = {}
    for weight in (None, "balanced"):
        learner = OnlineClassifier(seed=0, class_weight=weight).partial_fit(x[:4000], y[:4000])
        rare = y[4000:] == 1
        recalls[weight] = (learner.predict(x[4000:])[rare] == 1).mean()
    assert recalls["balanced"] > 0.8 and recalls["balanced"] > recalls[None] + 0.1


WRONG = (
    np.ones(60) * 1j,
    ["1"] * 60,
    [np.timedelta64(1, "s")] * 60,
    np.ma.array(np.ones(60), mask=np.arange(60) == 7),
)


def test_sample_weights(rng):
    x, y = rng.standard_normal((60, 3)), np.arange(60) % 2
    plain = OnlineClassifier("mlp-20-1", batch_size=4).partial_fit(x, y)
    ones = OnlineClassifier("mlp-20-1", batch_size=4).partial_fit(x, y, np.ones(60))
    np.testing.assert_array_equal(plain.decision_function(x), ones.decision_function(x))
    weights = np.where(np.arange(60) % 3 == 0, 0.0, 1.0)
    kept = weights > 0
    some = OnlineClassifier("mlp-20-1", batch_size=4).partial_fit(x, y, weights)
    alone = OnlineClassifier("mlp-20-1", batch_size=4).partial_fit(x[kept], y[kept])
    np.testing.assert_array_equal(some.decision_function(x), alone.decision_function(x))
    for wrong in ([1.0], -np.ones(60), np.full(60, np.nan), ["a"] * 60, *WRONG):
        with pytest.raises(InputError, match="sample_weight"):
            plain.partial_fit(x, y, wrong)


def test_a_weight_is_a_factor_of_the_gradient(rng):
    """By hand, with SGD: the step of a sample of weight 3 is three times that of weight 1."""
    x = rng.standard_normal((40, 3))
    learner = OnlineClassifier("mlp-20-1", head="fc", rule="sgd", learning_rate=0.01)
    learner.partial_fit(x, np.arange(40) % 2)
    steps = []
    for weight in (1.0, 3.0):
        one = copy.deepcopy(learner)
        before = one.network.parameters["head"].copy()
        one.partial_fit(x[:1], [1], [weight])
        steps.append(one.network.parameters["head"] - before)
    np.testing.assert_allclose(steps[1], 3 * steps[0], rtol=1e-4, atol=1e-7)  # float32


def test_half_life_follows_a_new_world(rng):
    y = np.arange(5000) % 4
    x = rng.standard_normal((5000, 6)) + 2.5 * np.eye(6)[y]
    y[4000:] = (y[4000:] + 1) % 4  # the world turns
    accuracy = {}
    for half_life in (None, 200):
        learner = OnlineClassifier(seed=0, half_life=half_life).partial_fit(x[:4200], y[:4200])
        accuracy[half_life] = learner.score(x[4200:], y[4200:])
    assert accuracy[200] > accuracy[None] + 0.15  # 0.49 and 0.20 when this was written


def test_importance_decays_as_it_says(rng):
    """Against Algorithm 1 with Omega <- 2^(-1 / half-life) Omega + lambda u in each step."""
    x, y = rng.standard_normal((40, 3)), np.arange(40) % 2
    settings = {"head": "fc", "half_life": 8, "importance_lambda": 100.0, "learning_rate": 0.01}
    learner = OnlineClassifier("mlp-20-1", seed=0, **settings).partial_fit(x[:3], y[:3])
    theta = learner.network.parameters["head"].astype(np.float64)
    factor = 2.0 ** (-learner.age / 8)
    omega = factor * learner.importance["head"].astype(np.float64)
    for n in range(3, 40):
        before = copy.deepcopy(learner)
        learner.partial_fit(x[n : n + 1], y[n : n + 1])
        before.standardizer = learner.standardizer
        inputs = step.network_inputs(before, x[n : n + 1])
        _, _, gradients = before.network.loss_gradients(inputs, y[n : n + 1], before.rule)
        g = gradients["head"].astype(np.float64)
        omega += 100.0 * g**2
        theta -= 0.01 * g / np.sqrt(omega + 1e-6)
        omega *= 2 ** (-1 / 8)
        # The 1e-6 of the rule does not decay, which is felt where importance is small.
        np.testing.assert_allclose(learner.network.parameters["head"], theta, atol=2e-3)
        stored = 2.0 ** (-learner.age / 8) * learner.importance["head"]
        np.testing.assert_allclose(stored, omega, rtol=1e-3, atol=1e-6)
        theta = learner.network.parameters["head"].astype(np.float64)


# Sparse rows


@pytest.mark.parametrize(
    "form", ["csr_matrix", "csr_array", "csc_array", "coo_matrix", "lil_array"]
)
def test_sparse_rows_of_any_form(rng, form):
    x = np.where(rng.random((300, 50)) < 0.1, rng.random((300, 50)), 0.0)
    y = (x[:, :5].sum(1) > 0.3).astype(int)
    learners = [OnlineClassifier("mlp-100-1", seed=0) for _ in range(2)]
    learners[0].partial_fit(getattr(sparse, form)(x), y)
    learners[1].partial_fit(sparse.csr_matrix(x), y)
    np.testing.assert_array_equal(*(learner.decision_function(x) for learner in learners))
    whole = learners[0].decision_function(getattr(sparse, form)(x[:7]))
    np.testing.assert_allclose(whole, learners[0].decision_function(x[:7]), rtol=1e-5, atol=1e-6)


def test_the_inputs_that_are_zero_change_nothing(rng, monkeypatch):
    """The first layer cut down to the inputs in use, against the whole one."""
    x = np.where(rng.random((200, 80)) < 0.05, 1 + rng.random((200, 80)), 0.0)
    y = (x[:, :9].sum(1) > 0).astype(int)
    results = []
    for share in (0.5, -1.0):
        monkeypatch.setattr("minipw.online.step.FEW_INPUTS", share)
        learner = OnlineClassifier("mlp-60-1", seed=0).partial_fit(sparse.csr_matrix(x), y)
        results.append(learner.decision_function(sparse.csr_matrix(x)))
    # The same sums of float32 in another order, over 200 steps.
    np.testing.assert_allclose(*results, rtol=2e-3, atol=2e-3)


def test_twenty_thousand_features_of_text(rng):
    """Two topics of their own words among many common ones."""
    features, count = 20_000, 600
    y = rng.integers(0, 2, count)
    rows, columns = [], []
    for n in range(count):
        topic = rng.integers(0, 200, 12) + 300 * y[n]
        common = rng.integers(1000, features, 60)
        columns.extend((*topic, *common))
        rows.extend([n] * 72)
    x = sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), (count, features))
    began = time.perf_counter()
    learner = OnlineClassifier(seed=0).partial_fit(x[:400], y[:400])
    assert learner.score(x[400:], y[400:]) > 0.95
    assert time.perf_counter() - began < 20  # 2 s when idle; whole layers would take minutes


# Many classes


def test_a_new_class_costs_the_same_at_any_time():
    """A head is copied for every sixteenth class, not for each."""
    x = np.random.default_rng(0).standard_normal((320, 20))
    learner, heads = OnlineClassifier("mlp-40-1", seed=0, head="fc"), set()
    for n, row in enumerate(x):
        learner.partial_fit(row[None], [n])
        heads.add(learner.network.architecture.classes)
    assert len(learner.classes_) == 320 and len(heads) < 16 + 16 * math.log(320 / 16) + 5
    assert max(heads) < 320 * 17 / 16 + 12


def test_a_dense_head_keeps_a_thousand_classes():
    rng = np.random.default_rng(0)
    means, y = 3 * rng.standard_normal((400, 50)), np.repeat(np.arange(400), 5)
    learner = OnlineClassifier(head="fc", seed=0)
    learner.partial_fit(means[y] + rng.standard_normal((2000, 50)), y)
    test = np.arange(400)
    assert learner.score(means[test] + rng.standard_normal((400, 50)), test) > 0.9


# Threads, copies, files


def test_predictions_beside_a_thread_that_learns(rng):
    x, y = rng.standard_normal((1500, 6)), np.arange(1500)
    learner = OnlineClassifier("mlp-60-1", seed=0).partial_fit(x[:5], y[:5])
    thread = threading.Thread(target=lambda: learner.partial_fit(x[5:400], y[5:400]))
    thread.start()
    sizes = set()
    while thread.is_alive():
        logits = learner.decision_function(x[:20])
        assert np.isfinite(logits).all()
        sizes.add(logits.shape[1])
    thread.join()
    assert len(sizes) > 1  # classes came while it predicted
    alone = OnlineClassifier("mlp-60-1", seed=0).partial_fit(x[:5], y[:5])
    alone.partial_fit(x[5:400], y[5:400])
    np.testing.assert_array_equal(learner.decision_function(x), alone.decision_function(x))


def test_threads_that_learn_at_once_lose_nothing(rng):
    x = rng.standard_normal((400, 4))
    learner = OnlineClassifier("mlp-20-1", batch_size=16, seed=0)
    threads = [
        threading.Thread(target=learner.partial_fit, args=(x[n : n + 50], [n // 50 % 2] * 50))
        for n in range(0, 400, 50)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert learner.samples + learner.waiting == 400


def test_a_copy_goes_on_by_itself(rng):
    x, y = rng.standard_normal((40, 4)), np.arange(40) % 2
    learner = OnlineClassifier("mlp-20-1", seed=0).partial_fit(x, y)
    before, other = learner.decision_function(x), copy.deepcopy(learner)
    other.partial_fit(x, y)
    np.testing.assert_array_equal(learner.decision_function(x), before)


def test_a_memory_map_that_cannot_be_written_goes_on(rng, tmp_path):
    joblib = pytest.importorskip("joblib", reason="joblib comes with scikit-learn")
    x, y = rng.standard_normal((40, 4)), np.arange(40) % 2
    learner = OnlineClassifier("mlp-20-1", seed=0).partial_fit(x, y)
    joblib.dump(learner, tmp_path / "m.joblib")
    opened = joblib.load(tmp_path / "m.joblib", mmap_mode="r")
    for one in (learner, opened):
        one.partial_fit(x, y)
    np.testing.assert_array_equal(learner.decision_function(x), opened.decision_function(x))


def test_a_model_of_version_1_goes_on():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    x = rng.standard_normal((60, 4)) + 2 * np.eye(4)[y]
    learner = OnlineClassifier.load(OLD_MODEL)
    # As the version that wrote it computed them, to the float32 that it printed.
    expected = [
        [0.01277331, -0.01125708, -0.01319078],
        [-0.01322283, 0.01253326, -0.0015956],
        [-0.001347579, -0.001166276, 0.001706687],
    ]
    np.testing.assert_allclose(learner.decision_function(x[:3]), expected, rtol=1e-5)
    learner.partial_fit(x[44:], [f"c{k}" for k in y[44:]])
    assert learner.samples == 56 and learner.waiting == 4 and learner.settings["bias"] is False


@pytest.mark.parametrize(
    "settings", [{}, {"half_life": 100, "class_weight": "balanced"}, {"head": "fc"}]
)
def test_a_saved_learner_goes_on_bit_for_bit(rng, tmp_path, settings):
    x, y = rng.standard_normal((300, 4)), np.arange(300) % 40
    for form in (np.asarray, sparse.csr_matrix):
        one = OnlineClassifier("mlp-30-1", batch_size=8, **settings)
        one.partial_fit(form(x[:150]), y[:150], rng.random(150))
        one.save(tmp_path / "m.npz")
        other = OnlineClassifier.load(tmp_path / "m.npz")
        for learner in (one, other):
            learner.partial_fit(form(x[150:]), y[150:])
        np.testing.assert_array_equal(one.decision_function(x), other.decision_function(x))
        assert (one.counts, one.age) == (other.counts, other.age)


def test_weights_that_cannot_learn_any_more_are_named_once(rng):
    x, y = 1e12 * rng.standard_normal((300, 5)), np.arange(300) % 2
    learner = OnlineClassifier("mlp-40-1", running_standardize=False)
    with pytest.warns(RuntimeWarning, match=r"infinite importance and is frozen \(scale") as caught:
        learner.partial_fit(x, y)
    assert len(caught) < 10  # of 300 steps
    assert OnlineClassifier("mlp-40-1").partial_fit(x, y).samples == 300


def test_classes_may_be_announced_with_samples(rng):
    x, y = rng.standard_normal((20, 3)), np.arange(20) % 2
    learner = OnlineClassifier("mlp-20-1", seed=0).partial_fit(x, y, classes=[1, 0, 2])
    assert learner.classes_ == [1, 0, 2] and learner.partial_fit(x, y).classes_ == [1, 0, 2]


@pytest.mark.parametrize("kind", [StreamingRidgeClassifier, DriftingRidgeClassifier])
@pytest.mark.parametrize(("scale", "others"), [(1e-3, 100.0), (1e4, 1.0), (1.0, 1e4), (1.0, 1.0)])
def test_a_feature_that_begins_to_vary_late_gets_its_own_scale(kind, scale, others, tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=2500)
    x = np.column_stack([others * rng.standard_normal((2500, 3)), np.zeros(2500)])
    x[1000:, 3] = scale * (rng.standard_normal(1500) + 3 * y[1000:])
    whole = kind().partial_fit(x[:2000], y[:2000])
    assert whole.score(x[2000:], y[2000:]) > 0.85  # 0.5 with the scale of the others
    cut = kind()
    for part in np.split(np.arange(2000), [300, 1001, 1004, 1013, 1500]):
        cut.partial_fit(x[part], y[part])
        cut.save(tmp_path / "model.npz")
        cut = load(tmp_path / "model.npz")
    np.testing.assert_allclose(
        cut.decision_function(x[2000:]), whole.decision_function(x[2000:]), atol=1e-4
    )


def test_learners_that_share_features_keep_them():
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.standard_normal((1200, 3)), np.zeros(1200)])
    x[600:, 3] = 1e6 * rng.standard_normal(600)
    y = rng.integers(2, size=1200)
    one = StreamingRidgeClassifier(size=30, first=100).partial_fit(x[:200], y[:200])
    two = StreamingRidgeClassifier(like=one).partial_fit(x[700:], y[700:])
    one.partial_fit(x[200:700], y[200:700]).merge(two)
    again = StreamingRidgeClassifier(size=30, first=100).partial_fit(x[:200], y[:200])
    StreamingRidgeClassifier(like=again)
    again.partial_fit(x[200:], y[200:])
    np.testing.assert_allclose(one.decision_function(x), again.decision_function(x), atol=1e-5)


@pytest.mark.parametrize("kind", [StreamingRidgeClassifier, DriftingRidgeClassifier])
def test_a_loaded_learner_takes_features_as_the_saved_one(kind, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1400, 3)) * [1, 1, 1e5]
    y = (x[:, 2] > 0).astype(int)
    learner = kind(size=30).partial_fit(x[:1100, :2], y[:1100])
    learner.save(tmp_path / "model.npz")
    other = load(tmp_path / "model.npz")
    for one in (learner, other):
        one.add_features(1)
        one.partial_fit(x[1100:], y[1100:])
    ours, theirs = (one.decision_function(x) for one in (other, learner))
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)  # sums in another order


def test_copies_of_a_learner_with_a_constant_feature_merge():
    x = np.column_stack([np.random.default_rng(0).standard_normal((200, 2)), np.zeros(200)])
    one = StreamingRidgeClassifier(size=20, first=100).partial_fit(x, [0, 1] * 100)
    two = copy.deepcopy(one)
    assert one.merge(two).counts == [200, 200]


def test_images_and_rows_of_no_weight_are_left_out():
    images = np.random.default_rng(0).random((3, 8, 8))
    learner = ContextRidgeClassifier().partial_fit(images, [0, 1, 0])
    learner.partial_fit(images[:1], [0], [0.0]).forget(images[:1], [0], [0.0])
    assert learner.counts == [2, 1]


def test_a_short_half_life_ends():
    x = np.random.default_rng(0).random((20, 3))
    learner = OnlineClassifier(backbone="mlp-30-1", half_life=1e-17).partial_fit(x, [0, 1] * 10)
    assert np.isfinite(learner.decision_function(x)).all()


def test_features_of_uniform_images_are_warned_of():
    images = np.concatenate([np.full((10, 8, 8), 7.0), np.random.default_rng(0).random((10, 8, 8))])
    with pytest.warns(UserWarning, match="first images, 10, are all uniform"):
        StreamingRidgeClassifier(size=36, first=10).partial_fit(images, [0, 1] * 10)
