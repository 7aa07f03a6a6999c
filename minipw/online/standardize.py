"""Running mean and standard deviation of a stream, which a few bad values do not spoil."""

import numpy as np

FIRST = 32
"""Samples that are kept, to begin with sums that a bad value among them does not spoil."""
FAR = 5.0
"""Deviations from the mean beyond which a value does not enter the sums."""
NARROWING = 0.8
"""Per sample without a value that far, what is left of the room that such values made."""
NORMAL = 1.4826
"""Deviations of a normal distribution in its median distance from the mean."""
MANY = 0.1
"""Share of values that far which are no longer a few bad ones; each value then counts once."""
SMALLEST = 1e-200
"""The least unit that values are divided by: of smaller ones a square would be 0."""
DIFFERING, ALIKE = 10, 20.0
"""Values that differ from those before which give a constant feature its scale, unless the first
of them is that of the other features, within this factor."""
ROUNDING = 4 * np.finfo(np.float64).eps
"""A standard deviation below this share of a value is rounding, not variation."""


class Standardizer:
    """Welford's sums, with a whole batch added at once.

        mean <- mean + d n / (N + n),   d = mean of the batch - mean
        M2   <- M2 + M2 of the batch + d^2 N n / (N + n)

    N samples are in the sums, n are added; M2 is the sum of the squared deviations from the
    mean. Values are taken relative to the median of the first samples, in units of a typical
    difference from it, so neither a large offset nor a tiny scale loses digits.

    A value further than `FAR` deviations from the mean is left out of the sums, of the first
    samples cut to there, so up to a tenth of bad values do little. Each such value doubles
    how far the next may be, so a feature whose scale changes for good is followed within some
    ten samples.

    Parameters
    ----------
    features : int
        D.
    limit : float
        Standardized values are cut to [-limit, limit].
    missing : bool
        NaN is an unknown value: it is left out of the sums and becomes 0, the mean.
    centred : bool
        False, for sparse samples: 0 stays 0 and is left out of the sums, other values are
        divided by their root mean square.

    Attributes
    ----------
    count, mean, squares : float64 ndarray of shape (D,)
        N, the mean and M2 of each feature, of (x - origin) / unit.
    origin, unit, room : float64 ndarray of shape (D,)
        The median of the first samples, the median of what differs from it, and how many
        times `FAR` deviations a value may be away.
    cut : int
        Values that were cut, or did not enter the sums.
    """

    def __init__(self, features, limit, missing=False, centred=True):
        self.limit, self.missing, self.centred, self.cut = limit, missing, centred, 0
        self.count, self.mean, self.squares, self.origin = np.zeros((4, features))
        self.unit, self.room = np.ones((2, features))
        self.first, self.open, self.closed = np.zeros((0, features)), None, False
        self._scale()

    def _scale(self):
        deviation = np.sqrt(self.squares / np.where(self.count > 0, self.count, 1))
        value = np.abs(self.origin + self.mean * self.unit)
        varies = (deviation > 0) & (deviation * self.unit > ROUNDING * value)
        self.deviation = np.where(varies, deviation, np.inf)
        self.scale = 1 / self.deviation  # 0 for a constant feature

    def update(self, x):
        """Add samples x : float64 ndarray (n, D)."""
        if (room := FIRST - len(self.first)) > 0:
            self.first = np.concatenate([self.first, x[:room]])
            self.begin(self.first, np.ones(len(self.first)))
            x = x[room:]
        if len(x):
            self._add(x)
            self._scale()

    def _known(self, x):
        """Which values enter the sums: bool ndarray (n, D)."""
        known = ~np.isnan(x)
        return known if self.centred else known & (x != 0)

    def begin(self, x, weights):
        """Make the sums of samples alone; typical values decide which of them are cut."""
        known = self._known(x) * weights[:, None]
        if self.centred:
            self.origin = _lower_median(x, known)
        d = np.where(known > 0, x - self.origin, 0.0)
        away = np.abs(d)
        typical = _lower_median(away, known * (away > 0))
        bound = FAR * NORMAL
        far = ((away > bound * typical) * known).sum(0)
        for k in np.flatnonzero(far > MANY * known.sum(0)):  # ties, as of a background
            values = np.unique(away[known[:, k] > 0, k])
            typical[k] = max(typical[k], values[len(values) // 2])
        self.unit = np.where(typical > 0, np.maximum(typical, SMALLEST), 1.0)
        d /= self.unit
        self.cut = int((np.abs(d) > bound).sum())
        d = np.clip(d, -bound, bound)
        self.count = known.sum(0)
        count = np.where(self.count > 0, self.count, 1)
        if self.centred:
            self.mean = np.add.reduce(d * known) / count
        self.squares = np.add.reduce((d - self.mean) ** 2 * known)
        self._scale()

    def _add(self, x):
        known = self._known(x)
        d = np.where(known, (x - self.origin) / self.unit, self.mean)
        bound = FAR * self.room * self.deviation
        far = np.abs(d - self.mean) > bound
        times = np.minimum(far.sum(0), 60)
        if times.any():
            bound = bound * 2.0 ** np.maximum(times - 1, 0)
            cut = np.abs(d - self.mean) > bound
            self.cut += int(cut.sum())
            known, d = known & ~cut, np.where(cut, self.mean, d)
        narrower = np.maximum(self.room * NARROWING ** len(x), 1)
        self.room = np.where(times > 0, self.room * 2.0**times, narrower)
        count = known.sum(0).astype(np.float64)
        batch_mean = np.add.reduce(d * known) / np.maximum(count, 1) if self.centred else self.mean
        total = self.count + count
        share = count / np.maximum(total, 1)
        step = np.where(count > 0, batch_mean - self.mean, 0.0)
        deviations = ((d - batch_mean) * known) ** 2
        added = np.add.reduce(deviations) + step * step * self.count * share
        self.squares = self.squares + added
        self.mean = self.mean + step * share
        self.count = total

    def transform(self, x):
        """Samples x : float64 ndarray (n, D) in deviations from the mean, constant features 0."""
        d = (x - self.origin) / self.unit
        z = (d - self.mean) * self.scale
        if not self.centred:
            z = d * np.where(self.scale > 0, self.scale, 1.0)
        z[np.isnan(z)] = 0.0
        return np.minimum(np.maximum(z, -self.limit, out=z), self.limit, out=z)

    def freeze(self):
        """Keep all scales. Constant features have the others' until `settle` finds their own."""
        self._scale()
        self.open = np.isinf(self.deviation) & (not self.closed)
        if len(self.first) != (rows := 0 if self.closed else DIFFERING):
            self.first = np.full((rows, len(self.open)), np.nan)
        varies = np.isfinite(self.deviation) & (self.count != 1)  # 1: of those that had to wait
        deviations = self.deviation[varies] * self.unit[varies]
        self.pooled = np.sqrt(np.mean(deviations**2)) if varies.any() else float(self.closed)
        begun = ~np.isnan(self.first).all(0)
        shares = np.isinf(self.deviation) & ~begun & (self.pooled > 0)
        self.deviation[shares] = self.pooled / self.unit[shares]
        self.scale = 1 / self.deviation

    def close(self):
        """Let no scale change any more: constant features share the others'."""
        self.closed, self.first = True, self.first[:0]
        self.freeze()

    def settle(self, x):
        """Find the scales of frozen features that were constant, from values that differ.

        Where the first of these is in another unit than the other features, the first
        `DIFFERING` count as the constant, and so does all that is known; then they give the
        scale.

        Parameters
        ----------
        x : float64 ndarray of shape (n, D), samples that are learned

        Returns
        -------
        bool ndarray of shape (n, D), or None
            What is to be 0 in `transform(x)`; None where nothing differs.
        """
        if not self.open.any():
            return None
        waits = np.flatnonzero(self.open)
        constant, x = (self.origin + self.mean * self.unit)[waits], x[:, waits]
        away = np.where(np.isnan(x), 0, np.abs(x - constant))
        differs = away > ROUNDING * np.abs(constant)
        if not differs.any():
            return None
        count = (~np.isnan(self.first[:, waits])).sum(0)
        begins = away[differs.argmax(0), np.arange(len(waits))]
        alike = (begins * ALIKE >= self.pooled) & (begins <= self.pooled * ALIKE)
        alike &= (count == 0) & (begins > 0)
        place = differs.cumsum(0) + count - 1
        rows, columns = np.nonzero(differs & (place < DIFFERING))
        self.first[place[rows, columns], waits[columns]] = away[rows, columns]
        early = np.zeros((len(x), len(self.open)), bool)
        early[:, waits] = (place < DIFFERING) & ~alike & (place[-1] >= 0)
        for n in np.flatnonzero(alike | (place[-1] >= DIFFERING - 1)):
            k, typical = waits[n], NORMAL * np.sort(self.first[:, waits[n]])[(DIFFERING - 1) // 2]
            self.origin[k], self.mean[k], self.squares[k], self.count[k] = constant[n], 0, 1, 1
            self.unit[k] = self.pooled if alike[n] else max(typical, SMALLEST)
            self.first[:, k] = np.nan
        self.freeze()
        return early

    def forget(self, factor):
        """Let the samples so far count `factor` times as much."""
        self.count, self.squares = self.count * factor, self.squares * factor

    def add_features(self, count, value=np.nan):
        """Append features that all samples so far had one value of; NaN: an unknown one."""
        known = 0.0 if np.isnan(value) or not self.centred else self.count.max(initial=0)
        begin = {"count": known, "mean": 0, "squares": 0, "unit": 1, "room": 1}
        for name, one in {**begin, "origin": 0 if np.isnan(value) else value}.items():
            setattr(self, name, np.append(getattr(self, name), np.full(count, float(one))))
        first = np.full((len(self.first), count), value if self.open is None else np.nan)
        self.first = np.concatenate([self.first, first], axis=1)
        self._scale()

    def state(self):
        """What `restore` needs: float64 ndarray of shape (6 + n, D), n first samples."""
        sums = (self.count, self.mean, self.squares, self.origin, self.unit, self.room)
        return np.concatenate([np.stack(sums), self.first])

    def restore_frozen(self, state):
        """Go back to a state after `freeze`; older ones are closed, as later ones may be."""
        self.restore(state)
        self.closed = not len(self.first)
        self.freeze()

    def restore(self, state):
        """Go back to what `state` returned."""
        if len(state) == 3:  # a file of version 1: its sums are of the values as they are
            features = np.stack([np.zeros_like(state[0])] + 2 * [np.ones_like(state[0])])
            state = np.concatenate([state, features, np.zeros((FIRST, state.shape[1]))])
        self.count, self.mean, self.squares, self.origin, self.unit, self.room = state[:6].copy()
        self.first = state[6:].copy()
        self._scale()


def _lower_median(x, weights):
    """The lower median of each column's values of a weight: ndarray (D,); 0 where none has one."""
    x = np.where(weights > 0, x, np.inf)
    order = np.argsort(x, axis=0)
    sums = np.cumsum(np.take_along_axis(weights, order, 0), axis=0)
    middle = order[(sums < sums[-1] / 2).sum(0), columns := np.arange(x.shape[1])]
    return np.where(sums[-1] > 0, x[middle, columns], 0.0)
