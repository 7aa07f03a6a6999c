"""Streams whose tasks run into each other."""

import json
from dataclasses import replace

import numpy as np
import pytest
from test_resume import BASE, assert_equal, learn, stop_at

from minipw import InputError
from minipw.training.checkpoint import Checkpointer, Stopped
from minipw.training.run import Run
from minipw.training.settings import Settings
from minipw.training.streams import blur
from minipw.training.tasks import Task, permuted_tasks, split_tasks

ONCE = replace(BASE, epochs=1, blur=0.5)


def tasks_of(*sizes):
    """Tasks with so many samples, one class each, in rows one after the other."""
    ends = np.cumsum(sizes)
    classes = np.eye(len(sizes), dtype=bool)
    return [
        Task(f"task {n}", np.arange(end - size, end), np.array([n]), classes[n])
        for n, (size, end) in enumerate(zip(sizes, ends, strict=True))
    ]


@pytest.mark.parametrize("share", [0.01, 0.5, 1.0, 1e6])
def test_every_sample_once_in_stretches_of_the_tasks_lengths(share):
    sizes = (300, 100, 200)
    blends = blur(tasks_of(*sizes), share, np.random.default_rng(0))
    assert [blend.train.size for blend in blends] == list(sizes)
    rows = np.concatenate([blend.train for blend in blends])
    np.testing.assert_array_equal(np.sort(rows), np.arange(600))
    owners = np.concatenate([blend.owners for blend in blends])
    np.testing.assert_array_equal(owners, np.searchsorted((300, 400), rows, side="right"))
    assert [blend.name for blend in blends] == ["task 0", "task 1", "task 2"]
    assert all((np.diff(blend.train) != 1).any() for blend in blends)  # shuffled too


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_the_next_task_rises_evenly_over_the_share(share):
    n = 20_000
    blends = blur(tasks_of(n, n, n), share, np.random.default_rng(0))
    owners = np.concatenate([blend.owners for blend in blends])
    place = (np.arange(3 * n) - n) / n  # the first boundary at 0, in lengths of a task
    outside = (place < -share / 2 - 0.01) | ((place > share / 2 + 0.01) & (place < 1 - share / 2))
    np.testing.assert_array_equal(owners[outside], (place[outside] > 0).astype(int))
    # in twenty stretches of the mixed part, the share of the second task: a straight line;
    # each has at least 250 samples, so 0.12 is over 3.5 standard errors of any share
    for low in np.linspace(-share / 2, share / 2, 21)[:-1]:
        part = (place >= low) & (place < low + share / 20)
        expected = (low + share / 40) / share + 0.5
        assert abs((owners[part] == 1).mean() - expected) < 0.12
    assert abs(owners[np.abs(place) < share / 2].mean() - 0.5) < 0.02


def test_a_million_shuffles_the_stream():
    sizes = (9000, 600, 2400)
    blends = blur(tasks_of(*sizes), 1e6, np.random.default_rng(0))
    for owners in np.split(np.concatenate([blend.owners for blend in blends]), 8):
        shares = np.bincount(owners, minlength=3) / len(owners)
        np.testing.assert_allclose(shares, np.array(sizes) / sum(sizes), atol=0.04)  # 3.6 errors


def test_a_long_task_does_not_jump_over_a_short_one():
    sizes = (9000, 600, 300)
    blends = blur(tasks_of(*sizes), 1.0, np.random.default_rng(0))
    owners = np.concatenate([blend.owners for blend in blends])
    assert (owners[: 9000 - 310] == 0).all()  # only the stretch around the boundary is mixed
    assert (owners[-140:] == 2).all()
    # around a boundary as many samples wait as come early
    counts = [np.bincount(blend.owners, minlength=3).tolist() for blend in blends]
    assert counts[0][2] == counts[2][0] == 0
    assert counts[0][1] == pytest.approx(600 / 8, abs=25) and counts[1][0] == counts[0][1]
    assert counts[1][2] == pytest.approx(300 / 8, abs=18) and counts[2][1] == counts[1][2]


