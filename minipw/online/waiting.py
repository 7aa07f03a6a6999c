"""Samples that wait, with their labels and weights."""

import itertools

import numpy as np

from minipw import InputError
from minipw.online.labels import decode_label, encode_label, shown


class Waiting:
    """Samples in their order, in the parts that came: (x, labels, weights)."""

    def __init__(self):
        self.parts, self.count = [], 0

    def add(self, x, labels, weights):
        """Keep copies of float64 samples (N, *shape), a list of N labels and N weights."""
        self.parts.append((x.copy(), list(labels), weights.copy()))
        self.count += len(x)

    def joined(self):
        """All samples as one part."""
        x, labels, weights = zip(*self.parts, strict=True)
        return np.concatenate(x), list(itertools.chain(*labels)), np.concatenate(weights)

    def take_out(self, x, labels, weights):
        """Remove samples, or InputError that names the first which does not wait."""
        keep = np.ones(self.count, bool)
        for n, (row, label, weight) in enumerate(zip(x, labels, weights, strict=True)):
            found = self.places(row, label, weight, keep)
            if not found:
                raise InputError(f"sample {n} of {shown(label)} is not among those that wait")
            keep[found[0]] = False
        kept_x, kept_labels, kept_weights = self.joined()
        labels = list(itertools.compress(kept_labels, keep))
        self.parts, self.count = [], 0
        self.add(kept_x[keep], labels, kept_weights[keep])

    def places(self, row, label, weight, among=True):
        """Where a sample waits, among those whose flag is set: list of int."""
        if not self.count:
            return []
        x, labels, weights = self.joined()
        same = (weights == weight) & among & np.array([other == label for other in labels])
        return [n for n in np.flatnonzero(same) if np.array_equal(x[n], row, True)]

    @property
    def total(self):
        """The sum of the weights."""
        return sum(float(weights.sum()) for _, _, weights in self.parts)

    def decay(self, factor):
        """Let all samples count `factor` times as much."""
        self.parts = [(x, labels, factor * weights) for x, labels, weights in self.parts]

    def widen(self, features, value):
        """Append features to samples (N, D), which have a value there."""
        pad = {"pad_width": ((0, 0), (0, features)), "constant_values": value}
        self.parts = [(np.pad(x, **pad), *rest) for x, *rest in self.parts]

    def state(self):
        """Arrays and facts that JSON can hold; none without samples."""
        if not self.count:
            return {}, []
        x, labels, weights = self.joined()
        return {"waiting": x, "weights": weights}, [encode_label(label) for label in labels]

    def restore(self, arrays, labels):
        """Go back to what `state` returned."""
        if labels:
            self.add(arrays["waiting"], map(decode_label, labels), arrays["weights"])
            x, labels, weights = self.parts[0]
            if not len(x) == len(labels) == len(weights):
                raise InputError("samples and labels that wait are not equally many")
