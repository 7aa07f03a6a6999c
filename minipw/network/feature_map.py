"""Feature maps from their words: "random-3000", "patches-400", "patches-400-8-3", "identity".

"contexts-100" are patches, too, of a `ContextRidgeClassifier`.
"""

import math
import re
from dataclasses import fields
from typing import NamedTuple

from minipw import InputError
from minipw.backend.arrays import to_host
from minipw.backend.memory import require_memory
from minipw.nn.patches import PatchFeatures, check_patches, patch_features
from minipw.nn.random_features import RandomFeatures, identity, random_features

COPIES = 3
"""Matrices (H, H) in float64 that solving holds: the sums, centred, factored."""
PATCH_SIDE = 6
"""Pixels on a side of a patch unless given; a quarter of the image, at least 3, if less."""


IMAGES = "patches", "contexts"
"""Kinds that need images; contexts are patches of each layout of the pixels."""


class MapWords(NamedTuple):
    """kind : str; size : int, features or filters; patch, grid : int, or None for defaults."""

    kind: str
    size: int | None = None
    patch: int | None = None
    grid: int | None = None


def parse_map(words):
    """`MapWords` of text, or InputError."""
    match = re.fullmatch(
        r"identity|random-([1-9]\d{0,17})|contexts-([1-9]\d{0,17})|"
        r"patches-([1-9]\d{0,17})(?:-([1-9]\d?)-([1-9]\d?))?",
        words,
    )
    if match is None:
        raise InputError(
            f"unknown feature map {words!r}: use random-FEATURES (random-3000), patches-FILTERS "
            "(patches-400), patches-FILTERS-PIXELS-GRID, contexts-FILTERS, or identity"
        )
    *sizes, patch, grid = (text and int(text) for text in match.groups())
    return MapWords(words.split("-")[0], next(filter(None, sizes), None), patch, grid)


def for_shape(words, shape):
    """`MapWords` with everything decided for samples of a shape; InputError where it cannot be."""
    chosen = parse_map(words)
    if words == "random-1":
        raise InputError("one random feature cannot win against another: use random-2 or more")
    if chosen.kind not in IMAGES:
        return chosen
    if len(shape) != 3:
        raise InputError(
            f"patches need images (height, width, channels), the data has shape {shape}: "
            "use random-1000"
        )
    side = max(3, min(PATCH_SIDE, min(shape[:2]) // 4))
    grid = chosen.grid or (3 if shape[2] == 1 else 2)
    chosen = chosen._replace(patch=chosen.patch or side, grid=grid)
    check_patches(shape, chosen.patch, chosen.grid)
    return chosen


def feature_count(words, shape):
    """H, for samples of a shape."""
    chosen = for_shape(words, shape)
    if chosen.kind in IMAGES:
        return 2 * chosen.grid**2 * chosen.size
    return chosen.size or math.prod(shape)


def require_map_memory(words, shape, classes):
    """Raise InputError when the sums of these features, and solving them, do not fit."""
    features = feature_count(words, shape)
    need = 8 * features * (COPIES * features + 4 * classes)
    inputs = 4 * features * math.prod(shape) * (parse_map(words).kind == "random")
    what = f"{features:,} features of a sample; use fewer than {words} gives"
    require_memory(need + inputs, what)


def feature_map(words, first, rng, weights=None):
    """A map, called with samples (B, *shape), which gives features (B, H) near zero.

    Parameters
    ----------
    words : str
    first : ndarray of shape (B, *shape)
        The first samples, standardized; images (height, width, channels) for patches.
    rng : numpy Generator
    weights : float64 ndarray of shape (B,) on the host, or None
        Of the first samples, for the scale of random features.
    """
    chosen = for_shape(words, first.shape[1:])
    if chosen.kind == "random":
        return random_features(first, chosen.size, rng, weights=weights)
    if chosen.kind == "patches":
        return patch_features(first, chosen.size, rng, chosen.patch, chosen.grid)
    return identity


def map_state(z):
    """A map as arrays of the host and facts that JSON can hold."""
    values = {} if z is identity else {f.name: getattr(z, f.name) for f in fields(z)}
    arrays = {name: to_host(value) for name, value in values.items() if hasattr(value, "ndim")}
    return arrays, {name: value for name, value in values.items() if name not in arrays}


def map_from_state(words, arrays, facts, xp):
    """The map that `map_state` took apart, its arrays of the module `xp`."""
    kind = {"random": RandomFeatures, "patches": PatchFeatures}.get(parse_map(words).kind)
    if kind is None:
        return identity
    facts = {name: tuple(v) if isinstance(v, list) else v for name, v in facts.items()}
    return kind(**{name: xp.asarray(array) for name, array in arrays.items()}, **facts)
