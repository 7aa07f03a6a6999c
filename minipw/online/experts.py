"""The closed form under several half-lives, side by side, for classes that move.

The features z of a standardized sample x (D,) are a constant, the inputs, S random ones:

    z = 1 | x | k-WTA of u = R^T x + b | products of two hinges max(+-(x_i - t), 0)

An expert is a half-life L and a block of z, its first h numbers: 1 | x, or all of them, which
half-lives below 100 do not have, for lack of samples:

    G = sum 2^(-age / L) w z z^T,  M = sum 2^(-age / L) w z y^T,  N = sum 2^(-age / L) w
    W = (G + (lam N + 0.001) I')^-1 M,   outputs = W^T z        I': constant not shrunk by lam

Age is counted in samples. A half-life of None forgets nothing. An expert is solved every 5, 25,
50 or 100 samples, the most that is no more than half of its half-life, if there is one. The
expert with the fewest recent mistakes, each made before its sample was learned, predicts. With m
the margin between its two largest outputs then, a sample of weight s enters the sums with

    w = s / (1 + (m / 0.5)^2)

so samples near the boundary count: a step of iteratively reweighted least squares for a
bounded loss, the weight fixed when the sample comes. The probabilities are p = softmax(q o), o
these outputs. q follows the gradient of the log loss of the samples before they are learned:

    log q += 0.02 q (o_c - p^T o)       c: the class of the sample; 1 <= q <= 50
"""

import numpy as np
from scipy.linalg import blas, lapack

from minipw import InputError
from minipw.backend.threads import one_blas_thread
from minipw.online.features import LIMIT
from minipw.online.standardize import Standardizer

EVERY = 5, 25, 50, 100
"""Samples from one solution to the next."""
SHORT, RECENT, MARGIN = 100, 200, 0.5
"""Half-lives below have the inputs alone; half-life of mistakes; margin of half weight."""
SHARPNESS, RATE = (1.0, 5.0, 50.0), 0.02
"""Least, first and largest q, from outputs to logits; the rate of its logarithm."""
SHRINKAGE, RIDGE = (1e-3, 0.03), 1e-3
"""lam of the inputs alone and of all features; what is added to it."""
DENSITY, RAREST = 0.3, 0.1
"""Winners of k-WTA; the least deviation of a feature, as a share of the mean of its kind."""


class TabularFeatures:
    """Features (N, 1 + D + S) of float64 samples (N, D); see `fix`."""

    ARRAYS = ("R", "b", "inputs", "thresholds", "signs", "shift", "scale")

    def __init__(self, inputs, size, missing):
        self.standardizer, self.size = Standardizer(inputs, LIMIT, missing), size

    def fix(self, first, weights, seed):
        """Make them from the first samples (N, D) and their weights."""
        D, rng = first.shape[1], np.random.default_rng(seed)
        self.standardizer.begin(first, weights)
        self.standardizer.freeze()
        units, products = self.size - self.size // 2, self.size // 2
        x = self.standardizer.transform(first)
        self.R, self.b = ((2 / D) ** 0.5 * rng.standard_normal(s) for s in ((D, units), units))
        self.inputs = rng.integers(D, size=(products, 2))
        self.thresholds = x[rng.integers(len(x), size=(products, 2)), self.inputs]
        self.signs = rng.choice([-1.0, 1.0], (products, 2))
        z = self._random(x)
        self.shift, deviation = z.mean(0), z.std(0)
        for part in np.split(deviation, [units]):
            np.maximum(part, RAREST * part.mean(), out=part)
        self.scale = 1 / np.where(deviation > 0, deviation, 1)

    def __call__(self, x):
        x = self.standardizer.transform(x)
        z, begin = np.empty((len(x), 1 + x.shape[1] + self.size)), 1 + x.shape[1]
        z[:, 0], z[:, 1:begin] = 1, x
        np.subtract(self._random(x), self.shift, out=z[:, begin:])
        z[:, begin:] *= self.scale
        return z

    def _random(self, x):
        u = x @ self.R + self.b
        rank = len(self.b) - 1 - int(DENSITY * len(self.b))
        u -= np.partition(u, rank)[:, rank, None]
        hinges = np.maximum(self.signs * (x.take(self.inputs, 1) - self.thresholds), 0)
        return np.concatenate([np.maximum(u, 0), hinges[..., 0] * hinges[..., 1]], 1)

    def widen(self, count, seed):
        """Append inputs, which only the k-WTA units get; at the mean they change nothing."""
        D, units = self.R.shape
        rng = np.random.default_rng([seed, D])
        more = (2 / (D + count)) ** 0.5 * rng.standard_normal((count, units))
        self.R = np.concatenate([self.R, more])
        self.standardizer.add_features(count)
        self.standardizer.freeze()

    def state(self):
        """Arrays for `restore`, a dict."""
        return {n: getattr(self, n) for n in self.ARRAYS} | {"scales": self.standardizer.state()}

    def restore(self, arrays):
        """Go back to what `state` returned."""
        vars(self).update((name, arrays[name]) for name in self.ARRAYS)
        self.standardizer.restore_frozen(arrays["scales"])


