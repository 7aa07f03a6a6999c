"""Figures, drawn with matplotlib, which is only needed here."""

import os

from minipw import InputError
from minipw.backend.files import check_writable
from minipw.paper.cells import CURVES
from minipw.training.metrics import mean_and_interval
from minipw.training.run import CURVE_SAMPLES

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
"""Colours that people with any colour vision tell apart (Okabe & Ito)."""
MARKERS = "osD^v"
MOST_TICKS = 15
"""Numbers of tasks that an axis has room for."""


def pyplot():
    """matplotlib.pyplot on the Agg canvas, which needs no screen; InputError without it."""
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
    check_writable(path, (".png", ".svg", ".pdf"), "figure")


def plot_run(record, heading, path):
    """Accuracy over the stream and the accuracy matrix of one run, from its record."""
    matrix = record["accuracy_matrix"]
    tasks = len(matrix[0])
    figure, (left, right) = pyplot().subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    figure.suptitle(plain(heading))

    learned = range(1, tasks + 1)
    seen = [sum(matrix[t][:t]) / t for t in learned]
    left.plot(learned, seen, "o-", color=COLORS[0], label="mean of the tasks seen so far")
    first = [matrix[t][0] for t in learned]
    left.plot(learned, first, "s--", color=COLORS[1], label="first task")
    low = min(90, 10 * int(min(seen + first) // 10))  # a line may start anywhere, unlike a bar
    left.set(xlabel="tasks learned", ylabel="test accuracy (%)", ylim=(low, 100.5))
    every = -(-tasks // MOST_TICKS)  # no more numbers than fit
    left.set_xticks(learned[::every])
    left.grid(alpha=0.3)
    left.legend()

    shown = right.imshow(matrix, vmin=0, vmax=100, cmap="cividis", aspect="auto")
    right.set(xlabel="tested on task", ylabel="tasks learned", title="accuracy matrix")
    right.set_xticks(range(0, tasks, every), learned[::every])
    right.set_yticks(range(0, tasks + 1, every))
    for t, row in enumerate(matrix if tasks <= MOST_TICKS else ()):
        for j, value in enumerate(row):
            color = "white" if value < 50 else "black"
            right.text(j, t, f"{value:.0f}", ha="center", va="center", color=color, fontsize=8)
    figure.colorbar(shown, ax=right, label="test accuracy (%)")
    save(figure, [path])


def plot_stream(result, path):
    """Accuracy along one's own stream and that of each class at its end; `cli.stream.measure`."""
    figure, (left, right) = pyplot().subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    figure.suptitle(plain(f"{os.path.basename(result['dataset'])}, one pass in its own order"))
    ends, accuracies = zip(*result["curve"], strict=True)
    left.step([0, *ends], [accuracies[0], *accuracies], color=COLORS[0])
    left.set(xlabel="samples learned", ylabel="test-then-train accuracy (%)", ylim=(0, 102))
    left.grid(alpha=0.3)
    labels, values = list(result["class_accuracy"]), list(result["class_accuracy"].values())
    right.barh(range(len(labels)), values, color=COLORS[0])
    right.set(xlabel="accuracy at the end, on test samples (%)", ylabel="class", xlim=(0, 102))
    shown = range(0, len(labels), len(labels) // 25 + 1)  # no more names than fit
    right.set_yticks(shown, [plain(labels[n]) for n in shown])
    right.invert_yaxis()
    right.grid(axis="x", alpha=0.3)
    save(figure, [path])


def plain(text):
    """Text whose dollar signs matplotlib does not take for a formula."""
    return text.replace("$", r"\$")


def save(figure, paths):
    """Write a figure to each of the paths, the same bytes for the same figure, and close it."""
    plt = pyplot()
    plt.rcParams["svg.hashsalt"] = "minipw"
    try:
        for path in paths:
            dated = {"Date": None} if str(path).endswith(".svg") else None
            figure.savefig(path, dpi=150, metadata=dated)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot write the figure {path}: {error}") from None
    finally:
        plt.close(figure)


def plot_band(axes, x, values, color, label, **style):
    """A line through the means of the runs of each x, and a band from the lowest to the highest.

    values : list of list of float
        For each x, one value a run.
    """
    axes.plot(x, [sum(each) / len(each) for each in values], color=color, label=label, **style)
    band = [min(each) for each in values], [max(each) for each in values]
    axes.fill_between(x, *band, color=color, alpha=0.2, lw=0)


def plot_sparsity(lines, paths):
    """Accuracy over the density of active units.

    lines : dict of str to list of (density, accuracies)
        Density a fraction, accuracies of the runs in per cent; by the label of the line.
    """
    figure, axes = pyplot().subplots(figsize=(7, 4.4), layout="constrained")
    for (label, points), color, marker in zip(lines.items(), COLORS, MARKERS, strict=False):
        x, y = zip(*sorted(points), strict=True)
        plot_band(axes, [100 * d for d in x], y, color, label, marker=marker, ms=3)
    axes.set(
        xlabel="density: units that k-WTA keeps (%)",
        ylabel="test accuracy (%)",
        title="Split MNIST, single-head",
    )
    axes.grid(alpha=0.3)
    axes.legend()
    save(figure, paths)


def plot_curves(curves, paths):
    """Accuracy along the permuted stream: all tasks so far, and tasks 1, 4 and 8.

    curves : dict of str to (steps a task, list of runs), by a key of `CURVES`
        Each run a list of [step, accuracies of the tasks so far].
    """
    figure, (left, right) = pyplot().subplots(1, 2, figsize=(12, 5.2), layout="constrained")
    names = [name for name in CURVES if name in curves]
    for name, color in zip(names, COLORS, strict=False):
        per_task, runs = curves[name]
        steps = [step / per_task for step, _ in runs[0]]
        rows = [[run[n][1] for run in runs] for n in range(len(steps))]  # of each step, each run
        plot_band(left, steps, [[sum(r) / len(r) for r in each] for each in rows], color, name)
        if name not in ("pairwise Adagrad", "k-WTA fc Adagrad"):
            continue
        for task, style in ((1, "-"), (4, "--"), (8, ":")):
            first = next((n for n, each in enumerate(rows) if len(each[0]) >= task), len(steps))
            values = [[row[task - 1] for row in each] for each in rows[first:]]
            if values:
                label = f"{name}, task {task}"
                plot_band(right, steps[first:], values, color, label, ls=style, lw=1.4)
    figure.suptitle(f"Permuted MNIST, tested on {CURVE_SAMPLES:,} images a task", fontsize=10)
    left.set(title="A  all tasks so far", ylim=(40, 100))
    right.set(title="B  tasks 1, 4 and 8", ylim=(85, 100))
    for axes in (left, right):
        axes.set(xlabel="tasks of the stream", ylabel="test accuracy (%)")
        axes.grid(alpha=0.3)
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14), "ncols": 2}
        axes.legend(fontsize=8, frameon=False, **below)
    save(figure, paths)


PANELS = (
    ("table1", "single-head", "Table 1: Split MNIST, single-head"),
    ("table1", "multi-head", "multi-head"),
    ("table2", "single-head", "Table 2: Split Fashion-MNIST, single-head"),
    ("table2", "multi-head", "multi-head"),
    ("table4", "single-head", "Table 4: Split MNIST with SGD, single-head"),
    ("table4", "multi-head", "multi-head"),
    ("table3", "", "Table 3: Permuted MNIST"),
    ("table5", "", "Table 5: the batch size"),
)
"""Table, columns (those that begin with a word) and title of each panel."""
RULE_COLORS = {"Adagrad": COLORS[0], "S-MAS": COLORS[1], "SGD": COLORS[2]}
PAPER_MARK = {"marker": "D", "ms": 7, "ls": "", "mfc": "none"}


def plot_paper(tables, paths):
    """Every printed accuracy, ours beside the paper's.

    tables : dict of str to dict
        Tables 1 to 5 by their parts, as `tables.build_table` gives them.
    """
    plt = pyplot()
    heights = [len(tables[part]) + 1.5 for part, _, _ in PANELS[::2]]
    figure = plt.figure(figsize=(10, 12), layout="constrained")
    # Two parts, so that the long labels of Table 5 leave no gap above it.
    upper, lower = figure.subfigures(2, 1, height_ratios=(sum(heights[:3]), heights[3]))
    panels = [*upper.subplots(3, 2, height_ratios=heights[:3]).flat, *lower.subplots(1, 2)]
    for axes, (part, prefix, title) in zip(panels, PANELS, strict=True):
        rows = tables[part]
        for row, (label, entries) in enumerate(rows.items()):
            shown = [column for column in entries if column.startswith(prefix)]
            for n, column in enumerate(shown):
                words = f"{column} {label}"  # Table 4 is of SGD alone and names no rule
                rule = next((rule for rule in RULE_COLORS if rule in words), "SGD")
                y = row + 0.4 * (n - (len(shown) - 1) / 2)
                plot_entry(axes, y, entries[column], RULE_COLORS[rule])
        axes.set_yticks(range(len(rows)), rows if prefix != "multi-head" else [""] * len(rows))
        axes.set_yticks([row + 0.5 for row in range(len(rows) - 1)], minor=True)
        axes.set(ylim=(len(rows) - 0.4, -0.6))
        axes.tick_params(axis="y", which="both", length=0)
        axes.grid(axis="x", alpha=0.3)
        axes.grid(axis="y", which="minor", alpha=0.5)
        axes.margins(x=0.15)
        axes.set_title(title, loc="left", fontsize=10)
    for axes in panels[-2:]:
        axes.set_xlabel("test accuracy (%)")
    ours = plt.errorbar([], [], xerr=[], fmt="o", color="0.3", capsize=2)
    marks = {
        "the paper": plt.Line2D([], [], mec="0.3", **PAPER_MARK),
        "ours, 95 % interval": ours,
        "differ by more than two standard errors": plt.Line2D([], [], ls="", marker="$*$", c="0.3"),
    }
    marks |= {r: plt.Line2D([], [], ls="", marker="s", c=c) for r, c in RULE_COLORS.items()}
    above = {"loc": "outside upper center", "ncols": 6, "frameon": False, "fontsize": 9}
    figure.legend(marks.values(), marks, **above)
    save(figure, paths)


def plot_entry(axes, y, entry, color):
    """The paper's accuracy at height y, and ours with its interval if it was run."""

    def note(text, x, size):
        beside = {"xytext": (9, 0), "textcoords": "offset points", "va": "center"}
        axes.annotate(text, (x, y), color="0.4", fontsize=size, **beside)

    axes.plot([entry.printed], [y], mec=color, **PAPER_MARK)
    if not entry.values:
        return note("not run", entry.printed, 8)
    mean, _, half_width = mean_and_interval(entry.values)
    axes.errorbar([mean], [y], xerr=half_width, fmt="o", ms=4, color=color, capsize=2, lw=1.2)
    if entry.differs():
        note("*", max(mean + half_width, entry.printed), 12)
