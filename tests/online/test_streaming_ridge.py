"""The closed form for one's own stream: order, cut, merge, forget, decay, novelty, files."""

import threading

import numpy as np
import pytest
from learner_streams import BAD
from scipy import sparse
from sklearn.datasets import load_digits

from minipw import InputError, datasets
from minipw.backend import memory
from minipw.online import OnlineClassifier, StreamingRidgeClassifier, load

X, Y = load_digits(return_X_y=True)
TRAIN, TEST = slice(1300), slice(1300, None)


def small(count=400, **settings):
    """A learner of digits class by class, and the rest of them."""
    learner = StreamingRidgeClassifier(**{"size": 60, "first": 100, **settings})
    return learner.partial_fit(X[:count], Y[:count])


def assert_same(a, b, x=X[TEST], tolerance=1e-6):
    """Equal predictions; scores relative to the largest, as the sums are of float32 products."""
    a, b = a.decision_function(x), b.decision_function(x)
    np.testing.assert_allclose(a, b, atol=tolerance * abs(b).max())


def test_order_and_cut_change_nothing_behind_the_first_samples():
    whole = small()
    rng = np.random.default_rng(0)
    for seed in range(3):
        order = np.concatenate([np.arange(100), 100 + rng.permutation(300)])
        learner = StreamingRidgeClassifier(size=60, first=100)
        for part in np.split(order, np.sort(rng.integers(0, 400, 9))):
            learner.partial_fit(X[part], Y[part])
            if seed == 2 and any(learner.counts):
                learner.predict(X[:2])  # whether somebody asks in between changes little
        tolerance = 1e-6 if seed < 2 else 0.02  # lam may be that of fewer samples
        order = np.argsort(learner.classes_)
        mine = learner.decision_function(X[TEST])[:, order]
        theirs = whole.decision_function(X[TEST])[:, np.argsort(whole.classes_)]
        np.testing.assert_allclose(mine, theirs, atol=tolerance * abs(theirs).max())
        assert (mine.argmax(1) == theirs.argmax(1)).mean() > 0.995


def test_digits_class_by_class_one_at_a_time():
    rng = np.random.default_rng(0)
    order = rng.permutation(len(Y))
    train, test = np.split(order, [1347])
    train = train[np.argsort(Y[train], kind="stable")]
    learner = StreamingRidgeClassifier()
    for n in train:
        learner.partial_fit(X[n : n + 1], Y[n : n + 1])
    assert learner.score(X[test], Y[test]) > 0.975  # 98.7 +- 0.1 over ten splits
    p = learner.predict_proba(X[test])
    numbers = np.array([learner.classes_.index(y) for y in Y[test]])
    sure = p.max(1)
    bins = np.minimum((15 * sure).astype(int), 14)
    gaps = np.bincount(bins, sure - (p.argmax(1) == numbers), 15)
    assert abs(gaps).sum() / len(test) < 0.03
    np.testing.assert_allclose(p.sum(1), 1)


def test_predictions_come_before_the_features_are_fixed():
    learner = StreamingRidgeClassifier(size=50, first=300)
    with pytest.raises(InputError, match="nothing is learned yet"):
        learner.predict(X[:1])
    right = []
    for n in range(299):
        if n:
            right.append(learner.predict(X[n : n + 1])[0] == Y[n])
        learner.partial_fit(X[n : n + 1], Y[n : n + 1])
    assert learner.waiting == 299 and learner.statistics is None
    assert np.mean(right) > 0.6 and np.mean(right[-100:]) > 0.75
    assert learner.partial_fit(X[299:300], Y[299:300]).waiting == 0
    assert_same(learner, StreamingRidgeClassifier(size=50, first=300).partial_fit(X[:300], Y[:300]))
    few = StreamingRidgeClassifier(size=50).partial_fit(X[:40], Y[:40])
    assert few.waiting == 40 and few.flush().waiting == 0 and few.lam > 0
    assert few.predict(X[:5]).shape == (5,)


