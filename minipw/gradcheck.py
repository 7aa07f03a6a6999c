"""Finite differences: is a gradient the derivative of its function?

    python -m minipw.gradcheck

checks every operation and a few whole networks; where a gradient is wrong it says which,
with both numbers. As a library, `check` takes any function and its gradients:

    check(lambda x: dense_forward(x, w)[0], [x], [dx], dy)
"""

import sys

import numpy as np

STEP = 1e-5
"""h of the central difference: the truncation error h^2 and the rounding error
1e-16 / h of float64 are then both near 1e-10."""
TOLERANCE = 1e-6
ROUNDING = 4 * np.finfo(np.float64).eps / STEP
"""Of a difference of two values of L over 2h, relative to L, with a few operations."""


class GradientError(AssertionError):
    """A gradient that is not the derivative; the message has both numbers."""


def check(function, arguments, gradients, dy=None, names=None, entries=None, rng=None):
    """Compare gradients with central differences of a function.

        (L(a + h) - L(a - h)) / 2h,  L = sum(dy * function(...))

    Parameters
    ----------
    function : callable of the arguments, returning an ndarray or scalar
    arguments : list of float64 ndarray
        Changed entry by entry during the check and restored.
    gradients : list of ndarray
        Claimed derivatives of L by each argument.
    dy : ndarray of the function's shape, or None
        The weights of L. None means 1.
    names : list of str
        For the message.
    entries : int or None
        With a number, only that many entries of each argument, drawn by `rng`, and
        one random direction through all of them.
    rng : numpy.random.Generator

    Raises
    ------
    GradientError
        Naming the argument and the entry, with both numbers.

    Notes
    -----
    The tolerance is relative to the larger of the two numbers or, for entries much
    smaller than the rest, to the typical size of the gradient. Below it lies the
    rounding of L itself, eps |L| / h: gradients must be well above 1e-10 |L| for the
    check to say anything.
    """
    names = names or [f"argument {n}" for n in range(len(arguments))]

    def scalar():
        y = function(*arguments)
        return float(np.sum(y if dy is None else y * dy))

    for name, argument, gradient in zip(names, arguments, gradients, strict=True):
        if gradient.shape != argument.shape:
            raise GradientError(f"{name}: shape {gradient.shape}, expected {argument.shape}")
        typical = np.sqrt(np.mean(np.square(gradient))) or 1.0
        for entry in _entries(argument, entries, rng):
            kept = argument[entry]
            argument[entry] = kept + STEP
            above = scalar()
            argument[entry] = kept - STEP
            below = scalar()
            argument[entry] = kept
            numeric = (above - below) / (2 * STEP)
            rounding = abs(above) * ROUNDING
            where = f"{name}{list(map(int, entry))}"
            _compare(where, gradient[entry], numeric, typical, rounding)
        if entries is not None:
            direction = rng.standard_normal(argument.shape)
            direction /= np.linalg.norm(direction)
            argument += STEP * direction
            above = scalar()
            argument -= 2 * STEP * direction
            below = scalar()
            argument += STEP * direction
            claimed = float(np.sum(gradient * direction))
            numeric = (above - below) / (2 * STEP)
            where = f"{name} along a random direction"
            _compare(where, claimed, numeric, abs(claimed), abs(above) * ROUNDING)


def _entries(argument, count, rng):
    if count is None:
        return np.ndindex(argument.shape)
    picked = rng.choice(argument.size, min(count, argument.size), replace=False)
    return zip(*np.unravel_index(picked, argument.shape), strict=True)


def _compare(where, claimed, numeric, typical, rounding):
    if abs(claimed - numeric) > TOLERANCE * max(abs(claimed), abs(numeric), typical) + rounding:
        raise GradientError(
            f"{where}: the backward says {claimed:.10g}, the finite difference {numeric:.10g}"
        )


