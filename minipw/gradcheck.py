"""Finite differences: is a gradient the derivative of its function?

    python -m minipw.gradcheck

checks every operation and a few whole networks, and names a wrong gradient with both
numbers. As a library, `check` takes any function and its gradients:

    check(lambda x: dense_forward(x, w)[0], [x], [dx], dy)
"""

import sys
from functools import partial

import numpy as np

from minipw.backend.sparse_gradient import to_dense
from minipw.kernels.pairwise_cpu import ListedPairs, WinnerPairs
from minipw.kernels.pairwise_matrix import MatrixPairs
from minipw.network.architecture import Architecture
from minipw.network.network import Network
from minipw.nn import conv, dense, gelu, kwta, loss, pairwise
from minipw.rules import Rule

STEP = 1e-5
"""h of the central difference: the truncation error h^2 and the rounding error
1e-16 / h of float64 are both near 1e-10."""
TOLERANCE = 1e-6
ROUNDING = 4 * np.finfo(np.float64).eps / STEP
"""Of (L(a + h) - L(a - h)) / 2h, relative to L."""


class GradientError(AssertionError):
    """A gradient that is not the derivative; the message has both numbers."""


def check(function, arguments, gradients, dy=None, names=None, entries=None, rng=None):
    """Compare gradients with central differences; a `GradientError` names a wrong entry.

        (L(a + h) - L(a - h)) / 2h,  L = sum(dy * function(...))

    Parameters
    ----------
    function : callable of the arguments, returning an ndarray or scalar
    arguments : list of float64 ndarray
        Changed entry by entry during the check and restored.
    gradients : list of ndarray
        Claimed derivatives of L by each argument.
    dy : ndarray of the function's shape, or None for 1
    names : list of str, for the message
    entries : int or None
        A number checks that many random entries of each argument and one random direction;
        None checks every entry.
    rng : numpy.random.Generator

    Notes
    -----
    The tolerance is relative to the larger of the two numbers or, for an entry much
    smaller than the others, to the typical size of the gradient. The rounding of L, eps |L| / h,
    is allowed too: the check says nothing about gradients below 1e-10 |L|.
    """
    names = names or [f"argument {n}" for n in range(len(arguments))]

    def scalar():
        return float(np.sum(function(*arguments) * (1 if dy is None else dy)))

    def compare(name, claimed, argument, index, direction, typical):
        kept = argument[index].copy()
        argument[index] = kept + STEP * direction
        above = scalar()
        argument[index] = kept - STEP * direction
        below = scalar()
        argument[index] = kept
        numeric = (above - below) / (2 * STEP)
        size = max(abs(claimed), abs(numeric), typical)
        if abs(claimed - numeric) > TOLERANCE * size + ROUNDING * abs(above):
            raise GradientError(
                f"{name}: the backward says {claimed:.10g}, the finite difference {numeric:.10g}"
            )

    for name, argument, gradient in zip(names, arguments, gradients, strict=True):
        if gradient.shape != argument.shape:
            raise GradientError(f"{name}: shape {gradient.shape}, expected {argument.shape}")
        typical = np.sqrt(np.mean(np.square(gradient))) or 1.0
        for entry in _entries(argument, entries, rng):
            where = f"{name}{list(map(int, entry))}"
            compare(where, gradient[entry], argument, entry, 1.0, typical)
        if entries is not None:
            direction = rng.standard_normal(argument.shape)
            direction /= np.linalg.norm(direction)
            claimed = float(np.sum(gradient * direction))
            compare(f"{name} along a random direction", claimed, argument, ..., direction, 0.0)


def _entries(argument, count, rng):
    if count is None:
        return np.ndindex(argument.shape)
    picked = rng.choice(argument.size, min(count, argument.size), replace=False)
    return zip(*np.unravel_index(picked, argument.shape), strict=True)


