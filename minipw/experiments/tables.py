"""`--report`: the paper's tables with measured runs beside its numbers."""

import csv
import math
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from minipw import InputError
from minipw.experiments import figures
from minipw.experiments.run_text import RULE_NAMES, with_error
from minipw.experiments.store import cell_key, core_seconds, read, run_key
from minipw.paper.cells import OUTLINES, cells, cifar_remark
from minipw.training.metrics import mean_and_interval
from minipw.training.settings import resolve

PAPER_ERROR = 0.4
"""Mean standard error of the paper's results, in points (section 4.1.1)."""
TITLES = {
    "table1": "Table 1: Split MNIST",
    "table2": "Table 2: Split Fashion-MNIST",
    "table3": "Table 3: Permuted MNIST",
    "table4": "Table 4: Split MNIST with SGD",
    "table5": "Table 5: single-head Split MNIST over the batch size",
    "cifar": f"Appendix: Split CIFAR-10; {cifar_remark()}",
}


@dataclass(frozen=True)
class Entry:
    """A cell of a table: the paper's accuracy and the measured ones, per cent."""

    printed: float | None
    values: tuple

    def differs(self):
        """Whether the difference is beyond two standard errors of itself."""
        if self.printed is None or len(self.values) < 2:
            return False
        mean, error, _ = mean_and_interval(self.values)
        return abs(mean - self.printed) > 2 * math.hypot(error, PAPER_ERROR)

    def __str__(self):
        paper = "-" if self.printed is None else f"{self.printed:.1f}"
        ours = "-"
        if self.values:
            mean, error, _ = mean_and_interval(self.values)
            ours = with_error(mean, error, len(self.values))
        return f"{paper} | {ours}{' *' * self.differs()}"


@dataclass(frozen=True)
class Table:
    """A table of the paper: `rows` maps a row's label to its entries by column."""

    part: str
    columns: tuple
    rows: dict

    def lines(self):
        """Header and rows as lists of str."""
        yield ["network and head", *self.columns]
        for label, entries in self.rows.items():
            yield [label, *(str(entries.get(column, "")) for column in self.columns)]


def read_records(folder):
    """Accuracies and curves of every record in a folder's stores.

    Returns
    -------
    dict of str to list of dict
        Records by the key of their settings and data, ordered by seed.
    """
    paths = sorted(Path(folder).glob("*.jsonl"))
    if not paths:
        raise InputError(f"{folder} holds no results: run --paper first, or give --out")
    found = {}
    for path in paths:
        for record in read(path):
            found.setdefault(cell_key(record), {})[record["seed"]] = record
    return {key: [by_seed[seed] for seed in sorted(by_seed)] for key, by_seed in found.items()}


def records_of(cell, records, protocol):
    """The records of a cell of the paper, on the whole data set."""
    settings, _ = resolve(OUTLINES[cell.dataset], protocol=protocol, **cell.request)
    return records.get(run_key(asdict(settings), None, cell.dataset), [])


def build_table(part, records, protocol):
    """A table of the paper with what is measured of it."""
    columns, rows = {}, {}
    for cell in cells(part):
        request, given = cell.request, cell.request["given"]
        row, column = f"{request['backbone']} {request['head']}", RULE_NAMES[request["rule"]]
        mode = "multi-head" if request["multi_head"] else "single-head"
        if part in ("table1", "table2", "cifar"):
            column = f"{mode} {column}"
        elif part == "table4":
            column = mode
        elif part == "table5":
            row = f"batch {given.get('batch_size', 64)}, {column}"
            row += f", lambda {given.get('importance_lambda', 0.01):g}" * (column == "S-MAS")
            column = "accuracy"
        values = tuple(r["accuracy"] for r in records_of(cell, records, protocol))
        columns[column] = None
        rows.setdefault(row, {})[column] = Entry(cell.printed, values)
    return Table(part, tuple(columns), rows)


def as_text(table):
    """A table for a terminal."""
    lines = list(table.lines())
    widths = [max(len(line[n]) for line in lines) for n in range(len(lines[0]))]
    body = (
        "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) for line in lines
    )
    return "\n".join([TITLES[table.part], *(line.rstrip() for line in body)])


def as_markdown(table):
    """A table for a README."""
    lines = [[cell.replace("|", "/") for cell in line] for line in table.lines()]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join([f"**{TITLES[table.part]}**", "", *(f"| {' | '.join(r)} |" for r in lines)])


