"""Runs that are saved all the time, and `paper` over a table of tiny cells.

    python kill_target.py DATASET EPOCHS OUT [FLAG ...]

with a .npz file as the data set, to be killed at any moment.
"""

import os
import sys
from functools import partial

from minipw.cli.main import main as run_command
from minipw.experiments import plan, workers
from minipw.paper.cells import Cell
from minipw.training.checkpoint import Checkpointer, load, path_for

INTERVAL = 0.05


def perform(item):
    """`workers.perform` with more checkpoints; a line in `log` for each beginning.

    The line has the seed, the rule, the steps done before, and the process.
    """
    workers.Checkpointer = partial(Checkpointer, interval=INTERVAL)
    os.makedirs(item.checkpoints, exist_ok=True)
    path = path_for(item.checkpoints, item.key)
    steps = load(path)[1]["run"]["steps"] if os.path.exists(path) else 0
    with open(os.path.join(item.checkpoints, "log"), "a") as log:
        log.write(f"{item.seed} {item.settings.rule} {steps} {os.getpid()}\n")
    return workers.perform(item)


def begun(folder):
    """The lines of `log`: (seed, rule, steps, process) for each run that was begun."""
    path = os.path.join(folder, "log")
    if not os.path.exists(path):
        return []
    with open(path) as log:
        lines = [line.split() for line in log if line.endswith("\n")]
    return [(int(seed), rule, int(steps), int(pid)) for seed, rule, steps, pid in lines]


def tiny_cells(dataset, epochs=1):
    """Two cells of three runs each over a .npz file."""
    found = []
    for head, rule, printed in (("pairwise", "adagrad", 83.1), ("fc", "s-mas", None)):
        given = {"density": 0.3, "batch_size": 8, "epochs": epochs}
        request = {
            "experiment": "split",
            "multi_head": False,
            "backbone": "mlp-20-1",
            "head": head,
            "rule": rule,
            "given": given,
        }
        found.append(Cell("table1", f"split mlp-20-1 {head} {rule}", dataset, request, printed, 3))
    return found


def main(dataset, epochs, out, *flags):
    """`paper table1` with the tiny cells in its place."""
    plan.cells = lambda part: tiny_cells(dataset, int(epochs))
    workers.perform = perform
    return run_command(["paper", "table1", "--out", out, "--quiet", *flags])


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
