"""The state of an online classifier as arrays and facts; its settings; its network."""

import math

import numpy as np

from minipw import InputError, parameters
from minipw.backend.arrays import to_host
from minipw.backend.cuda import device_module
from minipw.network import diagnostics
from minipw.network.architecture import CONVOLUTIONS, parse_mlp
from minipw.online import growth
from minipw.online.labels import decode_label, encode_label
from minipw.online.standardize import FIRST

NUMBERS = ("reserve", "loss", "steps", "samples", "age")
"""Attributes that are numbers or None."""


def checked(settings):
    """Settings of Python's own types, checked as far as they can be without data.

    Parameters
    ----------
    settings : dict of str
        The constructor parameters of `OnlineClassifier`.

    Raises
    ------
    InputError
        For a value out of its range, or a device that is not there.
    """
    given = {k: v for k, v in settings.items() if k != "learning_rate" or v is not None}
    settings = {**settings, **parameters.check(**given)}
    device_module(settings["device"])
    if settings["backbone"] not in CONVOLUTIONS:
        parse_mlp(settings["backbone"])
    return settings


def require_finite(learner):
    """Raise InputError where a learner's loss or weights are not finite."""
    finite = learner.loss is None or math.isfinite(learner.loss)
    if not finite or (learner.network and diagnostics.nonfinite_parameter(learner.network)):
        raise InputError(
            "loss or weights are not finite: not saved; begin again with a smaller learning_rate"
        )


def state(learner):
    """What a learner needs to go on.

    Returns
    -------
    arrays : dict of str to ndarray
    facts : dict that JSON can hold
    """
    facts = {name: getattr(learner, name) for name in NUMBERS}
    facts["settings"] = learner.settings
    facts["classes"] = [encode_label(label) for label in learner.classes_]
    facts["counts"] = learner.counts
    facts["input_shape"], facts["columns"] = learner.input_shape, learner.columns
    if learner.input_shape is None:
        return {}, facts
    x, labels, weights = learner._waiting
    facts["waiting"] = [encode_label(label) for label in labels]
    facts["centred"], facts["cut"] = learner.standardizer.centred, learner.standardizer.cut
    facts["constant"] = learner.constant
    arrays = {"waiting": x, "weights": weights, "standardizer": learner.standardizer.state()}
    network = learner.network
    if network is not None:
        facts["outputs"] = network.architecture.classes
        for kind, values in (("parameter", network.parameters), ("importance", learner.importance)):
            arrays |= {f"{kind}/{name}": to_host(value) for name, value in values.items()}
        if network.pairs is not None:
            arrays["pairs"] = np.stack([to_host(network.pairs.i), to_host(network.pairs.j)])
    return arrays, facts


def restore(kind, arrays, facts):
    """The learner of class `kind` whose `state` this is."""
    labels = [decode_label(label) for label in facts["classes"]]
    facts["settings"].setdefault("bias", False)  # files of version 1 lack these two
    facts.setdefault("age", 0)
    learner = kind(**facts["settings"], classes=labels)
    for name in NUMBERS:
        setattr(learner, name, facts[name])
    learner.counts = list(facts.get("counts", learner.counts))
    if facts["input_shape"] is None:
        return learner
    shape = tuple(facts["input_shape"])
    learner._begin(shape, facts.get("centred", True))
    learner.constant = facts.get("constant", learner.constant)
    learner.columns = decode_label(facts.get("columns"))
    waiting = [decode_label(label) for label in facts["waiting"]]
    x = _array(arrays, "waiting", (len(waiting), *shape), np.float64)
    arrays.setdefault("weights", np.ones(len(waiting)))
    learner._waiting = x, waiting, _array(arrays, "weights", (len(waiting),), np.float64)
    kept = len(arrays["standardizer"])
    kept = kept if kept == 3 or 6 <= kept <= 6 + FIRST else 6
    expected = kept, learner.features
    learner.standardizer.restore(_array(arrays, "standardizer", expected, np.float64))
    learner.standardizer.cut = facts.get("cut", 0)
    if "parameter/head" not in arrays:
        return learner
    outputs = facts.get("outputs", len(labels) + learner.reserve)
    architecture = growth.architecture(learner.settings, shape, outputs)
    shapes = {layer.name: layer.shape for layer in architecture.layers()}
    i = j = None
    if architecture.head == "fc":
        shapes["head"] = architecture.units, architecture.classes
    else:
        shapes["head"] = (architecture.pair_weights,)
        i, j = _array(arrays, "pairs", (2, architecture.pair_weights), np.int64)
        if min(i.min(), j.min()) < 0 or max(i.max(), j.max()) >= architecture.units:
            raise InputError("the pairs do not fit the settings")
    parameters, importance = (
        {name: _array(arrays, f"{part}/{name}", shapes[name], np.float32) for name in shapes}
        for part in ("parameter", "importance")
    )
    network = growth.assemble(architecture, parameters, i, j, learner.batch_size)
    set_network(learner, network, importance)
    return learner


def set_network(learner, network, importance):
    """Give a learner a network and its importance, on the device of its settings."""
    xp = device_module(learner.settings["device"])
    placed = growth.transfer(network, importance, xp, learner.batch_size)
    learner.network, learner.importance = placed


def grow(learner, function, *args):
    """Replace a learner's network by function(network, importance, *args), on the host."""
    network, importance = learner.network, learner.importance
    network, importance = growth.transfer(network, importance, np, learner.batch_size)
    set_network(learner, function(network, importance, *args), importance)


def _array(arrays, name, shape, dtype):
    """The array of this name, which must have this shape and type."""
    array = arrays[name]
    if array.shape != shape or array.dtype != dtype:
        raise InputError(
            f"{name} of shape {array.shape} does not fit the settings, which need {shape}"
        )
    return array
