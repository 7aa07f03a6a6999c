"""Task streams: what each task holds, in which order, and who decides it."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from minipw import InputError
from minipw.training.streams import EXPERIMENTS, SEED_STREAMS, seed_generators
from minipw.training.tasks import Task, iid_tasks, permuted_tasks, split_tasks


def generator(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize(("classes", "each"), [(10, 2), (7, 3), (5, 1), (4, 4)])
def test_split_gives_every_row_to_one_task(tiny_dataset, classes, each):
    dataset = tiny_dataset(classes=classes, train=61, test=23)
    tasks = split_tasks(dataset, generator(), each)
    assert len(tasks) == -(-classes // each)
    np.testing.assert_array_equal(np.sort(np.concatenate([t.train for t in tasks])), np.arange(61))
    np.testing.assert_array_equal(np.sort(np.concatenate([t.test for t in tasks])), np.arange(23))
    np.testing.assert_array_equal(np.sum([t.classes for t in tasks], axis=0), 1)
    for task in tasks:
        assert task.classes.dtype == bool and task.permutation is None
        assert set(dataset.y_train[task.train]) == set(np.flatnonzero(task.classes))
        assert set(dataset.y_test[task.test]) <= set(np.flatnonzero(task.classes))


def test_split_takes_consecutive_classes_and_the_last_task_may_be_smaller(tiny_dataset):
    tasks = split_tasks(tiny_dataset(classes=7), generator(), 3)
    names = sorted(task.name for task in tasks)
    assert names == ["classes 0 1 2", "classes 3 4 5", "classes 6"]
    for task in tasks:
        assert task.name.split()[1:] == [str(c) for c in np.flatnonzero(task.classes)]


def test_split_order_is_the_generators(tiny_dataset):
    dataset = tiny_dataset(classes=10)

    def order(seed):
        return tuple(task.name for task in split_tasks(dataset, generator(seed)))

    assert order(0) == order(0)
    orders = {order(seed) for seed in range(30)}
    assert len(orders) > 20  # of 120 possible ones, 30 draws give 26 or so
    assert len({first for first, *_ in orders}) == 5


@pytest.mark.parametrize("each", [0, -1, 5])
def test_split_refuses_a_number_of_classes_that_does_not_fit(tiny_dataset, each):
    with pytest.raises(InputError, match=f"^{each} classes per task .* 4 classes: .* 1 to 4$"):
        split_tasks(tiny_dataset(classes=4), generator(), each)


def test_permuted_tasks_are_different_permutations_of_everything(tiny_dataset):
    dataset = tiny_dataset(shape=(6, 6, 1), train=30, test=9)
    tasks = permuted_tasks(dataset, generator(), count=5)
    assert [task.name for task in tasks] == [f"permutation {n}" for n in (1, 2, 3, 4, 5)]
    for task in tasks:
        np.testing.assert_array_equal(np.sort(task.permutation), np.arange(36))
        np.testing.assert_array_equal(task.train, np.arange(30))
        np.testing.assert_array_equal(task.test, np.arange(9))
        assert task.classes.all()
    # The first is a true permutation too, not the identity.
    assert len({tuple(task.permutation) for task in tasks} | {tuple(range(36))}) == 6


def test_permutations_are_the_generators(tiny_dataset):
    dataset = tiny_dataset()
    first, again, other = (permuted_tasks(dataset, generator(s), count=2) for s in (0, 0, 1))
    for n in range(2):
        np.testing.assert_array_equal(first[n].permutation, again[n].permutation)
        assert np.any(first[n].permutation != other[n].permutation)


def test_iid_is_one_task_with_everything(tiny_dataset):
    (task,) = iid_tasks(tiny_dataset(train=30, test=9))
    np.testing.assert_array_equal(task.train, np.arange(30))
    np.testing.assert_array_equal(task.test, np.arange(9))
    assert task.classes.all() and task.permutation is None


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_takes_the_same_arguments(tiny_dataset, experiment):
    settings = SimpleNamespace(classes_per_task=2, tasks=3)
    tasks = EXPERIMENTS[experiment](settings, tiny_dataset(classes=4), generator())
    assert len(tasks) == {"split": 2, "permuted": 3, "iid": 1}[experiment]


@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("batch_size", [1, 4, 7, 23])
def test_batches_are_whole_and_take_a_row_once_an_epoch(batch_size, epochs):
    rows = np.arange(100, 123)  # 23 of them
    task = Task("t", rows, rows[:0], np.ones(2, bool))
    batches = list(task.batches(generator(), batch_size, epochs))
    assert len(batches) == task.steps(batch_size, epochs) == epochs * (23 // batch_size)
    assert all(batch.shape == (batch_size,) for batch in batches)
    each = 23 // batch_size
    for epoch in range(epochs):
        seen = np.concatenate(batches[epoch * each : (epoch + 1) * each])
        assert np.unique(seen).size == seen.size == each * batch_size
        assert set(seen) <= set(rows)


def test_epochs_and_seeds_are_shuffled_anew():
    task = Task("t", np.arange(20), np.arange(0), np.ones(2, bool))
    epochs = [tuple(batch) for batch in task.batches(generator(), 20, 2)]
    other = [tuple(batch) for batch in task.batches(generator(1), 20, 1)]
    again = [tuple(batch) for batch in task.batches(generator(), 20, 1)]
    assert len({*epochs, *other, tuple(range(20))}) == 4
    assert again == epochs[:1]
    np.testing.assert_array_equal(task.train, np.arange(20))


def test_a_task_smaller_than_a_batch_gives_none():
    task = Task("t", np.arange(3), np.arange(0), np.ones(2, bool))
    assert list(task.batches(generator(), 4, 2)) == []
    assert task.steps(4, 2) == 0


def test_inputs_are_permuted_then_scaled(tiny_dataset):
    dataset = tiny_dataset(shape=(3, 2, 2))
    x = dataset.x_train[:5]
    task = permuted_tasks(dataset, generator(), count=1)[0]
    inputs = task.inputs(dataset, x)
    assert inputs.shape == x.shape and inputs.dtype == np.float32
    expected = np.zeros((5, 12))
    for n in range(5):
        for d in range(12):  # input d shows the pixel that the permutation names
            pixel = x[n].reshape(-1)[task.permutation[d]]
            expected[n, d] = (pixel / 255 - 0.5) / 0.25
    # Two float32 roundings of values up to 4.
    np.testing.assert_allclose(inputs.reshape(5, 12), expected, rtol=0, atol=5e-7)


def test_inputs_without_a_permutation_are_scaled_only(tiny_dataset):
    dataset = tiny_dataset()
    (task,) = iid_tasks(dataset)
    x = dataset.x_test[:3]
    np.testing.assert_array_equal(task.inputs(dataset, x), dataset.batch(x))


def test_seed_generators_are_reproducible_and_independent():
    def draws(seed):
        return {name: tuple(rng.random(4)) for name, rng in seed_generators(seed).items()}

    assert tuple(draws(3)) == SEED_STREAMS == ("weights", "pairs", "tasks", "samples")
    assert draws(3) == draws(3)
    assert len({*draws(3).values(), *draws(4).values()}) == 8
    # Using one generator up does not move another.
    generators = seed_generators(3)
    generators["weights"].random(1000)
    assert tuple(generators["pairs"].random(4)) == draws(3)["pairs"]


def test_colours_keep_the_scale_of_their_channel(tiny_dataset):
    dataset = replace(tiny_dataset((4, 4, 3)), mean=(0.1, 0.5, 0.9), std=(0.2, 0.3, 0.4))
    task = permuted_tasks(dataset, np.random.default_rng(0), count=1)[0]
    scaled = dataset.batch(dataset.x_train[:5]).reshape(5, -1)
    ours = task.inputs(dataset, dataset.x_train[:5]).reshape(5, -1)
    np.testing.assert_array_equal(ours, scaled[:, task.permutation])


def test_classes_of_the_test_samples_belong_to_the_task(tiny_dataset):
    own = {"tasks_train": np.array([0, 0, 1]), "tasks_test": np.array([0, 1])}
    labels = {"y_train": np.array([0, 1, 1]), "y_test": np.array([2, 1])}
    data = replace(tiny_dataset(classes=3, train=3, test=2), **labels, **own)
    found = [np.flatnonzero(t.classes).tolist() for t in split_tasks(data, generator())]
    assert found == [[0, 1, 2], [1]]