def test_a_batch_has_each_sample_as_its_task_sees_it(tiny_dataset):
    dataset = tiny_dataset(train=60)
    tasks = permuted_tasks(dataset, np.random.default_rng(1), count=3)
    blends = blur(tasks, 1.0, np.random.default_rng(2))
    (rows,) = blends[1].batches(None, 60, 1)
    x, labels, _ = blends[1].training_batch(dataset, rows)
    assert x.dtype == np.float32 and len(set(blends[1].owners[rows])) == 3
    for n, row in enumerate(rows):
        source, task = blends[1].train[row], tasks[blends[1].owners[row]]
        np.testing.assert_array_equal(x[n], task.inputs(dataset, dataset.x_train[[source]])[0])
        assert labels[n] == dataset.y_train[source]


def test_multi_head_masks_follow_the_samples(tiny_dataset):
    dataset = tiny_dataset(train=80)
    tasks = split_tasks(dataset, np.random.default_rng(0), 2)
    blend = blur(tasks, 1.0, np.random.default_rng(0))[0]
    rows = np.arange(40)
    _, labels, classes = blend.training_batch(dataset, rows)
    assert classes.shape == (40, 4) and len(np.unique(classes, axis=0)) == 2
    assert classes[np.arange(40), labels].all()


@pytest.mark.parametrize("experiment", ["split", "permuted"])
@pytest.mark.parametrize("multi_head", [False, True])
def test_it_learns_and_resumes(tiny_dataset, tmp_path, experiment, multi_head):
    data = tiny_dataset(train=120)
    settings = replace(ONCE, experiment=experiment, tasks=2, multi_head=multi_head)
    whole = learn(settings, data)
    assert not np.array_equal(whole.matrix[0], whole.matrix[-1])
    sharp = learn(replace(settings, blur=0.0), data)
    assert whole.steps == sharp.steps
    assert any(
        (whole.network.parameters[n] != sharp.network.parameters[n]).any() for n in ("head",)
    )
    path = str(tmp_path / "c.npz")
    with pytest.raises(Stopped):
        learn(settings, data, Checkpointer(path, "k", stop_at(7)))
    assert_equal(learn(settings, data, Checkpointer(path, "k")), whole)


def test_the_tasks_of_a_seed_are_those_without_blur(tiny_dataset):
    data = tiny_dataset(train=120)
    settings = replace(ONCE, experiment="permuted", tasks=2)
    blurred, sharp = (Run(replace(settings, blur=b), 5, data) for b in (0.5, 0.0))
    for one, other in zip(blurred.tasks, sharp.tasks, strict=True):
        np.testing.assert_array_equal(one.permutation, other.permutation)


@pytest.mark.parametrize("share", [-0.1, 1.01e6])
def test_share_out_of_range(share):
    with pytest.raises(InputError, match="from 0 to 1e"):
        Settings(**{**ONCE.__dict__, "blur": share})


def test_on_the_command_line(command, tiny_npz):
    small = ("--dataset", tiny_npz, "--backbone", "mlp-20-1", "--batch-size", 8)
    small += ("--pair-weights", 60, "--density", 0.3, "--blur", 0.5)
    status, out, err = command("--exp", "split", *small, "--json")
    assert status == 0, err
    assert json.loads(out)["settings"]["blur"] == 0.5
    assert "blurred over 0.5 of a task" in err
    for flags, says in (
        (("--exp", "iid"), "--blur has no effect without --exp split or permuted"),
        (("--exp", "split", "--epochs", 2), "has one pass: use --epochs 1"),
        (("--exp", "split", "--device", "cuda"), "blurred streams run on the CPU alone"),
    ):
        status, out, err = command(*flags, *small)
        assert (status, out) == (2, "") and says in err
