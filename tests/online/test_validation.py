"""Any input is learned, or an InputError says what is wrong with it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy import sparse

from minipw import InputError
from minipw.online.classifier import OnlineClassifier
from minipw.online.validation import LARGEST, as_samples, check_columns, column_names, more_columns

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


@pytest.mark.filterwarnings("ignore:.*infinite importance")  # of inputs that are not scaled
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
    if learner.input_shape is not None and standardize and learner.classes_:
        learner.partial_fit(np.zeros((3, *learner.input_shape)), learner.classes_[:1] * 3)


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


@pytest.mark.parametrize("kind", ["Float64", "Int64", "object"])
def test_missing_values_of_pandas_are_nan(kind):
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pd.DataFrame({"a": [1, None, 3], "b": [4, 5, 6]}).astype(kind)
    frame.iloc[1, 0] = pd.NA
    taken = as_samples(frame, None, True, True).astype(np.float64)
    np.testing.assert_array_equal(taken, [[1, 4], [np.nan, 5], [3, 6]])
    with pytest.raises(InputError, match=r"X\[1, 0\] is nan"):
        as_samples(frame, None, True, False)
    with pytest.raises(InputError, match="is 'four', not a number"):
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


NAN = np.nan


class Scalar:
    """A number of a library of its own, with its own missing value."""

    ndim = 0

    def __init__(self, value):
        self.value = value

    def as_py(self):
        return self.value


HALF_MASKED = np.ma.array([[1, 2], [3, 4]], mask=[[0, 0], [1, 0]])
MARKED = {
    "masked rows": [HALF_MASKED[0], HALF_MASKED[1]],
    "masked row lists": [list(HALF_MASKED[0]), tuple(HALF_MASKED[1])],
    "masked objects": HALF_MASKED.astype(object),
    "masked cells": [[1, np.ma.array(2)], [np.ma.array(3, mask=True), 4]],
    "None": [[1, 2], [None, 4]],
    "NaT": np.array([[1, 2], [np.datetime64("NaT"), 4]], object),
    "dicts": [{"a": 1, "b": 2}, {"a": None, "b": 4}],
    "scalars": [[Scalar(1), Scalar(2)], [Scalar(None), Scalar(4)]],
}


@pytest.mark.parametrize("name", MARKED)
def test_marked_values_are_missing(name):
    taken = as_samples(MARKED[name], None, True, True).astype(np.float64)
    np.testing.assert_array_equal(taken, [[1, 2], [NAN, 4]])
    with pytest.raises(InputError, match=r"X\[1, 0\] is nan: .* missing=True"):
        as_samples(MARKED[name], None, True, False)


def test_rows_of_pandas_with_marked_values():
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    table = {
        "a": pd.array([1, None], "Int64"),
        "b": pd.array([True, None], "boolean"),
        "c": pd.Categorical([3, None]),
        "d": pd.array([0.5, None], "Float64"),
        "e": pd.Series([None, 5], dtype=object),
    }
    frame = pd.DataFrame(table)
    rows = [[1, 1, 3, 0.5, NAN], [NAN, NAN, NAN, NAN, 5]]
    for x in (
        frame,
        [row for _, row in frame.iterrows()],
        frame.to_dict("records"),
        list(frame.itertuples(index=False)),
        frame.to_numpy().tolist(),
    ):
        np.testing.assert_array_equal(as_samples(x, None, True, True).astype(float), rows)
    for x in (frame.iloc[1], frame.iloc[[1]], frame.iloc[1].to_frame().T, dict(frame.iloc[1])):
        np.testing.assert_array_equal(as_samples(x, None, True, True).astype(float), rows[1:])


@pytest.mark.parametrize("names", ["abc", (0, 1, 2), (("a", 1), ("a", 2), 3), (1, "a", 2.5)])
def test_columns_have_names_of_any_type(names):
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    index = pd.Index(list(names), tupleize_cols=False)
    frame = pd.DataFrame(np.arange(6.0).reshape(2, 3), columns=index)
    known = column_names(frame)
    row = frame.iloc[0]
    same = (frame, row, [row], dict(row), [dict(row)], frame.iloc[[1]])
    for x in same:
        check_columns(column_names(x), known)
    turned = frame.iloc[:, [1, 0, 2]]
    row = turned.iloc[0]
    for x in (turned, row, [row], dict(row), [dict(row)], turned.iloc[[1]]):
        with pytest.raises(InputError, match=r"column 1 is .* was before: keep their order"):
            check_columns(column_names(x), known)


@pytest.mark.parametrize(
    "names, says",
    [
        ("abd", r"column 3 is 'd' where 'c' was .* \(new: \['d'\], gone: \['c'\]\)"),
        ("abcd", r"column 4 is 'd' where nothing was before: add_features\(\['d'\]\)"),
        ("dabc", r"column 1 is 'd' where 'a' was before: add_features\(\['d'\]\)"),
        ("ac", r"column 2 is 'c' where 'b' was before: give \['b'\]"),
        ("ab", r"column 3 is nothing where 'c' was before: give \['c'\], NaN with missing=True"),
        ("acb", r"column 2 is 'c' where 'b' was before: keep their order, \['a', 'b', 'c'\]"),
    ],
)
def test_columns_that_move_come_and_go_are_named(names, says):
    with pytest.raises(InputError, match=says):
        check_columns(tuple(names), tuple("abc"))


def test_columns_to_add():
    assert more_columns(("a", None), 2) == ("a", None, None, None)
    known = more_columns(("a", None), ["b", 3])
    assert known == ("a", None, "b", 3)
    check_columns(("a", "any", "b", 3), known)
    for bad in (["a"], [], "b", {"b": 1}, ["c", "c"]):
        with pytest.raises(InputError, match="a list of new names"):
            more_columns(known, bad)


def test_rows_that_are_no_table():
    for x, says in (
        ({"a": [1, 2], "b": [3, 4]}, "dict of columns: use pandas"),
        ([{"a": 1, "b": 2}, {"b": 2, "a": 1}], r"X\[1\] has other names than X\[0\]"),
    ):
        with pytest.raises(InputError, match=says):
            as_samples(x, None, True, True)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"])
@pytest.mark.parametrize("of", ["array", "matrix"])
def test_sparse_samples(kind, of):
    x = getattr(sparse, f"{kind}_{of}")(np.array([[0, 2.0], [0, NAN]]))
    assert column_names(x) is None
    np.testing.assert_array_equal(as_samples(x, (2,), True, True).toarray(), [[0, 2], [0, NAN]])
    with pytest.raises(InputError, match=r"X\[1, 1\] is nan"):
        as_samples(x, None, True, False)
    with pytest.raises(InputError, match=r"samples of shape \(2,\), those before had \(3,\)"):
        as_samples(x, (3,), True, True)
    with pytest.raises(InputError, match="X has type complex128"):
        as_samples(x.astype(complex), None, True, True)
