"""The page of results: notes written by hand, with tables of the stored runs filled in.

A line `<!-- NAME -->` of the notes, NAME a key of `SECTIONS`, is replaced by that table, or
left out while there is nothing to show.
"""

import json
import re
from functools import partial
from pathlib import Path
from statistics import fmean, stdev

from minipw import InputError
from minipw.experiments import tables
from minipw.experiments.store import run_key
from minipw.paper.cells import ORDERS, cells, order_cells
from minipw.paper.released import PROTOCOLS, table
from minipw.training.metrics import mean_and_interval
from minipw.training.settings import decisive

MARK = "<!-- Written by `run.py report` from the stored runs and notes.md: edit notes.md. -->"
BLURS = (0.0, 0.25, 0.5, 1.0)


def check(path):
    """Raise InputError when a file of that name is not a page of ours."""
    if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith(MARK):
        raise InputError(f"{path} was not written by report: move it, or choose another --out")


def fill(notes, records, protocol, folder, counts):
    """The page: notes, a str, with tables of records from `report.read_records`.

    folder : path
        Where bench.json, digits.json and drift.json are.
    counts : list of str
        What the section `counts` says.
    """

    def section(match):
        name = match[1]
        if name == "counts":
            return "; ".join(counts) + ".\n"
        if name not in SECTIONS:
            raise InputError(f"notes.md: no section {name!r}: use counts, {', '.join(SECTIONS)}")
        text = SECTIONS[name](records, protocol, Path(folder))
        return text and text + "\n"

    text = re.sub(r"^<!-- (.+) -->\n?", section, notes, flags=re.M)
    return re.sub(r"\n{3,}", "\n\n", f"{MARK}\n\n{text}")


def paper_table(part, records, protocol, _):
    """A table of the paper, and the same on parts of its data set where those were run."""
    data = {json.loads(key)[2]: runs[0].get("note") for key, runs in records.items()}
    names = {cell.dataset for cell in cells(part)}
    found = []
    for identity in sorted(name for name in data if name.split(" ")[0] in names):
        table = tables.build_table(part, records, protocol, identity)
        if tables.measured({part: table}):
            title = f"**{tables.TITLES[part]}**" + f" ({data[identity]})" * (identity not in names)
            if part == "cifar":  # most of it was not run, and the paper prints no numbers of it
                table = {k: row for k, row in table.items() if any(e.values for e in row.values())}
            found.append(f"{title}\n\n{tables.markdown(tables.texts(table))}")
    return "\n\n".join(found)


def agreement(records, protocol, _):
    """How many numbers of Tables 1 to 4 are measured, and how far they are from the paper's."""
    parts = [tables.build_table(f"table{n}", records, protocol) for n in (1, 2, 3, 4)]
    columns = [pair for part in parts for row in part.values() for pair in row.items()]
    measured = [(column, entry) for column, entry in columns if entry.values]
    text = f"Of the {len(columns)} numbers of Tables 1 to 4, {len(measured)} are measured and "
    text += f"{sum(entry.differs() for _, entry in measured)} of them bear the mark `*`."
    for mode in ("single-head", "multi-head"):
        found = [fmean(e.values) - e.printed for column, e in measured if column.startswith(mode)]
        if len(found) > 1:
            text += f" Over {len(found)} {mode} numbers ours minus the paper's is"
            text += f" {fmean(found):.1f} on average, with a standard deviation of"
            text += f" {stdev(found):.1f} points."
    return text


def table_cells():
    """The cells of all tables of the paper."""
    return [cell for part in tables.TITLES for cell in cells(part)]


def same_seeds(*runs):
    """Lists of records, cut down to the seeds that all of them have."""
    seeds = set.intersection(*({record["seed"] for record in each} for each in runs or [[]]))
    return [[record for record in each if record["seed"] in seeds] for each in runs]


def accuracies(runs):
    """The final accuracy of each record."""
    return [record["accuracy"] for record in runs]


