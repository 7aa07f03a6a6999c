"""Any input is learned, or an InputError says what is wrong with it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from minipw import InputError
from minipw.online.classifier import OnlineClassifier
from minipw.online.validation import LARGEST, as_labels, as_samples, label_array

TINY = {"backbone": "mlp-12-1", "density": 0.3, "reserve": 1}
NUMBERS = st.one_of(
    npst.integer_dtypes(endianness="?"),
    npst.unsigned_integer_dtypes(),
    npst.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
    npst.boolean_dtypes(),
)
ANYTHING = st.one_of(
    NUMBERS,
    npst.complex_number_dtypes(),
    npst.unicode_string_dtypes(max_len=3),
    npst.byte_string_dtypes(max_len=3),
    npst.datetime64_dtypes(),
)
SHAPES = npst.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4)


LABELS = st.one_of(st.integers(0, 2), st.text(max_size=1), st.none(), st.tuples(st.booleans()))
BAD_LABELS = st.one_of(st.floats(), st.lists(st.integers()), st.binary(), LABELS)


@st.composite
def calls(draw):
    """A few pairs of X and y of one kind, more or less fitting."""
    shape = draw(st.one_of(st.tuples(st.integers(1, 6), st.integers(1, 3)), SHAPES))
    dtype = draw(st.one_of(NUMBERS, ANYTHING))
    pairs = []
    for _ in range(draw(st.integers(1, 3))):
        x = draw(npst.arrays(dtype, shape))
        count = len(x) if x.ndim else 1
        fitting = st.lists(LABELS, min_size=count, max_size=count)
        pairs.append((x, draw(st.one_of(fitting, fitting, st.lists(BAD_LABELS, max_size=6)))))
    return pairs


@settings(max_examples=120, deadline=None)
@given(pairs=calls(), standardize=st.booleans(), missing=st.booleans(), size=st.integers(1, 3))
def test_any_arrays(pairs, standardize, missing, size):
    """What is refused leaves a learner that goes on; unscaled inputs may make it diverge."""
    settings = {"running_standardize": standardize, "missing": missing, "batch_size": size}
    learner, diverged = OnlineClassifier(**settings, **TINY), False
    for x, y in pairs:
        try:
            learner.partial_fit(x, y)
            assert np.isfinite(learner.predict_proba(x)).all()
        except InputError as error:
            assert "\n" not in str(error)
            diverged |= "not finite at step" in str(error)
    assert not (diverged and standardize)
    if learner.input_shape is not None and standardize:
        learner.partial_fit(np.zeros((3, *learner.input_shape)), ["more"] * 3)


@settings(max_examples=100, deadline=None)
@given(
    x=npst.arrays(
        np.float64,
        (6, 3),
        elements=st.floats(-LARGEST, LARGEST, allow_subnormal=True),
        fill=st.just(0.0),
    ),
    size=st.sampled_from([1, 3]),
)
def test_numbers_of_any_size(x, size):
    """Tiny, huge, constant and nearly constant features give finite predictions."""
    learner = OnlineClassifier(batch_size=size, **TINY).partial_fit(x, [0, 1, 2, 0, 1, 2])
    proba = learner.predict_proba(x)
    assert np.isfinite(proba).all() and np.isfinite(learner.loss)
    assert all(np.isfinite(w).all() for w in learner.network.parameters.values())


@settings(max_examples=100, deadline=None)
@given(
    x=npst.arrays(NUMBERS, st.tuples(st.integers(0, 5), st.integers(1, 3))), missing=st.booleans()
)
def test_what_is_taken_is_what_was_given(x, missing):
    values = x.astype(np.float64)
    usable = np.abs(values) <= LARGEST
    if missing:
        usable |= np.isnan(values)
    if usable.all():
        taken = as_samples(x, None, True, missing).astype(np.float64)
        np.testing.assert_array_equal(taken, values)
    else:
        with pytest.raises(InputError, match=r"X\[\d, \d\] is "):
            as_samples(x, None, True, missing)


@pytest.mark.parametrize(
    "x", [[[10**400]], [[1.0], [2.0, 3.0]], [[None, "a"]], [[{}]], "text", None]
)
def test_things_that_are_not_arrays(x):
    with pytest.raises(InputError):
        as_samples(x, None, True, False)
    with pytest.raises(InputError):
        as_samples(np.longdouble([["1e4000"]]), None, True, True)


@given(labels=st.lists(st.one_of(st.text(), st.integers(), st.booleans(), st.none()), max_size=5))
def test_label_arrays_lose_nothing(labels):
    back = label_array(as_labels(labels, len(labels))).tolist()
    assert back == labels and [type(a) for a in back] == [type(b) for b in labels]


@pytest.mark.parametrize("kind", ["Float64", "Int64", "object"])
def test_missing_values_of_pandas_are_nan(kind):
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pd.DataFrame({"a": [1, None, 3], "b": [4, 5, 6]}).astype(kind)
    frame.iloc[1, 0] = pd.NA
    taken = as_samples(frame, None, True, True).astype(np.float64)
    np.testing.assert_array_equal(taken, [[1, 4], [np.nan, 5], [3, 6]])
    with pytest.raises(InputError, match=r"X\[1, 0\] is nan"):
        as_samples(frame, None, True, False)
    with pytest.raises(InputError, match="not a number"):
        as_samples(frame.astype(object).replace(4, "four"), None, True, True)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_masked_values_are_nan(dtype):
    x = np.ma.array([[1, 2], [3, 4]], dtype, mask=[[0, 0], [1, 0]])
    np.testing.assert_array_equal(as_samples(x, None, True, True), [[1, 2], [np.nan, 4]])
    with pytest.raises(InputError, match=r"X\[1, 0\] is nan"):
        as_samples(x, None, True, False)
    with pytest.raises(InputError, match="X has type complex128"):
        as_samples(x.astype(complex), None, True, True)
    whole = np.ma.array([[1, 2]], dtype)
    np.testing.assert_array_equal(as_samples(whole, None, True, False), [[1, 2]])
