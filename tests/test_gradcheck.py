"""The gradient check refuses wrong gradients, each in its own way, and passes right ones."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from minipw.gradcheck import GradientError, check, check_network, main
from minipw.kernels.pairwise_cpu import ListedPairs, WinnerPairs
from minipw.kernels.pairwise_matrix import MatrixPairs
from minipw.network.architecture import Architecture
from minipw.network.network import Network
from minipw.nn import dense, gelu, pairwise
from minipw.nn.conv import conv2d_backward, conv2d_forward
from minipw.nn.dense import dense_backward, dense_forward
from minipw.nn.gelu import gelu_backward, gelu_forward
from minipw.nn.kwta import kwta_backward, kwta_forward
from minipw.nn.loss import softmax_cross_entropy_backward, softmax_cross_entropy_forward
from minipw.nn.pairwise import Pairs, pairwise_backward, pairwise_forward
from minipw.rules import Rule

NUMBERS = r"the backward says \S+, the finite difference \S+"
LABELS = np.array([0, 3, 1])
PAIRS = Pairs(np.array([1, 2, 2, 4, 3, 4]), np.array([0, 0, 1, 2, 1, 0]), 3)

OPERATIONS = {
    "dense": (dense_forward, dense_backward, [(3, 5), (5, 4)]),
    "conv": (lambda x, w: conv2d_forward(x, w, 2), conv2d_backward, [(2, 5, 3, 2), (3, 3, 2, 2)]),
    "gelu": (gelu_forward, gelu_backward, [(3, 5)]),
    "kwta": (lambda x: kwta_forward(x, 2), kwta_backward, [(3, 5)]),
    "pairwise": (lambda x, w: pairwise_forward(x, w, PAIRS), pairwise_backward, [(3, 5), (6,)]),
    "loss": (
        lambda z: softmax_cross_entropy_forward(z, LABELS),
        lambda dy, cache: dy * softmax_cross_entropy_backward(cache),
        [(3, 4)],
    ),
}


def off_by_a_thousandth(which):
    def spoil(gradients, arguments, cache, dy):
        gradients[which] = gradients[which] * 1.001

    return spoil


def kwta_without_the_subtracted_unit(gradients, arguments, cache, dy):
    gradients[0] = dy * cache[0]


def kwta_paying_at_the_wrong_unit(gradients, arguments, cache, dy):
    gradients[0] = np.roll(gradients[0] * ~cache[0], 1, axis=-1) + dy * cache[0]


def pairwise_without_the_second_factor(gradients, arguments, cache, dy):
    x, w = arguments
    dx = np.zeros_like(x)
    for p in range(6):
        dx[:, PAIRS.i[p]] += w[p] * dy[:, p % 3] * x[:, PAIRS.j[p]]
    gradients[0] = dx


def pairwise_with_outputs_in_blocks(gradients, arguments, cache, dy):
    x, _ = arguments
    z = x[:, PAIRS.i] * x[:, PAIRS.j]
    gradients[1] = (z * np.repeat(dy, 2, axis=1)).sum(0)  # p // 2 instead of p mod 3


def conv_with_a_tap_of_the_wrong_pixel(gradients, arguments, cache, dy):
    gradients[1] = gradients[1].copy()
    gradients[1][1, 1] = gradients[1][1, 2]


def conv_with_the_kernel_turned(gradients, arguments, cache, dy):
    x, w = arguments
    _, turned = conv2d_forward(x, w[::-1, ::-1], 2)
    gradients[0] = conv2d_backward(dy, turned)[0]


def gelu_without_x_times_the_slope(gradients, arguments, cache, dy):
    gradients[0] = dy * cache[1]


def gelu_of_the_other_form(gradients, arguments, cache, dy):
    gradients[0] = gelu_backward(dy, gelu_forward(arguments[0], approximate=True)[1])


def dense_without_one_sample(gradients, arguments, cache, dy):
    gradients[1] = arguments[0][1:].T @ dy[1:]


def loss_without_the_mean(gradients, arguments, cache, dy):
    gradients[0] = 3 * gradients[0]


def one_entry_wrong(gradients, arguments, cache, dy):
    gradients[0] = gradients[0].copy()
    gradients[0][-1, -1] += 1e-3


WRONG = [
    ("dense", 0, off_by_a_thousandth(0)),
    ("dense", 1, off_by_a_thousandth(1)),
    ("dense", 1, dense_without_one_sample),
    ("dense", 0, one_entry_wrong),
    ("conv", 0, off_by_a_thousandth(0)),
    ("conv", 1, off_by_a_thousandth(1)),
    ("conv", 1, conv_with_a_tap_of_the_wrong_pixel),
    ("conv", 0, conv_with_the_kernel_turned),
    ("gelu", 0, off_by_a_thousandth(0)),
    ("gelu", 0, gelu_without_x_times_the_slope),
    ("gelu", 0, gelu_of_the_other_form),
    ("kwta", 0, off_by_a_thousandth(0)),
    ("kwta", 0, kwta_without_the_subtracted_unit),
    ("kwta", 0, kwta_paying_at_the_wrong_unit),
    ("pairwise", 0, off_by_a_thousandth(0)),
    ("pairwise", 1, off_by_a_thousandth(1)),
    ("pairwise", 0, pairwise_without_the_second_factor),
    ("pairwise", 1, pairwise_with_outputs_in_blocks),
    ("loss", 0, off_by_a_thousandth(0)),
    ("loss", 0, loss_without_the_mean),
]


def prepare(name, rng):
    """Function, arguments, right gradients, dy, and the cache they came from."""
    forward, backward, shapes = OPERATIONS[name]
    arguments = [rng.standard_normal(shape) for shape in shapes]
    y, cache = forward(*arguments)
    dy = rng.standard_normal(np.shape(y))
    gradients = backward(dy, cache)
    gradients = list(gradients) if isinstance(gradients, tuple) else [gradients]
    return (lambda *a: forward(*a)[0]), arguments, gradients, dy, cache


@pytest.mark.parametrize("entries", [None, 4])
@pytest.mark.parametrize("name", OPERATIONS)
def test_right_gradients_pass_and_the_arguments_come_back(name, rng, entries):
    function, arguments, gradients, dy, _ = prepare(name, rng)
    kept = [a.copy() for a in arguments]
    check(function, arguments, gradients, dy, None, entries, rng)
    for now, before in zip(arguments, kept, strict=True):
        np.testing.assert_array_equal(now, before)


@pytest.mark.parametrize(
    ("name", "which", "spoil"), WRONG, ids=lambda v: getattr(v, "__name__", None)
)
def test_wrong_gradients_are_refused(name, which, spoil, rng):
    function, arguments, gradients, dy, cache = prepare(name, rng)
    spoil(gradients, arguments, cache, dy)
    names = ["first", "second"][: len(arguments)]
    with pytest.raises(GradientError) as error:
        check(function, arguments, gradients, dy, names)
    assert re.fullmatch(rf"{names[which]}\[(\d+, )*\d+\]: {NUMBERS}", str(error.value))


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_random_direction_alone_finds_a_wrong_gradient(name, rng):
    function, arguments, gradients, dy, _ = prepare(name, rng)
    gradients[0] = gradients[0] * 1.001
    with pytest.raises(GradientError, match=f"argument 0 along a random direction: {NUMBERS}"):
        check(function, arguments, gradients, dy, None, 0, rng)


def test_the_message_holds_both_numbers():
    # The derivative of 3 x^2 at 2 is 12; 13 is claimed.
    with pytest.raises(GradientError, match=rf"^x\[0\]: {NUMBERS}$") as error:
        check(lambda x: 3 * x**2, [np.array([2.0])], [np.array([13.0])], None, ["x"])
    claimed, numeric = map(float, re.findall(r"\d+\.?\d*(?=,|$)", str(error.value)))
    assert claimed == 13
    assert abs(numeric - 12) < 1e-8  # h^2 is 1e-10, the rounding of 12 over h 1e-10


@pytest.mark.parametrize("shape", [(4,), (1, 5), (5, 3), ()])
def test_a_gradient_of_the_wrong_shape_is_refused(shape):
    x = np.ones((3, 5))
    with pytest.raises(GradientError, match=r"^x: shape \(.*\), expected \(3, 5\)$"):
        check(lambda a: a.sum(), [x], [np.ones(shape)], None, ["x"])


def test_the_number_of_gradients_must_fit():
    with pytest.raises(ValueError, match="zip"):
        check(lambda a, b: a + b, [np.ones(1), np.ones(1)], [np.ones(1)], None, ["a", "b"])


def test_a_claim_of_zero_is_checked_too():
    check(lambda a: 0 * a, [np.ones(3)], [np.zeros(3)])
    with pytest.raises(GradientError, match=r"argument 0\[0\]"):
        check(lambda a: 1e-3 * a, [np.ones(3)], [np.zeros(3)])


@pytest.mark.parametrize("rule", ["adagrad", "s-mas"])
@pytest.mark.parametrize("name", ["dense0", "dense1", "head"])
def test_a_wrong_gradient_of_a_network_is_refused(name, rule, rng):
    class Wrong(Network):
        def backward(self, dlogits, caches):
            gradients = super().backward(dlogits, caches)
            return gradients | {name: 1.001 * gradients[name]}

    architecture = Architecture((5,), 4, "mlp-9-2", "fc", 0.5)
    network = Wrong.create(architecture, rng, rng, np.float64)
    x, labels = rng.standard_normal((9, 5)), rng.integers(0, 4, 9)
    with pytest.raises(GradientError, match=rf"^d loss / d {name}\b.*: {NUMBERS}"):
        check_network(network, x, labels, Rule(rule, 0.01), entries=6)


@pytest.mark.parametrize(
    ("place", "name", "named"),
    [
        (dense, "dense_backward", "dense"),
        (pairwise, "pairwise_backward", "pairwise"),
        (WinnerPairs, "backward", "WinnerPairs"),
        (ListedPairs, "backward", "ListedPairs"),
        (MatrixPairs, "backward", "MatrixPairs"),
    ],
)
def test_the_command_names_the_wrong_gradient(place, name, named, monkeypatch):
    right = getattr(place, name)

    def wrong(*arguments):
        dx, dw = right(*arguments)
        return dx, -dw

    monkeypatch.setattr(place, name, wrong)
    with pytest.raises(GradientError, match=rf"^{named}, dw\[0(, 0)?\]: {NUMBERS}$"):
        main()


def test_a_wrong_factor_of_gelu_is_found(monkeypatch):
    monkeypatch.setattr(gelu, "DENSITY_AT_ZERO", 1.001 * gelu.DENSITY_AT_ZERO)
    with pytest.raises(GradientError, match=rf"^gelu, exact, dx\[0, 0\]: {NUMBERS}$"):
        main()


def test_the_command_ends_with_one_line():
    code = """
import runpy
from minipw.nn import gelu
gelu.gelu_backward = lambda dy, cache: dy * cache[1]
runpy.run_module("minipw.gradcheck", run_name="__main__")
"""
    root = Path(__file__).parent.parent
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert re.fullmatch(rf"wrong gradient: gelu, exact, dx\[0, 0\]: {NUMBERS}\n", done.stderr)


def test_the_module_runs_as_a_command():
    root = Path(__file__).parent.parent
    command = [sys.executable, "-W", "error", "-m", "minipw.gradcheck"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    for name in ("dense", "conv2d", "gelu, exact", "gelu, tanh", "k-WTA", "pairwise",
                 "WinnerPairs", "ListedPairs", "MatrixPairs", "softmax",
                 "output norm", "mlp-12-2, pairwise", "mlp-12-2, fc",
                 "cnn-s, pairwise", "cnn-s, fc"):  # fmt: skip
        assert sum(line.startswith(name) for line in lines) == 1, name
    assert len(lines) == 15
    assert all(re.search(r" [1-9]\d* (derivatives|parameter gradients) agree$", x) for x in lines)