def blur(experiment, records, protocol, _):
    """Streams with blurred boundaries, by the share of a task that runs into the next."""
    label = f"{experiment} mnist single mlp-700-1 pairwise adagrad"
    (cell,) = (cell for cell in cells("all") if cell.label == label)
    settings = tables.cell_settings(cell, protocol)
    digits = 2 if experiment == "permuted" else 1  # the spread there is 0.1

    def runs(share, **change):
        return records.get(run_key({**settings, "blur": share, **change}, None, cell.dataset), [])

    found = same_seeds(*map(runs, BLURS))
    if not all(found):
        return ""
    numbers = {
        "accuracy at the end": lambda record: record["accuracy"],
        "first task at the end": lambda record: record["task_accuracy"][0],
        "last task at the end": lambda record: record["task_accuracy"][-1],
        "online (test-then-train)": lambda record: record["online_accuracy"],
    }
    rows = {name: [list(map(of, each)) for each in found] for name, of in numbers.items()}
    half = [accuracies(runs(s, learning_rate=settings["learning_rate"] / 2)) for s in BLURS]
    if any(half):
        rows["accuracy at half the learning rate"] = half
    lines = [["blur", *(f"{share:g}" for share in BLURS)]]
    for name, row in rows.items():
        lines.append([name, *(tables.with_error(values, digits) for values in row)])
    return tables.markdown(lines)


def changes(names, records, protocol, _):
    """Runs that differ from a cell of the paper's tables in one setting, over the same seeds."""
    known = {}
    for cell in table_cells():
        key = run_key(tables.cell_settings(cell, protocol), None, cell.dataset)
        known.setdefault(key, cell.label)
    parsed = {key: json.loads(key) for key in {**known, **records}}
    lines = [["cell", "setting", "unchanged", "changed", "difference"]]
    for key, label in known.items():
        for other in records if key in records else ():
            if other in known or parsed[other][2] != parsed[key][2]:
                continue
            before, after = parsed[key][0], parsed[other][0]
            differing = {name for name in before if before[name] != after[name]}
            if "pairs" in differing:
                differing.discard("pair_weights")  # there are fewer distinct ones
            if len(differing) != 1 or not differing <= set(names):
                continue
            (name,) = differing
            pair = [accuracies(runs) for runs in same_seeds(records[key], records[other])]
            gains = [b - a for a, b in zip(*pair, strict=True)]
            setting = f"{name.replace('_', ' ')} {before[name]} → {after[name]}"
            lines.append([label, setting, *map(tables.with_error, (*pair, gains))])
    return tables.markdown(lines)


def tuning(records, protocol, _):
    """The searches on held-out training data, and what the choice gives on the test set."""

    def split(settings, identity):
        """What is searched, and everything else as text."""
        rest = {**settings, "held_out": 0.0}
        point = rest.pop("learning_rate"), rest.pop("density")
        return point, json.dumps([rest, identity], sort_keys=True)

    searches, points, released, found = {}, {}, {}, []
    for key, runs in records.items():
        settings, _, identity, _ = json.loads(key)
        point, group = split(settings, identity)
        (searches if settings["held_out"] else points).setdefault(group, {})[point] = runs
    for cell in table_cells():
        point, group = split(decisive(tables.cell_settings(cell, protocol)), cell.dataset)
        released.setdefault(group, point)  # Table 5 has a chosen rate after the released one
    for group, grid in searches.items():
        settings, identity = json.loads(group)
        rates, densities = (sorted(set(axis)) for axis in zip(*grid, strict=True))
        means = {point: mean_and_interval(accuracies(runs))[0] for point, runs in grid.items()}
        best = max(means, key=means.get)
        shown = {point: f"{mean:.1f}" for point, mean in means.items()}
        shown[best] = f"**{shown[best]}**"
        lines = [["learning rate", *(f"density {density:g}" for density in densities)]]
        for rate in rates:
            lines.append([f"{rate:g}", *(shown.get((rate, d), "-") for d in densities)])
        title = f"{tables.RULE_NAMES[settings['rule']]}, batch size {settings['batch_size']}"
        text = f"**{title}**, {identity}, {settings['backbone']} {settings['head']}\n\n"
        text += tables.markdown(lines)
        tested = {"Chosen": best, "Released": released.get(group)}
        tested = {name: p for name, p in tested.items() if p in points.get(group, {})}
        runs = same_seeds(*(points[group][point] for point in tested.values()))
        for (name, (rate, density)), each in zip(tested.items(), runs, strict=True):
            text += f"\n\n{name}: learning rate {rate:g}, density {density:g}; on the test set "
            text += f"{tables.with_error(accuracies(each))}."
        found.append(text)
    return "\n\n".join(found)


