"""The paper's tables with measured runs beside its numbers."""

import csv
import io
import math
from dataclasses import asdict, dataclass
from functools import cache

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
    "table5": "Table 5: single-head Split MNIST over the batch size, released or chosen rates",
    "cifar": f"Appendix: Split CIFAR-10; {cifar_remark()}",
}


RULE_NAMES = {"adagrad": "Adagrad", "s-mas": "S-MAS", "sgd": "SGD"}


def with_error(values, digits=1):
    """ "83.1 ± 0.4 (30)": mean, standard error unless of one run, and number of runs."""
    if not values:
        return "-"
    mean, error, _ = mean_and_interval(values)
    between = "" if error is None else f" ± {error:.{digits}f}"
    return f"{mean:.{digits}f}{between} ({len(values)})"


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


@cache
def cell_settings(cell, protocol="released"):
    """The settings of a cell on the whole data set, as a dict to be left as it is."""
    return asdict(resolve(OUTLINES[cell.dataset], protocol=protocol, **cell.request)[0])


def records_of(cell, records, protocol="released", identity=None):
    """The records of a cell, on the whole data set or on the one with an identity."""
    key = run_key(cell_settings(cell, protocol), None, identity or cell.dataset)
    return records.get(key, [])


def build_table(part, records, protocol="released", identity=None):
    """A table of the paper with what is measured of it.

    Returns
    -------
    dict of str to dict of str to Entry
        By the label of the row and the title of the column.
    """
    table = {}
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
            row += f", rate {given['learning_rate']:g}" if "learning_rate" in given else ""
            column = "accuracy"
        values = tuple(r["accuracy"] for r in records_of(cell, records, protocol, identity))
        table.setdefault(row, {})[column] = Entry(cell.printed, values)
    return table


def measured(tables):
    """Those of the tables, a dict by their parts, of which any cell was run."""
    return {
        part: table
        for part, table in tables.items()
        if any(entry.values for row in table.values() for entry in row.values())
    }


def texts(table):
    """Header and rows as lists of str."""
    columns = dict.fromkeys(column for row in table.values() for column in row)
    rows = ([label, *(str(row.get(c, "")) for c in columns)] for label, row in table.items())
    return [["network and head", *columns], *rows]


def plain(part, table):
    """A table for a terminal."""
    lines = texts(table)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    body = ("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
    return "\n".join([TITLES[part], *body])


def markdown(lines):
    """Header and rows, lists of str, as a Markdown table; "" without rows."""
    header, *rows = ([text.replace("|", "/") for text in line] for line in lines)
    align = ["---", *["--:"] * (len(header) - 1)]
    lines = [header, align, *rows] if rows else []
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def latex(tables):
    """Tables for a paper."""
    found = []
    for part, table in tables.items():
        header, *rows = (" & ".join(line).replace("|", "/") + r" \\" for line in texts(table))
        body = "\n".join([header, r"\hline", *rows]).replace("±", r"$\pm$").replace("*", r"$^*$")
        caption = rf"{TITLES[part]}: paper / ours $\pm$ standard error (runs)"
        columns = "l" * header.count("&") + "l"
        found += [r"\begin{table}", rf"\caption{{{caption}}}", rf"\begin{{tabular}}{{{columns}}}"]
        found += [body, r"\end{tabular}", r"\end{table}" + "\n"]
    return "\n".join(found)


def comma_separated(tables):
    """Every cell as a row of numbers."""
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    names = ("mean", "standard_error", "interval_half_width", "runs", "differs")
    writer.writerow(["table", "row", "column", "paper", *names])
    for part, table in tables.items():
        for label, row in table.items():
            for column, entry in row.items():
                numbers = mean_and_interval(entry.values) if entry.values else (None,) * 3
                counts = (len(entry.values), int(entry.differs()))
                writer.writerow([part, label, column, entry.printed, *numbers, *counts])
    return file.getvalue()