def check_network(network, x, labels, rule, mask=None, masking="exclude", entries=20):
    """Check the gradients of a float64 network: of the loss, for S-MAS of the output norm too.

    Parameters
    ----------
    network, x, labels, rule, mask, masking : as in `Network.loss_gradients`
    entries : int or None, as in `check`

    Returns
    -------
    int, the gradients compared
    """
    rng = np.random.default_rng(0)
    _, _, gradients = network.loss_gradients(x, labels, rule, mask, masking)

    def cross_entropy(_):
        return loss.softmax_cross_entropy_forward(network.forward(x)[0], labels, mask, masking)[0]

    def norm(_):
        return loss.output_norm_forward(network.forward(x)[0], rule.smas_norm)[0]

    functions = {"loss": cross_entropy}
    if rule.needs_output_norm:
        functions["output norm"] = norm
    compared = 0
    for n, (what, function) in enumerate(functions.items()):
        for name, parameter in network.parameters.items():
            gradient = to_dense(gradients[name], parameter.shape[-1])
            gradient = gradient[n] if rule.needs_output_norm else gradient
            label = f"d {what} / d {name}"
            check(function, [parameter], [gradient], None, [label], entries, rng)
            compared += 1
    return compared


def operations(rng):
    """Arguments of `check_operation`: all of `nn`, and of `kernels` what runs on a CPU."""

    def draw(*shape):
        return rng.standard_normal(shape)

    x, labels = draw(3, 5), rng.integers(0, 4, 3)
    i = rng.integers(0, 5, 12)
    j = (i + rng.integers(1, 5, 12)) % 5
    yield "dense", dense.dense_forward, dense.dense_backward, [x, draw(5, 4)], "xw"
    convolution = partial(conv.conv2d_forward, stride=2)
    images = [draw(2, 5, 6, 2), draw(3, 3, 2, 4)]
    yield "conv2d, stride 2", convolution, conv.conv2d_backward, images, "xw"
    for name, approximate in (("gelu, exact", False), ("gelu, tanh form", True)):
        forward = partial(gelu.gelu_forward, approximate=approximate)
        yield name, forward, gelu.gelu_backward, [x], "x"
    yield "k-WTA", partial(kwta.kwta_forward, winners=2), kwta.kwta_backward, [x], "x"
    for kind in (None, WinnerPairs, ListedPairs, MatrixPairs):
        pairs = pairwise.Pairs(i, j, 3, kind and kind(i, j, 3, 5))
        name = "pairwise" if kind is None else kind.__name__
        forward = partial(pairwise.pairwise_forward, pairs=pairs)
        yield name, forward, pairwise.pairwise_backward, [x, draw(12)], "xw"
    # The backward of a scalar has no dy: the chain rule multiplies by it.
    forward = partial(loss.softmax_cross_entropy_forward, labels=labels)
    backward = loss.softmax_cross_entropy_backward
    yield "softmax cross-entropy", forward, lambda dy, c: dy * backward(c), [draw(3, 4)], "z"
    norm = loss.output_norm_backward
    yield "output norm", loss.output_norm_forward, lambda dy, c: dy * norm(c), [draw(3, 4)], "y"


def check_operation(name, forward, backward, arguments, letters, rng):
    """Check one operation; returns the number of derivatives compared."""
    y, cache = forward(*arguments)
    dy = rng.standard_normal(np.shape(y))
    gradients = backward(dy, cache)
    gradients = gradients if isinstance(gradients, tuple) else (gradients,)
    gradients = [to_dense(g, a.shape[-1]) for g, a in zip(gradients, arguments, strict=True)]
    names = [f"{name}, d{letter}" for letter in letters]
    check(lambda *a: forward(*a)[0], arguments, gradients, dy, names)
    return sum(argument.size for argument in arguments)


def main():
    """Check every operation and a few networks, and print a line for each."""
    rng = np.random.default_rng(0)
    for name, *operation in operations(rng):
        compared = check_operation(name, *operation, rng)
        print(f"{name:24s} {compared:5d} derivatives agree")
    for backbone, shape in (("mlp-12-2", (5,)), ("cnn-s", (8, 8, 1))):
        for head in ("pairwise", "fc"):
            architecture = Architecture(shape, 4, backbone, head, 0.4, 40)
            network = Network.create(architecture, rng, rng, np.float64)
            network.parameters["head"] = rng.standard_normal(network.parameters["head"].shape)
            x, labels = rng.standard_normal((3, *shape)), rng.integers(0, 4, 3)
            compared = check_network(network, x, labels, Rule("s-mas", 1e-3, 0.01))
            print(f"{backbone + ', ' + head:24s} {compared:5d} parameter gradients agree")


if __name__ == "__main__":
    try:
        main()
    except GradientError as error:
        sys.exit(f"wrong gradient: {error}")