def as_latex(table):
    """A table for a paper."""
    lines = [
        [cell.replace("±", r"$\pm$").replace("*", r"$^*$") for cell in line]
        for line in table.lines()
    ]
    body = [" & ".join(line).replace("|", "/") + r" \\" for line in lines]
    body.insert(1, r"\hline")
    columns = "l" * len(lines[0])
    caption = TITLES[table.part]
    head = [r"\begin{table}", rf"\caption{{{caption}: paper / ours $\pm$ standard error (runs)}}"]
    return "\n".join(
        [*head, rf"\begin{{tabular}}{{{columns}}}", *body, r"\end{tabular}", r"\end{table}"]
    )


def write_csv(tables, path):
    """Every cell as a row of numbers."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        names = ("mean", "standard_error", "interval_half_width", "runs", "differs")
        writer.writerow(["table", "row", "column", "paper", *names])
        for table in tables:
            for label, entries in table.rows.items():
                for column, entry in entries.items():
                    numbers = mean_and_interval(entry.values) if entry.values else (None,) * 3
                    counts = (len(entry.values), int(entry.differs()))
                    writer.writerow([table.part, label, column, entry.printed, *numbers, *counts])


def beside(folder, name, protocol):
    """Where a file of the report lies; the released protocol's has the bare name."""
    stem, end = name.split(".")
    return Path(folder) / (name if protocol == "released" else f"{stem}-{protocol}.{end}")


def draw(records, protocol, folder):
    """The two figures, as far as runs for them were done; the paths written."""
    written, lines, curves = [], {}, {}
    for cell in cells("sparsity"):
        for record in records_of(cell, records, protocol)[:1]:
            request = cell.request
            label = f"{request['backbone']} {request['head']}, {RULE_NAMES[request['rule']]}"
            point = (cell.request["given"]["density"], record["accuracy"])
            lines.setdefault(label, []).append(point)
    for cell in cells("curves"):
        for record in records_of(cell, records, protocol)[:1]:
            name = cell.label.removeprefix("curves ")
            curves[name] = (record["steps"] / len(record["tasks"]), record["curve"])
    for name, data, plot in (
        ("sparsity", lines, figures.plot_sparsity),
        ("curves", curves, figures.plot_curves),
    ):
        if data:
            paths = [str(beside(folder, name + end, protocol)) for end in (".png", ".svg")]
            plot(data, paths)
            written += paths
    return written


def summary_lines(records):
    """What is in a store, and what of it no table shows."""
    on_gpu = [record["seconds"] for record in records if record.get("device") == "cuda"]
    on_cpu = [core_seconds(record) for record in records if record.get("device") != "cuda"]
    text = f"{len(records)} runs, {sum(on_cpu) / 3600:.1f} hours of one core"
    yield text + f" and {sum(on_gpu) / 3600:.1f} of a GPU" * bool(on_gpu)
    if part := sum(bool(r.get("digest")) and r["dataset"] in OUTLINES for r in records):
        yield f"{part} of them are on a part of a data set: the tables leave them out"


def write(tables, note, folder, protocol):
    """The tables in all formats; the paths written."""
    paths = [beside(folder, name, protocol) for name in ("tables.csv", "tables.md", "tables.tex")]
    texts = ["\n\n".join(map(form, tables)) + "\n" for form in (as_markdown, as_latex)]
    texts[0] += f"\n{note}\n"
    try:
        write_csv(tables, paths[0])
        for path, text in zip(paths[1:], texts, strict=True):
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}") from None
    return list(map(str, paths))


def report(folder, protocol="released"):
    """Print the tables that have measured cells; write all formats and figures beside the store.

    Returns
    -------
    int
        The exit status, 0.
    """
    records = read_records(folder)
    tables = [build_table(part, records, protocol) for part in TITLES]
    tables = [t for t in tables if any(e.values for row in t.rows.values() for e in row.values())]
    note = (
        "paper | ours ± standard error (runs), accuracy in per cent; * differs by more than two\n"
        f"standard errors of the difference, the paper's taken as {PAPER_ERROR}"
    )
    if tables:
        print("\n\n".join([*map(as_text, tables), note]))
    for line in summary_lines([record for runs in records.values() for record in runs]):
        print(line)
    if not tables:
        print(f"none of them is of a cell of the paper's tables (protocol {protocol})")
    written = write(tables, note, folder, protocol) if tables else []
    try:
        written += draw(records, protocol, folder)
    except InputError as error:
        print(f"no figures: {error}", file=sys.stderr)
    if written:
        print(f"written for protocol {protocol}: {', '.join(written)}")
    return 0
