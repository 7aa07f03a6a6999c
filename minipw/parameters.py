"""Every parameter that a user sets: its type, its range or its words, and what it is.

One table for flags, settings files, `Settings`, `Architecture`, `Rule` and
`OnlineClassifier`.
"""

from dataclasses import dataclass

from minipw import InputError


@dataclass(frozen=True)
class Parameter:
    """What a value may be.

    kind : {str, bool, int, float}
    about : str
        What it is, for --help.
    choices : tuple of str
        The words that are allowed; empty for any text.
    low, high : float or None
        The least and the largest value.
    open : bool
        Whether `low` and `high` themselves are not allowed.
    optional : bool
        Whether None is allowed.
    """

    kind: type
    about: str = ""
    choices: tuple = ()
    low: float | None = None
    high: float | None = None
    open: bool = False
    optional: bool = False

    def expected(self):
        """What to use, in words: "a whole number of at least 1"."""
        if self.choices:
            return " or ".join(filter(None, (", ".join(self.choices[:-1]), self.choices[-1])))
        words = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}
        low, high = (f"{bound:g}" if bound is not None else None for bound in (self.low, self.high))
        if high is not None:
            bounds = f" between {low} and {high}" if self.open else f" from {low} to {high}"
        else:
            bounds = "" if low is None else f" above {low}" if self.open else f" of at least {low}"
        return words[self.kind] + bounds

    def allows(self, value):
        """Whether a value of Python's own types is one."""
        if value is None:
            return self.optional
        number = self.kind in (int, float)
        types = {int: (int,), float: (int, float)}.get(self.kind, (self.kind,))
        if type(value) not in types or (number and not abs(value) < 1e300):
            return False
        if self.choices:
            return value in self.choices
        if not number:
            return True
        outside = [self.low is not None and value < self.low]
        outside += [self.high is not None and value > self.high]
        return not any(outside) and not (self.open and value in (self.low, self.high))


def _whole(low, about="", **more):
    return Parameter(int, about, low=low, **more)


def _words(about, *choices):
    return Parameter(str, about, choices)


SHUFFLED = 1e6
"""The blur that leaves nothing of the order of tasks."""
CLOSED_FORM = ("ridge", "lda", "ncm")
"""Heads on fixed features, solved from sums; the others are of networks that are trained."""
WITHOUT_NETWORK = {
    "rule": "sgd",
    "learning_rate": 1.0,
    "density": None,
    "importance_lambda": 0.0,
    "batch_size": 1,
    "epochs": 1,
    "pair_weights": None,
}
"""What a head of `CLOSED_FORM` has for settings of networks, where they do nothing."""
OF_NETWORKS = (
    *WITHOUT_NETWORK,
    *("pairs", "kwta_threshold", "smas_norm", "class_mask", "gelu", "evaluate_every"),
)
"""Settings of networks alone; records of a head of `CLOSED_FORM` leave them out."""

PARAMETERS = {
    # what is learned
    "experiment": _words(
        "split: a few classes a task; permuted: all data, pixels permuted anew a task; "
        "iid: all data in random order",
        *("split", "permuted", "iid"),
    ),
    "dataset": Parameter(
        str,
        "mnist (default), fashion-mnist, cifar-10, mnist-5k (bundled), FILE.npz with "
        "x_train, y_train, x_test, y_test, or FILE.csv with a header",
    ),
    "label": Parameter(str, "of FILE.csv, the column of the classes", optional=True),
    "multi_head": Parameter(bool, "loss and test see only the task's classes"),
    "classes_per_task": _whole(1, "split: classes of a task (2)"),
    "tasks": _whole(1, "permuted: permutations (10)"),
    "blur": Parameter(
        float,
        "split, permuted: tasks run into each other over this share of their length (0); "
        "1e6 shuffles all of them",
        low=0,
        high=SHUFFLED,
    ),
    # the network
    "head": _words(
        "pairwise unless given; without a network, on fixed features: ridge regression, "
        "discriminant analysis, nearest class mean",
        *("pairwise", "fc", *CLOSED_FORM),
    ),
    "backbone": Parameter(
        str,
        "mlp-WIDTH-DEPTH, cnn-s or cnn-m (mlp-700-1 for pairwise, mlp-1000-1 for fc: "
        "equally many parameters); of ridge, lda, ncm: scales-FEATURES, patches-FILTERS, "
        "random-FEATURES, identity; of ridge: contexts-scales-FEATURES, contexts-FILTERS "
        "(scales-7200 of many images, scales-1800 of fewer than 20,000, else random-1000)",
    ),
    "pair_weights": _whole(1, "weights of the pairwise head", optional=True),
    "pair_weights_per_class": _whole(
        1, "weights of the pairwise head for each class", optional=True
    ),
    "density": Parameter(
        float,
        "share of the last hidden units that k-WTA keeps",
        low=0,
        high=1,
        open=True,
        optional=True,
    ),
    # learning
    "rule": _words("adagrad unless given", "adagrad", "s-mas", "sgd"),
    "learning_rate": Parameter(float, low=0, open=True),
    "class_weight": Parameter(str, choices=("balanced",), optional=True),
    "half_life": Parameter(float, low=0, open=True, optional=True),
    "importance_lambda": Parameter(
        float, "how fast importance grows, above 0: stability against plasticity", low=0
    ),
    "batch_size": _whole(1),
    "epochs": _whole(1, "passes over each task"),
    # where the paper and its released program differ
    "pairs": _words("", "released", "distinct"),
    "kwta_threshold": _words("", "k", "k+1"),
    "smas_norm": _words("", "mean", "sum"),
    "class_mask": _words("", "zero", "exclude"),
    "gelu": _words("", "tanh", "exact"),
    # no flag sets these two of `Settings`
    "evaluate_every": _whole(0),
    "held_out": Parameter(float, low=0, high=1),
    # the online classifier alone
    "reserve": _whole(0),
    "running_standardize": Parameter(bool),
    "standardized_limit": Parameter(float, low=0, open=True),
    "missing": Parameter(bool),
    "bias": Parameter(bool),
    # the closed form
    "features": _words("", "auto", "random", "scales", "patches", "identity"),
    "size": _whole(1, optional=True),
    "first": _whole(1),
    # the run
    "seed": _whole(0, "of the first run (0)"),
    "runs": _whole(1, "seeds, from --seed on (1)", high=10_000),
    "workers": _whole(1, "processes (one a core)"),
    "device": _words("", "cpu", "cuda"),
}


def check(**values):
    """Values by their names, in Python's own types and one spelling (1.0, not 1 or -0.0).

    Raises
    ------
    InputError
        For a value that its parameter does not allow.
    """
    for name, value in values.items():
        if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a NumPy scalar
            values[name] = value = value.item()
        parameter = PARAMETERS[name]
        if not parameter.allows(value):
            raise InputError(f"{name} is {value!r}: use {parameter.expected()}")
        if parameter.kind is float and value is not None:
            values[name] = value + 0.0
    return values
