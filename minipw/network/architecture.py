"""The description of a network: what it is made of, and the sizes that follow."""

import math
import re
from dataclasses import dataclass
from typing import NamedTuple

from minipw import InputError, parameters
from minipw.backend.arrays import channels_first
from minipw.nn.conv import same_padding

CONVOLUTIONS = {
    "cnn-s": [(7, 4, 64)],
    "cnn-m": [(7, 4, 64), (5, 2, 128)],
}
"""(kernel, stride, filters) of each layer of the convolutional backbones."""


class Layer(NamedTuple):
    """A layer of the backbone.

    name, shape : str and tuple of int
        Of its parameter.
    stride : int, or None for a dense layer
    output_shape : tuple of int
        Of one sample behind it: (width,) or (height, width, filters).
    """

    name: str
    shape: tuple
    stride: int | None
    output_shape: tuple

    @property
    def places(self):
        """Positions of the kernel in a sample; 1 for a dense layer."""
        return math.prod(self.output_shape[:-1])


@dataclass(frozen=True)
class Architecture:
    """What a network is made of.

    input_shape : tuple of int
        Of one sample: (height, width, channels) or (features,).
    classes : int
    backbone : str
        "mlp-WIDTH-DEPTH", "cnn-s" or "cnn-m".
    head : {"pairwise", "fc"}
    density : float in (0, 1), or None
        Share of the units before the head that k-WTA keeps. None leaves k-WTA out.
    pair_weights : int
        Weights of the pairwise head before rounding down to a multiple of `classes`.
    pairs : {"released", "distinct"}
        See `sample_pairs`.
    kwta_threshold : {"k", "k+1"}
        With k = units * density: "k+1" subtracts the (k+1)-th largest and k units win (the
        paper); "k" subtracts the k-th and k - 1 win (the released program). It rounds k
        down, 700 * 0.35 to 244; "k+1" rounds down what is not whole up to round-off, to 245.
    gelu : {"tanh", "exact"}
    """

    input_shape: tuple
    classes: int
    backbone: str = "mlp-700-1"
    head: str = "pairwise"
    density: float | None = 0.15
    pair_weights: int = 250_000
    pairs: str = "released"
    kwta_threshold: str = "k"
    gelu: str = "tanh"

    def __post_init__(self):
        words = ("head", "pairs", "kwta_threshold", "gelu")
        parameters.check(**{name: getattr(self, name) for name in words})
        if self.head in parameters.CLOSED_FORM:
            raise InputError(f"head {self.head} is no network's: use pairwise or fc")

    def layers(self):
        """The layers of the backbone: list of Layer."""
        layers = []
        if self.backbone in CONVOLUTIONS:
            turned = channels_first(self.input_shape)
            if len(self.input_shape) != 3 or turned:
                advice = "use backbone mlp-700-1"
                if len(self.input_shape) == 2:
                    advice = "add the axis of channels, x[..., None]"
                if turned:
                    advice = "channels come last, x.transpose(0, 2, 3, 1)"
                raise InputError(
                    f"backbone {self.backbone} needs images (height, width, channels), "
                    f"the data has shape {self.input_shape}: {advice}"
                )
            height, width, channels = self.input_shape
            for n, (kernel, stride, filters) in enumerate(CONVOLUTIONS[self.backbone]):
                height, width = (same_padding(size, 1, stride)[0] for size in (height, width))
                shape = (kernel, kernel, channels, filters)
                layers.append(Layer(f"conv{n}", shape, stride, (height, width, filters)))
                channels = filters
            return layers
        width, depth = parse_mlp(self.backbone)
        fan_in = math.prod(self.input_shape)
        for n in range(depth):
            layers.append(Layer(f"dense{n}", (fan_in, width), None, (width,)))
            fan_in = width
        return layers

    @property
    def units(self):
        """H, the number of units before the head."""
        return math.prod(self.layers()[-1].output_shape)

    @property
    def winners(self):
        """K, the units that stay active: all of them without k-WTA.

        Raises
        ------
        InputError
            When no unit would win, or a single one before a pairwise head, or none would lose.
        """
        if self.density is None:
            return self.units
        winners = self._winners_at(self.density)
        needed = 2 if self.head == "pairwise" else 1  # one winner forms no product
        if not (0 < self.density < 1 and needed <= winners < self.units):
            least = math.ceil(1e4 * needed / self.units)
            while self._winners_at(least / 1e4) < needed:
                least += 1
            advice = f"use a density from {least / 1e4:g} to below 1"
            if least >= 1e4:
                advice = "use a wider backbone"
            left = "no loser" if winners >= self.units - 1 else "no winner"
            if winners == 1:
                left = "a single winner, which forms no pair,"
            raise InputError(
                f"density {self.density:g} leaves {left} among {self.units} units: {advice}"
            )
        return winners

    def _winners_at(self, density):
        k = self.units * density
        return int(k) - 1 if self.kwta_threshold == "k" else int(k + 1e-9)


def parse_mlp(backbone):
    """Width and depth of "mlp-WIDTH-DEPTH"."""
    match = re.fullmatch(r"mlp-([1-9]\d{0,17})-([1-9]\d{0,2})", backbone)
    if match is None:
        raise InputError(
            f"unknown backbone {backbone!r}: use mlp-WIDTH-DEPTH with both at least 1 and a "
            f"depth of at most 999 (mlp-700-1), {' or '.join(CONVOLUTIONS)}"
        )
    return int(match[1]), int(match[2])
