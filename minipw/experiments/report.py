"""`report`: what the stores of a folder hold, as tables, a page and figures."""

import sys
from pathlib import Path

from minipw import InputError
from minipw.experiments import figures, page, tables
from minipw.experiments.store import cell_key, core_seconds, read
from minipw.paper.cells import OUTLINES, cells
from minipw.training.record import RESULTS

NOTE = (
    "paper | ours ± standard error (runs), accuracy in per cent; * differs by more than two\n"
    f"standard errors of the difference, the paper's taken as {tables.PAPER_ERROR}"
)


def report(folder, protocol="released"):
    """Print the tables that have measured cells; write tables, page and figures to the folder.

    Returns
    -------
    int
        The exit status, 0.
    """
    records = read_records(folder)
    page.check(target(folder, "README.md", protocol))
    built = {part: tables.build_table(part, records, protocol) for part in tables.TITLES}
    measured = tables.measured(built)
    if measured:
        texts = [tables.plain(part, table) for part, table in measured.items()]
        print("\n\n".join([*texts, NOTE]))
    counts = count_lines([record for runs in records.values() for record in runs])
    print("\n".join(counts))
    written = []
    if measured:
        written = write(measured, records, counts, folder, protocol)
    else:
        print(f"none of them is of a cell of the paper's tables (protocol {protocol})")
    try:
        written += draw(built if measured else {}, records, folder, protocol)
    except InputError as error:
        print(f"no figures: {error}", file=sys.stderr)
    if written:
        print(f"written for protocol {protocol}: {', '.join(map(str, written))}")
    return 0


def read_records(folder):
    """All records of a folder's stores.

    Returns
    -------
    dict of str to list of dict
        Records by the key of their settings and data, ordered by seed.
    """
    paths = sorted(Path(folder).glob("*.jsonl"))
    if not paths:
        raise InputError(f"{folder} holds no results: run paper first, or give --out")
    found, older = {}, 0
    for path in paths:
        for record in read(path):
            if record.get("results", 1) != RESULTS:
                older += 1
                continue
            found.setdefault(cell_key(record), {})[record["seed"]] = record
    if older:
        print(
            f"warning: {older} runs of another version are left out: do them anew", file=sys.stderr
        )
    return {key: [by_seed[seed] for seed in sorted(by_seed)] for key, by_seed in found.items()}


def count_lines(records):
    """How many runs there are, how long they took, and which of them no table shows."""
    on_gpu = [record["seconds"] for record in records if record.get("device") == "cuda"]
    on_cpu = [core_seconds(record) for record in records if record.get("device") != "cuda"]
    text = f"{len(records):,} runs, {sum(on_cpu) / 3600:.1f} hours of one core"
    lines = [text + f" and {sum(on_gpu) / 3600:.1f} of a GPU" * bool(on_gpu)]
    if part := sum(bool(r.get("digest")) and r["dataset"] in OUTLINES for r in records):
        lines.append(f"{part} of them are on a part of a data set and in no cell of the tables")
    return lines


def target(folder, name, protocol):
    """Where a file of the report lies; the released protocol's has the bare name."""
    stem, end = name.split(".")
    return Path(folder) / (name if protocol == "released" else f"{stem}-{protocol}.{end}")


def write(measured, records, counts, folder, protocol):
    """The tables as .csv and .tex, and the page; the paths written."""
    notes = Path(folder) / "notes.md"
    own = protocol == "released" and notes.exists()
    try:
        text = notes.read_text(encoding="utf-8") if own else page.DEFAULT_NOTES
        contents = {
            "tables.csv": tables.comma_separated(measured),
            "tables.tex": tables.latex(measured),
            "README.md": page.fill(text, records, protocol, folder, counts),
        }
        for name, text in contents.items():
            target(folder, name, protocol).write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}") from None
    return [target(folder, name, protocol) for name in contents]


def draw(printed, records, folder, protocol):
    """The three figures, as far as runs for them were done; the paths written.

    printed : dict of str to table
        Every table of the paper by its part, or {}.
    """
    lines, curves, written = {}, {}, []
    for cell in cells("sparsity") + cells("curves"):
        runs = tables.records_of(cell, records, protocol)
        if runs and cell.part == "curves":
            per_task = runs[0]["steps"] / len(runs[0]["tasks"])
            name = cell.label.removeprefix("curves ")
            curves[name] = (per_task, [record["curve"] for record in runs])
        elif runs:
            request = cell.request
            rule = tables.RULE_NAMES[request["rule"]]
            points = lines.setdefault(f"{request['backbone']} {request['head']}, {rule}", [])
            points.append((request["given"]["density"], [r["accuracy"] for r in runs]))
    for name, data, plot, ends in (
        ("paper", printed, figures.plot_paper, ("svg",)),
        ("sparsity", lines, figures.plot_sparsity, ("png", "svg")),
        ("curves", curves, figures.plot_curves, ("png", "svg")),
    ):
        if data:
            paths = [target(folder, f"{name}.{end}", protocol) for end in ends]
            plot(data, paths)
            written += paths
    return written
