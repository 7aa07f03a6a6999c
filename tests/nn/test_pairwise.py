"""The forms of the pairwise head against loops and each other, and which is chosen."""

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

from minipw.backend.sparse_gradient import Columns, to_dense
from minipw.gradcheck import check
from minipw.kernels.pairwise_cpu import ListedPairs, WinnerPairs
from minipw.kernels.pairwise_matrix import MatrixPairs
from minipw.kernels.pairwise_sparse import SparsePairs
from minipw.nn.kwta import kwta_forward
from minipw.nn.pairwise import Pairs, pairwise_backward, pairwise_forward

# Float64 sums of at most a few hundred products, each of order 1 to 30.
ROUNDING = {"rtol": 1e-12, "atol": 1e-11}
CLASSES = 3
FORMS = {
    "winners": lambda i, j, units: WinnerPairs(i, j, CLASSES, units),
    "listed": lambda i, j, units: ListedPairs(i, j, CLASSES, units),
    "matrices": lambda i, j, units: MatrixPairs(i, j, CLASSES, units),
}
LOGITS_FORMS = FORMS | {"sparse": lambda i, j, units: SparsePairs(i, j, CLASSES, units)}


def draw_pairs(rng, units, count, squares=False):
    """Random pairs: some twice, some reversed, with `squares` some of a unit with itself."""
    i = rng.integers(0, units, count)
    j = (i + rng.integers(0 if squares else 1, units, count)) % units
    third = count // 3
    i[third : 2 * third], j[third : 2 * third] = j[:third], i[:third]  # (i, j) and (j, i)
    i[-1], j[-1] = i[0], j[0]
    return i, j


def draw_active(rng, batch, units, winners):
    """What k-WTA hands to the head; row 0 has ties and so fewer winners, maybe none."""
    x = rng.standard_normal((batch, units))
    x[0] = np.round(x[0])
    return kwta_forward(x, winners)[0]


def both_passes(x, w, dy, pairs):
    y, cache = pairwise_forward(x, w, pairs)
    dx, dw = pairwise_backward(dy, cache)
    return y, dx, to_dense(dw, w.shape[-1])


def assert_same(ours, expected, x, form="", **tolerance):
    """Outputs and gradients agree; where x is zero dx may be left at zero."""
    y, dx, dw = ours
    expected_y, expected_dx, expected_dw = expected
    np.testing.assert_allclose(y, expected_y, **tolerance, err_msg=f"y {form}")
    np.testing.assert_allclose(dw, expected_dw, **tolerance, err_msg=f"dw {form}")
    left_out = np.broadcast_to((x == 0), dx.shape) & (dx == 0)
    expected_dx = np.where(left_out, 0, expected_dx)
    np.testing.assert_allclose(dx, expected_dx, **tolerance, err_msg=f"dx {form}")


