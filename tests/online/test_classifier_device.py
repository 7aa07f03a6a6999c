"""The online classifier on a device: over the stand-in for CuPy, against the CPU."""

import sys

import numpy as np
import pytest
from learner_streams import stream

from minipw import InputError
from minipw.backend.arrays import array_module
from minipw.online.classifier import OnlineClassifier

SETTINGS = {"backbone": "mlp-40-1", "learning_rate": 0.01, "density": 0.25, "reserve": 1}


def close(a, b, x):
    """The same outputs but for the order of float32 sums.

    Their last digits, 1e-7, grow over 60 steps that divide by sqrt(Omega + 1e-6), at the
    first ones by as little as 1e-3.
    """
    outputs = a.decision_function(x), b.decision_function(x)
    np.testing.assert_allclose(*outputs, rtol=1e-3, atol=1e-4)
    assert a.predict(x).tolist() == b.predict(x).tolist()


@pytest.mark.parametrize("head", ["pairwise", "fc"])
@pytest.mark.parametrize("rule", ["adagrad", "s-mas", "sgd"])
def test_it_learns_as_on_the_cpu(cupy, tmp_path, head, rule):
    """Classes that come one by one, features that are added, a file in between."""
    x, y = stream(60)
    x, y = x[np.argsort(y, kind="stable")], np.sort(y)
    host, device = (
        OnlineClassifier(**SETTINGS, head=head, rule=rule, device=name) for name in ("cpu", "cuda")
    )
    for learner in (host, device):
        learner.partial_fit(x[:40], y[:40])
    assert array_module(device.network.parameters["head"]) is cupy
    assert array_module(device.importance["head"]) is cupy
    close(host, device, x)
    device.save(tmp_path / "m.npz")
    loaded = OnlineClassifier.load(tmp_path / "m.npz")
    assert array_module(loaded.network.parameters["head"]) is cupy
    np.testing.assert_array_equal(loaded.decision_function(x), device.decision_function(x))
    more = np.concatenate([x, x[:, :1]], axis=1)
    for learner in (host, loaded):
        learner.add_features(1)
        learner.partial_fit(more[40:], y[40:]).partial_fit(more[:5], [99] * 5)
    close(host, loaded, more)
    assert loaded.score(more, y) == host.score(more, y)
    assert loaded.unused_units() == host.unused_units()
    assert loaded.predict_proba(more).shape == (60, len(host.classes_))


def test_a_loss_that_is_not_finite_is_named(cupy):
    learner = OnlineClassifier(**{**SETTINGS, "learning_rate": 1e30}, device="cuda")
    x, y = stream(20)
    with pytest.raises(InputError, match=r"not finite at step \d+, first in layer"):
        learner.partial_fit(x, y)


@pytest.mark.parametrize(("there", "here"), [("cuda", "cpu"), ("cpu", "cuda")])
def test_a_model_goes_on_elsewhere(cupy, tmp_path, there, here):
    x, y = stream(60)
    learner = OnlineClassifier(**SETTINGS, device=there).partial_fit(x[:40], y[:40])
    learner.save(tmp_path / "m.npz")
    loaded = OnlineClassifier.load(tmp_path / "m.npz", device=here)
    assert loaded.settings["device"] == here
    assert (array_module(loaded.network.parameters["head"]) is cupy) == (here == "cuda")
    close(learner.partial_fit(x[40:], y[40:]), loaded.partial_fit(x[40:], y[40:]), x)


def test_a_model_of_a_device_where_there_is_none(cupy, tmp_path, monkeypatch):
    x, y = stream(20)
    path = tmp_path / "m.npz"
    OnlineClassifier(**SETTINGS, device="cuda").partial_fit(x, y).save(path)
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(InputError, match=r"^--device cuda needs CuPy"):
        OnlineClassifier.load(path)
    assert OnlineClassifier.load(path, device="cpu").predict(x).shape == (20,)


def test_without_a_device(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(InputError, match="--device cuda needs CuPy"):
        OnlineClassifier(device="cuda")
