"""The closed form for streams whose inputs change while their labels stay.

A context is a layout: the order of the inputs in which neighbouring pixels are alike (see
`minipw.online.layout`). Each has a ridge classifier of its own, on patches of the images in
its layout. A sample belongs to the context that makes it smoothest, when it is learned and
when it is predicted; nobody says where one context ends.
"""

import numpy as np

from minipw import InputError, parameters
from minipw.online import layout
from minipw.online.features import SMALLEST_IMAGE
from minipw.online.labels import decode_label, encode_label
from minipw.online.learner import Learner
from minipw.online.ridge import StreamingRidgeClassifier
from minipw.online.waiting import Waiting

FITS = 0.8
"""Roughness that fits a layout: its own leaves at most 0.76, another at least 0.87."""
TRIES, ROUNDS, KEPT = 3, 3, 4
"""Searches at a time, rounds of each, and strangers that are kept for them, times `first`."""
LEAST = 150
"""Samples that a context opens with."""


class ContextRidgeClassifier(Learner):
    """`StreamingRidgeClassifier` for each layout of the pixels that a stream of images has.

    The first context is the layout in which images come, so a stream that nobody permuted is
    learned as by one `StreamingRidgeClassifier`. Samples that fit no layout are strangers: a
    classifier on random features learns them at once. Whenever `first` more of them have come
    a layout is looked for, and those that it smooths move to a context of their own; there
    are layouts to be found for images of one channel. Learners with contexts do not merge.

    Parameters
    ----------
    size : int or None
        Filters of patches (200).
    seed, first, missing, class_weight, classes, device : as in `StreamingRidgeClassifier`

    Attributes
    ----------
    orders : list of int ndarray of shape (pixels,)
        Of each context, the input at each pixel.
    learners : list of StreamingRidgeClassifier
        Of each context; `strangers` is that of the others.
    classes_, counts, input_shape : as in `Learner`
    """

    kind = "contexts"

    def __init__(
        self,
        size=None,
        seed=0,
        first=1000,
        missing=False,
        class_weight=None,
        classes=None,
        device="cpu",
    ):
        given = {"size": size, "seed": seed, "first": first, "missing": missing}
        given |= {"class_weight": class_weight, "device": device}
        super().__init__(parameters.check(**given))
        self.orders, self.learners, self.strangers = [], [], None
        self._kept, self._due = Waiting(), 0
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
            for samples, labels, weights in list(self._parts(x, y, sample_weight)):
                for k, rows in self._by_context(samples):
                    part = samples[rows], [labels[n] for n in rows], weights[rows]
                    self._learner(k).forget(self._laid(part[0], k), *part[1:])
                    if k < 0:
                        self._drop(*part)
                self._count(labels, -1)
        return self

    def decay(self, factor):
        """Let all that was learned count `factor` times as much, in (0, 1]; returns self."""
        with self._learning, self._lock:
            for learner in self._all():
                learner.decay(factor)
            self._kept.decay(factor)
        return self

    def novelty(self, x):
        """How unlike all that its context has learned each sample is; see the same there."""
        return self._over(x, np.zeros(0), lambda part: self._routed(part, "novelty"))

    # what `Learner` asks for

    def _begin(self, shape, centred=True):
        if len(shape) < 2 or min(shape[:2]) < SMALLEST_IMAGE:
            need = f"of at least {SMALLEST_IMAGE} pixels a side"
            raise InputError(f"contexts need images {need}, the data has shape {shape}")
        self.learners, self.orders = [self._new("patches", shape)], [np.arange(np.prod(shape[:2]))]
        self.strangers, self.input_shape = self._new("random", shape), shape
        self._due = self.settings["first"]

    def _new(self, features, shape):
        settings = {**self.settings, "features": features, "classes": self.classes_}
        if features == "random":
            settings["size"] = None
        learner = StreamingRidgeClassifier(**settings)
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
        facts |= {"kept": labels, "due": self._due, "columns": self.columns, "learners": []}
        for n, learner in enumerate(self._all()):
            more, state = learner._state()
            facts["learners"].append(state)
            arrays |= {f"{n}/{name}": array for name, array in more.items()}
        if self.orders:
            arrays["orders"] = np.stack(self.orders)
        return arrays, facts

    @classmethod
    def _restore(cls, arrays, facts):
        learner = cls(**facts["settings"], classes=map(decode_label, facts["classes"]))
        learner.counts, learner._due = list(facts["counts"]), facts["due"]
        learner.columns = decode_label(facts["columns"])
        if facts["input_shape"] is None:
            return learner
        learner.input_shape, learner.orders = tuple(facts["input_shape"]), list(arrays["orders"])

        def part(prefix):
            return {n.split("/", 1)[1]: a for n, a in arrays.items() if n.startswith(f"{prefix}/")}

        learner._kept.restore(part("kept"), facts["kept"])
        states = enumerate(facts["learners"])
        restored = [StreamingRidgeClassifier._restore(part(n), state) for n, state in states]
        *learner.learners, learner.strangers = restored
        if len(learner.learners) != len(learner.orders):
            raise InputError("the contexts do not fit")
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

    def _by_context(self, x):
        """Which rows of x belong to which context, -1 for strangers: list of (int, ndarray)."""
        flat, shape = self._flat(x), self.input_shape[:2]
        count = len(self.orders) if self._one_channel() else 1
        rough = np.stack([layout.roughness(flat, order, shape) for order in self.orders[:count]])
        best = np.where(rough.min(0) <= FITS, rough.argmin(0), -1)
        return [(int(k), np.flatnonzero(best == k)) for k in np.unique(best)]

    def _one_channel(self):
        return len(self.input_shape) == 2 or self.input_shape[2] == 1

    def _flat(self, x):
        """The pixels of each sample (N, pixels), channels added up, unknown ones 0."""
        x = np.where(np.isnan(x), 0.0, x) if self.settings["missing"] else x
        return x.reshape(len(x), len(self.orders[0]), -1).sum(-1)

    def _routed(self, x, method, *width):
        """What a method of the learners gives for samples x, each from its context's."""
        found = np.zeros((len(x), *width))
        for k, rows in self._by_context(x):
            learner = self._learner(k)
            if not any(learner.counts):  # of a kind that nobody has learned
                k = max(range(len(self.learners)), key=lambda n: sum(self.learners[n].counts))
                k = k if any(self.learners[k].counts) else -1
                learner = self._learner(k)
            found[rows] = getattr(learner, method)(self._laid(x[rows], k))
        return found

    def _give(self, k, x, labels, weights):
        """Let context k learn samples; from strangers a new one may open."""
        if k > 0 and self.learners[k].statistics is None:
            self._settle(k, x)
        self._learner(k)._take(self._laid(x, k), labels, weights)
        if k < 0 and self._one_channel():
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
        self.learners[k] = self._new("patches", self.input_shape)
        self.learners[k]._take(self._laid(first, k), labels, weights)

    def _open(self):
        """Move strangers to a context of their own; whether one was found."""
        x, labels, weights = self._kept.joined()
        order, own = self._find_context(self._flat(x))
        if order is None:
            first = self.settings["first"]
            self._due = self._kept.count + first
            if self._kept.count >= KEPT * first:  # the latest go on waiting
                self._keep(x[-first:], labels[-first:], weights[-first:])
                self._due = 2 * first
            return False
        moved, stay = np.flatnonzero(own), np.flatnonzero(~own)
        part = x[moved], [labels[n] for n in moved], weights[moved]
        self.strangers.forget(*part)
        self._keep(x[stay], [labels[n] for n in stay], weights[stay])
        self._due = self.settings["first"]
        self.orders.append(order)
        self.learners.append(self._new("patches", self.input_shape))
        self._give(len(self.orders) - 1, *part)
        return True

    def _find_context(self, x):
        """A layout and which of x (N, pixels) it smooths, bool (N,), or (None, None)."""
        shape, rng = self.input_shape[:2], np.random.default_rng([self.settings["seed"], len(x)])
        for _ in range(TRIES):
            rows = layout.alike(x, rng)
            try:
                for _ in range(ROUNDS):
                    order = layout.find_order(x[rows], shape)
                    own = layout.roughness(x, order, shape) <= FITS
                    if own.sum() < layout.CORE:
                        break
                    rows = np.flatnonzero(own)[-self.settings["first"] :]
            except (ValueError, np.linalg.LinAlgError):
                continue
            if own.sum() >= LEAST:
                return order, own
        return None, None

    def _keep(self, x, labels, weights):
        self._kept = Waiting()
        if len(labels):
            self._kept.add(x, labels, weights)

    def _drop(self, x, labels, weights):
        """Take strangers out of those that are kept, as far as they still are."""
        for n in range(len(labels)):
            part = x[n : n + 1], labels[n : n + 1], weights[n : n + 1]
            if self._kept.places(x[n], labels[n], weights[n]):
                self._kept.take_out(*part)
