"""The comparison on digits: nothing is chosen on test samples, and its tables are whole."""

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed")
pytest.importorskip("river", reason="river is not installed")

import compare_digits


def rows(x):
    return {row.tobytes() for row in x}


@pytest.mark.parametrize("seed", [0, 7])
def test_held_out_samples_are_training_samples(seed):
    x, x_test, _, _ = compare_digits.split(seed)
    x_part, x_held, _, _ = compare_digits.split(seed, held_out=True)
    assert len(x) + len(x_test) == 1797 and len(x_part) + len(x_held) == len(x)
    assert not rows(x_held) & rows(x_test) and not rows(x_part) & rows(x_test)


@pytest.mark.parametrize("name", ["SGDClassifier", "Perceptron", "MLPClassifier, 500 units"])
def test_one_call_learns_sample_by_sample(name):
    """The classifiers that get the stream in one call learn what single calls teach."""
    kind, fixed, choices = compare_digits.METHODS[name]
    x, _, y, _ = compare_digits.split(0)
    weights = []
    for whole in (True, False):
        model = kind(0, **fixed | choices[0], whole=whole)
        model.learn(x[:40], y[:40])
        weights.append(model.model.coef_ if "MLP" not in name else model.model.coefs_[0])
    # Sums of float64 in another order.
    np.testing.assert_allclose(*weights, rtol=1e-9, atol=1e-9)


def test_every_method_and_the_table(monkeypatch, capsys):
    whole = compare_digits.split

    def short(seed, held_out=False):
        x, x_test, y, y_test = whole(seed, held_out)
        return x[:20], x_test[:10], y[:20], y_test[:10]

    monkeypatch.setattr(compare_digits, "split", short)
    methods = {
        name: (kind, fixed, choices[:1])
        for name, (kind, fixed, choices) in compare_digits.METHODS.items()
        if "64 samples" not in name  # the zero variances of its first calls warn
    }
    compare_digits.compare(1, methods)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(methods) and len({line.count("|") for line in lines}) == 1
