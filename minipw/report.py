"""What a person reads: settings, results and figures as text and pictures."""

import os

from minipw import InputError
from minipw.metrics import mean_and_interval

FIGURE_FORMATS = (".png", ".svg", ".pdf")
RULE_NAMES = {"adagrad": "Adagrad", "s-mas": "S-MAS", "sgd": "SGD"}


def title(settings, dataset_name):
    """One line that names a run."""
    mode = "multi-head" if settings.multi_head else "single-head"
    experiment = {"split": "Split", "permuted": "Permuted", "iid": "IID"}[settings.experiment]
    rule = RULE_NAMES[settings.rule]
    return f"{experiment} {dataset_name}, {mode}: {settings.backbone}, {settings.head} head, {rule}"


def settings_text(state, source, dataset_name):
    """The resolved settings of a run, before it starts.

    Parameters
    ----------
    state : Run
    source : str
        The row of the released settings that unset flags came from.
    dataset_name : str
    """
    settings, network = state.settings, state.network
    units = network.architecture.units
    head = network.parameters["head"].size
    lines = [
        title(settings, dataset_name),
        f"  settings    {source}",
        f"  training    learning rate {settings.learning_rate:g}, "
        f"lambda {settings.importance_lambda:g}, batch {settings.batch_size}, "
        f"{settings.epochs} epoch{'s' * (settings.epochs > 1)}, {state.total_steps:,} steps, "
        f"{len(state.tasks)} task{'s' * (len(state.tasks) > 1)}",
        f"  k-WTA       {network.winners} of {units} units win (density {settings.density:g}, "
        f"threshold {settings.kwta_threshold}); GELU {settings.gelu}",
        f"  parameters  {network.parameter_count:,} ({network.parameter_count - head:,} backbone, "
        f"{head:,} head)",
    ]
    if settings.head == "pairwise":
        lines[-1] += f"; pairs {settings.pairs}"
    if settings.rule == "s-mas":
        lines[-1] += f"; S-MAS norm {settings.smas_norm}"
    if settings.multi_head:
        lines[-1] += f"; class mask {settings.class_mask}"
    return "\n".join(lines)


def result_text(record, paper=None):
    """Accuracies of one run.

    Parameters
    ----------
    record : dict from `train.run`
    paper : float or None
        The paper's accuracy for the same cell, per cent.
    """
    matrix, learned = record["accuracy_matrix"], record["task_accuracy"]
    width = max(len(name) for name in record["tasks"])
    lines = [f"  {'task':{width}}  when learned  at the end"]
    for n, name in enumerate(record["tasks"]):
        lines.append(f"  {name:{width}}  {matrix[n + 1][n]:10.1f} %  {learned[n]:8.1f} %")
    beside = "" if paper is None else f"   (paper: {paper:g} %)"
    lines.append(f"accuracy {record['accuracy']:.2f} % of all test images{beside}")
    if record["forgetting"] is not None:
        lines.append(
            f"forgetting {record['forgetting']:.2f}, "
            f"backward transfer {record['backward_transfer']:.2f}, "
            f"forward transfer {record['forward_transfer']:.2f} points"
        )
    rate = record["steps"] / record["seconds"]
    lines.append(
        f"online (test-then-train) {record['online_accuracy']:.2f} %, {record['steps']:,} steps "
        f"in {record['seconds']:.1f} s with all tests ({rate:.0f} steps/s)"
    )
    if record["note"]:
        lines.append(f"note: {record['note']}")
    return "\n".join(lines)


def with_error(mean, error, count):
    """ "83.1 ± 0.4 (30)": mean, standard error unless count is 1, and the number of runs."""
    return f"{mean:.1f} ({count})" if error is None else f"{mean:.1f} ± {error:.1f} ({count})"


def summary_text(records, paper=None):
    """Mean accuracy over seeds with its standard error and 95 % interval."""
    mean, error, half_width = mean_and_interval([record["accuracy"] for record in records])
    text = f"accuracy {mean:.2f} %"
    if error is not None:
        text += f" ± {error:.2f} (standard error), 95 % interval ± {half_width:.2f}"
    text += f", {len(records)} run{'s' * (len(records) > 1)}"
    return text + ("" if paper is None else f"   (paper: {paper:g} %)")


def pyplot():
    """matplotlib.pyplot on the Agg canvas, which needs no screen.

    Raises
    ------
    InputError
        When matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError:
        raise InputError(
            'a figure needs matplotlib: pip install "minipw[plot]" (from a checkout: .[plot])'
        ) from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def check_figure(path):
    """Raise InputError when a figure could not be written to `path` later."""
    pyplot()
    folder = os.path.dirname(path) or "."
    if not path.endswith(FIGURE_FORMATS):
        raise InputError(f"figure {path}: name it {' or '.join(FIGURE_FORMATS)}")
    if not (os.path.isdir(folder) and os.access(folder, os.W_OK)):
        raise InputError(
            f"figure {path}: {folder} is no folder that can be written; choose another"
        )


def plot_run(record, heading, path):
    """Accuracy over the stream and the accuracy matrix of one run, as a picture.

    Parameters
    ----------
    record : dict from `train.run`
    heading : str
    path : str ending in .png, .svg or .pdf
    """
    plt = pyplot()
    matrix = record["accuracy_matrix"]
    tasks = len(matrix[0])
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    figure.suptitle(heading)

    learned = range(1, tasks + 1)
    seen = [sum(matrix[t][:t]) / t for t in learned]
    left.plot(learned, seen, "o-", color="#0072b2", label="mean of the tasks seen so far")
    first = [matrix[t][0] for t in learned]
    left.plot(learned, first, "s--", color="#d55e00", label="first task")
    left.set(xlabel="tasks learned", ylabel="test accuracy (%)", ylim=(0, 102))
    left.set_xticks(list(learned))
    left.grid(alpha=0.3)
    left.legend(loc="lower left")

    shown = right.imshow(matrix, vmin=0, vmax=100, cmap="cividis", aspect="auto")
    right.set(xlabel="tested on task", ylabel="tasks learned", title="accuracy matrix")
    right.set_xticks(range(tasks), [str(n + 1) for n in range(tasks)])
    right.set_yticks(range(tasks + 1))
    for t, row in enumerate(matrix):
        for j, value in enumerate(row):
            color = "white" if value < 50 else "black"
            right.text(j, t, f"{value:.0f}", ha="center", va="center", color=color, fontsize=8)
    figure.colorbar(shown, ax=right, label="test accuracy (%)")
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot write the figure {path}: {error}") from None
    finally:
        plt.close(figure)
