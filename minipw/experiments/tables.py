"""The paper's tables with measured runs beside its numbers."""

import csv
import math
from dataclasses import asdict, dataclass
from functools import cache

from minipw.experiments.run_text import RULE_NAMES, with_error
from minipw.experiments.store import run_key
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
        return f"{paper} | {with_error(self.values)}{' *' * self.differs()}"


@dataclass(frozen=True)
class Table:
    """A table of the paper: `rows` maps a row's label to its entries by column."""

    part: str
    columns: tuple
    rows: dict

    def measured(self):
        """Whether any of its cells was run."""
        return any(entry.values for row in self.rows.values() for entry in row.values())

    def lines(self):
        """Header and rows as lists of str."""
        yield ["network and head", *self.columns]
        for label, entries in self.rows.items():
            yield [label, *(str(entries.get(column, "")) for column in self.columns)]


@cache
def cell_settings(cell, protocol="released"):
    """The settings of a cell on the whole data set, as a dict to be left as it is."""
    return asdict(resolve(OUTLINES[cell.dataset], protocol=protocol, **cell.request)[0])


def records_of(cell, records, protocol="released", identity=None):
    """The records of a cell, on the whole data set or on the one with an identity."""
    key = run_key(cell_settings(cell, protocol), None, identity or cell.dataset)
    return records.get(key, [])


def build_table(part, records, protocol="released", identity=None):
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
        values = tuple(r["accuracy"] for r in records_of(cell, records, protocol, identity))
        columns[column] = None
        rows.setdefault(row, {})[column] = Entry(cell.printed, values)
    return Table(part, tuple(columns), rows)


def as_text(table):
    """A table for a terminal."""
    lines = list(table.lines())
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    body = ("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) for line in lines)
    return "\n".join([TITLES[table.part], *(line.rstrip() for line in body)])


def markdown(lines):
    """Header and rows, lists of str, as a Markdown table."""
    header, *rows = ([cell.replace("|", "/") for cell in line] for line in lines)
    align = ["---", *["--:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, align, *rows])


def as_latex(tables):
    """Tables for a paper."""
    found = []
    for table in tables:
        body = [" & ".join(line).replace("|", "/") + r" \\" for line in table.lines()]
        body.insert(1, r"\hline")
        text = "\n".join(body).replace("±", r"$\pm$").replace("*", r"$^*$")
        caption = rf"{TITLES[table.part]}: paper / ours $\pm$ standard error (runs)"
        columns = "l" * (1 + len(table.columns))
        found += [r"\begin{table}", rf"\caption{{{caption}}}", rf"\begin{{tabular}}{{{columns}}}"]
        found += [text, r"\end{tabular}", r"\end{table}" + "\n"]
    return "\n".join(found)


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
