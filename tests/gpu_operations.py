"""Every operation on a device against the NumPy backend: functions of the module cupy.

Each raises AssertionError where the two differ by more than rounding.
"""

import numpy as np
from golden_steps import host

from minipw.backend.arrays import to_device
from minipw.network.architecture import Architecture
from minipw.network.head_implementation import with_implementations
from minipw.nn.conv import conv2d_backward, conv2d_forward
from minipw.nn.dense import dense_backward, dense_forward
from minipw.nn.gelu import gelu_backward, gelu_forward
from minipw.nn.kwta import kwta_backward, kwta_forward
from minipw.nn.loss import softmax_cross_entropy_backward, softmax_cross_entropy_forward
from minipw.nn.pairwise import Pairs, pairwise_backward, pairwise_forward
from minipw.rules import Rule, update

SIZES = (1, 31, 33, 257)
CLASSES = 10
# Of the largest entry: in float64 rounding of sums of some hundred terms in other orders,
# in float32 the same, 6e-8 times the root of their number, with a margin of ten.
TOLERANCE = {np.float64: 1e-9, np.float32: 1e-5}


def assert_close(ours, reference, factor=1.0):
    """Equal to rounding, by the type of the device's array `ours`."""
    ours, reference = host(ours), host(reference)
    assert ours.dtype == reference.dtype and ours.shape == reference.shape
    bound = factor * TOLERANCE[ours.dtype.type] * max(np.abs(reference).max(initial=0), 1e-30)
    np.testing.assert_allclose(ours, reference, rtol=0, atol=bound)


def compare(xp, forward, backward, arguments, lead=(), seed=0, **given):
    """Forward and backward of an operation on the device and on the host.

    lead : axes in front of dy: (2,) as for S-MAS
    """
    y, cache = forward(*arguments, **given)
    ours, our_cache = forward(*(to_device(xp, a) for a in arguments), **given)
    assert_close(ours, y)
    rng = np.random.default_rng(seed)
    dy = rng.standard_normal((*lead, *y.shape)).astype(y.dtype)
    expected, found = backward(dy, cache), backward(to_device(xp, dy), our_cache)
    as_tuple = lambda value: value if isinstance(value, tuple) else (value,)  # noqa: E731
    for ours, reference in zip(as_tuple(found), as_tuple(expected), strict=True):
        assert_close(ours, reference)


