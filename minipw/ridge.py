"""The closed form: a ridge regression of the labels on features, solved from sums.

With z the features of a sample, y its label as a unit vector and w its weight:

    n = sum w y,  M = sum w z y^T,  G = sum w z z^T       statistics: they add, and subtract
    N = sum_c n_c,  s = sum_c M_c                         every sample has one class
    G_c = G - s s^T / N,  M_c = M - s n^T / N             centred

The weights W minimize sum w |y - n / N - W^T (z - s / N)|^2 + lam |W|^2. Its derivative
by W is zero where

    (G_c + lam I) W = M_c,        logits = W^T (z - s / N) + n / N

so no product with G is needed afterwards: G_c W = M_c - lam W, and

    W^T G_c W = W^T M_c - lam W^T W                       spread of the outputs
    RSS = N - n^T n / N - tr W^T M_c - lam tr W^T W       residual sum of squares

lam minimizes the generalized cross-validation score (d: the eigenvalues of G_c). Weights
are repeats; where they are below 1, N' = (sum w)^2 / sum w^2 says better than N how many
samples there were. Few samples tempt the score to too little lam, so g is then above 1:

    df = sum d / (d + lam) + 1,   n = max(N, N'),   g = 1 + 30 / n,   GCV = RSS / (n - g df)^2

One sample more changes A = G_c + lam I and M_c by one outer product each, so with the
inverse at hand the weights follow without solving (recursive least squares):

    v = z - s / N,   c = N w / (N + w),   a = A^-1 v,   k = c / (1 + c v^T a)
    W += k a (y - n / N - W^T v)^T,       A^-1 -= k a a^T

Probabilities: the outputs of a class are Student's t, whose tails they have: nu = 3, and all
classes share one scale matrix R R^T, of rank r. The log density, but for what is shared:

    -(nu + r) / 2 log(1 + |R^-1 (output - mean)|^2 / nu)

A learned sample's own label is in its output, all but n / N, with the share h = v^T A^-1 v,
on average (df - 1) / N; without it the output is (output - h y) / (1 - h), y centred. So the
class means W^T m_c become (W^T m_c - h y_c) / (1 - h), and the covariance within classes is
divided by (1 - h)^2. Densities find rare classes, the largest logit does not.
"""

import numpy as np
from scipy import linalg

from minipw import InputError
from minipw.backend.arrays import array_module, to_device, to_host
from minipw.backend.linear_algebra import STRIPE, change_triangle, least_decade, solve_positive
from minipw.backend.threads import one_blas_thread

HELD = 256  # samples that wait for each other before they enter G, which is large (measured)
TAILS = 3.0  # nu; Gaussians are too sure, their log loss is up to three times as high (measured)
CAUTION, FREE = 30, 0.02  # samples; the least share of n that must be left over
EXACT, PROBES = 512, 64  # features up to which lam is searched exactly; above, df within 1 %


