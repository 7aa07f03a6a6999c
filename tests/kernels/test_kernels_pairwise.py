"""The kernels of the pairwise head, compiled for the host, against the defining form."""

import numpy as np
import pytest

from minipw.backend.cuda import without_kernels
from minipw.kernels import pairwise_gpu
from minipw.kernels.pairwise_gpu import NARROW, DevicePairs, build_tables, list_active
from minipw.nn.kwta import kwta_forward
from minipw.nn.pairwise import Pairs, pairwise_backward, pairwise_forward

CLASSES = 3
# Where the kernels find the lists of active units: the bytes of shared memory of a block,
# and how many winners the form is told of. With too few it notices on the device.
PLACES = {
    "shared memory": (64 << 10, None),
    "global memory": (5 << 10, None),
    "more than there is room for": (64 << 10, 1),
}


@pytest.fixture(params=PLACES)
def place(request, on_host):
    shared, winners = PLACES[request.param]
    on_host(shared=shared)
    return winners


def draw(rng, lead, batch, units, dtype, count=42, winners=None):
    """Pairs with repeats, reversed ones and squares, x as k-WTA leaves it, w and two dy."""
    i, j = rng.integers(0, units, (2, *lead, count))
    third = count // 3
    i[..., third : 2 * third], j[..., third : 2 * third] = j[..., :third], i[..., :third]
    x = rng.standard_normal((*lead, batch, units)).astype(dtype)
    if winners is not None:
        with without_kernels():
            x = kwta_forward(x, winners)[0]
    w = rng.standard_normal((*lead, count)).astype(dtype)
    dy = rng.standard_normal((2, *lead, batch, CLASSES)).astype(dtype)
    return i, j, x, w, dy


def defined(i, j, x, w, dy):
    """y, dx and dw of the defining form; dx without the units that k-WTA gives none to."""
    y, cache = pairwise_forward(x, w, Pairs(i, j, CLASSES))
    dx, dw = pairwise_backward(dy, cache)
    return y, dx * (x != 0), dw


def computed(i, j, x, w, dy, winners=None):
    """The same by the kernels."""
    form = DevicePairs(i, j, CLASSES, x.shape[-1], winners)
    y, cache = pairwise_forward(x, w, Pairs(i, j, CLASSES, form))
    return y, *pairwise_backward(dy, cache)


def assert_equal_sums(ours, i, j, x, w, dy):
    """Equal to the defining form in float64, within the rounding of the sums in x's type.

    A sum of n terms, added in any order, is off by at most n eps times the sum of their
    absolute values; three roundings make a term. The sums of the absolute values are what
    the defining form gives for absolute values.
    """
    terms = w.shape[-1] + x.shape[-2] + 3
    wide = [a.astype(np.float64) for a in (x, w, dy)]
    expected = defined(i, j, *wide)
    sizes = defined(i, j, *map(abs, wide))
    for a, b, size in zip(ours, expected, sizes, strict=True):
        assert a.shape == b.shape and a.dtype == x.dtype
        off = abs(a - b)
        assert (off <= terms * np.finfo(x.dtype).eps * size).all(), off.max()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("batch", [1, 31, 33, 70])
