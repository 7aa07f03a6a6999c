"""The comparison on digits: nothing is chosen on test samples, and its tables are whole."""

import functools
import json

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed")
pytest.importorskip("river", reason="river is not installed")

import compare_digits

from minipw.online import OnlineClassifier


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
    kind, fixed, choices = compare_digits.METHODS[f"scikit-learn {name}"]
    x, _, y, _ = compare_digits.split(0)
    weights = []
    for whole in (True, False):
        model = kind(0, **fixed | choices[0], whole=whole)
        model.learn(x[:40], y[:40])
        weights.append(model.model.coef_ if "MLP" not in name else model.model.coefs_[0])
    # Sums of float64 in another order.
    np.testing.assert_allclose(*weights, rtol=1e-9, atol=1e-9)


def test_every_method_in_the_file(monkeypatch, tmp_path):
    whole = compare_digits.split

    def short(seed, held_out=False):
        x, x_test, y, y_test = whole(seed, held_out)
        return x[:20], x_test[:10], y[:20], y_test[:10]

    methods = {
        name: (kind, fixed, choices[: 2 if "Perceptron" in name else 1])
        for name, (kind, fixed, choices) in compare_digits.METHODS.items()
        if "64 samples" not in name  # the zero variances of its first calls warn
    }
    monkeypatch.setattr(compare_digits, "split", short)
    monkeypatch.setattr(compare_digits.compare, "__defaults__", (methods,))
    monkeypatch.setattr(compare_digits.rate, "__defaults__", (1, 1e-4))
    small = functools.partial(OnlineClassifier, "mlp-10-1")
    monkeypatch.setattr(compare_digits, "OnlineClassifier", small)
    monkeypatch.setattr("sys.argv", ["compare_digits.py", "2", "--json", str(tmp_path / "d.json")])
    compare_digits.main()
    found = json.loads((tmp_path / "d.json").read_text())
    assert found["splits"] == 2 and found["accuracy"].keys() == methods.keys()
    for row in found["accuracy"].values():
        assert tuple(row) == compare_digits.COLUMNS
        assert 0 <= row["shuffled"][0] <= 100 and 0 <= row["class_by_class"][1] <= 50
    assert found["accuracy"]["scikit-learn Perceptron"]["usual_choice"].startswith("eta0 ")
    speeds = found["samples_per_second"]
    assert {tuple(row) for row in speeds.values()} == {tuple(speeds["minipw, dense head"])}
    assert found["versions"]["numpy"] == np.__version__