class Statistics:
    """Sums over weighted samples; whole-number weights are repeats, for lam until a decay.

    counts : float64 ndarray of shape (C,), the weight of each class
    G : float64 ndarray of shape (H, H)
        Only its lower triangle is kept.
    M : float64 ndarray of shape (H, C)
    squares : float, sum w^2
    """

    def __init__(self, counts, G, M, squares=0.0):
        self.counts, self._G, self.M, self.squares = counts, G, M, squares
        self._held = []  # signs and z sqrt(w) of samples that G does not have yet

    @property
    def G(self):
        """The sums of products of all samples; a new array where some wait."""
        return self.products() if self._held else self._G

    def products(self):
        """G as a new array; what waits goes on waiting."""
        return self._take_in(self._G.copy())

    @classmethod
    def empty(cls, features, classes, xp=np):
        """Statistics of no samples, arrays of the module `xp`."""
        return cls(xp.zeros(classes), xp.zeros((features, features)), xp.zeros((features, classes)))

    def add(self, z, labels, weights=None):
        """Learn features z (B, H), near zero, with labels (B,) in [0, C) and weights (B,), or 1.

        They are multiplied in their own precision and summed in float64. InputError for
        another shape, a label that is no class, features that are not finite.
        """
        self._update(z, labels, weights, 1)

    def subtract(self, z, labels, weights=None):
        """Take out samples that were learned; InputError where a class has fewer."""
        self._update(z, labels, weights, -1)

    def merge(self, other):
        """Learn what `other` has learned, of the same features and classes."""
        if self.M.shape != other.M.shape:
            sizes = " and ".join(f"{a.M.shape[0]} by {a.M.shape[1]}" for a in (self, other))
            raise InputError(f"features by classes are {sizes}: only equal ones merge")
        for sums, more in zip((self.counts, self._G, self.M), other.sums(), strict=True):
            sums += more
        self.squares += other.squares

    def decay(self, factor):
        """Let all that was learned count `factor` times as much, in (0, 1]."""
        if not isinstance(factor, (int, float, np.number)) or not 0 < factor <= 1:
            raise InputError(f"a decay of {factor!r}: use a factor above 0, at most 1")
        for sums in (self.counts, self._G, self.M):
            sums *= factor
        for _, z in self._held:
            z *= factor**0.5
        self.squares *= factor**2

    def add_classes(self, count):
        """Make room for `count` more classes."""
        xp = array_module(self.M)
        self.counts = xp.pad(self.counts, (0, count))
        self.M = xp.pad(self.M, ((0, 0), (0, count)))

    def samples(self):
        """How many samples the sums stand for: max(N, N')."""
        N = float(self.counts.sum())
        return max(N, N * N / self.squares) if self.squares > 0 else N

    def sums(self):
        """counts, G and M."""
        return self.counts, self.G, self.M

    @one_blas_thread()
    def _update(self, z, labels, weights, sign):
        xp, (features, classes) = array_module(self.M), self.M.shape
        if z.ndim != 2 or z.shape[1] != features or labels.shape != z.shape[:1]:
            shapes = f"features {z.shape} with labels {labels.shape}"
            raise InputError(f"{shapes}: use (samples, {features}) and (samples,)")
        if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
            raise InputError(f"labels {labels.min()} to {labels.max()}: use 0 to {classes - 1}")
        weights = xp.ones(len(z)) if weights is None else weights
        if weights.shape != labels.shape or not (weights >= 0).all():
            raise InputError(f"weights of {len(z)} samples: use as many numbers, 0 or more")
        counts = self.counts + sign * xp.bincount(labels, weights, classes)
        if (counts < -1e-9 * self.counts.sum()).any():
            raise InputError("more samples of a class are taken out than it has learned")
        chosen, column = xp.unique(labels, return_inverse=True)
        y = (column[:, None] == xp.arange(len(chosen))) * weights[:, None]  # (B, classes here)
        M = z.T @ y.astype(z.dtype)
        if not xp.isfinite(M).all():
            raise InputError("a feature is not finite: look for NaN and huge values in the input")
        self.counts = xp.maximum(counts, 0)
        self.squares = max(0.0, self.squares + sign * float(weights @ weights))
        self.M[:, chosen] += sign * M
        if len(z):
            self._held.append((sign, z * xp.sqrt(weights).astype(z.dtype)[:, None]))
        if sum(len(z) for _, z in self._held) >= HELD:
            self._take_in(self._G)
            self._held = []

    def _take_in(self, G):
        """Add the samples that wait to sums of products, and return these."""
        xp = array_module(G)
        for sign, change in ((1, xp.add), (-1, xp.subtract)):
            if held := [z for own, z in self._held if own == sign]:
                change_triangle(G, xp.concatenate(held), change)
        return G