@pytest.mark.parametrize("units", [1, 2, 31, 33, 257])
def test_kernels_equal_the_defining_form(on_host, rng, units, batch, dtype):
    on_host()
    winners = {1: 1, 31: max(units // 3, 1), 33: units - 1, 70: max(units // 7, 1)}[batch]
    winners = min(winners, 12) if units == 257 else winners  # time
    problem = draw(rng, (), batch, units, dtype, winners=winners if units > 1 else None)
    assert_equal_sums(computed(*problem), *problem)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("gradients", [1, 2])
def test_wherever_the_lists_lie(place, rng, dtype, gradients):
    i, j, x, w, dy = draw(rng, (2,), 33, 65, dtype, 420, winners=8)
    dy = dy if gradients == 2 else dy[0]
    assert_equal_sums(computed(i, j, x, w, dy, place), i, j, x, w, dy)


def test_two_calls_give_the_same_bits(place, rng):
    problem = draw(rng, (2,), 33, 65, np.float32, 420, winners=8)
    for first, second in zip(*(computed(*problem, place) for _ in range(2)), strict=True):
        assert first.tobytes() == second.tobytes()


def test_the_places_are_what_they_are_called(on_host, rng):
    for shared, winners in PLACES.values():
        host = on_host(shared=shared)
        host.records = []
        problem = draw(rng, (2,), 33, 65, np.float32, 420, winners=8)
        computed(*problem, winners)
        rooms = {
            int.from_bytes(before[-1], "little", signed=True)
            for _, (name, _, _, before, _) in host.records
            if name.startswith(("pairwise_forward", "pairwise_dw"))
        }
        assert rooms == {(64 << 10, None): {32 * 17, 64 * 17}, (64 << 10, 1): {32, 64}}.get(
            (shared, winners), {-1}
        )


def test_all_units_active_and_none(on_host, rng):
    on_host()
    for empty in (False, True):
        i, j, x, w, dy = draw(rng, (2,), 40, 33, np.float64)
        x *= not empty
        assert_equal_sums(computed(i, j, x, w, dy), i, j, x, w, dy)


def test_stacked_runs_have_the_bits_of_single_ones(on_host, rng):
    on_host()
    i, j, x, w, dy = draw(rng, (3,), 33, 31, np.float32, 420, winners=9)
    stacked = computed(i, j, x, w, dy)
    for r in range(3):
        single = computed(i[r], j[r], x[r], w[r], dy[:, r])
        for axis, (a, b) in zip((0, 1, 1), zip(stacked, single, strict=True), strict=True):
            assert a.take(r, axis=axis).tobytes() == b.tobytes()


def test_gradients_do_not_depend_on_the_block(on_host, rng):
    problem = draw(rng, (), 33, 31, np.float32, 420, winners=9)
    results = []
    for block in (32, 64, 128):
        on_host(block=block)
        results.append(computed(*problem)[1:])
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert a.tobytes() == b.tobytes()


def test_whole_blocks(on_host, rng):
    on_host(block=256, shared=227 << 10)
    problem = draw(rng, (), 33, 70, np.float32, 4200, winners=10)
    assert_equal_sums(computed(*problem), *problem)


def test_many_classes_take_a_larger_block(on_host, rng):
    on_host()
    i, j, x, w, _ = draw(rng, (), 3, 31, np.float64, 100, winners=9)
    dy = rng.standard_normal((3, 50))
    with without_kernels():
        y, cache = pairwise_forward(x, w, Pairs(i, j, 50))
        dx, dw = pairwise_backward(dy, cache)
    form = DevicePairs(i, j, 50, 31)
    ours, cache = form.forward(x, w)
    our_dx, our_dw = form.backward(dy, cache)
    close = {"rtol": 1e-13, "atol": 1e-13}  # sums of tens of terms of order 1
    np.testing.assert_allclose(ours, y, **close)
    np.testing.assert_allclose(our_dx, dx * (x != 0), **close)
    np.testing.assert_allclose(our_dw, dw, **close)


def test_wide_layers_take_wide_indices(on_host, rng, monkeypatch):
    i, j = np.array([[[NARROW - 1], [0]]]), np.array([[[0], [NARROW]]])
    for n, dtype in enumerate((np.uint16, np.int32)):
        tables = build_tables(i[:, n], j[:, n], NARROW + n, 1)
        assert tables.pairs.dtype == tables.partner.dtype == dtype
        assert tables.pairs.tolist() == [[[i[0, n, 0], j[0, n, 0]]]]
    host = on_host()
    host.records = []
    monkeypatch.setattr(pairwise_gpu, "NARROW", 8)
    problem = draw(rng, (2,), 33, 31, np.float64, winners=9)
    assert_equal_sums(computed(*problem), *problem)
    names = [name for _, (name, *_) in host.records]
    assert (
        "pairwise_forward<double, int>" in names
        and "pairwise_dx<double, int, 2, 16, true>" in names
    )


def test_lists_hold_the_active_units_in_order(on_host, rng):
    on_host()
    x = rng.standard_normal((2, 40, 70)) * (rng.uniform(size=(2, 40, 70)) < 0.2)
    active, values = list_active(x)
    for r in range(2):
        for word in range(2):
            part = x[r, 32 * word : 32 * word + 32]
            place = word * 32 * 70
            for unit in range(70):
                samples = np.flatnonzero(part[:, unit])
                assert active[r, word, unit].tolist() == [sum(1 << s for s in samples), place]
                found = values[r, place : place + samples.size]
                np.testing.assert_array_equal(found, part[samples, unit])
                place += samples.size


def test_tables_list_every_pair_under_both_units(rng):
    i, j = rng.integers(0, 9, (2, 2, 21))
    tables = build_tables(i, j, 9, 3)
    assert tables.pairs.dtype == tables.partner.dtype == np.uint16
    for r in range(2):
        pairs = list(zip(i[r].tolist(), j[r].tolist(), strict=True))
        for unit in range(9):
            part = slice(*tables.starts[r, unit : unit + 2])
            p = (tables.weight[r, part] >> 2) * 3 + (tables.weight[r, part] & 3)
            entries = zip(tables.partner[r, part].tolist(), p.tolist(), strict=True)
            expected = [(b, p) for p, (a, b) in enumerate(pairs) if a == unit]
            expected += [(a, p) for p, (a, b) in enumerate(pairs) if b == unit]
            assert list(entries) == sorted(expected, key=lambda entry: entry[0])


def test_arrays_in_another_order_are_copied(on_host, rng):
    on_host()
    i, j, x, w, dy = draw(rng, (), 33, 31, np.float64, winners=9)
    turned = computed(i, j, np.asfortranarray(x), w, np.asfortranarray(dy))
    for a, b in zip(turned, computed(i, j, x, w, dy), strict=True):
        assert a.tobytes() == b.tobytes()


def test_what_does_not_fit_is_refused(on_host, rng):
    on_host(shared=2 << 10)
    i, j, x, w, dy = draw(rng, (), 3, 31, np.float32)
    form = DevicePairs(i, j, CLASSES, 31)
    with pytest.raises(ValueError, match=r"3 classes take 4096 bytes .* has 2048: use"):
        form.forward(x, w)
    on_host()
    for wrong in ({"x": x[:, 1:]}, {"x": x.astype(int)}, {"w": w[1:]}, {"w": w.astype(float)}):
        name = next(iter(wrong))
        with pytest.raises(ValueError, match=f"{name} has (type|shape)"):
            form.forward(**{"x": x, "w": w, **wrong})
    _, cache = form.forward(x, w)
    with pytest.raises(ValueError, match="dy has shape"):
        form.backward(dy[..., 1:], cache)
    with pytest.raises(ValueError, match="stacks 3 gradients"):
        form.backward(np.stack([dy[0]] * 3), cache)
    with pytest.raises(ValueError, match="too many for one call"):
        list_active(np.lib.stride_tricks.as_strided(x, (1, 1 << 20, 1 << 12), (0, 0, 0)))
    for wrong in ((i, j + 31, 3), (i - 31, j, 3), (i, j, 4), (i, j[1:], 3), (i[:0], j[:0], 3)):
        with pytest.raises(ValueError, match=r"pair|shapes"):
            DevicePairs(*wrong, 31)


def test_a_wrong_kernel_is_found(on_host, rng):
    problem = draw(rng, (), 33, 31, np.float64, 420, winners=9)
    on_host()
    right = computed(*problem)
    wrong = {
        "weight * z": "-weight * z",  # y
        "w_p * x": "T(1.001) * w_p * x",  # dx
        "sum[g] += z": "sum[g] = z",  # dw
    }

    def change(text):
        for old, new in wrong.items():
            text = text.replace(old, new)
        return text

    on_host(change=change, level="-O0")
    for n, result in enumerate(computed(*problem)):
        with pytest.raises(AssertionError):
            assert_equal_sums([*right[:n], result, *right[n + 1 :]], *problem)