def test_learners_that_saw_different_shards_merge():
    base = small(100)
    one, two = (StreamingRidgeClassifier(like=base) for _ in range(2))
    one.partial_fit(X[100:250], Y[100:250])
    two.partial_fit(X[250:400], Y[250:400])
    base.merge(two).merge(one)
    assert_same(base, small())
    assert base.counts == small().counts
    waiting = StreamingRidgeClassifier().partial_fit(X[400:450], Y[400:450])
    base.merge(waiting)  # its samples, as it has no features yet
    assert_same(base, small(450))
    empty = StreamingRidgeClassifier().merge(waiting)
    assert empty.waiting == 50


def test_classes_of_merged_learners_may_come_in_another_order():
    base = small(100, classes=[3, 1])
    other = StreamingRidgeClassifier(like=base, classes=[7])
    other.partial_fit(X[100:400], Y[100:400])
    base.merge(other)
    assert base.classes_[:2] == [3, 1]
    whole = small(classes=[3, 1])
    order = [base.classes_.index(label) for label in whole.classes_]
    np.testing.assert_allclose(
        base.decision_function(X[TEST])[:, order], whole.decision_function(X[TEST]), atol=1e-3
    )
    assert [base.counts[n] for n in order] == whole.counts


def test_samples_are_taken_out_as_if_they_had_never_come():
    learner = small()
    learner.partial_fit(X[400:500], Y[400:500]).forget(X[400:500], Y[400:500])
    assert_same(learner, small())
    assert learner.counts == small().counts
    waiting = StreamingRidgeClassifier(size=60, first=100).partial_fit(X[:90], Y[:90])
    waiting.forget(X[80:90], Y[80:90]).partial_fit(X[80:100], Y[80:100])
    waiting.partial_fit(X[100:400], Y[100:400])
    assert_same(waiting, small())


def test_what_was_not_learned_is_not_taken_out():
    learner = small()
    before = learner.decision_function(X[TEST])
    with pytest.raises(InputError, match=r"400 of 3 to forget: \d+ were learned"):
        learner.forget(X[:400], [3] * 400)
    with pytest.raises(InputError, match="1 of 77 to forget: 0 were learned"):
        learner.forget(X[:1], [77])
    waiting = StreamingRidgeClassifier().partial_fit(X[:90], Y[:90])
    with pytest.raises(InputError, match="sample 0 of 0 is not among those that wait"):
        waiting.forget(X[200:201] + 1, [0])
    assert waiting.waiting == 90 == sum(waiting.counts)
    np.testing.assert_array_equal(learner.decision_function(X[TEST]), before)


def test_decay_is_a_weight():
    learner = small(300).decay(0.25).partial_fit(X[300:400], Y[300:400])
    weights = np.where(np.arange(400) < 300, 0.25, 1.0)
    weighted = StreamingRidgeClassifier(size=60, first=100).partial_fit(X[:400], Y[:400], weights)
    assert_same(learner, weighted)
    repeated = StreamingRidgeClassifier(size=60, first=100).partial_fit(X[:100], Y[:100])
    twice = np.tile(np.arange(100, 400), 2)
    repeated.partial_fit(X[twice], Y[twice])
    doubled = StreamingRidgeClassifier(size=60, first=100)
    doubled.partial_fit(X[:400], Y[:400], np.where(np.arange(400) < 100, 1, 2))
    assert_same(doubled, repeated)
    for factor in (0, 1.5, -1, float("nan"), "x", None):
        with pytest.raises(InputError, match="use a factor above 0, at most 1"):
            learner.decay(factor)


@pytest.mark.parametrize("count", [90, 400])
def test_what_decays_to_nothing_was_never_there(count):
    learner = small(count)
    for _ in range(8):
        learner.decay(1e-20)
    with pytest.raises(InputError, match="nothing is learned yet"):
        learner.predict(X[:1])
    learner.partial_fit(X[:count], Y[:count])
    assert learner.score(X[:count], Y[:count]) > 0.9


