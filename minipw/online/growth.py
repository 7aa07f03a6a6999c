"""Networks that get more outputs and inputs while they learn.

Output c is a column: n pair weights, or H dense ones, and their importance. Its pairs and
first weights follow from the seed and c alone. So a class that comes later begins as if it
had been there from the start, and the columns before it stay as they are.
"""

import math
from dataclasses import replace

import numpy as np

from minipw import InputError
from minipw.backend.arrays import array_module, to_device, to_host
from minipw.kernels.pairwise_cpu import ListedPairs, WinnerPairs
from minipw.kernels.pairwise_growing import GrowingPairs
from minipw.network.architecture import CONVOLUTIONS, Architecture
from minipw.network.cost import require_host_memory
from minipw.network.head_implementation import fastest_implementation, times_listed
from minipw.network.initialization import PAIRWISE_STD, he_normal, triangle_pair
from minipw.network.network import Network
from minipw.nn.pairwise import Pairs

BIAS, SHARED_BY = 2.0, 24
"""The constant input, which stands for the biases of the first layer, in deviations of the
others. From so many others on it falls, as there it costs more than it helps (digits)."""
BACKBONE, PAIRS, HEAD, INPUTS = range(4)
"""Purposes of the random generators of a seed."""
SHARE_OF_PAIRS, LEAST_WEIGHTS, MOST_WEIGHTS = 10, 2_500, 25_000
"""A class has a tenth of all pairs, so that ten classes share none; at most as many as in the
paper; and enough that some join two winners."""


def generator(seed, *purpose):
    """The random generator of a seed for one purpose."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=purpose))


def pairs_a_class(units, wanted=None):
    """n, the pair weights of each class; InputError when there are fewer pairs than wanted."""
    exist = units * (units - 1) // 2
    if exist == 0:
        raise InputError("one unit before the head forms no pair: use a wider backbone")
    if wanted is None:
        share = min(exist // SHARE_OF_PAIRS, MOST_WEIGHTS)
        return min(exist, max(share, LEAST_WEIGHTS))
    if not 1 <= wanted <= exist:
        raise InputError(
            f"{wanted} pair weights a class: {units} units form {exist:,} pairs, use 1 to {exist}"
        )
    return wanted


def architecture(settings, shape, outputs):
    """The Architecture of an `OnlineClassifier` for samples of this shape.

    A dense backbone has one input more, the first: a constant.
    """
    if has_bias(settings):
        shape = (1 + math.prod(shape),)
    shared = ("backbone", "head", "density", "kwta_threshold", "gelu")
    options = {name: settings[name] for name in shared}
    dense = Architecture(shape, outputs, pairs="distinct", **options)
    if dense.head == "fc":
        return dense
    count = pairs_a_class(dense.units, settings["pair_weights_per_class"])
    return replace(dense, pair_weights=count * outputs)


def has_bias(settings):
    """Whether the first input is a constant."""
    return settings["bias"] and settings["backbone"] not in CONVOLUTIONS


def constant_input(inputs, centred):
    """The constant for so many other inputs; sparse samples have few that are not 0."""
    return BIAS * min(1.0, SHARED_BY / inputs) if centred else BIAS


def draw_pairs(seed, units, count, classes):
    """The pairs of a range of classes.

    The seed puts all pairs in a random order, a circle. Each class takes the next `count` of
    them, so no class has a pair twice, and no two share one until all are used.

    Returns
    -------
    i, j : int64 ndarray of shape (count, len(classes)), i > j
        Sorted by (j, i) within each class.
    """
    exist = units * (units - 1) // 2
    order = np.arange(exist, dtype=np.uint32 if exist < 2**32 else np.uint64)
    generator(seed, PAIRS).shuffle(order)
    place = np.arange(classes.start * count, classes.stop * count) % exist
    i, j = triangle_pair(order[place].astype(np.int64).reshape(-1, count))
    key = np.sort(j * units + i, axis=1).T
    return key % units, key // units


def draw_head(seed, rows, pairwise, classes):
    """The first weights of a range of classes: float32 ndarray of shape (rows, len(classes))."""
    head = np.empty((rows, len(classes)), np.float32)
    for column, c in zip(head.T, classes, strict=True):
        rng = generator(seed, HEAD, c)
        if pairwise:
            column[:] = PAIRWISE_STD * rng.standard_normal(rows)
        else:
            column[:] = he_normal(rng, (rows, 1), np.float32)[:, 0]
    return head


def create(architecture, seed, batch_size):
    """A network with its first weights."""
    require_host_memory(architecture, batch_size)
    rng = generator(seed, BACKBONE)
    parameters = {
        layer.name: he_normal(rng, layer.shape, np.float32) for layer in architecture.layers()
    }
    return _with_head(architecture, parameters, None, seed, batch_size)


def add_outputs(network, importance, count, seed, batch_size):
    """The network with `count` more outputs, and columns of 0 in the head's importance."""
    before = network.architecture
    classes = before.classes + count
    weights = before.pair_weights // before.classes * classes
    architecture = replace(before, classes=classes, pair_weights=weights)
    require_host_memory(architecture, batch_size)
    grown = _with_head(architecture, network.parameters, network, seed, batch_size)
    old = importance["head"].reshape(-1, before.classes)
    new = np.concatenate([old, np.zeros((len(old), count), old.dtype)], axis=1)
    importance["head"] = new.reshape(grown.parameters["head"].shape)
    return grown