class Experts:
    """Sums and weights of each half-life and block.

    G, M, N : float64 ndarray of shape (L, H, H), (L, H, C) and (L,), L half-lives
        Of the features that a half-life has; the rest is 0. Only the lower triangle of G counts.
    W : float64 ndarray of shape (H, E, C), of E experts, those of a half-life together
    mistakes, sharpness : float64 ndarray of shape (E,) and (1,)
    Z, Y, w : float64 ndarray of shape (100, H), (100, C) and (100,)
        Features, labels and weights of the last samples, which some sums do not have yet.
    waiting : int, how many
    """

    ARRAYS = ("G", "M", "N", "W", "mistakes", "sharpness", "Z", "Y", "w")

    def __init__(self, half_lives, inputs, size, classes):
        L, H, kept = len(half_lives), 1 + inputs + size, EVERY[-1]
        lives = [life or np.inf for life in half_lives]
        self.inputs, self.factors = inputs, [0.5 ** (1 / life) for life in lives]
        self.every = [max([n for n in EVERY if 2 * n <= life] or EVERY[:1]) for life in lives]
        self.blocks = [1 if life < SHORT else 2 for life in lives]
        self.G, self.M, self.N = np.zeros((L, H, H)), np.zeros((L, H, classes)), np.zeros(L)
        experts = sum(self.blocks)
        self.W, self.mistakes = np.zeros((H, experts, classes)), np.zeros(experts)
        self.Z, self.Y, self.w = np.zeros((kept, H)), np.zeros((kept, classes)), np.zeros(kept)
        self.sharpness, self.waiting = np.full(1, SHARPNESS[1]), 0

    def logits(self, z):
        """Of the best expert, of shape (N, C), for features (N, H)."""
        return z @ self.W[:, self.mistakes.argmin()] * self.sharpness

    def learn(self, z, label, weight):
        """Learn the features (H,) of one sample; label is the number of its class."""
        outputs = (z @ self.W.reshape(len(z), -1)).reshape(self.W.shape[1:])  # (experts, C)
        best = outputs[self.mistakes.argmin()]
        second, first = np.sort(best)[-2:]
        q = self.sharpness[0]
        p = np.exp(q * (best - first))
        q *= np.exp(RATE * q * (best[label] - (p @ best) / p.sum()))
        self.sharpness[0] = min(max(q, SHARPNESS[0]), SHARPNESS[2])
        self.mistakes *= 0.5 ** (1 / RECENT)
        self.mistakes += weight * (outputs.argmax(1) != label)
        n = self.waiting
        self.Z[n], self.Y[n], self.Y[n, label] = z, 0, 1
        self.w[n] = weight / (1 + ((first - second) / MARGIN) ** 2)
        self.waiting = n + 1
        for k, every in enumerate(self.every):
            if self.waiting % every == 0:
                self._solve(k, slice(self.waiting - every, self.waiting))
        self.waiting %= len(self.w)

    def solve(self):
        """Add all samples that wait to the sums, and solve for all weights."""
        for k, every in enumerate(self.every):
            if new := self.waiting % every:
                self._solve(k, slice(self.waiting - new, self.waiting))
        self.waiting = 0

    @one_blas_thread()
    def _solve(self, k, rows):
        """Add rows of Z to the sums of a half-life, and solve for its weights."""
        first, factor = sum(self.blocks[:k]), self.factors[k]
        sizes = (1 + self.inputs, len(self.W))[: self.blocks[k]]
        Z, Y, N = self.Z[rows, : sizes[-1]], self.Y[rows], self.N[k : k + 1]
        G, M = self.G[k, : sizes[-1], : sizes[-1]], self.M[k, : sizes[-1]]
        root = np.sqrt(self.w[rows] * factor ** np.arange(len(Z) - 1, -1, -1))
        Z, Y, factor = Z * root[:, None], Y * root[:, None], factor ** len(Z)
        G[...] = blas.dsyrk(1.0, Z.T, factor, G.T, overwrite_c=True).T  # the lower triangle
        for sums, more in ((M, Z.T @ Y), (N, root @ root)):
            sums *= factor
            sums += more
        for e, (h, lam) in enumerate(zip(sizes, SHRINKAGE, strict=False), first):
            A = G[:h, :h].copy()
            diagonal = A.reshape(-1)[:: h + 1]
            diagonal += RIDGE
            diagonal[1:] += lam * N
            W, fault = lapack.dposv(A.T, M[:h], overwrite_a=True)[1:]
            if not fault:  # else weights so far apart that the sums are rounding; W stays
                self.W[:h, e] = W

    def make_room(self, classes):
        """Have outputs for so many classes, or those that there are."""
        more = max(0, classes - self.Y.shape[1])
        for name in ("M", "W", "Y"):
            array = getattr(self, name)
            setattr(self, name, np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, more)]))

    def widen(self, count):
        """Make room for `count` more inputs, 0 in all samples so far."""
        places = [1 + self.inputs] * count
        for name, axis in (("G", 1), ("G", 2), ("M", 1), ("W", 0), ("Z", 1)):
            setattr(self, name, np.insert(getattr(self, name), places, 0.0, axis))
        self.inputs += count

    def state(self):
        """Arrays for `restore`, a dict."""
        return {name: getattr(self, name) for name in self.ARRAYS}

    def restore(self, arrays, waiting, every):
        """Go back to what `state` returned; InputError for other shapes or times of solving."""
        others = [arrays[name].shape != array.shape for name, array in self.state().items()]
        if any(others) or every != self.every:  # then some that wait may be in the sums
            raise InputError("the sums do not fit the settings, or are of an older minipw")
        vars(self).update((name, arrays[name]) for name in self.ARRAYS)
        self.waiting = waiting
