"""One training step of an online classifier, and the rule that it follows."""

import math
import warnings
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from minipw import InputError
from minipw.backend.arrays import array_module, to_device, to_host
from minipw.network import diagnostics
from minipw.online import growth
from minipw.rules import update

PAIRWISE_RATE, SPARSE_RATE = 1.5e-3, 1e-2
"""The learning rate of a pairwise head unless one is given: of dense samples, of sparse ones."""
DENSE_RATE, DENSE_FALL = 0.025, 0.35
"""That of a dense head for the first sample of a class, and the power by which it falls."""
FEW_INPUTS = 0.5
"""Up to this share of inputs that are not 0, the first layer is cut down to those."""


def learn(learner, x, labels, weights):
    """Algorithm 1 on one batch, in place.

    Parameters
    ----------
    learner : OnlineClassifier
    x : float64 ndarray of shape (B, *input_shape)
    labels : list of B known labels
    weights : float64 ndarray of shape (B,)
    """
    numbers = np.array([learner._index[label] for label in labels])
    for number in numbers:
        learner.counts[number] += 1
    if learner.settings["class_weight"] == "balanced":
        frequency = np.array(learner.counts)[numbers] / sum(learner.counts)
        weights = weights / (frequency * np.count_nonzero(learner.counts))
    writable(learner)
    if learner.settings["running_standardize"]:
        learner.standardizer.update(x.reshape(len(x), -1).reshape(-1, learner.features))
    x = network_inputs(learner, x)
    xp = array_module(x)
    y, weights = to_device(xp, numbers), to_device(xp, weights.astype(np.float32))
    rule = rule_now(learner)
    with active_inputs(learner, x) as x, np.errstate(over="ignore", invalid="ignore"):
        loss, _, gradients = learner.network.loss_gradients(x, y, learner.rule, weights=weights)
        learner.loss = float(loss)  # the only wait for a GPU in a step
        if not math.isfinite(learner.loss):
            raise InputError(divergence(learner, "the loss is", x))
        for name, gradient in gradients.items():
            theta, omega = learner.network.parameters[name], learner.importance[name]
            update(rule, theta, omega, gradient)
    learner.steps, learner.samples = learner.steps + 1, learner.samples + len(x)
    forget(learner, len(x))
    looked_at = learner.steps & (learner.steps - 1) == 0  # a power of 2: more and more rarely
    if looked_at and (frozen := diagnostics.frozen_parameter(learner.importance)):
        warnings.warn(frozen, RuntimeWarning, stacklevel=4)


def writable(learner):
    """Copy arrays that a file holds read-only, as joblib's mmap_mode does."""
    for arrays in (learner.network.parameters, learner.importance):
        for name, array in arrays.items():
            if isinstance(array, np.ndarray) and not array.flags.writeable:
                arrays[name] = array.copy()


def rule_now(learner):
    """The rule with its learning rate, and the importance decayed since `forget` halved it.

        Omega = 2^(-t) Omega',  t = samples since then / half-life

    Omega' is what is stored: u enters it 2^t times, and the step is 2^(t/2) times as long.
    """
    rule = learner.rule
    if learner.settings["learning_rate"] is None:
        samples_a_class = max(learner.samples, 1) / len(learner.classes_)
        rate = PAIRWISE_RATE if learner.standardizer.centred else SPARSE_RATE
        if learner.settings["head"] == "fc":
            rate = DENSE_RATE * samples_a_class**-DENSE_FALL
        rule = replace(rule, learning_rate=rate)
    if learner.settings["half_life"] is None or rule.name == "sgd":
        return rule
    factor = 2.0 ** (learner.age / learner.settings["half_life"])
    return replace(
        rule,
        learning_rate=rule.learning_rate * math.sqrt(factor),
        importance_lambda=rule.importance_lambda * factor,
    )


def forget(learner, samples):
    """Halve importance, and what the standardizer counts, after each half-life."""
    half_life = learner.settings["half_life"]
    if half_life is None:
        return
    learner.age += samples
    times, learner.age = divmod(learner.age, half_life)
    if times:
        learner.standardizer.forget(0.5**times)
        for omega in learner.importance.values():
            omega *= 0.5**times


def network_inputs(learner, x):
    """Samples x, float64 (N, *input_shape), as the network sees them: standardized, float32."""
    settings, shape = learner.settings, x.shape
    if settings["running_standardize"]:
        x = learner.standardizer.transform(x.reshape(-1, learner.features)).reshape(shape)
    elif settings["missing"]:
        x = np.where(np.isnan(x), 0.0, x)
    x = x.astype(np.float32)
    if growth.has_bias(settings):
        constant = np.full((len(x), 1), learner.constant, np.float32)
        x = np.concatenate([constant, x.reshape(len(x), -1)], axis=1)
    return to_device(array_module(learner.network.parameters["head"]), x)


def logits(learner, x):
    """Logits (N, outputs) of float64 samples x, or InputError where they are not finite."""
    inputs = network_inputs(learner, x)
    with active_inputs(learner, inputs) as inputs, np.errstate(over="ignore", invalid="ignore"):
        found = to_host(learner.network.logits(inputs))
        if not np.isfinite(found).all():
            raise InputError(divergence(learner, "the outputs are", inputs))
    return found


@contextmanager
def active_inputs(learner, x):
    """Sparse samples without the inputs that are 0 in all of them, within a with block.

    There the first layer has only the other inputs' weights. Those of an input that is 0
    have no gradient, so nothing else changes.
    """
    network, importance = learner.network, learner.importance
    if learner.standardizer.centred or not isinstance(x, np.ndarray):
        yield x
        return
    active = np.flatnonzero(x.any(0))
    if len(active) > FEW_INPUTS * x.shape[1]:
        yield x
        return
    whole = network.parameters["dense0"], importance["dense0"]
    network.parameters["dense0"], importance["dense0"] = (array[active] for array in whole)
    try:
        yield np.ascontiguousarray(x[:, active])
        for array, part in zip(whole, (network.parameters, importance), strict=True):
            array[active] = part["dense0"]
    finally:
        network.parameters["dense0"], importance["dense0"] = whole


def divergence(learner, what, x):
    """The message for values that are not finite."""
    smaller = f"begin again with a smaller learning_rate ({learner.rule.learning_rate / 10:g})"
    return diagnostics.divergence(learner.network, x, learner.steps + 1, smaller, what)
