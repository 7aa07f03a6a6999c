"""The tasks of a data set: split, permuted, iid (section 4.1).

A task knows its classes and its permutation; the learner sees neither.
"""

from dataclasses import dataclass, replace

import numpy as np

from minipw import InputError
from minipw.backend.arrays import array_module, to_device
from minipw.backend.memory import require_memory


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
        """Samples of shape (n, *shape) as the network sees them in this task."""
        return inputs(dataset, x, self.permutation)

    def training_batch(self, dataset, rows):
        """Inputs (B, *shape), labels (B,) and the task's classes for rows from `batches`.

        The classes are a mask of shape (C,), or (B, C) where samples differ.
        """
        return self.inputs(dataset, dataset.x_train[rows]), dataset.y_train[rows], self.classes

    def steps(self, batch_size, epochs=1):
        """The number of batches in `epochs`."""
        return epochs * (self.train.size // batch_size)

    def batches(self, rng, batch_size, epochs):
        """Yield the rows of a batch (B,), shuffled in each epoch.

        Every epoch drops its incomplete last batch (the released program).
        """
        for _ in range(epochs):
            order = rng.permutation(self.train)
            for start in range(0, order.size - batch_size + 1, batch_size):
                yield order[start : start + batch_size]


def inputs(dataset, x, permutation):
    """Samples as the network sees them: permuted, scaled, float32.

    x : ndarray of shape (..., B, *shape), rows of the data set
    permutation : int ndarray of shape (D,) or (R, D), or None
        Of the flattened inputs: one for all of x, or one for each run.
    """
    if permutation is None:
        return dataset.batch(x)
    scaled_first = len(dataset.mean) > 1  # a value keeps the scale of the channel it came from
    if scaled_first:
        x = dataset.batch(x)
    lead = x.shape[: x.ndim - len(dataset.shape)]
    flat, xp = x.reshape(*lead, -1), array_module(x)  # (..., B, D)
    permutation = to_device(xp, permutation)
    if permutation.ndim == 1:
        flat = flat.take(permutation, axis=-1)
    else:
        flat = xp.take_along_axis(flat, permutation[..., None, :], -1)
    x = flat.reshape(x.shape)
    return x if scaled_first else dataset.batch(x)


def split_tasks(dataset, rng, classes_per_task=2):
    """Tasks of `classes_per_task` consecutive classes, in random order.

    When the classes do not divide evenly, the task with the last ones is smaller.
    A data set that names tasks keeps them, in ascending order.
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
        if not counts[first : first + classes_per_task].any():  # before a million empty tasks
            raise InputError(
                f"task 'classes {dataset.label(first)}' has no training samples: number the "
                "classes without gaps, or use more --classes-per-task"
            )
        classes = np.zeros(dataset.classes, bool)
        classes[first : first + classes_per_task] = True
        name = "classes " + " ".join(dataset.label(c) for c in np.flatnonzero(classes))
        train, test = (np.flatnonzero(classes[y]) for y in (dataset.y_train, dataset.y_test))
        tasks.append(Task(name, train, test, classes))
    return [tasks[n] for n in rng.permutation(len(tasks))]


def own_tasks(dataset):
    """The tasks that the data set names, in ascending order."""
    tasks = []
    for n in np.union1d(dataset.tasks_train, dataset.tasks_test):
        train, test = (np.flatnonzero(t == n) for t in (dataset.tasks_train, dataset.tasks_test))
        classes = np.zeros(dataset.classes, bool)
        classes[dataset.y_train[train]] = classes[dataset.y_test[test]] = True
        tasks.append(Task(f"task {n}", train, test, classes))
    return tasks


def permuted_tasks(dataset, rng, count):
    """The whole data set `count` times, each time under another permutation of the inputs."""
    size = int(np.prod(dataset.shape))
    what = f"{count:,} permutations of {size:,} inputs; use fewer --tasks"
    require_memory(8 * size * count, what)
    (whole,) = iid_tasks(dataset)
    return [
        replace(whole, name=f"permutation {n + 1}", permutation=rng.permutation(size))
        for n in range(count)
    ]


def iid_tasks(dataset):
    """The whole data set as one task."""
    train, test = np.arange(len(dataset.y_train)), np.arange(len(dataset.y_test))
    return [Task("all classes", train, test, np.ones(dataset.classes, bool))]
