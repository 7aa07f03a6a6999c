"""The description of a network: its sizes, its first weights, and what it refuses."""

import numpy as np
import pytest
from scipy.stats import truncnorm

from minipw import InputError
from minipw.network.architecture import Architecture, parse_mlp
from minipw.network.initialization import he_normal
from minipw.network.network import Network


def test_he_normal_is_cut_at_two_deviations_and_keeps_its_own(rng):
    w = he_normal(rng, (50, 4000), np.float64)
    std = np.sqrt(2 / 50)
    untruncated = std / truncnorm(-2, 2).std()
    assert np.abs(w).max() <= 2 * untruncated
    assert np.abs(w).max() > 1.99 * untruncated  # of 200,000 draws some come that close
    # The fourth moment of the cut normal is below the normal's, so 5 / sqrt(2 n) is five
    # or more deviations of the sample's; the mean's is std / sqrt(n).
    assert abs(w.std() / std - 1) < 5 / np.sqrt(2 * w.size)
    assert abs(w.mean()) < 5 * std / np.sqrt(w.size)


def test_he_normal_of_a_kernel_counts_its_patch(rng):
    w = he_normal(rng, (7, 5, 3, 400), np.float32)
    assert w.dtype == np.float32
    assert abs(w.std() / np.sqrt(2 / (7 * 5 * 3)) - 1) < 5 / np.sqrt(2 * w.size)


@pytest.mark.parametrize(
    ("shape", "backbone", "units", "layers"),  # of a layer: name, shape, stride, output shape
    [
        ((28, 28, 1), "mlp-700-1", 700, [("dense0", (784, 700), None, (700,))]),
        (
            *((6,), "mlp-9-2", 9),
            [("dense0", (6, 9), None, (9,)), ("dense1", (9, 9), None, (9,))],
        ),
        # 28 / 4 = 7, so 7 * 7 * 64
        ((28, 28, 1), "cnn-s", 3136, [("conv0", (7, 7, 1, 64), 4, (7, 7, 64))]),
        # rows 9, 3, 2 and columns 5, 2, 1, rounded up: 2 * 1 * 128
        (
            *((9, 5, 3), "cnn-m", 256),
            [
                ("conv0", (7, 7, 3, 64), 4, (3, 2, 64)),
                ("conv1", (5, 5, 64, 128), 2, (2, 1, 128)),
            ],
        ),
    ],
)
def test_layers_and_units(shape, backbone, units, layers):
    architecture = Architecture(shape, 10, backbone)
    assert architecture.layers() == layers
    assert architecture.units == units


@pytest.mark.parametrize(
    ("threshold", "density", "winners"),
    [
        ("k+1", 0.15, 105),  # int(700 * 0.15) = 105
        ("k", 0.15, 104),
        ("k+1", 0.003, 2),  # int(2.1)
        ("k", 0.0044, 2),  # int(3.08) - 1
        ("k+1", 0.9999, 699),
    ],
)
def test_winners_by_threshold(threshold, density, winners):
    architecture = Architecture((5,), 10, density=density, kwta_threshold=threshold)
    assert architecture.winners == winners


@pytest.mark.parametrize(("threshold", "density"), [("k+1", 0.0016), ("k", 0.003)])
def test_a_single_winner_is_enough_for_a_dense_head_alone(threshold, density):
    shared = {"density": density, "kwta_threshold": threshold}
    assert Architecture((5,), 10, head="fc", **shared).winners == 1
    least = "0.0029" if threshold == "k+1" else "0.0043"
    says = f"density {density:g} leaves a single winner, which forms no pair, .* from {least} to"
    with pytest.raises(InputError, match=says):
        _ = Architecture((5,), 10, **shared).winners


@pytest.mark.parametrize(
    ("threshold", "density"),
    [("k", 0.0), ("k+1", 0.0), ("k", 0.0015), ("k+1", 0.001), ("k+1", 1.0), ("k", 2.0)],
)
def test_a_density_without_winners_or_losers_is_refused(threshold, density):
    architecture = Architecture((5,), 10, density=density, kwta_threshold=threshold)
    with pytest.raises(InputError, match=rf"density {density:g} .*700 units.*a density") as error:
        Network.create(architecture, None, None)  # before anything is drawn
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "backbone",
    ["mlp-0-1", "mlp-1-0", "mlp-700", "mlp-7-1-1", "mlp--7-1", "mlp-7.5-1", "MLP-7-1", "cnn-l", ""],
)
def test_an_unknown_backbone_is_refused(backbone):
    with pytest.raises(InputError, match=r"unknown backbone .*mlp-700-1.*cnn-s or cnn-m") as error:
        Architecture((28, 28, 1), 10, backbone).layers()
    assert repr(backbone) in str(error.value)


@pytest.mark.parametrize("backbone", ["cnn-s", "cnn-m"])
def test_a_convolution_of_flat_features_is_refused(backbone):
    with pytest.raises(InputError, match=rf"{backbone} needs images .*\(12,\).*mlp-700-1"):
        _ = Architecture((12,), 10, backbone).units


def test_width_and_depth_are_read():
    assert parse_mlp("mlp-3000-12") == (3000, 12)


def test_a_share_that_is_whole_up_to_round_off_is_whole():
    """int(100 * 0.29) is 28. The released program keeps its rounding, and its results."""
    for units in (100, 700, 1000):
        for percent in range(1, 100):
            for head, needed in (("fc", 1), ("pairwise", 2)):
                named = {"head": head, "density": percent / 100}
                exact = units * percent // 100
                if exact >= needed:
                    paper = Architecture((5,), 10, f"mlp-{units}-1", **named, kwta_threshold="k+1")
                    assert paper.winners == exact
                if int(units * (percent / 100)) > needed:
                    released = Architecture((5,), 10, f"mlp-{units}-1", **named)
                    assert released.winners == int(units * (percent / 100)) - 1


def test_every_unit_cannot_win():
    almost = Architecture((5,), 10, density=1 - 1e-13, kwta_threshold="k+1")
    with pytest.raises(InputError, match=r"density 1 leaves no loser among 700 units"):
        _ = almost.winners


@pytest.mark.parametrize(
    "backbone",
    ["mlp-10-1000000000", "mlp-10-1000", "mlp-1-" + 5000 * "9", "mlp-1" + 5000 * "0" + "-1"],
)
def test_a_depth_or_width_beyond_reason_is_refused_at_once(backbone):
    with pytest.raises(InputError, match=r"unknown backbone 'mlp-.*a depth of at most 999"):
        Architecture((5,), 10, backbone).layers()
