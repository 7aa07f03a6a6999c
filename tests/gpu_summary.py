"""The short table at the end of `gpu.sh`: what held, and how fast it was.

    python tests/gpu_summary.py FOLDER

FOLDER has what each part printed, NAME.txt, and its exit status, NAME.status. A part that
is not there was not run. The exit status is 1 when one of them failed.
"""

import json
import re
import sys
from pathlib import Path

PARTS = ("checks", "accuracy", "bench", "closed", "torch", "memcheck", "racecheck")
GOALS = {"split": 83.1, "permuted": 95.4}
"""The paper's accuracies, per cent."""


def text_of(folder, name):
    """What a part printed, or "" when it was not run."""
    path = folder / f"{name}.txt"
    return path.read_text() if path.exists() else ""


def json_of(folder, name):
    """The JSON object that a part printed, or an empty one."""
    for line in text_of(folder, name).splitlines():
        if line.startswith("{"):
            return json.loads(line)
    return {}


def rows_of(folder):
    """Pairs of a name and a value as text, in the order of the table."""
    yield "device", text_of(folder, "device").strip() or "unknown"
    for name in PARTS:
        path = folder / f"{name}.status"
        status = path.read_text().strip() if path.exists() else None
        words = {None: "not run", "0": "ok", "124": "FAILED: out of time"}
        said = text_of(folder, name).strip().splitlines()
        if status == "0" and said and said[0].startswith("skipped"):
            yield name, said[0]
            continue
        detail = f" ({said[-1]})" if said and name in ("checks", "memcheck", "racecheck") else ""
        yield name, words.get(status, f"FAILED: status {status}") + detail
    pattern = r"(\w+) MNIST, (\d+) runs: ([\d.]+) % in ([\d.]+) s"
    for experiment, runs, accuracy, seconds in re.findall(pattern, text_of(folder, "accuracy")):
        paper = GOALS[experiment]
        yield f"{experiment}, {runs} runs", f"{accuracy} % in {seconds} s (paper {paper})"
    bench, torch = json_of(folder, "bench"), json_of(folder, "torch")
    for row in bench.get("cells", ()):
        text = f"{row['step_ms']:.3f} ms a step of {row['runs_together']} runs"
        text += f", cell in {row['cell_seconds']:.1f} s"
        if row.get("speed_up"):
            text += f", {row['speed_up']:.1f} times CuPy without kernels"
        yield row["cell"], text
    if bench and torch.get("step_ms"):
        ours = bench["cells"][0]["steps_times_runs_per_second"]
        theirs = torch["steps_times_runs_per_second"]
        text = f"{torch['step_ms']:.1f} ms a step of {torch['runs']} runs"
        yield "the first in PyTorch", f"{text}; ours is {ours / theirs:.1f} times as fast"
    for kernel in bench.get("kernels", ()):
        yield kernel["kernel"], f"{kernel['ms']:.3f} ms, {kernel['ratio']:.1f} times its floor"
    yield from variant_rows(bench.get("variants", ()))
    if bench:
        yield "every run of the paper", f"{bench['paper_seconds'] / 60:.1f} min, estimated"
        for part, seconds in bench["paper_parts"].items():
            yield f"  {part}", f"{seconds / 60:.1f} min"
    if closed := json_of(folder, "closed"):
        seconds = closed["filters_seconds"] + closed["sums_seconds"]
        text = f"{closed['images']:,} images, {closed['features']:,} features: {seconds:.1f} s "
        text += f"for filters and sums, {closed['solve_seconds']:.1f} s to solve"
        yield f"closed form, {closed['data']}", f"{text}, {closed['accuracy']:.1f} %"


def variant_rows(variants):
    """A row a kernel and constant: every value with its time in multiples of the floor."""
    groups = {}
    for row in variants:
        groups.setdefault((row["kernel"], row["constant"]), []).append(row)
    for (kernel, constant), rows in groups.items():
        times = ", ".join(f"{row['value']}: {row['ratio']:.1f}" for row in rows)
        (chosen,) = [row["value"] for row in rows if row["set"]]
        best = min(rows, key=lambda row: row["ratio"])["value"]
        yield f"{kernel} by {constant}", f"{times} times its floor; set {chosen}, best {best}"


def main(folder):
    """Print the table; 1 when a part failed."""
    rows = list(rows_of(Path(folder)))
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:{width}}  {value}")
    return int(any(value.startswith("FAILED") for _, value in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
