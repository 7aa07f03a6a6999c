"""What decides a run, and where what is not said comes from."""

import json
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path

from minipw import InputError, parameters
from minipw.network.architecture import Architecture
from minipw.paper.released import PROTOCOLS, released_settings
from minipw.parameters import CLOSED_FORM, OF_NETWORKS, WITHOUT_NETWORK
from minipw.rules import Rule

UNSAID = ""
"""What must be said, but for what a head of `CLOSED_FORM` does not use."""


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
        These, from `rule` on, are of networks: a head of `CLOSED_FORM` has `WITHOUT_NETWORK`,
        and its backbone is a feature map.
    evaluate_every : int
        Steps between two points of the learning curve; 0 draws none.
    held_out : float in [0, 1)
        Share of the training set that is tested on, instead of the test set.
    label : str or None
        Column of a .csv file that holds the classes.
    blur : float in [0, 1e6]
        Share of a task's length over which it runs into the next, as in `streams.blur`.
    """

    experiment: str
    dataset: str
    backbone: str
    head: str
    rule: str = UNSAID
    multi_head: bool = UNSAID
    learning_rate: float = UNSAID
    density: float | None = UNSAID
    importance_lambda: float = UNSAID
    batch_size: int = UNSAID
    epochs: int = UNSAID
    pair_weights: int | None = UNSAID
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
        values = vars(self)
        if self.head in CLOSED_FORM:
            unsaid = {name: v for name, v in WITHOUT_NETWORK.items() if values[name] == UNSAID}
            values = values | unsaid
        for name, value in parameters.check(**values).items():
            object.__setattr__(self, name, value)
        self.learning_rule()  # refuses what the rule does
        if self.blur and self.epochs > 1:
            raise InputError("a stream with blurred boundaries has one pass: use --epochs 1")
        if self.blur and self.experiment == "iid":
            raise InputError("an iid stream has no boundaries to blur: leave out blur")
        if self.head == "pairwise" and self.pair_weights is None:
            raise InputError("pair_weights is None: a pairwise head needs a number of them")

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


DEFAULTS = {f.name: f.default for f in fields(Settings) if f.default not in (MISSING, UNSAID)}


def decisive(settings):
    """The settings that decide a run's result, in one spelling; None for those without effect.

    Parameters
    ----------
    settings : dict
        Of `Settings`. One that is lacking, as in older records, has its default value; those of
        networks are lacking where there is none.
    """
    settings = parameters.check(**{**WITHOUT_NETWORK, **DEFAULTS, **settings})
    split, permuted = (settings["experiment"] == name for name in ("split", "permuted"))
    pairwise, rule = settings["head"] == "pairwise", settings["rule"]
    used = {
        "dataset": False,  # `Dataset.identity` says what the data are
        "label": False,
        "classes_per_task": split,
        "tasks": permuted,
        "class_mask": settings["multi_head"],
        "pair_weights": pairwise,
        "pairs": pairwise,
        "kwta_threshold": settings["density"] is not None,
        "importance_lambda": rule != "sgd",
        "smas_norm": rule == "s-mas",
    }
    if settings["head"] in CLOSED_FORM:
        used |= dict.fromkeys(OF_NETWORKS, False)
    return {name: v if used.get(name, True) else None for name, v in settings.items()}


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
        No backbone means the one with 0.8M parameters for that head, or patches of images
        and else random features for one of `CLOSED_FORM`.
    protocol : key of `PROTOCOLS`
    given : dict of str
        Settings that win over the released ones and the protocol.

    Returns
    -------
    settings : Settings
    source : str
        Where the others came from, for the reader.
    """
    given, known = given or {}, {"experiment": experiment, "multi_head": multi_head}
    words = {**known, "head": head, "rule": rule, "backbone": backbone or ""}
    parameters.check(**words | ({"rule": "sgd"} if head in CLOSED_FORM else {}))
    require_settings(given, {field.name for field in fields(Settings)} - {*words, "dataset"})
    if protocol not in PROTOCOLS:
        raise InputError(f"protocol is {protocol!r}: use {' or '.join(PROTOCOLS)}")
    if not hasattr(dataset, "name"):
        raise InputError(f"dataset is {dataset!r}: use one that datasets.load returns")
    known["dataset"] = dataset.name
    if head in CLOSED_FORM:
        image = len(dataset.shape) == 3 and min(dataset.shape[:2]) >= SMALLEST_IMAGE
        many = getattr(dataset, "train", None) or len(dataset.y_train)
        default = "scales-7200" if many >= 20_000 else "scales-1800"
        default = default if image and experiment != "permuted" else "random-1000"
        known |= {"backbone": backbone or default, "head": head, **WITHOUT_NETWORK}
        return Settings(**known, **given), "nothing to tune"
    backbone = backbone or ("mlp-700-1" if head == "pairwise" else "mlp-1000-1")
    defaults, nearest = released_settings(
        experiment, dataset.name, multi_head, backbone, head, rule
    )
    settings = Settings(
        **known,
        backbone=backbone,
        head=head,
        rule=rule,
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
        # For networks of other sizes a default never asks for more pairs than there are.
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


SMALLEST_IMAGE = 8
"""Pixels on a side from which a closed form takes patches unless told otherwise."""
NOT_IN_FILES = ("held_out", "evaluate_every")
"""Settings that no flag sets."""


def require_settings(names, known):
    """Raise InputError for a name that is not among the known settings."""
    if unknown := sorted(map(str, set(names) - known)):
        raise InputError(f"{', '.join(unknown)} is no setting")


def read_settings(path):
    """Settings from a JSON file, for `--settings`.

    Raises
    ------
    InputError
        For a file that is missing, is no JSON object, names no setting, or has a value
        that the setting does not allow.
    """
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read settings {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"settings {path} are not JSON: {error}") from None
    if not isinstance(values, dict):
        raise InputError(f"settings {path} must be one JSON object")
    try:
        require_settings(values, {field.name for field in fields(Settings)} - set(NOT_IN_FILES))
        return parameters.check(**values)
    except InputError as error:
        raise InputError(f"settings {path}: {error}") from None
