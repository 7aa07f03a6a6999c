"""Random features and patches: the fast passes against their defining forms."""

import itertools

import numpy as np
import pytest

from minipw import InputError
from minipw.backend.threads import THREADS
from minipw.nn import identity, patch_features, random_features
from minipw.nn.conv import im2col
from minipw.nn.patches import SAMPLE


def defining_patches(x, z):
    """`PatchFeatures` over all positions of all images at once."""
    parts = [one_size(x, z, size, *made) for size, made in zip(z.sizes, z.filters, strict=True)]
    answers = np.concatenate(parts, -1).reshape(len(x), -1)
    return ((np.sqrt(answers) if z.root else answers) - z.shift) * z.scale


def one_size(x, z, size, K, bias, contrast):
    """The means (B, 2 * cells, F) of the filters of one size."""
    height, width, _ = x.shape[1:]
    p = im2col(x.astype(float), (size, size), 1).reshape(len(x), height, width, -1)
    top = (size - 1) // 2  # 'SAME' padding is left out
    p = p[:, top : top + height - size + 1, top : top + width - size + 1]
    q = (p - p.mean(-1, keepdims=True)) / np.sqrt(p.var(-1, keepdims=True) + contrast)
    r = q @ K.astype(float) - bias
    rows, columns = (
        np.linspace(0, n, z.grid + 1).round().astype(int) for n in (r.shape[1], r.shape[2])
    )
    signs = np.maximum(r, z.threshold) - z.threshold, -np.minimum(r, -z.threshold) - z.threshold
    cells = [
        part[:, a:b, c:d].mean((1, 2))
        for part in signs
        for a, b in itertools.pairwise(rows)
        for c, d in itertools.pairwise(columns)
    ]
    return np.stack(cells, 1)


def images(shape, count=30, kind=np.uint8):
    x = np.random.default_rng(0).integers(0, 256, (count, *shape))
    return x.astype(kind)


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
@pytest.mark.parametrize(
    ("shape", "filters", "settings"),
    [
        ((8, 8, 1), 5, {"sizes": (3,), "grid": 2}),
        ((9, 12, 3), 7, {"sizes": (4,), "grid": 3, "threshold": 0.3}),
        ((32, 32, 3), 150, {"grid": 2}),  # an image is more than a block
        ((5, 5, 2), 4, {"sizes": (5,), "grid": 1}),
        ((12, 9, 2), 7, {"sizes": (3, 5), "grid": 2, "contrast": 0.03}),
        ((12, 12, 1), 5, {"sizes": (3, 4, 6), "grid": 3, "root": True}),
    ],
)
def test_patches_are_their_defining_form(shape, filters, settings, kind):
    x = images(shape, kind=kind)
    z = patch_features(x[:20], filters, np.random.default_rng(1), **settings)
    with THREADS.use(2):
        fast = z(x)
    assert fast.shape == (30, 2 * settings["grid"] ** 2 * filters) and fast.dtype == np.float32
    # float32 sums over a patch, then divided by the deviation of a feature
    np.testing.assert_allclose(fast, defining_patches(x, z), rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(fast[:7], z(x[:7]))  # no image depends on its neighbours


def test_patches_do_not_depend_on_light_or_on_the_scale_of_pixels():
    x = images((10, 10, 3)).astype(np.float32)
    z, scaled = (
        patch_features(first, 6, np.random.default_rng(1), sizes=(4,)) for first in (x, x / 255)
    )
    np.testing.assert_allclose(z(x), scaled(x / 255), atol=1e-3)
    np.testing.assert_allclose(z(x), z(x + 50), atol=1e-3)
    np.testing.assert_allclose(z(x).mean(0), 0, atol=1e-4)


def test_filters_have_unit_length_behind_the_whitening():
    """K = U f / |f| with U the whitening, so the covariance of the answers is known."""
    x = images((12, 12, 1), 200)
    z = patch_features(x, 8, np.random.default_rng(1), sizes=(4,), whitening=0.0001)
    ((K, bias, contrast),) = z.filters
    p = np.lib.stride_tricks.sliding_window_view(x[..., 0], (4, 4), (1, 2)).reshape(-1, 16)
    q = (p - p.mean(1, keepdims=True)) / np.sqrt(p.var(1, keepdims=True) + contrast)
    answers = q @ K - bias
    # whitened by nearly all: variance 1 and mean 0, but for the draw of the patches
    assert len(q) < SAMPLE
    np.testing.assert_allclose(answers.var(0), 1, atol=0.05)
    np.testing.assert_allclose(answers.mean(0), 0, atol=0.03)


def test_constant_images_are_no_features():
    x = np.full((5, 8, 8, 1), 7, np.uint8)
    np.testing.assert_array_equal(patch_features(x, 3, np.random.default_rng(0), sizes=(3,))(x), 0)


def test_random_features_are_the_plain_formula(rng):
    x = rng.standard_normal((300, 2, 3))
    z = random_features(x[:200], 40, np.random.default_rng(1), density=0.3)
    inner = x.reshape(300, 6).astype(np.float32) @ z.R + z.b
    v = np.sort(inner, 1)[:, -13, None]
    plain = np.maximum(inner - v, 0)
    shift, scale = plain[:200].mean(0), plain[:200].std(0)
    scale = np.maximum(scale, 0.1 * scale.mean())
    with THREADS.use(2):
        np.testing.assert_allclose(z(x), (plain - shift) / scale, rtol=1e-4, atol=1e-4)
    assert z.winners == 12 and abs(z.R.std() - (2 / 6) ** 0.5) < 0.1


def test_a_map_follows_its_seed_and_few_inputs_keep_their_length():
    x = np.linspace(0, 10, 500)[:, None]
    maps = [random_features(x, 50, np.random.default_rng(seed)) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(maps[0](x), maps[1](x))
    assert not np.allclose(maps[0](x), maps[2](x))
    assert abs(maps[0](x[400:401]) - maps[0](x[450:451])).max() > 0.1
    np.testing.assert_array_equal(identity(np.ones((2, 3, 4))), np.ones((2, 12)))


def test_bad_input_is_one_line(rng):
    x = images((8, 8, 1))
    with pytest.raises(InputError, match="8 by 8 pixels: patches of 9 on a grid of 1 need 9"):
        patch_features(x, 3, rng, sizes=(9,), grid=1)
    with pytest.raises(InputError, match="1 filters of 2 sizes: use 2 or more"):
        patch_features(x, 1, rng, sizes=(3, 5))
    with pytest.raises(InputError, match="need 10 on each side"):
        patch_features(x, 3, rng, sizes=(6,), grid=5)
    with pytest.raises(InputError, match=r"\(8, 7, 1\): the map was made for \(8, 8, 1\)"):
        patch_features(x, 3, rng, sizes=(3,))(x[:, :, :7])
    with pytest.raises(InputError, match="of 5 numbers: the map was made for 6"):
        random_features(np.ones((4, 6)), 10, rng)(np.ones((4, 5)))
