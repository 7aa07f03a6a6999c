"""Features of images: how they answer to patches of the first images.

Coates, Lee and Ng (2011). A patch p of an image is contrast-normalized,

    q = (p - mean p) / sqrt(var p + c)

Filters are patches of the first images, whitened (V, d: eigenvectors and eigenvalues of
the covariance of q, m its mean) and of unit length:

    f = V (d + eps)^-1/2 V^T (q - m),    k = V (d + eps)^-1/2 V^T f / |f|
    r = (q - m)^T k                      the answer of one filter at one position

Then a threshold t on both signs, and the mean over each cell of a grid:

    z = mean(max(r, t) - t),  -mean(min(r, -t) + t)

A block of images is worked off at a time, so that it stays in the cache.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minipw import InputError
from minipw.backend.arrays import array_module, block_size, to_host
from minipw.backend.threads import THREADS
from minipw.nn.random_features import unit_scale

SAMPLE = 100_000  # patches that the covariance is taken from


@dataclass(frozen=True)
class PatchFeatures:
    """The map, called with images.

    K : float32 ndarray of shape (D, F), the filters k; D = size * size * channels
    bias : float32 ndarray of shape (F,), m^T k
    shape : (int, int, int), height, width and channels of an image
    size, grid : int, side of a patch in pixels; cells along each side
    contrast, threshold : float, c and t
    shift, scale : ndarray of shape (H,); H = 2 * grid * grid * F
    """

    K: Any
    bias: Any
    shape: tuple
    size: int
    grid: int
    contrast: float
    threshold: float
    shift: Any = 0.0
    scale: Any = 1.0

    def __call__(self, x):
        """Features of shape (B, H), float32, of images of shape (B, height, width, channels)."""
        if x.shape[1:] != self.shape:
            raise InputError(f"images of shape {x.shape[1:]}: the map was made for {self.shape}")
        xp, cells, filters = array_module(x), self.grid**2, self.K.shape[1]
        pool = xp.asarray(self._pool())  # (cells, positions)
        positions = pool.shape[1]
        z = xp.empty((len(x), 2, cells, filters), "float32")
        images = max(1, block_size(xp) // (positions * filters))

        def fill(part):
            for start in range(part.start, part.stop, images):
                block = slice(start, min(start + images, part.stop))
                p = windows(x[block], self.size)
                q = normalized_patches(p.reshape(len(p), -1, len(self.K)), self.contrast)
                r = q.reshape(-1, q.shape[-1]) @ self.K
                r -= self.bias
                r = r.reshape(*q.shape[:2], -1)  # (images, positions, F)
                z[block, 0] = pool @ xp.maximum(r, self.threshold) - self.threshold
                z[block, 1] = -(pool @ xp.minimum(r, -self.threshold, out=r)) - self.threshold

        THREADS.map(fill, THREADS.shares(len(x), images))
        z = z.reshape(len(x), -1)
        z -= self.shift
        z *= self.scale
        return z

    def _pool(self):
        """The matrix of cell means, float32 of shape (cells, positions)."""
        sides = []
        for side in self.shape[:2]:
            count = side - self.size + 1
            edges = np.linspace(0, count, self.grid + 1).round()
            inside = (np.arange(count) >= edges[:-1, None]) & (np.arange(count) < edges[1:, None])
            sides.append(inside / inside.sum(1, keepdims=True))
        return np.kron(*sides).astype(np.float32)


def check_patches(shape, size, grid):
    """Raise InputError where images of a shape have too few places for patches."""
    height, width = shape[:2]
    if min(height, width) < size + grid - 1:
        need = f"patches of {size} on a grid of {grid} need {size + grid - 1} on each side"
        raise InputError(f"images of {height} by {width} pixels: {need}")


def windows(x, size):
    """A view of the patch at every position: (B, rows, columns, size, size, channels)."""
    view = array_module(x).lib.stride_tricks.sliding_window_view(x, (size, size), (1, 2))
    return view.transpose(0, 1, 2, 4, 5, 3)


def normalized_patches(p, contrast):
    """q of patches p of shape (..., D), float32."""
    q = p.astype("float32")
    q -= q.mean(-1, keepdims=True)
    variance = array_module(q).einsum("...d,...d->...", q, q) / q.shape[-1]
    q *= ((variance + contrast) ** -0.5)[..., None]
    return q


def patch_features(
    first, filters, rng, size=6, grid=2, contrast=0.1, whitening=0.3, threshold=0.25
):
    """A map whose filters are patches of the first images.

    Parameters
    ----------
    first : ndarray of shape (B, height, width, channels), uint8 or float32
    filters : int, F
    rng : numpy Generator
    size, grid, threshold : as in `PatchFeatures`
    contrast : float, c in units of the mean variance of a patch
    whitening : float, eps
    """
    check_patches(first.shape[1:], size, grid)
    view = windows(to_host(first), size)
    places = [rng.integers(0, n, SAMPLE) for n in view.shape[:3]]
    p = view[tuple(places)].reshape(SAMPLE, -1).astype(np.float32)
    variance = p.var(1)
    c = contrast * (float(variance.mean()) or 1.0)
    q = normalized_patches(p, c)
    m = q.mean(0)
    d, V = np.linalg.eigh(np.cov(q.T).astype(np.float64))
    whiten = (V / np.sqrt(np.maximum(d, 0) + whitening)) @ V.T
    lively = np.flatnonzero(variance > c) if (variance > c).any() else np.arange(SAMPLE)
    f = (q[rng.choice(lively, filters, replace=len(lively) < filters)] - m) @ whiten
    f /= np.maximum(np.linalg.norm(f, axis=1, keepdims=True), 1e-12)
    xp, K = array_module(first), whiten @ f.T
    K, bias = (xp.asarray(a, "float32") for a in (K, m @ K))
    plain = PatchFeatures(K, bias, tuple(first.shape[1:]), size, grid, c, threshold)
    shift, scale = unit_scale(plain(first))
    return replace(plain, shift=shift, scale=scale)
