"""Feature maps from their words.

    random-3000      features of a random layer
    scales-7200      features of patches of two sizes, square roots; whole filters of 18 or 8
    patches-400      filters of one size; patches-400-8-3: of 8 pixels, on a grid of 3
    identity

and "contexts-scales-1800", "contexts-100" (patches) of a `ContextRidgeClassifier`.
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


SCALES = {"root": True, "contrast": 0.03}
"""How patches of two sizes differ, beside their sizes, from those of one."""


class MapWords(NamedTuple):
    """kind : str; size : int, features or filters; the other three of patches, or None.

    contexts : bool, whether each layout of the pixels has a map of its own
    """

    kind: str
    size: int | None = None
    sizes: tuple | None = None
    grid: int | None = None
    contexts: bool = False


def parse_map(words):
    """`MapWords` of text, or InputError."""
    count = r"([1-9]\d{0,17})"
    match = re.fullmatch(
        rf"identity|random-{count}|contexts-{count}|(?:contexts-)?scales-{count}|"
        rf"patches-{count}(?:-([1-9]\d?)-([1-9]\d?))?",
        words,
    )
    if match is None:
        raise InputError(
            f"unknown feature map {words!r}: use random-FEATURES (random-3000), scales-FEATURES "
            "(scales-7200), patches-FILTERS (patches-400), patches-FILTERS-PIXELS-GRID, identity, "
            "contexts-scales-FEATURES or contexts-FILTERS"
        )
    *sizes, patch, grid = (text and int(text) for text in match.groups())
    kind = "scales" if "scales" in words else words.split("-")[0].replace("contexts", "patches")
    sides = (patch,) if patch else None
    return MapWords(kind, next(filter(None, sizes), None), sides, grid, "contexts" in words)


def for_shape(words, shape):
    """`MapWords` with everything decided for samples of a shape; InputError where it cannot be."""
    chosen = parse_map(words)
    if words == "random-1":
        raise InputError("one random feature cannot win against another: use random-2 or more")
    if chosen.kind in ("random", "identity"):
        return chosen
    if len(shape) != 3:
        raise InputError(
            f"patches need images (height, width, channels), the data has shape {shape}: "
            "use random features (random-1000)"
        )
    side, grid = min(shape[:2]), chosen.grid or (3 if shape[2] == 1 else 2)
    sizes = chosen.sizes or (max(3, min(PATCH_SIDE, side // 4)),)
    if chosen.kind == "scales":
        sizes = max(3, min(4, side // 4)), max(4, min(8, side // 3))
        if chosen.size < (least := 2 * grid**2 * len(sizes)):
            raise InputError(f"{words} is less than one filter of each size: use {least} or more")
    check_patches(shape, sizes[-1], grid)
    return chosen._replace(sizes=sizes, grid=grid)


def filter_count(chosen):
    """F of complete `MapWords` of patches: a filter is 2 * grid * grid features."""
    return chosen.size if chosen.kind == "patches" else chosen.size // (2 * chosen.grid**2)


def feature_count(words, shape):
    """H, for samples of a shape."""
    chosen = for_shape(words, shape)
    if chosen.sizes:
        return 2 * chosen.grid**2 * filter_count(chosen)
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
    if chosen.sizes:
        settings = SCALES if chosen.kind == "scales" else {}
        count = filter_count(chosen)
        return patch_features(first, count, rng, chosen.sizes, chosen.grid, **settings)
    return identity


def map_state(z):
    """A map as arrays of the host and facts that JSON can hold."""
    values = {} if z is identity else {f.name: getattr(z, f.name) for f in fields(z)}
    contrasts = []
    for n, (K, bias, contrast) in enumerate(values.pop("filters", ())):
        values |= {f"K{n}": K, f"bias{n}": bias}
        contrasts.append(contrast)
    arrays = {name: to_host(value) for name, value in values.items() if hasattr(value, "ndim")}
    facts = {name: value for name, value in values.items() if name not in arrays}
    return arrays, facts | ({"contrasts": contrasts} if contrasts else {})


def map_from_state(words, arrays, facts, xp):
    """The map that `map_state` took apart, its arrays of the module `xp`."""
    arrays = {name: xp.asarray(array) for name, array in arrays.items()}
    facts = {name: tuple(v) if isinstance(v, list) else v for name, v in facts.items()}
    kind = parse_map(words).kind
    if kind == "identity":
        return identity
    if kind == "random":
        return RandomFeatures(**arrays, **facts)
    if "K" in arrays:  # older files have one size
        arrays |= {"K0": arrays.pop("K"), "bias0": arrays.pop("bias")}
        facts |= {"sizes": (facts.pop("size"),), "contrasts": (facts.pop("contrast"),)}
        facts["root"] = False
    made = [
        (arrays.pop(f"K{n}"), arrays.pop(f"bias{n}"), contrast)
        for n, contrast in enumerate(facts.pop("contrasts"))
    ]
    return PatchFeatures(tuple(made), **arrays, **facts)
