"""The closed form for streams whose inputs change while their labels stay.

A context is a layout: the order of the inputs in which neighbouring pixels are alike (see
`minipw.online.layout`). A sample belongs to the one that makes it smoothest, when it is
learned and when it is predicted; nobody says where one context ends.
"""

import numpy as np

from minipw import InputError, parameters
from minipw.online import layout
from minipw.online.features import SMALLEST_IMAGE
from minipw.online.labels import decode_label, encode_label
from minipw.online.learner import Learner
from minipw.online.ridge import StreamingRidgeClassifier
from minipw.online.waiting import Waiting
from minipw.ridge import Statistics

KEPT = 4
"""Strangers that wait at most, in units of `first`."""


class ContextRidgeClassifier(Learner):
    """`StreamingRidgeClassifier` for each layout of the pixels that a stream of images has.

    The first context is the layout in which images come, so a stream that nobody permuted is
    learned as by one `StreamingRidgeClassifier`. Samples that fit no layout are strangers: a
    classifier on random features learns them at once. Whenever `first` more of them have come
    a layout is looked for (in images of one channel), and those that it smooths move to a
    context of their own. Where none is found, as in noise, they move to the context that
    makes them smoothest. Learners with contexts do not merge.

    Parameters
    ----------
    features : {"scales", "patches"}
    size : int or None
        Features of patches of two scales (3,600), or filters of patches of one (200).
    seed, first, missing, class_weight, classes, device : as in `StreamingRidgeClassifier`

    Attributes
    ----------
    orders, learners : list of int ndarray of shape (pixels,), and of StreamingRidgeClassifier
        Of each context: the input at each pixel, and what learns. `strangers` learns those
        that wait for one.
    classes_, counts, input_shape : as in `Learner`
    """

    kind = "contexts"

    def __init__(
        self,
        features="scales",
        size=None,
        seed=0,
        first=1000,
        missing=False,
        class_weight=None,
        classes=None,
        device="cpu",
    ):
        if features not in ("scales", "patches"):
            raise InputError(f"features {features!r} have no layout: use 'scales' or 'patches'")
        given = {"features": features, "size": size, "seed": seed, "first": first}
        given |= {"missing": missing, "class_weight": class_weight, "device": device}
        super().__init__(parameters.check(**given))
        self.orders, self.learners, self.strangers = [], [], None
        self._kept, self._due, self._taken = Waiting(), 0, 0
        self.add_classes(() if classes is None else classes)

    def add_classes(self, labels):
        """Add outputs for classes that are known to come."""
        with self._lock:
            super().add_classes(labels)
            for learner in self._all():
                learner.add_classes(self.classes_)

    def flush(self):
        """Fix the features of every context by the samples that wait; returns self."""
        with self._learning, self._lock:
            for learner in self._all():
                learner.flush()
        return self

    def forget(self, x, y, sample_weight=None):
        """Take out samples that were learned; returns self. See `StreamingRidgeClassifier`."""
        with self._learning, self._lock:
            given = list(self._parts(x, y, sample_weight))
            parts = [placed for part in given for placed in self._placed(*part)]
            for k in {k for k, *_ in parts}:
                taken = (label for j, _, labels, _ in parts if j == k for label in labels)
                self._learner(k)._require_counts(taken)
            for k, *part in sorted(parts, key=lambda part: part[0]):
                self._learner(k).forget(self._laid(part[0], k), *part[1:])
                if k < 0:
                    self._kept.take_out(*part)
                self._count(part[1], -1)
        return self

    def decay(self, factor):
        """Let all that was learned count `factor` times as much, in (0, 1]; returns self."""
        with self._learning, self._lock:
            Statistics.empty(1, 1).decay(factor)  # refuses another factor
            for learner in self._all():
                learner.decay(factor)
            self._kept.decay(factor)
            if self.learners:
                self.counts = [
                    sum(c) for c in zip(*(one.counts for one in self._all()), strict=True)
                ]
                if not any(self.strangers.counts):  # all of them faded
                    self._kept, self._taken, self._due = Waiting(), 0, self.settings["first"]
        return self

    def novelty(self, x):
        """How unlike all that its context has learned each sample is; see the same there."""
        return self._over(x, np.zeros(0), lambda part: self._routed(part, "novelty"))

    def context_of(self, x):
        """The context that predicts each sample: int ndarray (N,), -1 for the strangers."""
        return self._over(x, np.zeros(0, int), self._contexts)

    # what `Learner` asks for

    def _begin(self, shape, centred=True):
        if len(shape) < 2 or min(shape[:2]) < SMALLEST_IMAGE:
            need = f"of at least {SMALLEST_IMAGE} pixels a side"
            raise InputError(f"contexts need images {need}, the data has shape {shape}")
        self.learners, self.orders = [self._new(shape)], [np.arange(np.prod(shape[:2]))]
        self.strangers = self._new(shape, features="random", size=None)
        self.input_shape = shape
        self._due = self.settings["first"]

    def _new(self, shape, **settings):
        learner = StreamingRidgeClassifier(**self.settings | settings, classes=self.classes_)
        learner._begin(shape)
        return learner

    def _rows(self):
        return self.learners[0]._rows()

    def _take(self, x, labels, weights):
        with self._lock:
            self.add_classes([label for label in labels if label not in self._index])
            for k, rows in self._by_context(x):
                self._give(k, x[rows], [labels[n] for n in rows], weights[rows])
            self._count(labels)

    def _logits(self, x):
        return self._routed(x, "decision_function", len(self.classes_))

    def _state(self):
        facts = {name: getattr(self, name) for name in ("settings", "counts", "input_shape")}
        facts["classes"] = [encode_label(label) for label in self.classes_]
        kept, labels = self._kept.state()
        arrays = {f"kept/{name}": array for name, array in kept.items()}
        facts |= {"kept": labels, "due": self._due, "taken": self._taken}
        facts |= {"columns": self.columns, "learners": []}
        for n, learner in enumerate(self._all()):
            more, state = learner._state()
            facts["learners"].append(state)
            arrays |= {f"{n}/{name}": array for name, array in more.items()}
        if self.orders:
            arrays["orders"] = np.stack(self.orders)
        return arrays, facts

    @classmethod
    def _restore(cls, arrays, facts):
        settings = {"features": "patches"} | facts["settings"]  # older files do not say it
        learner = cls(**settings, classes=map(decode_label, facts["classes"]))
        learner.counts, learner.columns = list(facts["counts"]), decode_label(facts["columns"])
        learner._due, learner._taken = facts["due"], facts["taken"]
        if facts["input_shape"] is None:
            return learner
        learner.input_shape, learner.orders = tuple(facts["input_shape"]), list(arrays["orders"])

        def part(prefix):
            return {n.split("/", 1)[1]: a for n, a in arrays.items() if n.startswith(f"{prefix}/")}

        learner._kept.restore(part("kept"), facts["kept"])
        states = enumerate(facts["learners"])
        restored = [StreamingRidgeClassifier._restore(part(n), state) for n, state in states]
        *learner.learners, learner.strangers = restored
        return learner

    # contexts

    def _all(self):
        return [*self.learners, self.strangers] if self.learners else []

    def _learner(self, k):
        return self.strangers if k < 0 else self.learners[k]

    def _laid(self, x, k):
        """Images x (N, *shape) with their pixels in the layout of context k, or as they are."""
        if k <= 0:
            return x
        return x.reshape(len(x), -1)[:, self.orders[k]].reshape(x.shape)

    def _by_context(self, x, fits=layout.FITS):
        """Which rows of x belong to which context, -1 for strangers: list of (int, ndarray)."""
        flat, shape = self._flat(x), self.input_shape[:2]
        rough = np.stack([layout.roughness(flat, order, shape) for order in self.orders])
        best = np.where(rough.min(0) <= fits, rough.argmin(0), -1)
        return [(int(k), np.flatnonzero(best == k)) for k in np.unique(best)]

    def _flat(self, x):
        """The pixels of each sample (N, pixels), channels added up, unknown ones 0."""
        x = np.where(np.isnan(x), 0.0, x) if self.settings["missing"] else x
        return x.reshape(len(x), len(self.orders[0]), -1).sum(-1)

    def _contexts(self, x):
        """`context_of` a part: where more strangers have moved than wait, none is left at -1."""
        waiting = self._kept.count > self._taken
        most = max(range(len(self.learners)), key=lambda k: sum(self.learners[k].counts))
        found = np.empty(len(x), int)
        for k, rows in self._by_context(x, layout.FITS if waiting else np.inf):
            if not any(self._learner(k).counts):  # of a kind that nobody has learned
                k = most if any(self.learners[most].counts) else -1
            found[rows] = k
        return found

    def _routed(self, x, method, *width):
        """What a method of the learners gives for samples x, each from its context's."""
        found, context = np.zeros((len(x), *width)), self._contexts(x)
        for k in np.unique(context):
            rows = context == k
            found[rows] = getattr(self._learner(k), method)(self._laid(x[rows], k))
        return found

    def _give(self, k, x, labels, weights):
        """Let context k learn samples; from strangers a new one may open."""
        if k > 0 and self.learners[k].statistics is None:
            self._settle(k, x)
        self._learner(k)._take(self._laid(x, k), labels, weights)
        if k < 0:
            self._kept.add(x, labels, weights)
            while self._kept.count >= self._due and self._open():
                pass

    def _settle(self, k, x):
        """Find the layout of context k again when its first samples are all there."""
        learner = self.learners[k]
        if learner.waiting + len(x) < self.settings["first"] or not learner.waiting:
            return
        first, labels, weights = learner._first.joined()
        place = np.argsort(self.orders[k])
        first = first.reshape(len(first), -1)[:, place].reshape(first.shape)
        flat, shape = self._flat(np.concatenate([first, x])), self.input_shape[:2]
        orders = [self.orders[k], layout.find_order(flat[: self.settings["first"]], shape)]
        self.orders[k] = min(orders, key=lambda o: layout.roughness(flat, o, shape).mean())
        self.learners[k] = self._new(self.input_shape)
        self.learners[k]._take(self._laid(first, k), labels, weights)

    def _open(self):
        """Move strangers to a context of their own, or to others; whether more may move."""
        part, first = self._kept.joined(), self.settings["first"]
        order = own = None
        if np.prod(self.input_shape[2:]) == 1:  # one channel
            rng = np.random.default_rng([self.settings["seed"], len(part[1])])
            flat = self._flat(part[0])
            order, own = layout.find_context(flat, self.input_shape[:2], first, rng)
        if order is None:
            self._due = self._kept.count + first
            if own is None or self._kept.count >= KEPT * first:
                oldest = np.arange(len(part[1])) < (len(part[1]) if own is None else first)
                self._taken += int(oldest.sum())
                self._due = first + int((~oldest).sum())
                samples, labels, weights = self._leave(part, oldest)
                for k, rows in self._by_context(samples, np.inf):
                    self._give(k, samples[rows], [labels[n] for n in rows], weights[rows])
            return False
        self._due = first
        moved = self._leave(part, own)
        self.orders.append(order)
        self.learners.append(self._new(self.input_shape))
        self._give(len(self.orders) - 1, *moved)
        return True

    def _leave(self, part, flags):
        """Take those of the waiting strangers whose flag is set out of them."""
        x, labels, weights = part
        moved, stay = np.flatnonzero(flags), np.flatnonzero(~flags)
        leaving = x[moved], [labels[n] for n in moved], weights[moved]
        self.strangers.forget(*leaving)
        self._kept = Waiting()
        if len(stay):
            self._kept.add(x[stay], [labels[n] for n in stay], weights[stay])
        return leaving

    def _placed(self, x, labels, weights):
        """Where samples were learned: list of (context, x, labels, weights), strangers singly."""
        found = []
        for k, rows in self._by_context(x):
            for part in [rows] if k >= 0 else rows[:, None]:
                some = x[part], [labels[n] for n in part], weights[part]
                j = k
                if k < 0 and not self._kept.places(some[0][0], some[1][0], some[2][0]):
                    ((j, _),) = self._by_context(some[0], np.inf)  # it has moved
                found.append((j, *some))
        return found
