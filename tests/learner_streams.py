"""Streams for the tests of the online classifier, and what makes two learners the same."""

import numpy as np
from hypothesis import strategies as st

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
