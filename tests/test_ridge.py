"""The closed form: sums that add, weights that solve them, lam, probabilities."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from scipy.stats import multivariate_t
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.preprocessing import StandardScaler

from minipw import InputError, datasets, ridge
from minipw.backend.threads import THREADS
from minipw.nn.patches import patch_features
from minipw.nn.random_features import random_features
from minipw.ridge import Statistics, solve


def samples(count=60, features=7, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, count)
    z = rng.standard_normal((count, features)) + rng.standard_normal((classes, features))[labels]
    return z, labels


def probabilities(solution, z):
    return softmax(solution.scores(z), axis=1)


def standardized(x, first):
    return StandardScaler().fit(x[first]).transform(x).clip(-3, 3)


def learned(z, labels, classes=3, weights=None):
    statistics = Statistics.empty(z.shape[1], classes)
    statistics.add(z, labels, weights)
    return statistics


def assert_same(a, b, lam=None):
    a, b = solve(a, lam), solve(b, lam)
    scale = abs(b.W).max()
    np.testing.assert_allclose(a.W, b.W, rtol=1e-6, atol=1e-6 * scale)
    np.testing.assert_allclose(a.offset, b.offset, rtol=1e-6, atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.lists(st.integers(0, 60), max_size=5), st.booleans())
def test_order_cut_and_merge_change_nothing(seed, cuts, merged):
    z, labels = samples(seed=seed)
    order = np.random.default_rng(seed).permutation(len(z))
    total = Statistics.empty(7, 3)
    for part in np.split(order, sorted(cuts)):
        if merged:
            total.merge(learned(z[part], labels[part]))
        else:
            total.add(z[part], labels[part])
    assert_same(total, learned(z, labels))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.integers(0, 40))
def test_samples_taken_out_were_never_there(seed, taken):
    z, labels = samples(seed=seed)
    statistics = learned(z, labels)
    statistics.subtract(z[:taken], labels[:taken])
    assert_same(statistics, learned(z[taken:], labels[taken:]))


def test_single_samples_are_a_batch():
    z, labels = samples(features=300)
    single = Statistics.empty(300, 3)
    for n in range(len(z)):
        single.add(z[n : n + 1], labels[n : n + 1])
    assert_same(single, learned(z, labels))


@pytest.mark.parametrize("copied", [lambda s: pickle.loads(pickle.dumps(s)), copy.deepcopy])
def test_samples_that_wait_for_others_are_in_the_sums_and_in_copies(copied):
    z, labels = samples()
    statistics, given = learned(z[:40], labels[:40]), z.copy()
    statistics.add(given[40:], labels[40:])
    given[:] = np.nan  # the caller's array is free again
    assert statistics._held and len(z) < ridge.HELD
    assert_same(copied(statistics), learned(z, labels))
    waiting = statistics._G.copy()
    solve(statistics)  # somebody who reads changes nothing
    np.testing.assert_array_equal(statistics._G, waiting)
    statistics.subtract(z[:10], labels[:10])
    statistics.decay(0.5)
    assert_same(statistics, learned(z[10:], labels[10:], weights=np.full(len(z) - 10, 0.5)))
    statistics.add(np.tile(z, (5, 1)), np.tile(labels, 5))
    statistics.add(z[:0], labels[:0])
    assert not statistics._held
    weights = np.repeat([0.0, 0.5, 1.0], [10, len(z) - 10, 5 * len(z)])
    assert_same(statistics, learned(np.tile(z, (6, 1)), np.tile(labels, 6), weights=weights))


def test_weights_are_repeats_and_decay_is_a_weight():
    z, labels = samples()
    repeats = np.arange(len(z)) % 4
    whole = learned(np.repeat(z, repeats, 0), np.repeat(labels, repeats))
    assert_same(learned(z, labels, weights=repeats), whole)
    old = learned(z[:30], labels[:30])
    old.decay(0.25)
    old.add(z[30:], labels[30:])
    weights = np.where(np.arange(60) < 30, 0.25, 1.0)
    assert_same(old, learned(z, labels, weights=weights))


def test_a_new_class_is_a_new_column():
    z, labels = samples()
    order = np.argsort(labels, kind="stable")
    z, labels = z[order], labels[order]
    late = labels == 2
    grown = learned(z[~late], labels[~late], 2)
    grown.add_classes(1)
    grown.add(z[late], labels[late])
    assert_same(grown, learned(z, labels))
    grown.add_classes(2)  # nothing seen of these: they are never predicted
    p = probabilities(solve(grown), z)
    assert p.shape == (60, 5) and (p[:, 3:] == 0).all()
    np.testing.assert_allclose(p[:, :3], probabilities(solve(learned(z, labels)), z), atol=1e-9)


def test_threads_and_stripes_are_the_plain_sum():
    z, labels = samples(5000, 600)
    z = z.astype(np.float32)
    with THREADS.use(2):
        statistics = learned(z, labels)
    exact = z.astype(float).T @ z
    lower = np.tril_indices(600)
    # float32 products of 4,096 rows: relative 1e-6 of the largest sum
    np.testing.assert_allclose(statistics.G[lower], exact[lower], atol=1e-6 * exact.max())
    np.testing.assert_array_equal(statistics.counts, np.bincount(labels))


def test_the_gradient_of_the_objective_is_zero():
    z, labels = samples()
    weights = np.random.default_rng(1).uniform(0.5, 2, 60)
    lam, h = 3.0, 1e-5
    solution = solve(learned(z, labels, weights=weights), lam)
    y = np.eye(3)[labels]

    def objective(W, offset):
        residual = y - z @ W - offset
        return (weights[:, None] * residual**2).sum() + lam * (W**2).sum()

    rng = np.random.default_rng(2)
    for _ in range(10):
        dW, db = rng.standard_normal((7, 3)), rng.standard_normal(3)
        ends = [objective(solution.W + e * dW, solution.offset + e * db) for e in (h, -h)]
        # slope times h; a W off by 1.001 gives 1e-2 and more
        assert abs(ends[0] - ends[1]) / (2 * h) < 1e-6


def test_the_weights_are_those_of_scikit_learn():
    x, y = load_digits(return_X_y=True)
    x = standardized(x, slice(None))
    z = random_features(x, 200, np.random.default_rng(0))(x).astype(float)
    solution = solve(learned(z, y, 10), 20.0)
    theirs = Ridge(alpha=20.0).fit(z, np.eye(10)[y])
    np.testing.assert_allclose(solution.W, theirs.coef_.T, atol=1e-8)
    np.testing.assert_allclose(solution.offset, theirs.intercept_, atol=1e-8)
    same = solution.logits(z).argmax(1) == RidgeClassifier(alpha=20.0).fit(z, y).predict(z)
    assert same.all()


def mnist(return_X_y=True):
    """The bundled images, as the loaders of scikit-learn give theirs."""
    data = datasets.load("mnist-5k")
    return data.x_train.reshape(len(data.x_train), -1)[:2000].astype(float), data.y_train[:2000]


def trial(z, y, test_z, test_y):
    """Accuracy in per cent with lam chosen, with the values of a grid, and the solution."""
    statistics = learned(z, y, y.max() + 1)
    s = statistics.M.sum(1)
    unit = (np.trace(statistics.G) - s @ s / len(z)) / len(s)
    chosen = solve(statistics)

    def accuracy(solution):
        return 100 * (solution.logits(test_z).argmax(1) == test_y).mean()

    step = 0.5 if len(s) < 1000 else 1  # decades
    grid = [accuracy(solve(statistics, unit * 10.0**d)) for d in np.arange(-5, 1.1, step)]
    return accuracy(chosen), grid, chosen


@pytest.mark.parametrize(
    ("load", "features", "allowed"),
    [
        (load_digits, 100, 0.3),
        (load_digits, 500, 0.3),
        (load_wine, 100, 1),
        (load_wine, 300, 1),
        (load_breast_cancer, 100, 1),
        (load_breast_cancer, 300, 1),
        (load_iris, 50, 2),
        (load_iris, 200, 2),
        (mnist, 300, 0.3),
        *(
            pytest.param(load, features, allowed, marks=pytest.mark.slow)
            for load, features, allowed in (
                (load_digits, 1500, 0.3),
                (load_digits, 3000, 0.3),
                (load_wine, 3000, 1),
                (load_breast_cancer, 3000, 1),
                (load_iris, 3000, 2),
                (mnist, 3000, 0.3),
            )
        ),
    ],
)
def test_lam_is_near_the_best_of_a_grid(load, features, allowed):
    x, y = load(return_X_y=True)
    results = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(y))
        train, test = np.split(order, [3 * len(y) // 4])
        scaled = standardized(x, train)
        z = random_features(scaled[train], features, rng)
        results.append(trial(z(scaled[train]), y[train], z(scaled[test]), y[test])[:2])
    chosen, grid = (np.mean(part, 0) for part in zip(*results, strict=True))
    assert chosen >= grid.max() - allowed, (chosen, grid)


def calibration_error(p, labels, bins=15):
    """Expected calibration error of the most probable class."""
    sure, right = p.max(1), p.argmax(1) == labels
    place = np.minimum((sure * bins).astype(int), bins - 1)
    gaps = np.bincount(place, sure - right, bins)
    return abs(gaps).sum() / len(p)


def test_digits_from_images_and_what_the_probabilities_mean():
    data = datasets.load("mnist-5k")
    first = data.x_train[data.y_train < 2][:500]
    z = patch_features(first, 40, np.random.default_rng(0), sizes=(8,), grid=3)
    test = z(data.x_test)
    chosen, grid, solution = trial(z(data.x_train), data.y_train, test, data.y_test)
    assert chosen >= max(grid) - 0.3 and chosen > 96
    p = probabilities(solution, test)
    assert calibration_error(p, data.y_test) < 0.03
    assert 100 * (p.argmax(1) == data.y_test).mean() >= chosen - 0.3


def test_scores_are_the_densities_of_the_docstring():
    """Against SciPy's t of the outputs, which sum to 1: the last one is left out."""
    z, labels = samples(300)
    solution = solve(learned(z, labels))
    outputs, y, N = solution.logits(z), np.eye(3)[labels], len(z)
    share, h = y.mean(0), (solution.freedom - 1) / N
    centred = outputs - share
    within = (
        sum(np.cov(outputs[labels == c].T, ddof=0) * (labels == c).sum() for c in range(3))
        + centred.T @ centred / N
    )
    shape = within / (N * (1 - h) ** 2)
    expected = []
    for c in range(3):
        mean = (centred[labels == c].mean(0) - h * (np.eye(3)[c] - share)) / (1 - h) + share
        density = multivariate_t(mean[:2], shape[:2, :2], df=3)
        expected.append(np.log(share[c]) + density.logpdf(outputs[:, :2]))
    difference = solution.scores(z) - np.stack(expected, 1)
    np.testing.assert_allclose(difference - difference[:, :1], 0, atol=1e-8)


