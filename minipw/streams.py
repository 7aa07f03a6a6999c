"""Task streams over a data set: split, permuted and iid (section 4.1).

A task knows its classes and its permutation; the learner is shown neither.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from minipw import InputError
from minipw.backend import array_module
from minipw.memory import require_memory

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
class Task:
    """A part of the stream, and the part of the test set that belongs to it.

    name : str
    train, test : int64 ndarray of shape (n,)
        Rows of the data set.
    classes : bool ndarray of shape (C,)
        The classes that occur in it.
    permutation : int64 ndarray of shape (D,), or None
        Of the flattened inputs.
    """

    name: str
    train: np.ndarray
    test: np.ndarray
    classes: np.ndarray
    permutation: np.ndarray | None = None

    def inputs(self, dataset, x):
        """Samples of this task, (n, *shape), as the network sees them; see `inputs`."""
        return inputs(dataset, x, self.permutation)

    def training_batch(self, dataset, rows):
        """The samples of a batch.

        Parameters
        ----------
        dataset : Dataset
        rows : int64 ndarray of shape (B,), from `batches`

        Returns
        -------
        x : float32 ndarray of shape (B, *shape)
        labels : int64 ndarray of shape (B,)
        classes : bool ndarray of shape (C,), or (B, C)
            Those of the task.
        """
        return self.inputs(dataset, dataset.x_train[rows]), dataset.y_train[rows], self.classes

    def steps(self, batch_size, epochs):
        """Batches that `batches` gives."""
        return epochs * (self.train.size // batch_size)

    def batches(self, rng, batch_size, epochs):
        """Rows of the data set, a shuffled batch at a time.

        An incomplete last batch is dropped in every epoch (the released program).

        Yields
        ------
        int64 ndarray of shape (B,)
        """
        for _ in range(epochs):
            order = rng.permutation(self.train)
            for start in range(0, order.size - batch_size + 1, batch_size):
                yield order[start : start + batch_size]


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


def inputs(dataset, x, permutation=None):
    """Samples as the network sees them: permuted, scaled, float32.

    Parameters
    ----------
    dataset : Dataset
    x : ndarray of shape (..., B, *shape), rows of the data set
    permutation : int ndarray of shape (..., D), or None
        Of the flattened inputs: one for all of x, or one a run.

    Returns
    -------
    ndarray of x's shape
    """
    if permutation is None:
        return dataset.batch(x)
    scaled_first = len(dataset.mean) > 1  # a value keeps the scale of the channel it came from
    if scaled_first:
        x = dataset.batch(x)
    lead = x.shape[: x.ndim - len(dataset.shape)]
    flat = x.reshape(*lead, -1)  # (..., B, D)
    if permutation.ndim == 1:
        flat = flat.take(permutation, axis=-1)
    else:
        flat = array_module(x).take_along_axis(flat, permutation[..., None, :], -1)
    x = flat.reshape(x.shape)
    return x if scaled_first else dataset.batch(x)


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


def split_tasks(dataset, rng, classes_per_task=2, count=None):
    """Consecutive classes, `classes_per_task` a task, the tasks in random order.

    When the classes do not divide evenly the task with the last ones is smaller.
    A data set with tasks of its own keeps them, in ascending order. `count` is for
    `permuted_tasks` alone.
    """
    if dataset.tasks_train is not None:
        return own_tasks(dataset)
    if not 1 <= classes_per_task <= dataset.classes:
        raise InputError(
            f"{classes_per_task} classes per task do not fit a data set of "
            f"{dataset.classes} classes: use --classes-per-task 1 to {dataset.classes}"
        )
    tasks, counts = [], np.bincount(dataset.y_train, minlength=dataset.classes)
    for first in range(0, dataset.classes, classes_per_task):
        if not counts[first : first + classes_per_task].any():  # there may be very many
            raise InputError(
                f"task 'classes {dataset.label(first)}' has no training samples: number the "
                "classes without gaps, or use more --classes-per-task"
            )
        classes = np.zeros(dataset.classes, bool)
        classes[first : first + classes_per_task] = True
        name = "classes " + " ".join(dataset.label(c) for c in np.flatnonzero(classes))
        train, test = (
            np.flatnonzero(classes[labels]) for labels in (dataset.y_train, dataset.y_test)
        )
        tasks.append(Task(name, train, test, classes))
    return [tasks[n] for n in rng.permutation(len(tasks))]


def own_tasks(dataset):
    """The tasks that the data set itself names, in ascending order."""
    tasks = []
    for n in np.union1d(dataset.tasks_train, dataset.tasks_test):
        train, test = (np.flatnonzero(t == n) for t in (dataset.tasks_train, dataset.tasks_test))
        classes = np.zeros(dataset.classes, bool)
        classes[dataset.y_train[train]] = classes[dataset.y_test[test]] = True
        tasks.append(Task(f"task {n}", train, test, classes))
    return tasks


def permuted_tasks(dataset, rng, classes_per_task=None, count=10):
    """All of the data set `count` times, each time under a permutation of the inputs.

    `classes_per_task` is for `split_tasks` alone.
    """
    size = int(np.prod(dataset.shape))
    what = f"{count:,} permutations of {size:,} inputs; use fewer --tasks"
    require_memory(8 * size * count, what)
    train, test = np.arange(len(dataset.y_train)), np.arange(len(dataset.y_test))
    classes = np.ones(dataset.classes, bool)
    return [
        Task(f"permutation {n + 1}", train, test, classes, rng.permutation(size))
        for n in range(count)
    ]


def iid_tasks(dataset, rng, classes_per_task=None, count=None):
    """The data set in random order, as one task."""
    train, test = np.arange(len(dataset.y_train)), np.arange(len(dataset.y_test))
    return [Task("all classes", train, test, np.ones(dataset.classes, bool))]


EXPERIMENTS = {"split": split_tasks, "permuted": permuted_tasks, "iid": iid_tasks}
"""What each word after --exp does."""