def order(records, protocol, _):
    """A table for each stream: learners by the order of its samples, and what is published."""
    streams, found = {}, []
    for stream, order, cell in order_cells():
        request = cell.request
        rule = tables.RULE_NAMES.get(request["rule"])
        learner = ", ".join(filter(None, (request["head"], request["backbone"], rule)))
        values = accuracies(tables.records_of(cell, records, protocol))
        streams.setdefault(stream, {}).setdefault(learner, {})[order] = values
    for stream, rows in streams.items():
        if any(values for row in rows.values() for values in row.values()):
            lines = [
                [learner, *(tables.with_error(row.get(order), 2) for order in ORDERS)]
                for learner, row in rows.items()
            ]
            for row in table("published"):
                if row["stream"] == stream:
                    method = f"{row['method']}, as published ({row['source']})"
                    lines.append([method, row["accuracy"], *["-"] * (len(ORDERS) - 1)])
            found.append(f"**{stream}**\n\n{tables.markdown([['learner', *ORDERS], *lines])}")
    return "\n\n".join(found)


def stored(folder, name):
    """A .json file beside the stores, {} where there is none."""
    path = folder / name
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def digits(_, __, folder):
    """The comparison of online classifiers, `tests/compare_digits.py --json`."""
    lines = [["one pass, one sample at a time", "class by class", "usual choice", "shuffled"]]
    for method, row in stored(folder, "digits.json").get("accuracy", {}).items():
        ordered, shuffled = row["class_by_class"], row["shuffled"]
        texts = [f"{mean:.1f} ± {error:.1f}" for mean, error in (ordered, shuffled)]
        lines.append([method, texts[0], row["usual_choice"], texts[1]])
    return tables.markdown(lines)


def drift(_, __, folder):
    """Classifiers of streams that drift, `tests/compare_drift.py --json`."""
    rows = stored(folder, "drift.json").get("streams", {})
    streams = list(next(iter(rows.values()), {}))
    lines = [["predicted, then learned: per cent (µs)", *streams]]
    for method, row in rows.items():
        found = [(*row[stream]["accuracy"], row[stream]["microseconds"]) for stream in streams]
        texts = [f"{mean:.1f} ± {error:.1f} ({time:,.0f})" for mean, error, time in found]
        lines.append([method, *texts])
    return tables.markdown(lines)


def throughput(_, __, folder):
    """Samples a second of online classifiers, from the same file."""
    rows = stored(folder, "digits.json").get("samples_per_second", {})
    columns = list(next(iter(rows.values()), {}))
    lines = [[method, *(f"{row[c]:,.0f}" for c in columns)] for method, row in rows.items()]
    return tables.markdown([["samples a second", *columns], *lines])


def speed(_, __, folder):
    """Step times, `run.py bench --json`."""
    bench = stored(folder, "bench.json")
    if not bench:
        return ""
    names = ("forward_ms", "backward_ms", "update_ms", "step_ms", "floor_ms", "ratio")
    head = ["network", "rule", "batch", *(name.replace("_", " ") for name in names), "samples/s"]
    lines = [
        [case["network"], tables.RULE_NAMES[case["rule"]], str(case["batch_size"])]
        + [f"{case[name]:.1f}" for name in names]
        + [f"{case['samples_per_second']:,.0f}"]
        for case in bench["cases"]
    ]
    facts = (
        f"{name.replace('_', ' ')} {v:.4g}" if isinstance(v, (int, float)) else str(v)
        for name, v in bench["machine"].items()
    )
    closed = [["the closed form", "ms", "samples/s", "share of the floor's rate"]]
    for row in bench.get("closed_form", []):
        rate, share = row["per_second"], row["share"]
        rate, share = rate and f"{rate:,.0f}", share and f"{share:.2f}"
        closed.append([row["operation"], f"{row['ms']:.2f}", rate or "", share or ""])
    parts = ["; ".join(facts), tables.markdown([head, *lines]), tables.markdown(closed)]
    return "\n\n".join(filter(None, parts))


SECTIONS = {
    "agreement": agreement,
    **{part: partial(paper_table, part) for part in tables.TITLES},
    "blur split": partial(blur, "split"),
    "blur permuted": partial(blur, "permuted"),
    "switches": partial(changes, PROTOCOLS["released"]),
    "other settings": partial(changes, ("learning_rate", "importance_lambda")),
    "tuning": tuning,
    "order": order,
    "digits": digits,
    "drift": drift,
    "throughput": throughput,
    "speed": speed,
}
DEFAULT = (*tables.TITLES, "blur split", "blur permuted", "switches", "counts")
DEFAULT_NOTES = "\n\n".join(["# Results", *(f"<!-- {name} -->" for name in DEFAULT)]) + "\n"
"""The notes of a folder that has none."""
