"""Each operation of minipw.nn: finite differences, naive loops, axes and types."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import reference

from minipw import InputError
from minipw.backend.arrays import array_module
from minipw.gradcheck import check
from minipw.nn.conv import col2im, conv2d_backward, conv2d_forward, im2col, same_padding
from minipw.nn.dense import dense_backward, dense_forward
from minipw.nn.gelu import gelu_backward, gelu_forward
from minipw.nn.kwta import kwta_backward, kwta_forward
from minipw.nn.pairwise import Pairs, pairwise_backward, pairwise_forward

# Two float64 programs that add up to 147 products of order 1 in different orders.
ROUNDING = {"rtol": 1e-12, "atol": 1e-12}
# The same sums in float32: 147 roundings of 2^-24 each, of sums up to about 30.
ROUNDING_32 = {"rtol": 1e-4, "atol": 3e-4}

PAIR_I = np.array([0, 0, 1, 2, 1, 3, 4, 4, 0])
PAIR_J = np.array([1, 2, 2, 4, 0, 3, 0, 3, 1])  # repeats, a reversed pair and a square


@dataclass
class Operation:
    """An operation, its loops in `reference`, and the shapes of its arguments."""

    forward: Any
    backward: Any
    loops: Any
    loops_gradient: Any
    shapes: list

    def arguments(self, rng, lead=(), dtype=np.float64):
        return [rng.standard_normal((*lead, *shape)).astype(dtype) for shape in self.shapes]

    def gradients(self, dy, cache):
        result = self.backward(dy, cache)
        return list(result) if isinstance(result, tuple) else [result]


def convolution(image, kernel, stride):
    return Operation(
        lambda x, w: conv2d_forward(x, w, stride),
        conv2d_backward,
        lambda x, w: reference.conv2d(x, w, stride),
        lambda x, w, dy: reference.conv2d_gradient(x, w, stride, dy),
        [image, kernel],
    )


def gelu(approximate):
    return Operation(
        lambda x: gelu_forward(x, approximate),
        gelu_backward,
        lambda x: reference.gelu(x, approximate),
        lambda x, dy: (reference.gelu_gradient(x, dy, approximate),),
        [(3, 5)],
    )


def kwta(winners, units):
    return Operation(
        lambda x: kwta_forward(x, winners),
        kwta_backward,
        lambda x: reference.kwta(x, winners),
        lambda x, dy: (reference.kwta_gradient(x, winners, "k+1", dy),),
        [(3, units)],
    )


def pairwise(x, w):
    xp = array_module(x)
    return pairwise_forward(x, w, Pairs(xp.asarray(PAIR_I), xp.asarray(PAIR_J), 3))


OPERATIONS = {
    "dense": Operation(
        dense_forward, dense_backward, reference.dense, reference.dense_gradient, [(3, 5), (5, 4)]
    ),
    "conv 3x2, stride 2": convolution((3, 5, 6, 2), (3, 2, 2, 3), 2),
    "conv 3x3, stride 1": convolution((2, 5, 3, 1), (3, 3, 1, 2), 1),
    "conv 1x1": convolution((2, 3, 3, 2), (1, 1, 2, 3), 1),
    "conv 2x2, stride 3": convolution((2, 7, 5, 1), (2, 2, 1, 2), 3),
    "conv 7x7, stride 4": convolution((1, 9, 8, 3), (7, 7, 3, 2), 4),
    "conv of a 1x1 image": convolution((3, 1, 1, 2), (5, 5, 2, 2), 2),
    "gelu, exact": gelu(False),
    "gelu, tanh": gelu(True),
    "kwta, 1 of 5": kwta(1, 5),
    "kwta, 2 of 5": kwta(2, 5),
    "kwta, 4 of 5": kwta(4, 5),
    "kwta, 1 of 2": kwta(1, 2),
    "pairwise": Operation(
        pairwise,
        pairwise_backward,
        lambda x, w: reference.pairwise(x, w, PAIR_I, PAIR_J, 3),
        lambda x, w, dy: reference.pairwise_gradient(x, w, PAIR_I, PAIR_J, 3, dy),
        [(3, 5), (9,)],
    ),
}


@pytest.fixture(params=OPERATIONS)
def operation(request):
    return OPERATIONS[request.param]


def assert_distinct(operation, x):
    """No two units of a row so close that a step of the check could swap them."""
    if operation.backward is kwta_backward:
        assert np.diff(np.sort(x, -1)).min() > 1e-3


@pytest.mark.parametrize("lead", [(), (2, 3)])
def test_gradient_is_the_finite_difference(operation, rng, lead):
    arguments = operation.arguments(rng, lead)
    assert_distinct(operation, arguments[0])
    y, cache = operation.forward(*arguments)
    dy = rng.standard_normal(y.shape)
    entries = 25 if lead else None  # every entry of the tiny ones
    gradients = operation.gradients(dy, cache)
    assert all(np.any(gradient) for gradient in gradients)
    check(lambda *a: operation.forward(*a)[0], arguments, gradients, dy, None, entries, rng)


def test_large_gradients_along_a_random_direction(rng):
    x, w = rng.standard_normal((4, 17, 16, 3)), rng.standard_normal((5, 4, 3, 7))
    y, cache = conv2d_forward(x, w, 2)
    dy = rng.standard_normal(y.shape)
    check(lambda *a: conv2d_forward(*a, 2)[0], [x, w], conv2d_backward(dy, cache), dy, None, 5, rng)
    x, w = rng.standard_normal((17, 41)), rng.standard_normal((41, 29))
    y, cache = dense_forward(x, w)
    dy = rng.standard_normal(y.shape)
    check(lambda *a: dense_forward(*a)[0], [x, w], dense_backward(dy, cache), dy, None, 5, rng)


def test_forward_and_gradients_equal_the_loops(operation, xp, host, rng):
    arguments = operation.arguments(rng)
    y, cache = operation.forward(*map(xp.asarray, arguments))
    np.testing.assert_allclose(host(y), operation.loops(*arguments), **ROUNDING)
    dy = rng.standard_normal(y.shape)
    gradients = operation.gradients(xp.asarray(dy), cache)
    expected = operation.loops_gradient(*arguments, dy)
    for ours, theirs in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(host(ours), theirs, **ROUNDING)


def test_leading_axes_are_separate_runs(operation, xp, host, rng):
    arguments = [xp.asarray(a) for a in operation.arguments(rng, (2, 3))]
    y, cache = operation.forward(*arguments)
    dy = xp.asarray(rng.standard_normal(y.shape))
    gradients = operation.gradients(dy, cache)
    for run in np.ndindex(2, 3):
        one, cache = operation.forward(*(a[run] for a in arguments))
        np.testing.assert_allclose(host(y[run]), host(one), **ROUNDING)
        for ours, single in zip(gradients, operation.gradients(dy[run], cache), strict=True):
            np.testing.assert_allclose(host(ours[run]), host(single), **ROUNDING)


def test_pairs_may_differ_between_runs(xp, host, rng):
    i, j = rng.integers(0, 5, (2, 2, 3, 9))
    x, w = rng.standard_normal((2, 3, 3, 5)), rng.standard_normal((2, 3, 9))
    pairs = Pairs(xp.asarray(i), xp.asarray(j), 3)
    y, cache = pairwise_forward(xp.asarray(x), xp.asarray(w), pairs)
    dy = rng.standard_normal(y.shape)
    dx, dw = pairwise_backward(xp.asarray(dy), cache)
    for run in np.ndindex(2, 3):
        case = x[run], w[run], i[run], j[run], 3
        np.testing.assert_allclose(host(y[run]), reference.pairwise(*case), **ROUNDING)
        expected_dx, expected_dw = reference.pairwise_gradient(*case, dy[run])
        np.testing.assert_allclose(host(dx[run]), expected_dx, **ROUNDING)
        np.testing.assert_allclose(host(dw[run]), expected_dw, **ROUNDING)


@pytest.mark.parametrize("lead", [(), (3,)])
def test_stacked_dy_is_two_backward_passes(operation, xp, host, rng, lead):
    y, cache = operation.forward(*map(xp.asarray, operation.arguments(rng, lead)))
    dy = xp.asarray(rng.standard_normal((2, *y.shape)))
    stacked = operation.gradients(dy, cache)
    for n in range(2):
        for ours, single in zip(stacked, operation.gradients(dy[n], cache), strict=True):
            assert ours.shape == (2, *single.shape)
            np.testing.assert_allclose(host(ours[n]), host(single), **ROUNDING)


@pytest.mark.parametrize("stacked", [(), (2,)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_type_is_kept(operation, xp, host, rng, dtype, stacked):
    arguments = [xp.asarray(a) for a in operation.arguments(rng, (), dtype)]
    y, cache = operation.forward(*arguments)
    assert y.dtype == dtype
    dy = rng.standard_normal((*stacked, *y.shape)).astype(dtype)
    gradients = operation.gradients(xp.asarray(dy), cache)
    for gradient, argument in zip(gradients, arguments, strict=True):
        assert gradient.dtype == dtype
        assert gradient.shape == (*stacked, *argument.shape)
    # and the numbers are those of the wide type
    y64, cache64 = operation.forward(*(a.astype(np.float64) for a in arguments))
    np.testing.assert_allclose(host(y), host(y64), **ROUNDING_32)
    wide = operation.gradients(xp.asarray(dy.astype(np.float64)), cache64)
    for ours, expected in zip(gradients, wide, strict=True):
        np.testing.assert_allclose(host(ours), host(expected), **ROUNDING_32)


def test_arguments_are_left_alone(operation, rng):
    arguments = operation.arguments(rng)
    kept = [a.copy() for a in arguments]
    y, cache = operation.forward(*arguments)
    dy = rng.standard_normal(y.shape)
    kept_dy = dy.copy()
    operation.gradients(dy, cache)
    for now, before in zip([*arguments, dy], [*kept, kept_dy], strict=True):
        np.testing.assert_array_equal(now, before)


def test_transposed_arguments_are_read_in_their_own_order(operation, xp, host, rng):
    arguments = operation.arguments(rng)
    turned = [xp.asarray(a.T.copy()).T for a in arguments]
    y, cache = operation.forward(*turned)
    np.testing.assert_allclose(host(y), operation.loops(*arguments), **ROUNDING)
    dy = rng.standard_normal(y.shape)
    gradients = operation.gradients(xp.asarray(dy.T.copy()).T, cache)
    for ours, theirs in zip(gradients, operation.loops_gradient(*arguments, dy), strict=True):
        np.testing.assert_allclose(host(ours), theirs, **ROUNDING)


@pytest.mark.parametrize("name", ["dense", "conv 3x2, stride 2"])
def test_input_gradient_can_be_left_out(name, rng):
    operation = OPERATIONS[name]
    y, cache = operation.forward(*operation.arguments(rng))
    dy = rng.standard_normal(y.shape)
    dx, dw = operation.backward(dy, cache, input_gradient=False)
    assert dx is None
    np.testing.assert_array_equal(dw, operation.backward(dy, cache)[1])


@pytest.mark.parametrize("stride", [1, 2, 3, 4])
@pytest.mark.parametrize("kernel", [1, 2, 3, 5, 7])
def test_same_padding_equals_the_reference(kernel, stride):
    for size in range(1, 34):
        output, before, after = same_padding(size, kernel, stride)
        assert (output, before) == reference.same_padding(size, kernel, stride)
        assert after - before in (0, 1)
        # The last patch begins inside the padded image and ends with it or before.
        assert (output - 1) * stride + kernel <= before + size + after


@pytest.mark.parametrize(("kernel", "stride"), [((3, 2), 2), ((7, 7), 4), ((1, 1), 1)])
def test_col2im_is_the_transpose_of_im2col(rng, kernel, stride):
    x = rng.standard_normal((2, 5, 6, 3))
    columns = im2col(x, kernel, stride)
    other = rng.standard_normal(columns.shape)
    # <im2col(x), other> = <x, col2im(other)>, sums of under 5,000 products of order 1
    left, right = np.sum(columns * other), np.sum(x * col2im(other, x.shape, kernel, stride))
    assert abs(left - right) < 1e-11


def test_the_two_gelus_differ():
    x = np.array([-2.0, 0.5, 2.0])
    gap = np.abs(gelu_forward(x)[0] - gelu_forward(x, True)[0])
    assert np.all(gap > 1e-5) and np.all(gap < 1e-3)


def test_kwta_ties_leave_fewer_winners_and_the_lowest_tied_unit_pays(xp, host):
    # Row 1: the 4th largest is 2, three units have it; only 5 and 4 lie above.
    # Row 2: all equal, nobody wins and there is nothing to pay.
    # Row 3: the units above zero are 9, 8, 7, and 1 is the one subtracted.
    x = [[2.0, 5, 2, 4, 2, 1], [3.0, 3, 3, 3, 3, 3], [0.0, 9, 1, 8, 7, 0]]
    y, cache = kwta_forward(xp.asarray(x), 3)
    expected = [[0, 3, 0, 2, 0, 0], [0, 0, 0, 0, 0, 0], [0, 8, 0, 7, 6, 0]]
    np.testing.assert_array_equal(host(y), expected)
    dy = xp.asarray([[1.0, 10, 100, 1000, 10000, 100000]] * 3)
    expected = [[-1010, 10, 0, 1000, 0, 0], [0] * 6, [0, 10, -11010, 1000, 10000, 0]]
    np.testing.assert_array_equal(host(kwta_backward(dy, cache)), expected)


@pytest.mark.parametrize("k", [2, 3, 6])
def test_both_thresholds_are_a_number_of_winners(k, rng):
    x = rng.standard_normal((5, 7))
    np.testing.assert_array_equal(kwta_forward(x, k)[0], reference.kwta(x, k, "k+1"))
    np.testing.assert_array_equal(kwta_forward(x, k - 1)[0], reference.kwta(x, k, "k"))
    assert np.all((kwta_forward(x, k)[0] > 0).sum(-1) == k)


@pytest.mark.parametrize("winners", [-1, 0, 5, 9])
def test_all_units_or_none_cannot_win(winners):
    with pytest.raises(InputError, match=f"{winners} winners among 5 units: use 1 to 4"):
        kwta_forward(np.ones((2, 5)), winners)


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.uint8, bool])
def test_whole_numbers_give_what_floats_give(dtype):
    x = np.array([[-2, 1, 3, 0], [100, -1, 2, 90]]).astype(dtype)
    for pair, given in (
        ((gelu_forward, gelu_backward), (False,)),
        ((gelu_forward, gelu_backward), (True,)),
        ((kwta_forward, kwta_backward), (2,)),
    ):
        forward, backward = pair
        (y, cache), (expected, expected_cache) = (forward(z, *given) for z in (x, x.astype(float)))
        np.testing.assert_array_equal(y, expected)
        np.testing.assert_array_equal(backward(y, cache), backward(y, expected_cache))
