"""Features of images: how they answer to patches of the first images.

Coates, Lee and Ng (2011). A patch p of an image is contrast-normalized,

    q = (p - mean p) / sqrt(var p + c)

Filters are patches of the first images, whitened (V, d: eigenvectors and eigenvalues of
the covariance of q, m its mean) and of unit length:

    f = V (d + eps)^-1/2 V^T (q - m),    k = V (d + eps)^-1/2 V^T f / |f|
    r = (q - m)^T k                      the answer of one filter at one position

Then a threshold t on both signs, and the mean over each cell of a grid:

    z = mean(max(r - t, 0)),  -mean(min(r + t, 0))

and, if asked for, the square root of z, which spreads weak answers. Patches of several sizes
stand side by side. A block of images is worked off at a time, so that it stays in the cache.
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

    filters : tuple of (float32 ndarray of shape (D, F), float32 ndarray of shape (F,), float)
        For each size, K of the filters k, m^T k and c; D = size * size * channels.
    shape : (int, int, int), height, width and channels of an image
    sizes : tuple of int, sides of a patch in pixels
    grid : int, cells along each side
    threshold : float, t
    root : bool, whether z are square roots
    shift, scale : ndarray of shape (H,); H = 2 * grid * grid * all F
    """

    filters: tuple
    shape: tuple
    sizes: tuple
    grid: int
    threshold: float
    root: bool
    shift: Any = 0.0
    scale: Any = 1.0

    def __call__(self, x):
        """Features of shape (B, H), float32, of images of shape (B, height, width, channels)."""
        if x.shape[1:] != self.shape:
            raise InputError(f"images of shape {x.shape[1:]}: the map was made for {self.shape}")
        xp, cells = array_module(x), self.grid**2
        ends = np.cumsum([0, *(K.shape[1] for K, _, _ in self.filters)])
        z = xp.empty((len(x), 2, cells, ends[-1]), "float32")
        for n, size in enumerate(self.sizes):
            self._fill(z[..., ends[n] : ends[n + 1]], x, size, *self.filters[n])
        z = z.reshape(len(x), -1)
        if self.root:
            z = xp.sqrt(z, out=z)
        z -= self.shift
        z *= self.scale
        return z

    def _fill(self, z, x, size, K, bias, contrast):
        """Write the means of one size to z (B, 2, cells, F)."""
        xp, (D, filters) = array_module(x), K.shape
        pool = xp.asarray(self._pool(size))  # (cells, positions)
        images = max(1, block_size(xp) // (pool.shape[1] * filters))

        def fill(part):
            for start in range(part.start, part.stop, images):
                block = slice(start, min(start + images, part.stop))
                p = windows(x[block], size)
                q = normalized_patches(p.reshape(len(p), -1, D), contrast)
                r = q.reshape(-1, D) @ K
                r -= bias + self.threshold
                r = r.reshape(*q.shape[:2], filters)  # (images, positions, F)
                z[block, 0] = pool @ xp.maximum(r, 0)
                r += 2 * self.threshold
                z[block, 1] = -(pool @ xp.minimum(r, 0, out=r))

        THREADS.map(fill, THREADS.shares(len(x), images))

    def _pool(self, size):
        """The matrix of cell means, float32 of shape (cells, positions)."""
        sides = []
        for side in self.shape[:2]:
            count = side - size + 1
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
    first, filters, rng, sizes=(6,), grid=2, root=False, threshold=0.25, **constants
):
    """A map whose filters are patches of the first images.

    Parameters
    ----------
    first : ndarray of shape (B, height, width, channels), uint8 or float32
    filters : int, those of all sizes
    rng : numpy Generator
    sizes, grid, root, threshold : as in `PatchFeatures`
    constants : contrast, whitening, as in `filters_of`
    """
    counts = [(filters + n) // len(sizes) for n in reversed(range(len(sizes)))]
    if not counts[-1]:
        raise InputError(f"{filters} filters of {len(sizes)} sizes: use {len(sizes)} or more")
    for size in sizes:
        check_patches(first.shape[1:], size, grid)
    made = (
        filters_of(first, n, rng, size, **constants) for n, size in zip(counts, sizes, strict=True)
    )
    plain = PatchFeatures(tuple(made), first.shape[1:], tuple(sizes), grid, threshold, root)
    shift, scale = unit_scale(plain(first))
    return replace(plain, shift=shift, scale=scale)


def filters_of(first, filters, rng, size, contrast=0.1, whitening=0.3):
    """K, m^T k and c, as in `PatchFeatures`, of one size.

    Parameters
    ----------
    contrast : float, c in units of the mean variance of a patch
    whitening : float, eps
    """
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
    return xp.asarray(K, "float32"), xp.asarray(m @ K, "float32"), c
