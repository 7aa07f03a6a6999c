"""What decides a run, and where what is not said comes from."""

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import get_args

from minipw import InputError, require_choice
from minipw.network.architecture import Architecture
from minipw.paper.released import PROTOCOLS, released_settings
from minipw.rules import STEPS, Rule
from minipw.training.streams import EXPERIMENTS


@dataclass(frozen=True)
class Settings:
    """Everything that decides a run but its seed. The words are those of the flags.

    experiment : {"split", "permuted", "iid"}
    dataset : str
    multi_head : bool
        Loss and evaluation see only the classes of the task.
    classes_per_task, tasks : int
        Of split and of permuted streams.
    learning_rate, importance_lambda : float
    density : float, or None for a head without k-WTA before it
    batch_size, epochs, pair_weights : int
    pairs, kwta_threshold, gelu : as in `Architecture`
    smas_norm : as in `Rule`
    class_mask : {"zero", "exclude"}, `masking` of the loss
    evaluate_every : int
        Steps between two points of the learning curve; 0 draws none.
    held_out : float in [0, 1)
        Share of the training set that is tested on, instead of the test set.
    label : str or None
        Column of a .csv file that holds the classes.
    blur : float in [0, 1]
        Share of a task's length over which it runs into the next, as in `streams.blur`.
    """

    experiment: str
    dataset: str
    backbone: str
    head: str
    rule: str
    multi_head: bool
    learning_rate: float
    density: float | None
    importance_lambda: float
    batch_size: int
    epochs: int
    pair_weights: int | None
    classes_per_task: int = 2
    tasks: int = 10
    pairs: str = "released"
    kwta_threshold: str = "k"
    smas_norm: str = "mean"
    class_mask: str = "zero"
    gelu: str = "tanh"
    evaluate_every: int = 0
    held_out: float = 0.0
    label: str | None = None
    blur: float = 0.0

    def __post_init__(self):
        require_choice("experiment", self.experiment, EXPERIMENTS)
        require_choice("rule", self.rule, STEPS)
        require_choice("class mask", self.class_mask, ("zero", "exclude"))
        for name in ("batch_size", "epochs", "classes_per_task", "tasks"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}: use at least 1")
        if not 0 <= self.blur <= 1:
            raise InputError(f"blur is {self.blur}: use a share of a task from 0 to 1")
        if self.blur and self.epochs > 1:
            raise InputError("a stream with blurred boundaries has one pass: use --epochs 1")
        if not self.learning_rate > 0:
            raise InputError(f"learning_rate is {self.learning_rate}: use a number above 0")
        if not self.importance_lambda >= 0:
            raise InputError(f"importance_lambda is {self.importance_lambda}: use at least 0")
        if self.blur and self.experiment == "iid":
            raise InputError("an iid stream has no boundaries to blur: leave out blur")
        if self.head == "pairwise" and (self.pair_weights is None or self.pair_weights < 1):
            raise InputError(f"pair_weights is {self.pair_weights}: use at least 1")

    def architecture(self, dataset):
        """The description of the network for a data set."""
        return Architecture(
            dataset.shape,
            dataset.classes,
            self.backbone,
            self.head,
            self.density,
            self.pair_weights,
            self.pairs,
            self.kwta_threshold,
            self.gelu,
        )

    def learning_rule(self):
        """The rule with its constants."""
        return Rule(self.rule, self.learning_rate, self.importance_lambda, self.smas_norm)


def resolve(
    dataset,
    experiment,
    multi_head=False,
    backbone=None,
    head="pairwise",
    rule="adagrad",
    protocol="released",
    given=None,
):
    """Complete settings from what is known of a run.

    Parameters
    ----------
    dataset : Dataset
    experiment, multi_head, backbone, head, rule : as in `Settings`
        No backbone means the one with 0.8M parameters for that head.
    protocol : key of `PROTOCOLS`
    given : dict of str
        Settings that win over the released ones and the protocol.

    Returns
    -------
    settings : Settings
    source : str
        Where the others came from, for the reader.
    """
    given = given or {}
    backbone = backbone or ("mlp-700-1" if head == "pairwise" else "mlp-1000-1")
    defaults, nearest = released_settings(
        experiment, dataset.name, multi_head, backbone, head, rule
    )
    settings = Settings(
        experiment=experiment,
        dataset=dataset.name,
        backbone=backbone,
        head=head,
        rule=rule,
        multi_head=multi_head,
        **{**defaults, **PROTOCOLS[protocol], **given},
    )
    source = f"nearest released: {nearest}" if nearest else "released with the paper"
    if protocol != "released":
        source += f"; protocol {protocol}"
    if given:
        flags = (key.removeprefix("importance_").replace("_", "-") for key in given)
        source += "; given: " + ", ".join(flags)
    own_pairs = settings.pairs == "distinct" or (nearest and backbone not in nearest.split())
    if "pair_weights" not in given and head == "pairwise" and own_pairs:
        # A default never asks for more pairs than there are.
        units = settings.architecture(dataset).units
        fitting = units * (units - 1) // 2 // dataset.classes * dataset.classes
        if fitting == 0:
            raise InputError(
                f"{units} units before the head form too few pairs for {dataset.classes} classes: "
                "use a wider --backbone"
            )
        if fitting < settings.pair_weights:
            settings = replace(settings, pair_weights=fitting)
            source += f"; pair weights {fitting:,}, all pairs that exist"
    return settings, source


NOT_IN_FILES = ("held_out", "evaluate_every")
"""Settings that no flag sets."""
KINDS = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}


def read_settings(path):
    """Settings from a JSON file, for `--settings`.

    Raises
    ------
    InputError
        For a file that is missing, is no JSON object, names no setting, or has a value
        of another kind than the setting's.
    """
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read settings {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"settings {path} are not JSON: {error}") from None
    if not isinstance(values, dict):
        raise InputError(f"settings {path} must be one JSON object")
    known = {field.name: field for field in fields(Settings) if field.name not in NOT_IN_FILES}
    unknown = set(values) - set(known)
    if unknown:
        raise InputError(f"settings {path}: {', '.join(sorted(unknown))} is no setting")
    for name, value in values.items():
        kinds = get_args(known[name].type) or (known[name].type,)
        if not any(is_a(kind, value) for kind in kinds):
            allowed = " or ".join(KINDS[kind] for kind in kinds if kind in KINDS)
            raise InputError(f"settings {path}: {name} is {value!r}: use {allowed}")
    return values


def is_a(kind, value):
    """Whether a JSON value is of a setting's type; true and false are no numbers."""
    if kind in (int, float):
        types = (int, float) if kind is float else (int,)
        return type(value) in types and abs(value) < 1e300
    return isinstance(value, kind)