class Solution:
    """The weights for one value of lam, and the densities of their outputs; on the host.

    W : float64 ndarray of shape (H, C)
    lam, freedom : float
        freedom is df, the parameters that the labels could choose.
    offset : float64 ndarray of shape (C,)
    spread, means, prior : float64 ndarray of shape (C, r), (C, r) and (C,)
        R^-T; the means of the classes times it, and the logarithms of their shares.
    """

    def __init__(self, statistics, W, lam, freedom, factor):
        self.W, self.lam, self.freedom = W, lam, freedom
        self.factor, self.inverse = factor, None  # of A: upper, A = factor^T factor
        self.refresh(statistics)

    def refresh(self, statistics):
        """Compute what depends on the sums beside W: offset, densities."""
        counts, M = to_host(statistics.counts), to_host(statistics.M)
        N, s = counts.sum(), M.sum(1)
        if more := len(counts) - self.W.shape[1]:
            self.W = np.pad(self.W, ((0, 0), (0, more)))
        self.count, self.weight, self.mean = statistics.samples(), N, s / N
        self.offset = counts / N - self.W.T @ self.mean
        M -= np.outer(self.mean, counts)
        self.spread, self.means, self.prior = self._fitted(M, counts)

    @one_blas_thread()
    def update(self, statistics, z, label, weight=1.0):
        """Follow `statistics`, which do not have this sample (H,) yet; then `refresh`."""
        if self.inverse is None:
            self.inverse, _ = linalg.lapack.dpotri(self.factor, overwrite_c=True)
            self.factor = None
        counts = to_host(statistics.counts)
        N = counts.sum()
        v = z - to_host(statistics.M).sum(1) / N
        c = N * weight / (N + weight)
        a = linalg.blas.dsymv(1.0, self.inverse, v)
        k = c / (1 + c * (v @ a))
        error = (np.arange(len(counts)) == label) - counts / N
        self.W += np.outer(k * a, error - self.W.T @ v)
        self.inverse = linalg.blas.dsyr(-k, a, a=self.inverse, overwrite_a=True)
        self.freedom += self.lam * k * (a @ a)

    def logits(self, z):
        """The outputs, of shape (B, C), for features of shape (B, H)."""
        xp = array_module(z)
        W, offset = (to_device(xp, a.astype(z.dtype)) for a in (self.W, self.offset))
        return z @ W + offset

    def scores(self, z):
        """The log densities, (B, C), but for a shared term: their softmax is probabilities."""
        return self.densities(self.logits(z))

    def densities(self, logits):
        """The scores that logits (B, C) give."""
        xp = array_module(logits)
        spread, means, prior = (to_device(xp, a) for a in (self.spread, self.means, self.prior))
        a = logits @ spread
        squares = (a * a).sum(1)[:, None] - 2 * a @ means.T + (means * means).sum(1)
        return prior - (TAILS + a.shape[1]) / 2 * xp.log1p(xp.maximum(squares, 0) / TAILS)

    def novelty(self, z):
        """v^T A^-1 v over its mean of what was learned, which must vary: ndarray of shape (B,)."""
        if self.freedom - 1 < 1e-9:
            raise InputError("all that was learned is alike, so nothing says what is new")
        v = (to_host(z) - self.mean).T
        if self.inverse is None:
            half = linalg.solve_triangular(self.factor, v, trans=1, check_finite=False)
            share = (half * half).sum(0)
        else:
            share = (v * linalg.blas.dsymm(1.0, self.inverse, v)).sum(0)
        return share * self.weight / (self.freedom - 1)

    def _fitted(self, M, counts):
        """`spread`, `means` and log `prior`, from M centred."""
        N, W = counts.sum(), self.W
        own, prior, seen = min((self.freedom - 1) / self.count, 1 - FREE), counts / N, counts > 0
        means = (M.T @ W) / np.maximum(counts, 1e-300)[:, None]  # row c: W^T (m_c - s / N)
        total = W.T @ M - self.lam * W.T @ W
        within = total - (means * counts[:, None]).T @ means
        within += total / max(self.count, 1)  # a sample's share: few make nothing certain
        means = (means - own * (np.eye(len(counts)) - prior)) / (1 - own) + prior
        d, V = np.linalg.eigh(within / (N * (1 - own) ** 2))
        varies = d > 1e-9 * abs(d).max()
        spread = V[:, varies] / np.sqrt(d[varies])
        return spread, means @ spread, np.log(prior, where=seen, out=np.full(len(counts), -np.inf))


def solve(statistics, lam=None):
    """The `Solution` of statistics, lam by cross-validation unless it is given.

    InputError where nothing was learned, the sums are not finite, or lam is too small.
    """
    counts, M, G = to_host(statistics.counts), to_host(statistics.M), statistics.products()
    N, s, xp = counts.sum(), M.sum(1), array_module(G)
    if not N > 0:
        raise InputError("nothing was learned: add samples before the weights are asked for")
    unit = 1e-10 * float(G.trace()) / len(s)  # below it only rounding is left
    M -= np.outer(s, counts / N)
    mean, total = to_device(xp, s / N), to_device(xp, s)
    for a in range(0, len(s), STRIPE):
        G[a : a + STRIPE] -= xp.outer(mean[a : a + STRIPE], total)
    diagonal = G.diagonal().copy()
    unit = max(float(diagonal.mean()), unit) or 1.0
    if not np.isfinite(unit):
        raise InputError("sums of squares are not finite: scale the features down")
    spread = N - counts @ counts / N  # of the labels
    signs = np.random.default_rng(0).choice((-1.0, 1.0), (len(s), PROBES)) / PROBES**0.5
    probes = np.eye(len(s)) if len(s) <= EXACT else signs

    def attempt(lam, kind="float64"):
        """The score, W, df and factor of one lam; an infinite score where it is too small."""
        A = G.T.astype(kind, "F")  # its upper triangle is G's lower one
        A.T.reshape(-1)[:: len(s) + 1] = diagonal + lam
        right, tests = (to_device(xp, a.astype(kind)) for a in (M, probes))
        factor, W, half = solve_positive(A, right, tests)
        if W is None:
            return np.inf, None, np.inf, None
        W = to_host(W)
        freedom = len(s) - lam * float((half * half).sum()) + 1  # sum d / (d + lam) + 1
        count = statistics.samples()
        left = count - (1 + CAUTION / count) * freedom
        residual = spread - float((W * M).sum() + lam * (W * W).sum())
        return residual / left**2 if left >= FREE * count else np.inf, W, freedom, factor

    with one_blas_thread(G.size):
        if lam is None:
            kind = "float64" if len(s) <= EXACT else "float32"  # half the time, the same decade
            lam = unit * 10 ** least_decade(lambda decade: attempt(unit * 10**decade, kind)[0])
        _, W, freedom, factor = attempt(lam)
    if W is None:
        raise InputError(f"lam {lam:g} is too small, or samples were taken out that never came")
    return Solution(statistics, W, lam, freedom, to_host(factor))