def test_probabilities_of_digits_are_calibrated_and_a_rare_class_is_found():
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    x, y = x[order], y[order]
    x = standardized(x, slice(1000))
    z = random_features(x[:1000], 500, np.random.default_rng(1))(x)
    p = probabilities(solve(learned(z[:1300], y[:1300], 10)), z[1300:])
    assert calibration_error(p, y[1300:]) < 0.03
    keep = (y[:1300] != 8) | (np.cumsum(y[:1300] == 8) <= 13)
    p = probabilities(solve(learned(z[:1300][keep], y[:1300][keep], 10)), z[1300:])
    assert (p.argmax(1) == 8)[y[1300:] == 8].mean() > 0.6  # one in a hundred


def test_one_class_one_sample_and_constant_features():
    for z in (np.ones((1, 4)), np.ones((9, 4)), np.zeros((9, 4))):
        solution = solve(learned(z, np.ones(len(z), int)))
        np.testing.assert_allclose(solution.logits(z), [[0, 1, 0]] * len(z), atol=1e-12)
        np.testing.assert_array_equal(probabilities(solution, z), [[0, 1, 0]] * len(z))


def test_few_samples_are_told_apart_without_certainty():
    z = np.array([[1.0, 0], [0, 1], [1.1, 0]])
    for count in (2, 3):
        solution = solve(learned(z[:count], np.array([0, 2, 0])[:count]))
        p = probabilities(solution, z[:2])
        assert (p.argmax(1) == [0, 2]).all() and p.max() < 0.999 and (p[:, 1] == 0).all()
    constant = solve(learned(np.full((9, 4), 3.3), np.arange(9) % 3))
    np.testing.assert_allclose(probabilities(constant, z @ np.eye(2, 4) + 3.3), 1 / 3, atol=1e-3)


