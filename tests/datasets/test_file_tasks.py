"""Tasks that a .npz file names itself."""

import json

import numpy as np
import pytest
from data_files import error, load, npz

from minipw.training.tasks import split_tasks

pytestmark = pytest.mark.usefixtures("isolated")

SMALL = ("--backbone", "mlp-20-1", "--batch-size", 4, "--pair-weights", 60, "--density", 0.3)


def test_tasks_of_the_file(tmp_path):
    tasks = {"task_train": np.array([1, 0, 1, 0, 3, 3]), "task_test": np.array([0, 1])}
    data = load(npz(tmp_path, **tasks))
    found = split_tasks(data, np.random.default_rng(0))
    assert [task.name for task in found] == ["task 0", "task 1", "task 3"]
    assert [task.train.tolist() for task in found] == [[1, 3], [0, 2], [4, 5]]
    assert [task.test.tolist() for task in found] == [[0], [1], []]
    seen = data.y_train[[1, 3]].tolist() + data.y_test[:1].tolist()
    assert set(np.flatnonzero(found[0].classes)) == set(seen)


def test_samples_are_held_out_of_every_task(tmp_path):
    labels, tasks = np.tile(np.arange(4), 20), np.repeat([0, 1], 40)  # task 0 stands first
    x = np.arange(80.0)[:, None]
    arrays = {"x_train": x, "y_train": labels, "x_test": x[:2], "y_test": labels[:2]}
    np.savez(tmp_path / "own.npz", **arrays, task_train=tasks, task_test=[0, 1])
    data = load(str(tmp_path / "own.npz")).hold_out(0.2)
    assert np.bincount(data.tasks_test).tolist() == [8, 8]
    assert np.bincount(4 * data.tasks_test + data.y_test).tolist() == [2] * 8
    assert [task.test.size for task in split_tasks(data, np.random.default_rng(0))] == [8, 8]
    np.testing.assert_array_equal(
        np.sort(np.concatenate([data.x_train, data.x_test])[:, 0]), x[:, 0]
    )


def test_a_task_of_the_file_without_test_samples(command, tiny_npz):
    with np.load(tiny_npz) as file:
        arrays = dict(file)
    arrays["task_train"] = arrays["y_train"] % 2
    np.savez(tiny_npz, **arrays, task_test=np.zeros(len(arrays["y_test"]), int))
    status, _, err = command("--exp", "split", "--dataset", tiny_npz, *SMALL)
    assert status == 2
    assert "task 'task 1' has no test samples: give samples of every task in both" in err


@pytest.mark.parametrize(
    "tasks, text",
    [
        ({"task_train": np.zeros(6, int)}, "has task_train alone"),
        ({"task_test": np.zeros(2, int)}, "has task_test alone"),
        ({"task_train": np.zeros(5, int), "task_test": np.zeros(2, int)}, "shape (5,) for 6"),
        ({"task_train": np.full(6, 0.5), "task_test": np.zeros(2, int)}, "task_train"),
    ],
)
def test_damaged_tasks(tmp_path, tasks, text):
    assert text in error(load, npz(tmp_path, **tasks))


def test_tasks_of_the_file_on_the_command_line(command, tiny_npz):
    with np.load(tiny_npz) as file:
        arrays = dict(file)
    arrays["task_train"], arrays["task_test"] = arrays["y_train"] % 2, arrays["y_test"] % 2
    np.savez(tiny_npz, **arrays)
    flags = ("--exp", "split", "--dataset", tiny_npz, *SMALL)
    status, out, _ = command(*flags, "--json", "--multi-head")
    record = json.loads(out)
    assert status == 0 and record["tasks"] == ["task 0", "task 1"]
    status, _, err = command(*flags, "--classes-per-task", 2)
    assert status == 2 and "names its tasks itself" in err
    # held-out samples keep their tasks
    data = load(tiny_npz).hold_out(0.1)
    np.testing.assert_array_equal(data.tasks_test, data.y_test % 2)
    np.testing.assert_array_equal(data.tasks_train, data.y_train % 2)
