"""Samples that wait, with their labels and weights, and those that a feature made wait."""

import hashlib
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

    def take_out(self, x, labels, weights, exact=True):
        """Remove samples, or InputError that names the first which does not wait.

        exact : bool; False: where a sample that waits has NaN, any value is right
        """
        keep = np.ones(self.count, bool)
        for n, (row, label, weight) in enumerate(zip(x, labels, weights, strict=True)):
            found = self.places(row, label, weight, keep, exact)
            if not found:
                raise InputError(f"sample {n} of {shown(label)} is not among those that wait")
            keep[found[0]] = False
        kept_x, kept_labels, kept_weights = self.joined()
        labels = list(itertools.compress(kept_labels, keep))
        self.parts, self.count = [], 0
        self.add(kept_x[keep], labels, kept_weights[keep])

    def places(self, row, label, weight, among=True, exact=True):
        """Where a sample waits, among those whose flag is set: list of int."""
        if not self.count:
            return []
        x, labels, weights = self.joined()
        same = (weights == weight) & among & np.array([other == label for other in labels])
        if not exact:
            x = np.where(np.isnan(x), row, x)
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


class Early:
    """What counted as 0 of samples that came before one of their features had its scale.

    known : list of [inputs, digest of the sample, places of the values]
        As JSON can hold it. At most ten values of each such feature.
    """

    def __init__(self, known=()):
        self.known = list(known)

    def note(self, x, early):
        """Keep what `Standardizer.settle` returned for samples float64 (N, *shape), if it did."""
        for row, places in zip(x, () if early is None else early.reshape(len(x), -1), strict=False):
            if places.any():
                self.known.append([row.size, _digest(row), np.flatnonzero(places).tolist()])

    def recall(self, x):
        """bool ndarray of the shape of x for samples to be forgotten, and forget it; or None."""
        if not self.known:
            return None
        early = np.zeros((len(x), x[0].size), bool)
        for row, places in zip(x, early, strict=True):
            own = {size: _digest(row.reshape(-1)[:size]) for size, *_ in self.known}
            found = next((one for one in self.known if own[one[0]] == one[1]), None)
            if found:
                self.known.remove(found)
                places[found[2]] = True
        return early


def _digest(row):
    return hashlib.blake2b((row + 0.0).tobytes(), digest_size=8).hexdigest()  # -0.0 is 0.0
