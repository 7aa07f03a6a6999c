"""A run's stream: its random generators, its tasks in their order, blurred boundaries."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from minipw import InputError
from minipw.training.tasks import Task, iid_tasks, permuted_tasks, split_tasks

SEED_STREAMS = ("weights", "pairs", "tasks", "samples")


def seed_generators(seed):
    """A run's named random generators, independent of each other.

    Parameters
    ----------
    seed : int, at least 0

    Returns
    -------
    dict of str to numpy.random.Generator
        "weights" and "pairs" (initialization), "tasks" (task order or permutations),
        "samples" (the order within a task).
    """
    children = np.random.SeedSequence(seed).spawn(len(SEED_STREAMS))
    return {
        name: np.random.default_rng(child)
        for name, child in zip(SEED_STREAMS, children, strict=True)
    }


@dataclass(frozen=True)
class Blend(Task):
    """A stretch of a stream with blurred boundaries; the tests are those of one task.

    owners : int64 ndarray of shape (n,)
        For each sample of `train`, which of the tasks it belongs to.
    tasks : tuple of Task
    """

    owners: np.ndarray = None
    tasks: tuple = ()

    def training_batch(self, dataset, rows):
        owners, rows = self.owners[rows], self.train[rows]
        x, labels = dataset.x_train[rows], dataset.y_train[rows]
        blended = np.empty(x.shape, np.float32)
        for owner in np.unique(owners):
            own = owners == owner
            blended[own] = self.tasks[owner].inputs(dataset, x[own])
        return blended, labels, np.stack([task.classes for task in self.tasks])[owners]

    def batches(self, rng, batch_size, epochs):
        """Positions in `train`, a batch at a time, in their order: once, unshuffled."""
        for start in range(0, self.train.size - batch_size + 1, batch_size):
            yield np.arange(start, start + batch_size)


def blur(tasks, share, rng):
    """A stream whose tasks run into each other.

    Around every boundary lies a stretch in which the samples of the two tasks are mixed;
    it is as long as `share` of the shorter one, and the next task's part in it rises evenly
    from nothing to all. Every sample occurs once, as in the stream with sharp boundaries.

    Parameters
    ----------
    tasks : list of Task
    share : float in [0, 1]
        Of a task's length.
    rng : numpy.random.Generator

    Returns
    -------
    list of Blend
        One a task, of its length, tested as that task is.

    Notes
    -----
    A sample's place is uniform in its task, then moved either way, uniformly, by up to half
    the length of the stretch around the nearer boundary; the stream is in their order.
    """
    sizes = [task.train.size for task in tasks]
    shorter = [min(pair) for pair in pairwise(sizes)] or sizes
    ends = np.cumsum(sizes)
    owners = np.repeat(np.arange(len(tasks)), sizes)
    rows = np.concatenate([rng.permutation(task.train) for task in tasks])
    middle = np.repeat(ends - np.array(sizes) // 2, sizes)  # of a sample's task
    nearer = owners - (np.arange(rows.size) < middle)  # which boundary
    lengths = np.take(shorter, nearer, mode="clip")
    places = np.arange(rows.size) + share * lengths * rng.uniform(-0.5, 0.5, rows.size)
    order = np.argsort(places, kind="stable")
    rows, owners = rows[order], owners[order]
    return [
        Blend(
            task.name,
            rows[end - size : end],
            task.test,
            task.classes,
            task.permutation,
            owners[end - size : end],
            tuple(tasks),
        )
        for task, size, end in zip(tasks, sizes, ends, strict=True)
    ]


def tasks_for(settings, dataset, rng):
    """The tasks of a run in their order, each large enough for a batch.

    Raises
    ------
    InputError
        When the settings do not fit the data.
    """
    tasks = EXPERIMENTS[settings.experiment](
        dataset, rng, settings.classes_per_task, settings.tasks
    )
    for task in tasks:
        if task.train.size == 0 or task.test.size == 0:
            part = "test" if task.train.size else "training"
            advice = "use more --classes-per-task"
            if dataset.tasks_train is not None:
                advice = "give samples of every task in both task_train and task_test"
            raise InputError(f"task '{task.name}' has no {part} samples: {advice}")
    smallest = min(tasks, key=lambda task: task.train.size)
    if smallest.train.size < settings.batch_size:
        raise InputError(
            f"batch size {settings.batch_size} is more than the {smallest.train.size} training "
            f"samples of task '{smallest.name}': use --batch-size {smallest.train.size} or less"
        )
    return blur(tasks, settings.blur, rng) if settings.blur else tasks


EXPERIMENTS = {"split": split_tasks, "permuted": permuted_tasks, "iid": iid_tasks}
"""What each word after --exp does."""
