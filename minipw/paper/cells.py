"""The cells of the paper's tables and the points of its figures, as runs to do."""

from dataclasses import dataclass, field

from minipw import InputError
from minipw.paper.released import UNDESCRIBED, table

DATASETS = {
    "split_mnist": ("split", "mnist"),
    "split_fashion_mnist": ("split", "fashion-mnist"),
    "split_cifar10": ("split", "cifar-10"),
    "permuted_mnist": ("permuted", "mnist"),
}
"""Experiment and data set of each word in the tables of facts."""


@dataclass(frozen=True)
class Outline:
    """A published data set without its images: `train` and `test` of them, in classes."""

    name: str
    shape: tuple
    classes: int
    train: int
    test: int = 10_000


OUTLINES = {
    "mnist": Outline("mnist", (28, 28, 1), 10, 60_000),
    "fashion-mnist": Outline("fashion-mnist", (28, 28, 1), 10, 60_000),
    "cifar-10": Outline("cifar-10", (32, 32, 3), 10, 50_000),
}

BATCH_ROWS = {
    64: (("0.01", {}), ("0.1", {"importance_lambda": 0.1})),
    16: (("0.01", {"batch_size": 16, "importance_lambda": 0.01}),),
    1: (("0.005", {"batch_size": 1, "importance_lambda": 0.005}),),
}
"""Table 5: batch size to (lambda, settings). The first row is printed with 0.1 and
released with 0.01; both are measured."""

CURVES = {
    "pairwise Adagrad": ("pairwise", "adagrad", {"learning_rate": 0.006}),
    "k-WTA fc Adagrad": ("fc", "adagrad", {}),
    "k-WTA fc SGD": ("fc", "sgd", {}),
    "GELU fc Adagrad": ("fc", "adagrad", {"density": None}),
    "GELU fc SGD": ("fc", "sgd", {"density": None}),
}
"""The five methods of the permuted MNIST figure: head, rule and settings. The figure was
drawn with another learning rate for the pairwise head than Table 3."""

CURVE_STEPS = 30
NAMES = ("table1", "table2", "table3", "table4", "table5", "sparsity", "curves", "cifar")


@dataclass(frozen=True)
class Cell:
    """A number or point of the paper.

    part : one of NAMES
    label : str
        What `--only` is matched against.
    request : dict
        Arguments of `settings.resolve` but for the data set.
    dataset : str
    printed : float or None
        The paper's accuracy, per cent.
    runs : int
        The paper's number of seeds.
    """

    part: str
    label: str
    dataset: str
    request: dict = field(hash=False)
    printed: float | None
    runs: int


def cells(part):
    """The cells of a part of the paper, or of "all" of it, in the paper's order.

    Raises
    ------
    InputError
        For a part that the paper does not have.
    """
    if part == "all":
        return [cell for name in NAMES for cell in cells(name)]
    if part not in NAMES:
        raise InputError(f"the paper has no part {part!r}: use {', '.join(NAMES)} or all")
    if part.startswith("table"):
        rows = [row for row in table("numbers") if row["table"] == part[-1]]
        if part == "table5":
            rows += [row for row in table("numbers") if row["table"] == "text"]
        return [cell for row in rows for cell in _cells_of_row(part, row)]
    return {"sparsity": _sparsity, "curves": _curves, "cifar": _cifar}[part]()


def _cells_of_row(part, row):
    variants = (("", {}),)
    if part == "table5":
        batch = int(row["note"].split("batch size ")[1].split(";")[0].split(",")[0])
        if row["rule"] == "adagrad":
            variants = (("", {"batch_size": batch}),)
        else:
            variants = BATCH_ROWS[batch]
    for importance_lambda, given in variants:
        words = [row["experiment"], row["head_mode"], row["backbone"], row["head"], row["rule"]]
        if part == "table5":
            words.append(f"batch {given.get('batch_size', 64)}")
            words += [f"lambda {importance_lambda}"] * bool(importance_lambda)
        yield _cell(part, " ".join(words), row, given, float(row["accuracy"]), int(row["runs"]))


def _cell(part, label, row, given, printed, runs):
    experiment, dataset = DATASETS[row["experiment"]]
    request = {
        "experiment": experiment,
        "multi_head": row["head_mode"] == "multi",
        "backbone": row["backbone"],
        "head": row["head"],
        "rule": row["rule"],
        "given": given,
    }
    return Cell(part, label, dataset, request, printed, runs)


def _sparsity():
    """Split MNIST, single-head, over the density: one run a point.

    The paper does not say by which rule. Its words, over 75 % with the pairwise head up
    to a density of 70 %, fit S-MAS and not Adagrad; both are here.
    """
    found = []
    for rule in ("s-mas", "adagrad"):
        for backbone, head in (("mlp-700-1", "pairwise"), ("mlp-1000-1", "fc")):
            row = {
                "experiment": "split_mnist",
                "head_mode": "single",
                "backbone": backbone,
                "head": head,
                "rule": rule,
            }
            for hundredth in range(1, 71):
                given = {"density": hundredth / 100}
                label = f"sparsity {backbone} {head} {rule} density {given['density']:g}"
                found.append(_cell("sparsity", label, row, given, None, 1))
    return found


def _curves():
    """Permuted MNIST, five methods, tested all the way: one run each."""
    found = []
    for name, (head, rule, given) in CURVES.items():
        row = {
            "experiment": "permuted_mnist",
            "head_mode": "single",
            "backbone": "mlp-700-1" if head == "pairwise" else "mlp-1000-1",
            "head": head,
            "rule": rule,
        }
        given = {**given, "evaluate_every": CURVE_STEPS}
        found.append(_cell("curves", f"curves {name}", row, given, None, 1))
    return found


def _cifar():
    """Split CIFAR-10: every released setting whose network the paper describes."""
    found = []
    for row in table("hyperparameters"):
        known = row["backbone"] not in UNDESCRIBED
        if row["experiment"] == "split_cifar10" and known:
            words = [row[key] for key in ("experiment", "head_mode", "backbone", "head", "rule")]
            found.append(_cell("cifar", " ".join(words), row, {}, None, int(row["runs"])))
    return found


def cifar_remark():
    """What the paper says of Split CIFAR-10, where it has no table."""
    rows = [row for row in table("numbers") if row["table"] == "appendix"]
    best = {row["head_mode"]: float(row["accuracy"]) for row in rows}
    return (
        f"the paper's best: about {best['single']:g} single-head, "
        f"{best['multi']:g} multi-head with one convolution (cnn-s)"
    )


def select(chosen, only):
    """The cells whose label has every word of `only`.

    Raises
    ------
    InputError
        When none has.
    """
    words = (only or "").lower().split()
    found = [cell for cell in chosen if all(word in cell.label.lower().split() for word in words)]
    if not found:
        raise InputError(f"no cell matches {only!r}; the first of them is '{chosen[0].label}'")
    return found
