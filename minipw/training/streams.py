"""A run's stream: its random generators, the order of its tasks, blurred boundaries."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from minipw import InputError
from minipw.training.tasks import Task, iid_tasks, permuted_tasks, split_tasks

SEED_STREAMS = ("weights", "pairs", "tasks", "samples")


def seed_generators(seed):
    """A run's random generators by name, independent of each other.

    "weights" and "pairs" are for initialization, "tasks" for the order of tasks or the
    permutations, "samples" for the order within a task.
    """
    children = np.random.SeedSequence(seed).spawn(len(SEED_STREAMS))
    return dict(zip(SEED_STREAMS, map(np.random.default_rng, children), strict=True))


@dataclass(frozen=True)
class Blend(Task):
    """A part of a stream with blurred boundaries. It is tested as one task is.

    owners : int64 ndarray of shape (n,)
        Index into `tasks` of the task that each sample of `train` belongs to.
    tasks : sequence of Task
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
        """Positions in `train`, one batch at a time: a single epoch, in their order."""
        for start in range(0, self.train.size - batch_size + 1, batch_size):
            yield np.arange(start, start + batch_size)


def blur(tasks, share, rng):
    """A stream whose tasks run into each other.

    Around every boundary the samples of its two tasks are mixed. The mixed part is as long
    as `share` of the shorter task, and in it the second task's part rises evenly from none
    to all. Every sample occurs once, as it does with sharp boundaries. A share above 1 is
    one of the mean task; it mixes more than neighbours, and a million shuffles the stream.

    Parameters
    ----------
    tasks : list of Task
    share : float in [0, 1e6]
    rng : numpy.random.Generator

    Returns
    -------
    list of Blend
        One for each task, of its length and with its tests.

    Notes
    -----
    A sample's place is uniform in its task. It then moves either way, uniformly, by up to
    half the length of the mixed part at the nearer boundary. The stream is in the order of
    the places.
    """
    sizes = [task.train.size for task in tasks]
    shorter = [min(pair) for pair in pairwise(sizes)] or sizes
    ends = np.cumsum(sizes)
    owners = np.repeat(np.arange(len(tasks)), sizes)  # which task a sample belongs to
    rows = np.concatenate([rng.permutation(task.train) for task in tasks])
    places = np.arange(rows.size)
    middle = np.repeat(ends - np.array(sizes) // 2, sizes)  # of a sample's task
    nearer_boundary = owners - (places < middle)
    lengths = np.take(shorter, nearer_boundary, mode="clip") if share <= 1 else np.mean(sizes)
    places = places + share * lengths * rng.uniform(-0.5, 0.5, rows.size)
    order = np.argsort(places, kind="stable")
    rows, owners = rows[order], owners[order]
    blends = []
    for task, size, end in zip(tasks, sizes, ends, strict=True):
        own = slice(end - size, end)
        blends.append(Blend(**vars(task) | {"train": rows[own]}, owners=owners[own], tasks=tasks))
    return blends


def tasks_for(settings, dataset, rng):
    """The tasks of a run in their order, each large enough for a batch, else InputError."""
    tasks = EXPERIMENTS[settings.experiment](settings, dataset, rng)
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


EXPERIMENTS = {
    "split": lambda settings, dataset, rng: split_tasks(dataset, rng, settings.classes_per_task),
    "permuted": lambda settings, dataset, rng: permuted_tasks(dataset, rng, settings.tasks),
    "iid": lambda settings, dataset, rng: iid_tasks(dataset),
}
"""The tasks for each word after --exp."""
