"""How much memory on a device a run needs, and so how many are trained at once."""

import math

from minipw.nn.conv import same_padding

SHARE = 0.8
"""Of the free memory that is planned with; the rest is for what is not counted."""
LARGEST_EVALUATION_BATCH = 10_000


def sample_values(architecture, defining_form=False):
    """Numbers that a forward pass holds for one sample, roughly.

    defining_form : bool
        The products of all pairs are held, as without a kernel for the head.
    """
    height, width = (*architecture.input_shape, 1)[:2]
    values = math.prod(architecture.input_shape)
    for _, shape, stride in architecture.layers():
        places = 1
        if stride is not None:
            height, width = (same_padding(size, 1, stride)[0] for size in (height, width))
            places = height * width
            values += places * shape[0] * shape[1] * shape[2]  # the patches
        values += 3 * places * shape[-1]  # before GELU, after it, and its factor
    values += 3 * architecture.units
    if architecture.head == "pairwise":
        if defining_form:
            return values + 5 * architecture.pair_weights
        values += architecture.units * architecture.classes
    return values


def run_bytes(architecture, settings):
    """Bytes that one of several stacked runs takes in training, roughly.

    Parameters, importance, the copies of both from the start of a stretch, gradients, and
    a forward and a backward pass; of a pairwise head the index of the pairs, twice.
    """
    gradients = 2 if settings.rule == "s-mas" else 1
    pairs, head = 0, architecture.units * architecture.classes
    if architecture.head == "pairwise":
        pairs = head = architecture.pair_weights
    parameters = head + sum(math.prod(shape) for _, shape, _ in architecture.layers())
    samples = settings.batch_size * (1 + gradients)
    numbers = (5 + gradients) * parameters + samples * sample_values(architecture)
    return 4 * numbers + 32 * pairs


def runs_that_fit(free, data, run):
    """R, at least 1, for so many free bytes, bytes of data and bytes a run."""
    return max(1, int((SHARE * free - data) / run))


def evaluation_batch(free, architecture, defining_form=False):
    """Test images to work on at once, at least 1, for so many free bytes."""
    sample = 4 * sample_values(architecture, defining_form)
    return max(1, min(LARGEST_EVALUATION_BATCH, int(SHARE * free / 2 / sample)))
