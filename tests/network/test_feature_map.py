"""Feature maps from their words."""

import numpy as np
import pytest

from minipw import InputError
from minipw.network import feature_map as maps


@pytest.mark.parametrize(
    ("words", "shape", "count"),
    [
        ("random-30", (8, 8, 1), 30),
        ("identity", (8, 8, 1), 64),
        ("patches-5", (8, 8, 1), 90),  # 3 by 3 cells
        ("patches-5", (32, 32, 3), 40),  # 2 by 2
        ("patches-5-8-3", (28, 28, 3), 90),
        ("scales-100", (8, 8, 1), 90),  # 18 features a filter
        ("scales-100", (32, 32, 3), 96),  # 8
    ],
)
def test_words_give_as_many_features_as_they_say(words, shape, count, rng):
    z = maps.feature_map(words, rng.standard_normal((20, *shape)), rng)
    assert z(rng.standard_normal((4, *shape))).shape == (4, count)
    assert maps.feature_count(words, shape) == count


def test_a_patch_is_six_pixels_or_a_quarter_of_the_image():
    sides = {28: (6, 4, 8), 32: (6, 4, 8), 16: (4, 4, 5), 8: (3, 3, 4)}
    for side, (one, *two) in sides.items():
        assert maps.for_shape("patches-9", (side, side, 1)).sizes == (one,)
        assert maps.for_shape("scales-90", (side, side, 1)).sizes == (*two,)


def test_contexts_are_made_of_the_maps_they_name():
    assert maps.parse_map("contexts-100") == ("patches", 100, None, None, True)
    assert maps.parse_map("contexts-scales-1800") == ("scales", 1800, None, None, True)


@pytest.mark.parametrize("words", ["random", "random-0", "patches-4-5", "mlp-3-1", "random-x", ""])
def test_other_words_are_refused(words):
    with pytest.raises(InputError, match="use random-FEATURES"):
        maps.parse_map(words)


def test_what_cannot_be_is_said_before_anything_is_allocated():
    with pytest.raises(InputError, match=r"patches need images .* \(64,\): use random features"):
        maps.feature_count("patches-4", (64,))
    with pytest.raises(InputError, match=r"scales-30 is less than .* use 36 or more"):
        maps.feature_count("scales-30", (8, 8, 1))
    with pytest.raises(InputError, match="use random-2 or more"):
        maps.feature_count("random-1", (64,))
    maps.require_map_memory("random-100", (64,), 10)
    with pytest.raises(InputError, match="not enough memory"):
        maps.require_map_memory(f"patches-{10**15}", (8, 8, 1), 10)
    with pytest.raises(InputError, match=r"not enough memory.*9,000,000 features.*random-9000000"):
        maps.require_map_memory("random-9000000", (64,), 10)


def test_patches_of_older_files_are_read(rng):
    x = rng.standard_normal((20, 9, 9, 1))
    z = maps.feature_map("patches-5-3-2", x, rng)
    arrays, facts = maps.map_state(z)
    arrays |= {"K": arrays.pop("K0"), "bias": arrays.pop("bias0")}
    facts |= {"size": facts.pop("sizes")[0], "contrast": facts.pop("contrasts")[0]}
    del facts["root"]
    again = maps.map_from_state("patches-5-3-2", arrays, facts, np)
    np.testing.assert_array_equal(again(x), z(x))