def check_network(network, x, labels, rule, mask=None, masking="exclude", entries=20, seed=0):
    """Check every parameter gradient of a float64 network, of the loss and for S-MAS
    of the output norm.

    Parameters
    ----------
    network : Network with float64 parameters
    x, labels, rule, mask, masking : as in `Network.loss_gradients`
    entries : int or None
        Of each parameter; see `check`.

    Returns
    -------
    int
        Gradients compared.
    """
    from minipw.backend.sparse_gradient import to_dense
    from minipw.nn.loss import output_norm_forward, softmax_cross_entropy_forward

    rng = np.random.default_rng(seed)
    _, _, gradients = network.loss_gradients(x, labels, rule, mask, masking)

    def loss(_):
        logits, _caches = network.forward(x)
        return softmax_cross_entropy_forward(logits, labels, mask, masking)[0]

    def norm(_):
        return output_norm_forward(network.forward(x)[0], rule.smas_norm)[0]

    functions = {"loss": loss, "output norm": norm} if rule.needs_output_norm else {"loss": loss}
    compared = 0
    for n, (what, function) in enumerate(functions.items()):
        for name, parameter in network.parameters.items():
            gradient = to_dense(gradients[name], parameter.shape[-1])
            gradient = gradient[n] if rule.needs_output_norm else gradient
            label = f"d {what} / d {name}"
            check(function, [parameter], [gradient], None, [label], entries, rng)
            compared += 1
    return compared


def main():
    """Check every operation once and print a line for each."""
    from minipw.network.architecture import Architecture
    from minipw.network.network import Network
    from minipw.nn import conv, dense, gelu, kwta, loss, pairwise
    from minipw.rules import Rule

    rng = np.random.default_rng(0)
    normal = rng.standard_normal
    x, w = normal((3, 5)), normal((5, 4))
    images, kernel = normal((2, 5, 6, 2)), normal((3, 3, 2, 4))
    pairs = pairwise.Pairs(rng.integers(0, 5, 12), rng.integers(0, 5, 12), 3)
    labels = rng.integers(0, 4, 3)

    def report(name, function, backward, arguments, words):
        y, cache = function(*arguments)
        dy = normal(np.shape(y))
        gradients = backward(dy, cache)
        gradients = gradients if isinstance(gradients, tuple) else (gradients,)
        names = [f"{name}, d{word}" for word in words]
        check(lambda *a: function(*a)[0], arguments, list(gradients), dy, names)
        print(f"{name:24s} {sum(a.size for a in arguments):5d} derivatives agree")

    report("dense", dense.dense_forward, dense.dense_backward, [x, w], "xw")
    report(
        "conv2d, stride 2",
        lambda a, b: conv.conv2d_forward(a, b, 2),
        conv.conv2d_backward,
        [images, kernel],
        "xw",
    )
    for approximate in (False, True):
        name = "gelu, tanh form" if approximate else "gelu, exact"
        report(name, lambda a, f=approximate: gelu.gelu_forward(a, f), gelu.gelu_backward, [x], "x")
    report("k-WTA", lambda a: kwta.kwta_forward(a, 2), kwta.kwta_backward, [x], "x")
    report(
        "pairwise",
        lambda a, b: pairwise.pairwise_forward(a, b, pairs),
        pairwise.pairwise_backward,
        [x, normal(12)],
        "xw",
    )
    report(
        "softmax cross-entropy",
        lambda z: loss.softmax_cross_entropy_forward(z, labels),
        lambda dy, cache: dy * loss.softmax_cross_entropy_backward(cache),
        [normal((3, 4))],
        "z",
    )
    report(
        "output norm",
        loss.output_norm_forward,
        lambda dy, cache: dy * loss.output_norm_backward(cache),
        [normal((3, 4))],
        "y",
    )
    for backbone in ("mlp-12-2", "cnn-s"):
        for head in ("pairwise", "fc"):
            shape = (8, 8, 1) if backbone == "cnn-s" else (5,)
            architecture = Architecture(shape, 4, backbone, head, 0.4, 40)
            network = Network.create(architecture, rng, rng, np.float64)
            network.parameters["head"] = normal(network.parameters["head"].shape)
            compared = check_network(
                network, normal((3, *shape)), labels, Rule("s-mas", 1e-3, 0.01)
            )
            print(f"{backbone + ', ' + head:24s} {compared:5d} parameter gradients agree")


if __name__ == "__main__":
    try:
        main()
    except GradientError as error:
        sys.exit(f"wrong gradient: {error}")