def test_many_samples_stay_positive_definite():
    z, labels = samples(20_000, 300)
    z[:, 150:] = z[:, :150]  # half of the directions are empty
    statistics = learned(z.astype(np.float32), labels)
    for _ in range(9):  # ten million samples
        statistics.merge(statistics)
    assert np.isfinite(solve(statistics, 1e-6 * np.trace(statistics.G) / 300).W).all()


def bad(change, *words):
    statistics = learned(*samples())
    before = statistics.G.copy(), statistics.M.copy(), statistics.counts.copy()
    with pytest.raises(InputError) as error:
        change(statistics)
    assert "\n" not in str(error.value)
    assert all(word in str(error.value) for word in words), error.value
    for old, new in zip(before, (statistics.G, statistics.M, statistics.counts), strict=True):
        np.testing.assert_array_equal(old, new)


def test_bad_input_is_one_line_and_changes_nothing():
    z, labels = samples()
    bad(lambda s: s.add(z[:, :5], labels), "(60, 5)", "(samples, 7)")
    bad(lambda s: s.add(z, labels[:5]), "(5,)")
    bad(lambda s: s.add(z, labels + 1), "1 to 3", "0 to 2")
    bad(lambda s: s.add(z, labels - 1), "-1 to 1")
    bad(lambda s: s.add(z, labels, np.full(60, -1.0)), "0 or more")
    bad(lambda s: s.add(z, labels, np.full(60, np.nan)), "0 or more")
    bad(lambda s: s.add(z, labels, np.ones(59)), "weights of 60 samples")
    bad(lambda s: s.add(np.where(z == z[3, 3], np.nan, z), labels), "not finite")
    bad(lambda s: s.subtract(np.tile(z, (2, 1)), np.tile(labels, 2)), "more samples")
    bad(lambda s: s.merge(Statistics.empty(8, 3)), "7 by 3 and 8 by 3")
    bad(lambda s: s.decay(0.0), "0.0", "at most 1")
    bad(lambda s: s.decay(1.5), "1.5")
    bad(lambda s: s.decay(float("nan")), "nan")
    with pytest.raises(InputError, match="nothing was learned"):
        solve(Statistics.empty(4, 2))
    huge = learned(np.full((2, 4), 1e30, np.float32) * [[1], [-1]], np.arange(2))
    huge._G[:] = np.inf
    with pytest.raises(InputError, match="scale the features down"):
        solve(huge)
    with pytest.raises(InputError, match="too small"):
        solve(learned(np.tile(z, (1, 2)), labels), -1.0)