def draws(dtype, *shapes, seed=0):
    """Standard normal numbers of these shapes."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def winners_of(x, winners):
    """x after k-WTA: exact zeros, as the pairwise head gets them."""
    return kwta_forward(x, winners)[0]


def check_dense(xp):
    for dtype in TOLERANCE:
        for size in SIZES:
            compare(xp, dense_forward, dense_backward, draws(dtype, (3, 5, size), (3, size, 7)))


def check_convolution(xp):
    for dtype in TOLERANCE:
        x, w = draws(dtype, (2, 3, 9, 8, 2), (2, 5, 5, 2, 4))
        compare(xp, conv2d_forward, conv2d_backward, (x, w), stride=2)


def check_gelu(xp):
    for dtype in TOLERANCE:
        for size in SIZES:
            for approximate in (False, True):
                for lead in ((), (2,)):
                    (x,) = draws(dtype, (3, size))
                    compare(xp, gelu_forward, gelu_backward, (x,), lead, approximate=approximate)


def check_loss(xp):
    for dtype in TOLERANCE:
        for batch in SIZES:
            logits, labels = draws(dtype, (3, batch, CLASSES))[0], np.full((3, batch), 7)
            mask = np.arange(CLASSES) >= np.array([0, 5, 7])[:, None, None]
            for given, masking in ((None, "exclude"), (mask, "exclude"), (mask, "zero")):
                loss, cache = softmax_cross_entropy_forward(logits, labels, given, masking)
                arrays = [a if a is None else to_device(xp, a) for a in (logits, labels, given)]
                ours, our_cache = softmax_cross_entropy_forward(*arrays, masking)
                assert_close(ours, loss)
                dz = softmax_cross_entropy_backward(cache)
                assert_close(softmax_cross_entropy_backward(our_cache), dz)


def check_kwta(xp):
    for dtype in TOLERANCE:
        for size in sorted({2, *SIZES} - {1}):
            for winners in {1, size // 2, size - 1}:
                for lead in ((), (2,)):
                    (x,) = draws(dtype, (3, 4, size))
                    compare(xp, kwta_forward, kwta_backward, (x,), lead, winners=winners)


def check_kwta_ties(xp):
    for dtype in TOLERANCE:
        rng = np.random.default_rng(1)
        x = rng.integers(-2, 3, (50, 33)).astype(dtype)
        x[0], x[1, ::2] = 0, -0.0
        y, (won, unit) = kwta_forward(x, 7)
        ours, (our_won, our_unit) = kwta_forward(to_device(xp, x), 7)
        for a, b in ((ours, y), (our_won, won), (our_unit, unit)):
            np.testing.assert_array_equal(host(a), b)


def check_transposed_inputs(xp):
    """A view whose rows are not contiguous: a kernel that ignores strides reads others."""
    for dtype in TOLERANCE:
        (x,) = draws(dtype, (33, 20))
        for forward, given in ((kwta_forward, {"winners": 5}), (gelu_forward, {})):
            assert_close(forward(to_device(xp, x).T, **given)[0], forward(x.T, **given)[0])


def check_pairwise(xp):
    """Single and stacked heads, repeats among the pairs, small and odd batches."""
    for dtype in TOLERANCE:
        for batch, units, winners, runs in ((1, 31, 5, ()), (33, 33, 1, (3,)), (65, 257, 40, (3,))):
            rng = np.random.default_rng(batch)
            count = CLASSES * 60
            i, j = rng.integers(0, units, (2, *runs, count))
            (x,) = draws(dtype, (*runs, batch, units))
            x, (w,) = winners_of(x, winners), draws(dtype, (*runs, count), seed=2)
            architecture = Architecture((5,), CLASSES, f"mlp-{units}-1", density=0.4)
            plain = Pairs(i, j, CLASSES)
            ours, _ = with_implementations(plain, architecture, batch, xp)
            y, cache = pairwise_forward(x, w, plain)
            found, our_cache = pairwise_forward(to_device(xp, x), to_device(xp, w), ours)
            assert_close(found, y)
            no_gradient = pairwise_forward(to_device(xp, x), to_device(xp, w), ours, False)[0]
            assert_close(no_gradient, y)
            for lead in ((), (2,)):
                (dy,) = draws(dtype, (*lead, *y.shape), seed=3)
                dx, dw = pairwise_backward(dy, cache)
                our_dx, our_dw = pairwise_backward(to_device(xp, dy), our_cache)
                assert_close(our_dw, dw)
                # Where x is zero a form may leave out dx: k-WTA passes none there.
                assert_close(our_dx * to_device(xp, x != 0), dx * (x != 0))


def check_updates(xp):
    for dtype in TOLERANCE:
        for size in SIZES:
            for name in ("sgd", "adagrad", "s-mas"):
                rule = Rule(name, 0.01, 0.3)
                theta, omega, gradient = draws(dtype, size, size, (2, size))
                omega = np.abs(omega)
                gradient = gradient if name == "s-mas" else gradient[0]
                ours = [to_device(xp, a.copy()) for a in (theta, omega)]
                update(rule, *ours, to_device(xp, gradient))
                update(rule, theta, omega, gradient)
                assert_close(ours[0], theta)
                assert_close(ours[1], omega)


OPERATIONS = (
    check_dense, check_convolution, check_gelu, check_loss, check_kwta, check_kwta_ties,
    check_transposed_inputs, check_pairwise, check_updates,
)  # fmt: skip