def _with_head(architecture, parameters, before, seed, batch_size):
    """A network whose head has the columns of the network `before`, if any, then drawn ones."""
    pairwise, classes = architecture.head == "pairwise", architecture.classes
    rows = architecture.pair_weights // classes if pairwise else architecture.units
    drawn = range(before.architecture.classes if before is not None else 0, classes)
    columns = [draw_head(seed, rows, pairwise, drawn)]
    if before is not None:
        columns.insert(0, before.parameters["head"].reshape(rows, -1))
    head = np.concatenate(columns, axis=1)
    if not pairwise:
        return Network(architecture, {**parameters, "head": head})
    i, j = draw_pairs(seed, architecture.units, rows, drawn)
    if before is not None:
        i = np.concatenate([before.pairs.i.reshape(rows, -1), i], axis=1)
        j = np.concatenate([before.pairs.j.reshape(rows, -1), j], axis=1)
    parameters = {**parameters, "head": head.reshape(-1)}
    known = before.pairs.implementation if before is not None else None
    return assemble(architecture, parameters, i.reshape(-1), j.reshape(-1), batch_size, known)


def assemble(architecture, parameters, i, j, batch_size, before=None):
    """A network from its parameters and pairs.

    However many classes there are, its head adds the products of each in the same order. So
    the old outputs stay the same, bit for bit, when the head grows.

    Parameters
    ----------
    i, j : int64 ndarray of shape (P,), or None for a dense head
    before : object or None
        The head's implementation for the first of the outputs.
    """
    network = Network(architecture, parameters)
    if i is None:
        return network
    units, classes = architecture.units, architecture.classes
    repeats = times_listed(i.size, units)  # `draw_pairs` goes in a circle
    chosen = fastest_implementation(i, j, architecture, batch_size, repeats=repeats)
    few = architecture.winners**2 * repeats < 2 * i.size
    if chosen is WinnerPairs or (chosen is not ListedPairs and few):
        before = before if isinstance(before, GrowingPairs) else None
        implementation = GrowingPairs(i, j, classes, units, before)
    else:
        implementation = ListedPairs(i, j, classes, units)
    network.pairs = Pairs(i, j, classes, implementation)
    network.evaluation_pairs = network.pairs
    return network


def transfer(network, importance, xp, batch_size):
    """A network and its importance with the arrays of the module `xp`, numpy or cupy.

    Networks grow on the host, and a device has its own implementation of the pairwise head.
    """
    if array_module(network.parameters["head"]) is xp:
        return network, importance
    architecture, pairs = network.architecture, network.pairs
    parameters = {name: to_device(xp, to_host(w)) for name, w in network.parameters.items()}
    importance = {name: to_device(xp, to_host(omega)) for name, omega in importance.items()}
    i, j = (None, None) if pairs is None else (to_host(pairs.i), to_host(pairs.j))
    if xp is np or pairs is None:
        return assemble(architecture, parameters, i, j, batch_size), importance
    return Network(architecture, parameters, Pairs(i, j, pairs.classes), batch_size), importance


def add_inputs(network, importance, count, seed):
    """The network of a dense backbone with `count` more inputs; at 0 they change nothing."""
    inputs, width = network.parameters["dense0"].shape
    rows = range(inputs, inputs + count)
    drawn = np.stack([generator(seed, INPUTS, n).standard_normal(width) for n in rows])
    drawn = (np.sqrt(2 / inputs) * drawn).astype(np.float32)
    network.parameters["dense0"] = np.concatenate([network.parameters["dense0"], drawn])
    importance["dense0"] = np.concatenate([importance["dense0"], np.zeros_like(drawn)])
    architecture = replace(network.architecture, input_shape=(inputs + count,))
    grown = Network(architecture, network.parameters)
    grown.pairs, grown.evaluation_pairs = network.pairs, network.evaluation_pairs
    return grown