def test_a_new_world_is_novel():
    learner = small()
    assert 0.5 < np.median(learner.novelty(X[400:600])) < 2
    rng = np.random.default_rng(0)
    permuted = learner.novelty(X[400:600][:, rng.permutation(64)])
    assert np.median(permuted) > 3 * np.median(learner.novelty(X[400:600]))
    assert learner.novelty(X[:0]).shape == (0,)


def test_a_rare_class_is_found():
    rng = np.random.default_rng(0)
    y = (rng.random(3000) < 0.01).astype(int)
    x = rng.standard_normal((3000, 5)) + 1.5 * y[:, None] / 5**0.5
    test = rng.standard_normal((2000, 5))
    test[:1000] += 1.5 / 5**0.5
    found = {}
    for weight in (None, "balanced"):
        p = StreamingRidgeClassifier(size=100, class_weight=weight).partial_fit(x, y).predict(test)
        found[weight] = p[:1000].mean(), p[1000:].mean()
    assert found["balanced"][0] > 0.6 and found["balanced"][1] < 0.35  # at best 0.77 and 0.23
    assert found[None][1] < 0.05


@pytest.mark.parametrize("samples", [0, 60, 400])
def test_a_saved_learner_goes_on(tmp_path, samples):
    path = tmp_path / "model.npz"
    learner = small(samples, classes=[4]) if samples else StreamingRidgeClassifier(size=60)
    if samples:
        learner.predict(X[:1])
    learner.save(path)
    loaded = load(path)
    assert loaded.settings == learner.settings and loaded.counts == learner.counts
    for n in range(400, 420):  # predictions in between let the weights follow
        for one in (learner, loaded):
            one.partial_fit(X[n : n + 1], Y[n : n + 1]).predict(X[:1])
        assert loaded.lam == pytest.approx(learner.lam, rel=1e-9)
    for one in (learner, loaded):
        one.partial_fit(X[420:500], Y[420:500])
    assert_same(loaded, learner, tolerance=1e-9)
    with pytest.raises(InputError, match="it is a ridge, not a network"):
        OnlineClassifier.load(path)
    OnlineClassifier("mlp-20-1").save(path)
    with pytest.raises(InputError, match="it is a network, not a ridge"):
        StreamingRidgeClassifier.load(path)
    assert type(load(path)) is OnlineClassifier


def test_a_saved_learner_of_many_features_predicts_as_before(tmp_path):
    """Its degrees of freedom are an estimate, and follow samples that came since."""
    learner = small(157, size=700)
    learner.predict(X[:1])
    learner.partial_fit(X[157:165], Y[157:165]).predict(X[:1])
    learner.save(tmp_path / "m.npz")
    assert_same(load(tmp_path / "m.npz"), learner, tolerance=1e-6)


def test_images_sparse_samples_and_missing_values():
    images = datasets.load("mnist-5k")
    x, y = images.x_train[:600], images.y_train[:600]
    flat, deep = (
        StreamingRidgeClassifier(size=360, first=200).partial_fit(part, y)
        for part in (x[..., 0], x)
    )
    assert flat.features.words == "scales-360"
    np.testing.assert_array_equal(
        flat.decision_function(x[:9, ..., 0]), deep.decision_function(x[:9])
    )
    assert deep.score(images.x_test, images.y_test) > 0.9
    rows = sparse.csr_array(X)
    dense = small()
    learner = StreamingRidgeClassifier(size=60, first=100).partial_fit(rows[:400], Y[:400])
    np.testing.assert_array_equal(learner.predict(rows[TEST]), dense.predict(X[TEST]))
    holes = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
    learner = StreamingRidgeClassifier(size=200, missing=True).partial_fit(holes[TRAIN], Y[TRAIN])
    assert learner.score(holes[TEST], Y[TEST]) > 0.85


def late(count=30, seed=0):
    """Samples of another unit in a column that was constant so far."""
    x = X[:count].copy()
    x[:, 0] = np.random.default_rng(seed).normal(0, 5e4, count)
    return x, Y[:count]


