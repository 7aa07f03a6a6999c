"""`tune`: learning rate and density chosen on held-out training data.

The test set is not touched: a tenth of the training samples of every class is held
out, the rest is the stream, and the final accuracy on the held-out tenth decides.
"""

import os
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from minipw import InputError
from minipw.experiments.run_times import duration
from minipw.experiments.schedule import open_slots, run_items
from minipw.experiments.store import Store, core_seconds
from minipw.experiments.workers import Item
from minipw.paper.released import table
from minipw.training.settings import NOT_IN_FILES
from minipw.training.streams import tasks_for

HELD_OUT = 0.1


def released_grid(settings):
    """Learning rates and densities of the released settings, two ascending lists.

    Of the rows with the same head and head mode and, where there are any, the same stream.
    """
    wanted = (settings.head, "multi" if settings.multi_head else "single")
    rows = [row for row in table("hyperparameters") if (row["head"], row["head_mode"]) == wanted]
    rows = [row for row in rows if row["experiment"] == settings.experiment] or rows
    return tuple(
        sorted({float(row[key]) for row in rows})
        for key in ("effective_learning_rate", "kwta_density")
    )


def fitting_densities(settings, densities, dataset):
    """Those densities that leave winners and losers among the network's units."""
    found, reason = [], None
    for density in densities:
        try:
            _ = replace(settings, density=density).architecture(dataset).winners
            found.append(density)
        except InputError as error:
            reason = error
    if not found:
        raise reason
    return found


def tune(settings, dataset, args, say):
    """Run every point of the grid and choose the one with the best held-out accuracy.

    settings : Settings
        What is not searched.
    args : namespace
        seed, runs, out, workers, cluster, quiet, learning_rates, densities, data_dir.

    Returns the chosen settings, as `--settings` reads them, or None when interrupted.
    """
    rates, densities = released_grid(settings)
    densities = args.densities or fitting_densities(settings, densities, dataset)
    rates, densities = sorted(set(args.learning_rates or rates)), sorted(set(densities))
    points = [
        replace(settings, learning_rate=rate, density=density, held_out=HELD_OUT)
        for rate in rates
        for density in densities
    ]
    for point in points:  # refuse what cannot be run before anything runs
        _ = point.architecture(dataset).winners
    tasks_for(points[0], dataset.hold_out(HELD_OUT), np.random.default_rng(0))
    path = Path(args.out) / f"tune-{settings.experiment}-{Path(dataset.name).stem}.jsonl"
    folder = os.path.abspath(os.path.join(args.out, "checkpoints"))
    seeds = range(args.seed, args.seed + (args.runs or 1))
    with Store(path) as store:
        items = [
            Item(point, seed, args.data_dir, folder, dataset.identity)
            for point in points
            for seed in seeds
        ]
        left = [item for item in items if not store.find(item.key)]
        say(f"{len(points)} settings, {len(left)} runs to do, held-out tenth of the training set")

        def keep(_, record, __):
            store.append(record)

        failed, stopped = run_items(left, *open_slots(args, len(left)), args.quiet, keep)
        if stopped:
            return None
        accuracies = {}
        for item in items:
            if record := store.find(item.key):
                accuracies.setdefault(item.settings, []).append(record["accuracy"])
        spent = sum(map(core_seconds, store.records))
    found = {point: sum(each) / len(each) for point, each in accuracies.items()}
    if not found:
        raise InputError(f"none of the {len(points)} settings could be run: see the messages above")
    best, remarks = choose(found, rates, densities)
    for line in (*grid_lines(found, rates, densities, best), *remarks):
        say(line)
    say(f"{duration(spent)} of one core; {failed} runs failed")
    chosen = asdict(best).items()
    return {name: v for name, v in chosen if v is not None and name not in NOT_IN_FILES}


def choose(means, rates, densities):
    """The best point of a grid and what there is to say about the choice.

    Parameters
    ----------
    means : dict of Settings to float
        Of the points that could be run.
    rates, densities : list of float, ascending

    Returns
    -------
    best : Settings
        Of several that are equally good the one with the best neighbours.
    remarks : list of str
    """

    def position(point):
        return rates.index(point.learning_rate) + 1j * densities.index(point.density)

    def merit(point):
        near = [mean for p, mean in means.items() if abs(position(p) - position(point)) <= 1]
        return means[point], sum(near) / len(near)

    best, remarks = max(means, key=merit), []
    if (equal := sum(mean == means[best] for mean in means.values())) > 1:
        remarks.append(
            f"{equal} of {len(means)} settings are equally good, one with the best neighbours is "
            "taken: more --runs tell them apart"
        )
    for flag, axis, value in (
        ("--learning-rates", rates, best.learning_rate),
        ("--densities", densities, best.density),
    ):
        if len(axis) > 1 and value in (axis[0], axis[-1]):
            end = "lowest" if value == axis[0] else "highest"
            remarks.append(f"{value:g} is the {end} of {flag}: others beyond it may be better")
    return best, remarks


def grid_lines(found, rates, densities, best):
    """The search as a table: learning rates down, densities across, the best marked."""
    means = {(p.learning_rate, p.density): mean for p, mean in found.items()}
    yield "learning rate" + "".join(f"{density:>9g}" for density in densities) + "   density"
    for rate in rates:
        line = f"{rate:<13g}"
        for point in ((rate, density) for density in densities):
            mark = "*" if point == (best.learning_rate, best.density) else " "
            line += f"{means[point]:8.1f}{mark}" if point in means else f"{'-':>8s} "
        yield line
