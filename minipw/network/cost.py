"""What a network costs: operations of a step, bytes of a run, and how many runs fit."""

import math

from minipw.backend.memory import require_memory
from minipw.backend.threads import THREADS
from minipw.kernels.pairwise_sparse import AT_ONCE
from minipw.network.head_implementation import (
    EVALUATION_BATCH,
    PRODUCTS_AT_ONCE,
    ListedPairs,
    MatrixPairs,
    SparsePairs,
    WinnerPairs,
    expected_implementation,
    products,
    times_listed,
)

SHARE = 0.8
"""The part of the free memory that is used. The rest is for what the estimates leave out."""
LARGEST_EVALUATION_BATCH = 10_000
PRODUCT_BYTES = {WinnerPairs: 60, ListedPairs: 100}
"""What forward and backward hold for a product of two units, roughly."""


def require_host_memory(architecture, batch_size):
    """Raise InputError when a network of this kind cannot be trained on this machine."""
    require_memory(
        host_bytes(architecture, batch_size),
        f"{architecture.backbone} with {architecture.classes} outputs and inputs of shape "
        f"{architecture.input_shape}; use a narrower backbone, fewer pair weights or a smaller "
        "batch",
    )


def host_bytes(architecture, batch_size):
    """Bytes that a network, its importance and its passes take on a CPU, roughly."""
    # float32: weight, importance, two gradients; float64 twice while they are drawn.
    size = 32 * backbone_weights(architecture) + 8 * batch_size * sample_values(architecture)
    if architecture.head == "fc":
        return size + 32 * architecture.units * architecture.classes
    # A pair: weight, importance, two gradients, i, j, and what sorts them for the tables.
    size += 180 * architecture.pair_weights
    training, _ = expected_implementation(architecture, batch_size)
    testing, _ = expected_implementation(architecture, EVALUATION_BATCH, forward_alone=True)
    tested = min(EVALUATION_BATCH * products(testing, architecture), PRODUCTS_AT_ONCE)
    passes = max(
        PRODUCT_BYTES.get(training, 0) * batch_size * products(training, architecture),
        PRODUCT_BYTES.get(testing, 0) * THREADS.count * tested,
    )
    return size + passes + sum(table_bytes(one, architecture) for one in {training, testing})


def backbone_weights(architecture):
    """The number of weights before the head."""
    return sum(math.prod(layer.shape) for layer in architecture.layers())


def table_bytes(implementation, architecture):
    """Bytes that an implementation of the pairwise head keeps beside the pairs, roughly."""
    units, classes = architecture.units, architecture.classes
    if implementation is WinnerPairs:
        return 6 * times_listed(architecture.pair_weights, units) * units**2
    if implementation is MatrixPairs:
        # Of each thread: the matrices, their lower halves, and the products.
        return 10 * THREADS.count * classes * units**2
    if implementation is SparsePairs:
        return 4 * classes * units * (1 + THREADS.count * AT_ONCE)
    return 0


def sample_values(architecture, defining_form=False):
    """Numbers that a forward pass holds for one sample, roughly.

    defining_form : bool
        The pass holds the products of all pairs, as it does without a kernel for the head.
    """
    values = math.prod(architecture.input_shape) + 3 * architecture.units
    for layer in architecture.layers():
        values += 3 * math.prod(layer.output_shape)  # before GELU, after it, and its factor
        if layer.stride is not None:
            values += layer.places * math.prod(layer.shape[:-1])  # the patches
    if architecture.head == "pairwise":
        if defining_form:
            return values + 5 * architecture.pair_weights
        values += architecture.units * architecture.classes
    return values


def run_bytes(architecture, settings):
    """Bytes that one of several stacked runs takes in training, roughly.

    It holds parameters, importance, copies of both from the start of a stretch, gradients,
    a forward and a backward pass and, for a pairwise head, the index of the pairs twice.
    """
    gradients = 2 if settings.rule == "s-mas" else 1
    pairs, head = 0, architecture.units * architecture.classes
    if architecture.head == "pairwise":
        pairs = head = architecture.pair_weights
    parameters = head + backbone_weights(architecture)
    samples = settings.batch_size * (1 + gradients)
    numbers = (5 + gradients) * parameters + samples * sample_values(architecture)
    return 4 * numbers + 32 * pairs


def runs_that_fit(free, data, run):
    """R, at least 1, from bytes: those that are free, those of the data, those of one run."""
    return max(1, int((SHARE * free - data) / run))


def samples_that_fit(free, architecture, defining_form=False):
    """Test samples, at least 1, whose forward pass takes less than half of the free bytes."""
    sample = 4 * sample_values(architecture, defining_form)
    return max(1, min(LARGEST_EVALUATION_BATCH, int(SHARE * free / 2 / sample)))


def step_operations(architecture, batch_size, rule):
    """Floating point operations of a step's matrix products.

    Each layer has the forward product, the weight gradient and, but for the first layer,
    the input gradient. S-MAS has the gradients twice. A pairwise head has no matrix product.
    """
    layers = architecture.layers()
    multiply_adds = [batch_size * layer.places * math.prod(layer.shape) for layer in layers]
    if architecture.head == "fc":
        multiply_adds.append(batch_size * architecture.units * architecture.classes)
    backward = 2 if rule == "s-mas" else 1
    return sum(2 * p * (1 + backward * (1 + (n > 0))) for n, p in enumerate(multiply_adds))