@pytest.mark.parametrize("kind", ["random", "identity"])
@pytest.mark.parametrize("count", [4, 30])
def test_samples_that_gave_a_column_its_scale_are_taken_out(tmp_path, kind, count):
    """The first ten of them counted as if it were constant."""
    learner, (x, y) = small(features=kind, size=60 if kind == "random" else None), late(count)
    before = learner.statistics.G.copy()
    learner.partial_fit(x, y).save(tmp_path / "m.npz")
    for one in (learner, load(tmp_path / "m.npz")):
        for rows in (slice(0, None, 2), slice(1, None, 2)):
            one.forget(x[rows], y[rows])
        after = np.tril(one.statistics.G)
        np.testing.assert_allclose(after, np.tril(before), atol=1e-9 * before.max())
        assert one.counts == small().counts


def test_such_samples_are_known_when_merged_and_when_features_were_added():
    learner, (x, y) = small(), late()
    before = learner.statistics.G.copy()
    learner.partial_fit(x, y)
    learner.merge(learner)
    learner.add_features(1)
    wide = np.concatenate([x, np.zeros((len(x), 1))], axis=1)
    learner.forget(wide, y).forget(wide[::-1], y[::-1])
    np.testing.assert_allclose(
        np.tril(learner.statistics.G), 2 * np.tril(before), atol=1e-9 * before.max()
    )


def test_like_takes_all_but_the_class_weight():
    base = small(missing=True)
    two = StreamingRidgeClassifier(like=base, class_weight="balanced", missing=True, first=100)
    assert two.settings == {**base.settings, "class_weight": "balanced"}
    for setting in ({"seed": 7}, {"first": 5}, {"size": 61}):
        with pytest.raises(InputError, match=r"is that of `like`, \d+: leave it out"):
            StreamingRidgeClassifier(like=base, **setting)


@pytest.mark.parametrize("missing", [False, True])
def test_features_added_while_samples_wait_have_the_mean_in_them(missing):
    learner = StreamingRidgeClassifier(size=60, first=100, missing=missing)
    learner.partial_fit(X[:50, :63], Y[:50]).add_features(1)
    x = X[50:100].copy()
    x[:, 63] = 10 + np.arange(50) % 7
    learner.forget(np.concatenate([X[:10, :63], [[np.nan if missing else 3]] * 10], 1), Y[:10])
    learner.partial_fit(x, Y[50:100]).flush()
    scale = learner.features.standardizer
    assert scale.origin[63] + scale.mean[63] * scale.unit[63] == pytest.approx(x[:, 63].mean())
    assert np.isfinite(learner.decision_function(X)).all()


def test_features_added_may_have_been_zero():
    learner = StreamingRidgeClassifier(size=60, first=100).partial_fit(X[:50, :63], Y[:50])
    learner.add_features(1, earlier=0.0)
    rest = np.concatenate([X[:50, :63], np.zeros((50, 1))], 1)
    whole = StreamingRidgeClassifier(size=60, first=100).partial_fit(rest, Y[:50])
    for one in (learner, whole):
        one.partial_fit(X[50:150], Y[50:150])
    assert_same(learner, whole, tolerance=0)
    with pytest.raises(InputError, match="earlier is '0': use a number"):
        learner.add_features(1, earlier="0")


def test_a_class_that_comes_during_a_prediction():
    learner = small()
    logits = learner.decision_function(X[:3])
    learner.decision_function = lambda x: learner.add_classes([77]) or logits
    assert learner.predict(X[:3]).tolist() == small().predict(X[:3]).tolist()


def test_bad_values_far_off_spoil_nothing():
    for value in (9999, -999999, 1e12):
        for row in (0, 5, 1200):
            x = X.copy()
            x[row] = value
            learner = StreamingRidgeClassifier(size=300).partial_fit(x[TRAIN], Y[TRAIN])
            assert learner.score(X[TEST], Y[TEST]) > 0.9, (value, row)


