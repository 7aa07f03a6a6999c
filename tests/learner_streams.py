"""Streams for the tests of the online classifier, and what makes two learners the same."""

from types import SimpleNamespace

import numpy as np
from hypothesis import strategies as st
from scipy import sparse

SMALL = {"backbone": "mlp-40-1", "learning_rate": 0.01, "reserve": 2, "density": 0.25}


KINDS = (
    st.text(max_size=3),
    st.one_of(st.integers(), st.floats(allow_nan=False)),
    st.booleans(),
    st.tuples(st.integers(0, 2), st.text(max_size=1)),
    st.datetimes(),
)


def label_lists(least, most):
    """Lists of labels of one kind."""
    return st.one_of(st.lists(kind, min_size=least, max_size=most) for kind in KINDS)


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


BAD = {
    r"X\[0, 1\] is 'a', not a number: encode": (np.array([[1, "a"]], object), [0]),
    "X has type complex128": ([[1j]], [0]),
    r"X\[1, 0\] is 'red', not a number: encode": ([[1, 2], ["red", 3]], [0, 1]),
    r"X\[0, 0\] is np.str_\('a'\), not a number": (np.array([["a"]]), [0]),
    "different lengths: give every sample": ([[1], [2, 3]], [0, 1]),
    r"X of type generator is not an array: use list\(X\)": ((row for row in [[1.0]]), [0]),
    r"y has shape \(1, 1\): one label a sample is y\.ravel": ([[1.0]], np.array([[0]])),
    r"y has shape \(2, 2\): one label a sample is y\.argmax\(1\)": (np.eye(2), np.eye(2)),
    "is '1_5', not a number: encode it": ([["1_5"]], [0]),
    r"one sample x is x\[None\]": ([1.0, 2.0], [0, 1]),
    r"X\[1, 0\] is nan": ([[1.0], [np.nan]], [0, 1]),
    r"X\[0, 1\] is -inf": ([[1.0, -np.inf]], [0]),
    "magnitude is above": ([[1e200]], [0]),
    "not hashable": ([[1.0]], [[0]]),
    r"y\[0\] is missing: leave out": ([[1.0]], [float("nan")]),
    "X has times in column 'b': encode": (
        SimpleNamespace(
            columns=["a", "b"], dtypes=[float, SimpleNamespace(is_temporal=lambda: True)]
        ),
        [0],
    ),
    "X of type SimpleNamespace holds no values yet": (
        SimpleNamespace(collect=None, lazy=None),
        [0],
    ),
    "1 labels for 2 samples": ([[1.0], [2.0]], [0]),
    "a list or an array of labels": ([[1.0]], 0),
    "not a list of labels": ([[1.0]], np.array(0)),
    r"X\[1, 1\] is inf": (sparse.coo_array([[1.0, 0.0], [0.0, np.inf]]), [0, 1]),
    "y of type str is not a list of labels: use a list": ([[1.0], [2.0]], "ab"),
    "y of type dict is not a list of labels: use a list": ([[1.0]], {"a": 1}),
    "y of type set is not a list of labels: use a list": ([[1.0]], {"a"}),
    "y of type frozenset is not a list of labels: use a list": ([[1.0]], frozenset("a")),
    "y of type bytes is not a list of labels: use a list": ([[1.0]], b"a"),
    r"y\[1\] is missing": ([[1.0], [2.0]], np.ma.array([1, 2], mask=[0, 1])),
}
