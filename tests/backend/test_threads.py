"""Threads that share a batch: the same gradients, updates and logits as one thread."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from minipw import ridge
from minipw.backend import threads
from minipw.backend.arrays import BLOCK
from minipw.backend.sparse_gradient import Columns, add_gradients, to_dense
from minipw.backend.threads import THREADS, available_threads, one_blas_thread, share_large
from minipw.network.architecture import Architecture
from minipw.network.network import Network
from minipw.online import DriftingRidgeClassifier, StreamingRidgeClassifier, experts
from minipw.rules import Rule, update

# Float64 sums of at most a hundred terms of order 1, in another order.
ROUNDING = {"rtol": 1e-10, "atol": 1e-13}
CLASSES = 4


def network(seed, head):
    architecture = Architecture((6, 6, 1), CLASSES, "mlp-40-2", head, 0.3, 300)
    made = Network.create(architecture, *(np.random.default_rng(seed + n) for n in (0, 1)), float)
    made.parameters["head"] *= 100  # gradients of order 1
    return made


def masks(kind, runs, batch, rng):
    """No mask, one for all samples, one a run, or a row a sample."""
    lead = (runs,) if runs else ()
    shape = {"one": (CLASSES,), "run": (*lead, 1, CLASSES), "row": (*lead, batch, CLASSES)}
    return None if kind == "none" else rng.random(shape[kind]) < 0.7


@pytest.mark.parametrize("runs", [0, 3])
@pytest.mark.parametrize("head", ["pairwise", "fc"])
@pytest.mark.parametrize("kind", ["none", "one", "run", "row"])
@pytest.mark.parametrize("name", ["adagrad", "s-mas"])
def test_threads_give_the_gradients_of_one(rng, runs, head, kind, name):
    made = Network.stack([network(s, head) for s in range(runs)]) if runs else network(0, head)
    lead = (runs,) if runs else ()
    x = rng.standard_normal((*lead, 50, 6, 6, 1))
    labels, rule = rng.integers(0, CLASSES, (*lead, 50)), Rule(name, 0.1, 0.5)
    arguments = (x, labels, rule, masks(kind, runs, 50, rng), "zero")
    loss, logits, gradients = made.loss_gradients(*arguments)
    with THREADS.use(3):
        assert len(THREADS.shares(50, 16)) == 3
        shared_loss, shared_logits, shared = made.loss_gradients(*arguments)
        np.testing.assert_allclose(made.logits(x), logits, **ROUNDING)
    assert THREADS.count == 1
    np.testing.assert_allclose(shared_loss, loss, **ROUNDING)
    np.testing.assert_allclose(shared_logits, logits, **ROUNDING)
    for key, gradient in gradients.items():
        size = made.parameters[key].shape[-1]
        ours, expected = to_dense(shared[key], size), to_dense(gradient, size)
        np.testing.assert_allclose(ours, expected, **ROUNDING)


def test_each_thread_has_its_own():
    """One that leaves its block first takes nothing from another that is still inside."""
    steps = threading.Barrier(2, timeout=10)

    def work(first):
        before = (THREADS.count, THREADS.pool)
        if not first:
            steps.wait()
        with THREADS.use(2):
            if first:
                steps.wait()
            steps.wait()
            if not first:
                steps.wait()
            squares = THREADS.map(lambda n: n * n, list(range(5)))
        if first:
            steps.wait()
        return before, squares, (THREADS.count, THREADS.pool)

    with ThreadPoolExecutor(2) as pool:
        for outcome in pool.map(work, (True, False)):
            assert outcome == ((1, None), [0, 1, 4, 9, 16], (1, None))
    assert (THREADS.count, THREADS.pool) == (1, None)


@pytest.mark.parametrize("name", ["sgd", "adagrad", "s-mas"])
def test_threads_update_every_entry_alike(rng, name):
    size = 3 * BLOCK + 7
    gradient = rng.standard_normal((2, size) if name == "s-mas" else size)
    results = []
    for count in (1, 3):
        theta, omega = np.ones(size), np.full(size, 0.5)
        with THREADS.use(count):
            update(Rule(name, 0.1, 0.5), theta, omega, gradient)
        results.append((theta, omega))
    np.testing.assert_array_equal(*results)  # the same operations on every entry


def test_sums_of_gradients_in_every_combination(rng):
    size = 12
    dense = rng.standard_normal((2, size))
    left = Columns(np.array([1, 4, 7]), rng.standard_normal((2, 3)))
    right = Columns(np.array([0, 4, 11]), rng.standard_normal((2, 3)))
    for a, b in ((left, right), (left, dense), (dense, right), (dense, dense)):
        expected = to_dense(a, size) + to_dense(b, size)
        first = a if isinstance(a, Columns) else a.copy()
        second = b if isinstance(b, Columns) else b.copy()
        total = to_dense(add_gradients(first, second), size)
        np.testing.assert_array_equal(total, expected)


def test_uses_within_each_other_are_undone():
    with THREADS.use(2):
        with THREADS.use(3):
            assert THREADS.map(lambda n: n * n, list(range(7))) == [n * n for n in range(7)]
        assert THREADS.count == 2
    assert (THREADS.count, THREADS.pool) == (1, None)


@pytest.fixture
def two_blas_threads():
    """Every BLAS has two threads; the function that returns how many each has."""
    if not (libraries := threads._blas_libraries()):
        pytest.skip("no BLAS here whose threads can be counted")
    before = [library.get_num_threads() for library in libraries]
    for library in libraries:
        library.set_num_threads(2)
    yield lambda: {library.get_num_threads() for library in libraries}
    for library, count in zip(libraries, before, strict=True):
        library.set_num_threads(count)


def test_small_products_have_one_blas_thread(two_blas_threads):
    with one_blas_thread(), one_blas_thread(threads.LARGE):
        assert two_blas_threads() == {1}
    with one_blas_thread(threads.LARGE):
        assert two_blas_threads() == {2}
    with pytest.raises(ZeroDivisionError), one_blas_thread():
        raise ZeroDivisionError
    with share_large(threads.LARGE - 1):
        assert (two_blas_threads(), THREADS.count) == ({2}, 1)
    with share_large(threads.LARGE):  # the pool shares the work
        assert (two_blas_threads(), THREADS.count) == ({1}, available_threads())
    assert two_blas_threads() == {2}


@pytest.mark.parametrize("kind", [StreamingRidgeClassifier, DriftingRidgeClassifier])
def test_closed_form_learns_and_solves_with_one_blas_thread(
    kind, rng, two_blas_threads, monkeypatch
):
    seen = set()

    def watch(module, name):
        function = getattr(module, name)

        def watched(*args, **kwargs):
            seen.add((name, *two_blas_threads()))
            return function(*args, **kwargs)

        monkeypatch.setattr(module, name, watched)

    watch(ridge, "change_triangle")
    watch(ridge, "solve_positive")
    watch(ridge.linalg.blas, "dsymv")
    watch(experts.lapack, "dposv")
    learner = kind(size=20)
    x, y = rng.standard_normal((1300, 3)), rng.integers(2, size=1300)
    learner.partial_fit(x[:1290], y[:1290])
    for n in range(1290, 1300):
        learner.predict(x[n : n + 1])
        learner.partial_fit(x[n : n + 1], y[n : n + 1])
    drifting = {("dposv", 1)}
    streaming = {("change_triangle", 1), ("solve_positive", 1), ("dsymv", 1)}
    assert seen == (drifting if kind is DriftingRidgeClassifier else streaming)
    assert two_blas_threads() == {2}