def test_recursive_least_squares_is_solving_again():
    z, labels = samples(80, 12)
    weights = np.random.default_rng(2).uniform(0.5, 3, 80)
    statistics = learned(z[:40], labels[:40], 2 + 1, weights[:40])
    recursive = solve(statistics, 2.0)
    for n in range(40, 80):
        recursive.update(statistics, z[n], labels[n], weights[n])
        statistics.add(z[n : n + 1], labels[n : n + 1], weights[n : n + 1])
    recursive.refresh(statistics)
    again = solve(statistics, 2.0)
    for name in ("W", "offset", "freedom", "prior"):
        np.testing.assert_allclose(
            getattr(recursive, name), getattr(again, name), rtol=1e-8, atol=1e-10, err_msg=name
        )
    for name in ("novelty", "scores"):
        found, expected = (getattr(one, name)(z) for one in (recursive, again))
        np.testing.assert_allclose(found, expected, rtol=1e-7)


def test_novelty_is_one_for_what_was_learned_and_grows_with_distance():
    z, labels = samples(5000)
    solution = solve(learned(z, labels))
    assert abs(solution.novelty(z).mean() - 1) < 1e-6
    for weight, factor in ((0.01, 1.0), (1.0, 0.05), (3.0, 0.5)):
        statistics = learned(z, labels, weights=np.full(len(z), weight))
        statistics.decay(factor)
        assert abs(solve(statistics).novelty(z).mean() - 1) < 1e-6, (weight, factor)
    far = solution.novelty(np.concatenate([z[:5] + 10, z[:5] + 100]))
    assert far[:5].min() > 10 and far[5:].min() > 50 * far[:5].max()


@pytest.mark.parametrize("count", [1, 40])
def test_nothing_is_novel_where_nothing_varied(count):
    z = np.ones((count, 5))
    solution = solve(learned(z, np.arange(count) % 2))
    with pytest.raises(InputError, match="all that was learned is alike"):
        solution.novelty(z)


def test_weights_that_sum_to_one_choose_the_same_lam():
    """A library that normalizes weights must not make a learner that knows nothing."""
    x, y = load_digits(return_X_y=True)
    z = standardized(x, slice(None))
    plain, small = (solve(learned(z, y, 10, np.full(len(y), w))) for w in (1.0, 1 / len(y)))
    assert abs(plain.freedom - small.freedom) < 1e-3
    np.testing.assert_allclose(small.W, plain.W, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(probabilities(small, z), probabilities(plain, z), atol=1e-6)