def all_sizes():
    for units in (2, 3, 31, 33, 64):
        for winners in sorted({1, units // 3, units - 1} - {0}):
            for batch in (1, 3, 64, 65, 130):  # 64 samples fill a word of ListedPairs
                yield units, winners, batch


@pytest.mark.parametrize("squares", [False, True])
@pytest.mark.parametrize(("units", "winners", "batch"), list(all_sizes()))
def test_every_form_equals_the_loops(rng, units, winners, batch, squares):
    i, j = draw_pairs(rng, units, 42, squares)
    x, w = draw_active(rng, batch, units, winners), rng.standard_normal(42)
    dy = rng.standard_normal((batch, CLASSES))
    expected = (
        reference.pairwise(x, w, i, j, CLASSES),
        *reference.pairwise_gradient(x, w, i, j, CLASSES, dy),
    )
    y, dx, dw = both_passes(x, w, dy, Pairs(i, j, CLASSES))
    np.testing.assert_allclose(dx, expected[1], **ROUNDING)  # defined at x = 0 too
    assert_same((y, dx * (x != 0), dw), expected, x, **ROUNDING)
    for name, form in FORMS.items():
        if not (squares and name == "winners"):  # which takes no unit with itself
            pairs = Pairs(i, j, CLASSES, form(i, j, units))
            assert_same(both_passes(x, w, dy, pairs), expected, x, name, **ROUNDING)
    for name, form in LOGITS_FORMS.items():
        if not (squares and name == "winners"):
            y, _ = pairwise_forward(x, w, Pairs(i, j, CLASSES, form(i, j, units)), False)
            np.testing.assert_allclose(y, expected[0], **ROUNDING, err_msg=name)


@pytest.mark.parametrize("form", FORMS)
def test_finite_differences_of_each_form(rng, form):
    i, j = draw_pairs(rng, 7, 12)
    pairs = Pairs(i, j, CLASSES, FORMS[form](i, j, 7))
    x, w = rng.uniform(0.5, 2, (3, 7)), rng.standard_normal(12)
    y, cache = pairwise_forward(x, w, pairs)
    dy = rng.standard_normal(y.shape)
    check(lambda *a: pairwise_forward(*a, pairs)[0], [x, w], pairwise_backward(dy, cache), dy)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("batch", "count"), [(5, 42), (2, 1500)])
def test_stacked_dy_is_two_backward_passes(rng, form, batch, count):
    i, j = draw_pairs(rng, 33, count)
    pairs = Pairs(i, j, CLASSES, FORMS[form](i, j, 33))
    x, w = draw_active(rng, batch, 33, 5), rng.standard_normal(count)
    _, cache = pairwise_forward(x, w, pairs)
    dy = rng.standard_normal((2, batch, CLASSES))
    dx, dw = pairwise_backward(dy, cache)
    for n in range(2):
        one_dx, one_dw = pairwise_backward(dy[n], cache)
        np.testing.assert_array_equal(dx[n], one_dx)
        np.testing.assert_array_equal(to_dense(dw, count)[n], to_dense(one_dw, count))


def test_stacked_runs_have_their_own_pairs(rng):
    lists = np.array([draw_pairs(rng, 9, 30) for _ in range(3)])
    i, j = lists[:, 0], lists[:, 1]
    x = np.stack([draw_active(rng, 4, 9, 4) for _ in range(3)])
    w, dy = rng.standard_normal((3, 30)), rng.standard_normal((2, 3, 4, CLASSES))
    y, dx, dw = both_passes(x, w, dy, Pairs(i, j, CLASSES))
    for r in range(3):  # the same sums in the same order
        single = both_passes(x[r], w[r], dy[:, r], Pairs(i[r], j[r], CLASSES))
        for ours, expected in zip((y[r], dx[:, r], dw[:, r]), single, strict=True):
            np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("form", [*FORMS, "defining"])
@pytest.mark.parametrize(("batch", "winners"), [(3, 4), (65, 20)])
def test_float32_stays_within_its_rounding(rng, form, batch, winners):
    count, units = 300, 33
    i, j = draw_pairs(rng, units, count)
    x, w = draw_active(rng, batch, units, winners), rng.standard_normal(count)
    dy = rng.standard_normal((batch, CLASSES))
    x, w, dy = (a.astype(np.float32) for a in (x, w, dy))
    pairs = Pairs(i, j, CLASSES)
    wide = [a.astype(np.float64) for a in (x, w, dy)]
    expected = both_passes(*wide, pairs)
    # The sum of the terms' sizes, times one rounding (2^-24) for each addition and three
    # for each product. The longest sum has as many terms as pairs feed an output, as
    # samples feed a weight, or as pairs read a unit.
    sizes = both_passes(*map(np.abs, wide), pairs)
    reads = np.bincount(i, minlength=units) + np.bincount(j, minlength=units)
    bound = (max(count // CLASSES, batch, reads.max()) + 3) * 2.0**-24
    if form != "defining":
        pairs = Pairs(i, j, CLASSES, FORMS[form](i, j, units))
    for ours, theirs, size in zip(both_passes(x, w, dy, pairs), expected, sizes, strict=True):
        assert ours.dtype == np.float32
        if ours.shape == x.shape:
            ours, theirs = ours * (x != 0), theirs * (x != 0)
        assert np.all(np.abs(ours - theirs) <= bound * size)


@pytest.mark.parametrize("form", LOGITS_FORMS)
def test_logits_alone_in_float32_stay_within_its_rounding(rng, form):
    count, units = 300, 33
    i, j = draw_pairs(rng, units, count)
    x, w = draw_active(rng, 65, units, 20), rng.standard_normal(count)
    x, w = x.astype(np.float32), w.astype(np.float32)
    pairs = Pairs(i, j, CLASSES, LOGITS_FORMS[form](i, j, units))
    ours, _ = pairwise_forward(x, w, pairs, gradient=False)
    assert ours.dtype == np.float32
    x, w = x.astype(np.float64), w.astype(np.float64)
    expected, _ = pairwise_forward(x, w, Pairs(i, j, CLASSES))
    size, _ = pairwise_forward(np.abs(x), np.abs(w), Pairs(i, j, CLASSES))
    bound = (count // CLASSES + 3) * 2.0**-24
    assert np.all(np.abs(ours - expected) <= bound * size)


@given(data=st.data())
@settings(max_examples=80, deadline=None, derandomize=True, database=None)
def test_any_list_of_pairs(data):
    units, batch = data.draw(st.integers(2, 8)), data.draw(st.integers(1, 6))
    count = CLASSES * data.draw(st.integers(1, 12))
    unit = st.integers(0, units - 1)
    i = np.array(data.draw(st.lists(unit, min_size=count, max_size=count)))
    step = np.array(data.draw(st.lists(st.integers(1, units - 1), min_size=count, max_size=count)))
    j = (i + step) % units
    value = st.sampled_from([0.0, 0.0, 0.5, 1.0, 3.0])
    size = batch * units
    x = np.array(data.draw(st.lists(value, min_size=size, max_size=size))).reshape(batch, units)
    w = np.arange(1.0, count + 1)
    dy = np.arange(1.0, batch * CLASSES + 1).reshape(batch, CLASSES)
    expected = both_passes(x, w, dy, Pairs(i, j, CLASSES))
    for form in FORMS.values():
        ours = both_passes(x, w, dy, Pairs(i, j, CLASSES, form(i, j, units)))
        assert_same(ours, expected, x, rtol=0, atol=0)  # multiples of 1/4: sums are exact
    for form in LOGITS_FORMS.values():
        y, _ = pairwise_forward(x, w, Pairs(i, j, CLASSES, form(i, j, units)), gradient=False)
        np.testing.assert_array_equal(y, expected[0])


@pytest.mark.parametrize("form", ["winners", "listed"])
def test_a_few_reached_weights_come_as_columns(rng, form):
    i, j = np.tril_indices(64, -1)  # 2016 pairs, of which 3 winners reach 3
    x, w = draw_active(rng, 2, 64, 3)[1:], rng.standard_normal(i.size)
    _, cache = pairwise_forward(x, w, Pairs(i, j, CLASSES, FORMS[form](i, j, 64)))
    dy = rng.standard_normal((2, 1, CLASSES))
    _, dw = pairwise_backward(dy, cache)
    assert isinstance(dw, Columns)
    assert dw.values.shape == (2, dw.index.size)
    assert np.all(np.diff(dw.index) > 0)
    _, _, expected = both_passes(x, w, dy, Pairs(i, j, CLASSES))
    assert np.count_nonzero(expected) == 6
    np.testing.assert_allclose(to_dense(dw, i.size), expected, **ROUNDING)


@pytest.mark.parametrize("form", FORMS)
def test_many_reached_weights_come_as_an_array(rng, form):
    i, j = np.tril_indices(64, -1)
    x, w = draw_active(rng, 9, 64, 32), rng.standard_normal(i.size)
    _, cache = pairwise_forward(x, w, Pairs(i, j, CLASSES, FORMS[form](i, j, 64)))
    _, dw = pairwise_backward(rng.standard_normal((9, CLASSES)), cache)
    assert isinstance(dw, np.ndarray) and dw.shape == i.shape


@pytest.mark.parametrize("form", FORMS)
def test_a_batch_without_winners_gives_zeros(form):
    i, j = np.array([1, 2, 2]), np.array([0, 0, 1])
    pairs = Pairs(i, j, CLASSES, FORMS[form](i, j, 5))
    y, dx, dw = both_passes(np.zeros((2, 5)), np.ones(3), np.ones((2, CLASSES)), pairs)
    for result, shape in ((y, (2, CLASSES)), (dx, (2, 5)), (dw, (3,))):
        np.testing.assert_array_equal(result, np.zeros(shape))


def test_matrices_follow_the_type_of_the_weights(rng):
    i, j = draw_pairs(rng, 9, 30)
    form = MatrixPairs(i, j, CLASSES, 9)
    x, w = draw_active(rng, 4, 9, 4), rng.standard_normal(30)
    single, _ = form.forward(x.astype(np.float32), w.astype(np.float32))
    double, _ = form.forward(x, w)
    assert (single.dtype, double.dtype) == (np.float32, np.float64)
    np.testing.assert_array_equal(double, form.forward(x, w)[0])
    np.testing.assert_allclose(double, reference.pairwise(x, w, i, j, CLASSES), **ROUNDING)


@pytest.mark.parametrize("form", LOGITS_FORMS)
def test_logits_alone_follow_the_weights_and_their_type(rng, form):
    i, j = draw_pairs(rng, 9, 30)
    form = LOGITS_FORMS[form](i, j, 9)
    x, w = draw_active(rng, 4, 9, 4), rng.standard_normal(30)
    single, _ = form.forward(x.astype(np.float32), w.astype(np.float32), False)
    double, _ = form.forward(x, w, False)
    assert (single.dtype, double.dtype) == (np.float32, np.float64)
    for new in (w, -2 * w):
        y, _ = form.forward(x, new, False)
        np.testing.assert_allclose(y, reference.pairwise(x, new, i, j, CLASSES), **ROUNDING)


@pytest.mark.parametrize("winners", [0, 1])
def test_rows_that_form_no_pair_have_finite_gradients(rng, winners):
    i, j = draw_pairs(rng, 9, 30)
    x, w = np.zeros((3, 9)), rng.standard_normal(30)
    x[:, :winners] = 1.5
    dy = rng.standard_normal((3, CLASSES))
    for _ in range(50):  # freed memory is dirty: sums over nothing must not read it
        np.full((3, 9, 3), np.nan)
        _, dx, dw = both_passes(x, w, dy, Pairs(i, j, CLASSES, WinnerPairs(i, j, CLASSES, 9)))
        np.testing.assert_array_equal(dx, 0)
        np.testing.assert_array_equal(dw, 0)


def test_many_classes(rng):
    classes = 40_000  # more than an int16 holds
    i, j = np.tril_indices(300, -1)
    i, j = i[:classes], j[:classes]
    x, w = draw_active(rng, 2, 300, 20), rng.standard_normal(classes)
    expected, _ = pairwise_forward(x, w, Pairs(i, j, classes))
    ours, _ = pairwise_forward(x, w, Pairs(i, j, classes, WinnerPairs(i, j, classes, 300)))
    np.testing.assert_allclose(ours, expected, **ROUNDING)
