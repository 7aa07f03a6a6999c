"""The elementwise kernels and k-WTA, compiled for the host, against what they stand for."""

import numpy as np
import pytest

from minipw.backend.arrays import to_device
from minipw.backend.cuda import KERNELS, has_kernels, without_kernels
from minipw.kernels import gelu_gpu, kwta_gpu, launcher, update_gpu
from minipw.nn.gelu import gelu_backward, gelu_forward
from minipw.nn.kwta import kwta_backward, kwta_forward
from minipw.rules import EPSILON, Rule, update

DTYPES = [np.float32, np.float64]
RULES = {
    "sgd": Rule("sgd", 0.05),
    "adagrad": Rule("adagrad", 0.01, 0.8),
    "s-mas": Rule("s-mas", 0.02, 0.3),
}


@pytest.fixture(autouse=True)
def host(on_host):
    return on_host()


def aligned(x):
    """A copy that begins where four of its numbers may be read at once."""
    memory = np.empty(x.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    copy[...] = x
    return copy


def assert_same_bits(first, second):
    for a, b in zip(first, second, strict=True):
        assert a.dtype == b.dtype and a.tobytes() == b.tobytes()


def check_kwta(x, winners, dy):
    """Both passes, twice, against the specification; returns what the kernels gave."""
    with without_kernels():
        expected, (won, threshold_unit) = kwta_forward(x, winners)
        expected_dx = kwta_backward(dy, (won, threshold_unit))
    y, cache = kwta_forward(x, winners)
    assert_same_bits((y, *cache), (expected, won, threshold_unit))  # one subtraction: exact
    dx = kwta_backward(dy, cache)
    # The winners' sum is added up in two orders, each off by at most H eps / 2 of the sum of
    # the absolute values; the other entries are copies.
    bound = dx.shape[-1] * np.finfo(x.dtype).eps * abs(dy).sum(-1).max()
    np.testing.assert_allclose(dx, expected_dx, rtol=0, atol=bound)
    again, again_cache = kwta_forward(x, winners)
    assert_same_bits((y, *cache, dx), (again, *again_cache, kwta_backward(dy, again_cache)))
    return y, cache, dx


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("units", [2, 31, 33, 257])
def test_kwta_equals_the_specification(rng, units, dtype):
    for winners in sorted({1, max(units // 7, 1), units - 1}):
        for lead in [(1,), (3, 2)]:
            x = rng.standard_normal((*lead, units)).astype(dtype)
            dy = rng.standard_normal((2, *lead, units)).astype(dtype)
            check_kwta(x, winners, dy)
            check_kwta(x, winners, dy[0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_kwta_with_ties_and_signed_zeros(rng, dtype):
    x = rng.integers(-1, 2, (6, 33)).astype(dtype) * 0.5
    x[0] = 0.25  # all tied: no winner
    x[1, :20] = -0.0  # equal to the zeros
    x[2] = np.finfo(dtype).smallest_subnormal * np.arange(33)
    x[3] = np.linspace(-1, 1, 33) * (np.finfo(dtype).max / 4)
    for winners in (1, 16, 32):
        y, (won, _), _ = check_kwta(x, winners, np.ones_like(x))
        assert not won[0].any() and not y[0].any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_kwta_with_whole_blocks(on_host, rng, dtype):
    on_host(block=256)
    x = rng.standard_normal((2, 700)).astype(dtype)
    check_kwta(x, 104, x)


def test_kwta_passes_on_what_is_not_finite(rng):
    x = rng.standard_normal((3, 33))
    x[0, 4], x[1, 4], x[2, 4] = np.nan, np.inf, -np.inf
    y, (_, threshold_unit) = kwta_forward(x, 5)
    assert np.isnan(y[0]).any() and y[1, 4] == np.inf
    assert np.isfinite(y[2]).all() and (threshold_unit < 33).all()


def test_kwta_refuses_a_number_of_winners_without_losers(rng):
    for winners in (0, 33):
        with pytest.raises(ValueError, match=f"winners = {winners} .* from 1 to 32"):
            kwta_gpu.forward(rng.standard_normal((3, 33)), winners)


@pytest.mark.parametrize("approximate", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (31,), (33,), (3, 257), (2, 3, 4)])
def test_gelu_equals_the_specification(rng, shape, dtype, approximate):
    x = aligned((3 * rng.standard_normal(shape)).astype(dtype))
    dy = aligned(rng.standard_normal((2, *shape)).astype(dtype))
    with without_kernels():
        expected, cache = gelu_forward(x, approximate)
        expected_dx = gelu_backward(dy, cache)
    # s is in [0, 1] and within 8 units of the last place of it; x and dy are at most 16.
    close = {"rtol": 0, "atol": 128 * np.finfo(dtype).eps}
    y, ours = gelu_forward(x, approximate)
    np.testing.assert_allclose(y, expected, **close)
    np.testing.assert_allclose(ours[1], cache[1], **close)
    dx = gelu_backward(dy, ours)
    np.testing.assert_allclose(dx, expected_dx, **close)
    np.testing.assert_allclose(gelu_backward(dy[1], ours), expected_dx[1], **close)
    assert y.dtype == dx.dtype == dtype
    again, again_cache = gelu_forward(x, approximate)
    assert_same_bits((y, dx), (again, gelu_backward(dy, again_cache)))


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (31,), (33, 1), (3, 257), (2, 3, 4), (400,)])
def test_updates_equal_the_specification(rng, shape, dtype, rule):
    theta = aligned(rng.standard_normal(shape).astype(dtype))
    omega = aligned(rng.uniform(0, 2, shape).astype(dtype))
    lead = (2,) if rule.needs_output_norm else ()
    gradient = aligned(rng.standard_normal((*lead, *shape)).astype(dtype))
    gradient[..., 0] = 0
    expected, expected_omega = theta.copy(), omega.copy()
    again, again_omega = theta.copy(), omega.copy()
    with without_kernels():
        update(rule, expected, expected_omega, gradient)
    update(rule, theta, omega, gradient)
    # The same five operations; a compiler may join a product and a sum to one rounding.
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(theta, expected, rtol=8 * eps, atol=eps)
    np.testing.assert_allclose(omega, expected_omega, rtol=8 * eps)
    update(rule, again, again_omega, gradient)
    assert_same_bits((theta, omega), (again, again_omega))


def test_wide_and_single_entries_give_the_same_bits(rng, host):
    host.records = []
    x = rng.standard_normal(65).astype(np.float32)
    wide, single = aligned(x[1:]), aligned(x)[1:]  # the second begins at 4 of 16 bytes
    results = []
    for x in (wide, single):
        y, cache = gelu_forward(x, True)
        dx, theta, omega = gelu_backward(x, cache), x.copy(), abs(x)
        update(RULES["adagrad"], theta, omega, x)
        results.append((y, dx, theta, omega))
    assert_same_bits(*results)
    names = {record[1][0] for record in host.records}
    assert {"gelu_backward<float, 1, true>", "update_importance<float, 1, false>"} <= names
    assert launcher.pack_width(64, wide) == 4 and launcher.pack_width(64, wide, single) == 1
    assert launcher.pack_width(63, wide) == 1


def test_inputs_in_another_order_are_copied_and_parameters_are_refused(rng):
    x = rng.standard_normal((33, 4)).T
    straight = np.ascontiguousarray(x)
    y, cache = kwta_forward(x, 5)
    assert_same_bits((y,), kwta_forward(straight, 5)[:1])
    assert_same_bits((kwta_backward(x, cache),), (kwta_backward(straight, cache),))
    y, cache = gelu_forward(x)
    assert_same_bits((y,), gelu_forward(straight)[:1])
    assert_same_bits((gelu_backward(x, cache),), (gelu_backward(straight, cache),))
    for arrays in ((x, straight), (straight, x)):
        with pytest.raises(ValueError, match=r"(theta|omega) .*not contiguous"):
            update(RULES["adagrad"], *arrays, straight)


def test_the_launcher_names_what_does_not_fit(rng, host):
    x = rng.standard_normal((3, 8))
    _, cache = gelu_gpu.forward(x, True)
    with pytest.raises(ValueError, match=r"x has type int64: the kernel takes float32 or float64"):
        kwta_gpu.forward(np.arange(9), 2)
    with pytest.raises(ValueError, match=r"dy has shape \(3, 7\), the kernel expects \(3, 8\)"):
        gelu_gpu.backward(x[:, 1:], cache)
    with pytest.raises(ValueError, match="dy has type float32: the kernel takes float64"):
        gelu_gpu.backward(x.astype(np.float32), cache)
    with pytest.raises(ValueError, match="omega has type float32"):
        update_gpu.update(RULES["sgd"], x, x.astype(np.float32), x, EPSILON)
    with pytest.raises(ValueError, match="packs = 4294967296 is more than the kernel can count"):
        launcher.launch(("gelu.cu",), "f", (x.dtype,), (1,), {"x": x, "packs": 1 << 32})
    with pytest.raises(ValueError, match=r"f: a grid of .* is too large"):
        launcher.launch(("gelu.cu",), "f", (x.dtype,), (1, 1 << 16), {"x": x})
    with pytest.raises(ValueError, match=r"b of shape .* is not contiguous"):
        launcher.launch(("gelu.cu",), "f", (x.dtype,), (1,), {"a": x, "b": x.T})

    class Elsewhere(np.ndarray):
        device = "another device"

    with pytest.raises(ValueError, match="b is on another device, a on cpu"):
        launcher.launch(("gelu.cu",), "f", (x.dtype,), (1,), {"a": x, "b": x.view(Elsewhere)})


def test_scalars_are_cast_to_what_the_kernel_takes(rng, host):
    # CuPy would hand over a Python number as a double or a long long; `Host` compares.
    theta = rng.standard_normal(33).astype(np.float32)
    update_gpu.update(Rule("adagrad", np.float64(0.1), 1), theta, abs(theta), theta, EPSILON)
    compiled = host.compile(
        (launcher.files("minipw.kernels") / "kwta.cu").read_text(), "kwta_backward<float>"
    )
    with pytest.raises(AssertionError, match="takes ppppi4i4, was given pi8"):
        compiled((1,), (32,), (theta, np.int64(3)))


def test_empty_arrays_start_nothing(host):
    host.records = []
    y, cache = kwta_forward(np.zeros((0, 9)), 3)
    assert kwta_backward(y, cache).shape == y.shape == (0, 9)
    y, cache = gelu_forward(np.zeros((0, 9)))
    assert gelu_backward(y, cache).shape == (0, 9)
    assert host.records == []


def test_which_arrays_go_to_kernels():
    assert has_kernels(np)
    with pytest.raises(ZeroDivisionError), without_kernels():
        assert not has_kernels(np)
        raise ZeroDivisionError
    assert has_kernels(np) and set(KERNELS) == {"cupy", "numpy"}
    x = np.ones(3)
    assert to_device(np, x) is x


def test_a_wrong_sign_is_found(on_host, rng):
    x = rng.standard_normal((2, 33))
    kwta_forward(x, 5)
    on_host(change=lambda text: text.replace("] = -sums[0]", "] = sums[0]"), level="-O0")
    with pytest.raises(AssertionError):
        check_kwta(x, 5, x)
    on_host(change=lambda text: text.replace("t.at[k] -= g", "t.at[k] += g"), level="-O0")
    with pytest.raises(AssertionError):
        test_updates_equal_the_specification(rng, (33,), np.float64, RULES["adagrad"])
