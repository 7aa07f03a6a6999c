"""The state of an online classifier as arrays and facts, and its settings checked."""

import numpy as np

from minipw import InputError, require_choice
from minipw.backend.arrays import to_host
from minipw.backend.cuda import device_module
from minipw.network.architecture import CONVOLUTIONS, parse_mlp
from minipw.online import growth
from minipw.rules import STEPS

COUNTED = ("reserve", "loss", "steps", "samples")
"""Attributes that are numbers."""
CHOICES = {
    "device": ("cpu", "cuda"),
    "head": ("pairwise", "fc"),
    "rule": tuple(STEPS),
    "kwta_threshold": ("k", "k+1"),
    "gelu": ("tanh", "exact"),
    "smas_norm": ("mean", "sum"),
}
WHOLE = {"batch_size": 1, "reserve": 0, "seed": 0, "pair_weights_per_class": 1}
"""Settings that are whole numbers, and the least they can be."""
REAL = {"learning_rate": False, "importance_lambda": True, "standardized_limit": False}
"""Settings that are numbers above 0, and whether 0 is one too."""


def checked(settings):
    """Settings of Python's own types, checked as far as they can be without data.

    Parameters
    ----------
    settings : dict of str
        The constructor parameters of `OnlineClassifier`.

    Returns
    -------
    dict of str

    Raises
    ------
    InputError
        For a value out of its range.
    """
    settings = {k: v.item() if isinstance(v, np.generic) else v for k, v in settings.items()}
    for name in CHOICES:
        check_choice(name, settings[name])
    device_module(settings["device"])  # refuse one that is not there
    if str(settings["backbone"]) not in CONVOLUTIONS:
        parse_mlp(str(settings["backbone"]))
    for name in ("running_standardize", "missing"):
        if type(settings[name]) is not bool:
            raise InputError(f"{name} is {settings[name]!r}: use True or False")
    for name, least in WHOLE.items():
        value = settings[name]
        if name == "pair_weights_per_class" and value is None:
            continue
        if type(value) is not int or value < least:
            raise InputError(f"{name} is {value!r}: use a whole number of at least {least}")
    for name, zero in REAL.items():
        value = settings[name]
        if not _is_number(value) or value < 0 or (value == 0 and not zero):
            raise InputError(f"{name} is {value!r}: use a number {'from' if zero else 'above'} 0")
    density = settings["density"]
    if density is not None and not (_is_number(density) and 0 < density < 1):
        raise InputError(f"density is {density!r}: use a number between 0 and 1")
    return settings


def check_choice(name, value):
    """Raise InputError unless a setting is one of its words."""
    require_choice(name, value, CHOICES[name])


def _is_number(value):
    return type(value) in (int, float) and abs(value) < 1e300


def state(learner):
    """Everything that the rest of the stream depends on.

    Parameters
    ----------
    learner : OnlineClassifier

    Returns
    -------
    arrays : dict of str to ndarray
    facts : dict that JSON can hold
    """
    facts = {name: getattr(learner, name) for name in COUNTED}
    facts["settings"] = learner.settings
    facts["classes"] = [encode_label(label) for label in learner.classes_]
    facts["input_shape"], facts["columns"] = learner.input_shape, learner.columns
    if learner.input_shape is None:
        return {}, facts
    x, labels = learner._waiting
    facts["waiting"] = [encode_label(label) for label in labels]
    arrays = {"waiting": x, "standardizer": learner.standardizer.state()}
    network = learner.network
    if network is not None:
        for kind, values in (("parameter", network.parameters), ("importance", learner.importance)):
            arrays |= {f"{kind}/{name}": to_host(value) for name, value in values.items()}
        if network.pairs is not None:
            arrays["pairs"] = np.stack([to_host(network.pairs.i), to_host(network.pairs.j)])
    return arrays, facts


def restore(kind, arrays, facts):
    """The learner of class `kind` whose `state` this is."""
    labels = [decode_label(label) for label in facts["classes"]]
    learner = kind(**facts["settings"], classes=labels)
    for name in COUNTED:
        setattr(learner, name, facts[name])
    if facts["input_shape"] is None:
        return learner
    shape = tuple(facts["input_shape"])
    learner._begin(shape)
    learner.columns = facts.get("columns") and tuple(facts["columns"])
    waiting = [decode_label(label) for label in facts["waiting"]]
    learner._waiting = arrays["waiting"], waiting
    _require(arrays, "waiting", (len(waiting), *shape), np.float64)
    _require(arrays, "standardizer", learner.standardizer.state().shape, np.float64)
    learner.standardizer.restore(arrays["standardizer"])
    if "parameter/head" not in arrays:
        return learner
    architecture = learner._architecture(shape, len(labels) + learner.reserve)
    shapes = {name: layer_shape for name, layer_shape, _ in architecture.layers()}
    i = j = None
    if architecture.head == "fc":
        shapes["head"] = architecture.units, architecture.classes
    else:
        shapes["head"] = (architecture.pair_weights,)
        _require(arrays, "pairs", (2, architecture.pair_weights), np.int64)
        i, j = arrays["pairs"]
        if min(i.min(), j.min()) < 0 or max(i.max(), j.max()) >= architecture.units:
            raise InputError("the pairs do not fit the settings")
    for name, expected in shapes.items():
        for kind_of_array in ("parameter", "importance"):
            _require(arrays, f"{kind_of_array}/{name}", expected, np.float32)
    parameters = {name: arrays[f"parameter/{name}"] for name in shapes}
    importance = {name: arrays[f"importance/{name}"] for name in shapes}
    network = growth.assemble(architecture, parameters, i, j, learner.batch_size)
    place(learner, network, importance)
    return learner


def place(learner, network, importance):
    """Give a learner a network and its importance, on the device of its settings."""
    xp = device_module(learner.settings["device"])
    moved = growth.moved(network, importance, xp, learner.batch_size)
    learner.network, learner.importance = moved


def change(learner, function, *args):
    """Replace a learner's network by what `function` makes of it and of `args`, on the host."""
    network, importance = learner.network, learner.importance
    network, importance = growth.moved(network, importance, np, learner.batch_size)
    place(learner, function(network, importance, *args), importance)


def _require(arrays, name, shape, dtype):
    array = arrays[name]
    if array.shape != shape or array.dtype != dtype:
        raise InputError(
            f"{name} of shape {array.shape} does not fit the settings, which need {shape}"
        )


def encode_label(label):
    """A class label as JSON holds it; a tuple becomes a list.

    Raises
    ------
    InputError
        For labels that are not str, int, float, bool, None or tuples of these.
    """
    if type(label) is tuple:
        return [encode_label(item) for item in label]
    if label is None or type(label) in (str, int, float, bool):
        return label
    raise InputError(
        f"label {label!r} of type {type(label).__name__} cannot be saved: use text, numbers, "
        "True, False, None or tuples of these"
    )


def decode_label(value):
    """The label that `encode_label` was given."""
    return tuple(decode_label(item) for item in value) if isinstance(value, list) else value
