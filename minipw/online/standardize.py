"""Running mean and standard deviation of a stream."""

import numpy as np

CONSTANT = 1e-12
"""A standard deviation below this share of the mean is rounding, not variation."""


class Standardizer:
    """Welford's sums, with a whole batch added at once.

        mean <- mean + d n / (N + n),   d = mean of the batch - mean
        M2   <- M2 + M2 of the batch + d^2 N n / (N + n)

    N samples are in the sums, n are added; M2 is the sum of the squared deviations from the
    mean. No large numbers are subtracted, so an offset far above the variation does no harm.

    Parameters
    ----------
    features : int
        D.
    limit : float
        Standardized values are cut to [-limit, limit]: the first other value of a feature
        that was constant for n samples is sqrt(n) deviations from the mean.
    missing : bool
        NaN is an unknown value: it is left out of the sums and becomes 0, the mean.

    Attributes
    ----------
    count, mean, squares : float64 ndarray of shape (D,)
        N, the mean and M2 of each feature.
    """

    def __init__(self, features, limit, missing=False):
        self.limit, self.missing = limit, missing
        self.count, self.mean, self.squares = np.zeros((3, features))
        self._scale()

    def _scale(self):
        deviation = np.sqrt(self.squares / np.maximum(self.count, 1))
        varies = deviation > CONSTANT * np.abs(self.mean)
        self.scale = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=varies)

    def update(self, x):
        """Add samples x : float64 ndarray (n, D)."""
        count = float(len(x))
        if self.missing:
            known = ~np.isnan(x)
            count = known.sum(0).astype(np.float64)
            x = np.where(known, x, 0.0)
        batch_mean = np.add.reduce(x) / np.maximum(count, 1)
        deviation = x - batch_mean
        if self.missing:
            deviation *= known
        deviation *= deviation
        total = self.count + count
        share = count / np.maximum(total, 1)
        step = batch_mean - self.mean
        if self.missing:
            step *= count > 0
        self.squares += np.add.reduce(deviation) + step * step * self.count * share
        self.mean += step * share
        self.count = total
        self._scale()

    def transform(self, x):
        """Samples x : float64 ndarray (n, D) in deviations from the mean, constant features 0."""
        x = (x - self.mean) * self.scale
        if self.missing:
            x[np.isnan(x)] = 0.0
        return np.minimum(np.maximum(x, -self.limit, out=x), self.limit, out=x)

    def add_features(self, count):
        """Append features that no sample had."""
        for name in ("count", "mean", "squares", "scale"):
            setattr(self, name, np.append(getattr(self, name), np.zeros(count)))

    def state(self):
        """What `restore` needs: float64 ndarray of shape (3, D)."""
        return np.stack([self.count, self.mean, self.squares])

    def restore(self, state):
        """Go back to what `state` returned."""
        self.count, self.mean, self.squares = state.copy()
        self._scale()