def test_random_features_take_more_inputs():
    learner, whole = small(), small()
    learner.add_features(2)
    wide = np.concatenate([X, np.zeros((len(X), 2))], axis=1)
    np.testing.assert_allclose(learner.decision_function(wide), whole.decision_function(X))
    wide[:, 64] = np.arange(len(X)) % 2
    learner.partial_fit(wide, Y)
    assert learner.input_shape == (66,)
    with pytest.raises(InputError, match="use random features"):
        StreamingRidgeClassifier("identity").partial_fit(X, Y).add_features(1)


def test_threads_learn_and_predict_at_once():
    learner, faults = small(100), []

    def call(part):
        try:
            for n in part:
                learner.partial_fit(X[n : n + 1], Y[n : n + 1])
                assert len(learner.predict(X[:2])) == 2
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=call, args=(range(100 + k, 160, 3),)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults and sum(learner.counts) == 160
    learner.partial_fit(X[160:400], Y[160:400])
    learner._solved = None
    assert_same(learner, small())


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_one_line_and_learns_nothing(message):
    x, y = BAD[message]
    learner = StreamingRidgeClassifier()
    with pytest.raises(InputError, match=message) as error:
        learner.partial_fit(x, y)
    assert "\n" not in str(error.value) and not any(learner.counts)


def test_features_that_cannot_be_are_refused_at_once(monkeypatch):
    with pytest.raises(InputError, match=r"channels come last"):
        StreamingRidgeClassifier().partial_fit(np.zeros((2, 3, 32, 32)), [0, 1])
    with pytest.raises(InputError, match=r"images of 5 by 4 pixels: patches of 3 on a grid of 3"):
        StreamingRidgeClassifier("patches").partial_fit(np.zeros((2, 5, 4)), [0, 1])
    with pytest.raises(InputError, match=r"patches need images"):
        StreamingRidgeClassifier("patches").partial_fit(X[:2], Y[:2])
    with pytest.raises(InputError, match="features is 'best': use auto, random"):
        StreamingRidgeClassifier("best")
    monkeypatch.setattr(memory, "available_memory", lambda: 1 << 30)
    learner = StreamingRidgeClassifier(size=8000)
    with pytest.raises(InputError, match=r"not enough memory.*8,000 features"):
        learner.partial_fit(X[:2], Y[:2])


def test_learners_that_do_not_fit_do_not_merge():
    base = small()
    with pytest.raises(InputError, match="learners of other features do not merge"):
        base.merge(small(seed=1))
    with pytest.raises(InputError, match="this learner has no features yet"):
        StreamingRidgeClassifier().merge(base)
    with pytest.raises(InputError, match=r"shapes \(64,\) and \(9,\) do not merge"):
        base.merge(StreamingRidgeClassifier().partial_fit(X[:5, :9], Y[:5]))
    with pytest.raises(InputError, match="OnlineClassifier does not merge"):
        base.merge(OnlineClassifier("mlp-20-1"))
    with pytest.raises(InputError, match="missing=True, the other has not"):
        base.merge(StreamingRidgeClassifier(missing=True).partial_fit(X[:5], Y[:5]))
    with pytest.raises(InputError, match="`like` is of type int: use a StreamingRidge"):
        StreamingRidgeClassifier(like=3)
    with pytest.raises(InputError, match="size is 5, but identity takes the inputs"):
        StreamingRidgeClassifier("identity", 5).partial_fit(X[:5], Y[:5])
    with pytest.raises(InputError, match="sample_weight has 1e\\+300: use 1e\\+100 at most"):
        base.partial_fit(X[:2], Y[:2], [1e300, 1])
    with pytest.raises(InputError, match="`like` has no features yet, 5 of its 1000"):
        StreamingRidgeClassifier(like=StreamingRidgeClassifier().partial_fit(X[:5], Y[:5]))
    with pytest.raises(InputError, match="features is that of `like`, 'auto': leave it out"):
        StreamingRidgeClassifier("random", like=base)
    assert_same(base, small(), tolerance=0)
    base.forget(X[400:700], Y[400:700])  # nobody kept what was learned: it cannot be known
    with pytest.raises(InputError, match="samples were taken out that never came"):
        base.predict(X[:1])
