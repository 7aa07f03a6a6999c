"""What the online classifier refuses, and what it takes of memory."""

import gc
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from learner_streams import BAD, SMALL, assert_same, stream

from minipw import InputError
from minipw.backend import memory
from minipw.online.classifier import OnlineClassifier


def resident():
    """Bytes of this process in memory, or 0 where the system does not say."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * 4096 if statm.exists() else 0


def test_three_thousand_calls_take_no_more_memory():
    learner = OnlineClassifier("mlp-20-1", density=0.2)
    x, y = stream(200)

    def learn(calls):
        for n in range(calls):
            learner.partial_fit(x[n % 200, None], y[n % 200, None])
        gc.collect()
        return sys.getallocatedblocks(), resident()

    blocks, size = learn(300)
    blocks_after, size_after = learn(3000)
    assert learner.samples == 3300
    assert blocks_after - blocks < 1000  # one object kept a call would be 3,000
    assert size_after - size < 2 << 20  # 700 bytes kept a call


@pytest.mark.parametrize("message", BAD)
def test_bad_samples_are_refused(message):
    with pytest.raises(InputError, match=message):
        OnlineClassifier(**SMALL).partial_fit(*BAD[message])


def test_a_bad_call_learns_nothing():
    x, y = stream(20)
    learner, other = (OnlineClassifier(**SMALL).partial_fit(x, y) for _ in range(2))
    for bad in ([[0.0] * 4], np.full((3, 5), np.nan)):
        with pytest.raises(InputError):
            learner.partial_fit(bad, [0] * len(bad))
    assert_same(learner, other)
    with pytest.raises(InputError, match=r"samples of shape \(4,\), those before had \(5,\)"):
        learner.predict(x[:, :4])


SETTINGS = {
    "batch_size": [0, 1.5, True, "1"],
    "seed": [-1, None],
    "reserve": [-1],
    "learning_rate": [0, -1, float("nan"), float("inf"), "1", 10**400],
    "importance_lambda": [-0.1],
    "standardized_limit": [0],
    "backbone": ["mlp", "cnn-l", None, ["mlp-3-1"]],
    "device": ["tpu"],
    "density": [0.0, 1.0, 1e-9, float("nan"), "0.1"],
    "pair_weights_per_class": [0, 1.5, 40 * 39 // 2 + 1],
    "gelu": ["relu"],
    "head": ["dense", ["fc"]],
    "rule": ["adam", ["adagrad"]],
    "kwta_threshold": ["2k"],
    "smas_norm": ["max"],
    "running_standardize": ["False", 1],
    "missing": ["no"],
    "classes": [5, "abc", b"abc", {"a": 1}, {1, 2}, 1.5, [[1]], [1, True]],
}


@pytest.mark.parametrize("name, value", [(k, v) for k, values in SETTINGS.items() for v in values])
def test_bad_settings_are_refused(name, value):
    word = {"classes": "classes|label"}.get(name, name.split("_")[0])
    with pytest.raises(InputError, match=f"{word}|pair weights"):
        OnlineClassifier(**{**SMALL, name: value}).partial_fit([[0.0, 1.0]], [0])


def test_nothing_is_predicted_before_something_is_learned():
    learner = OnlineClassifier(batch_size=4, **SMALL)
    with pytest.raises(InputError, match="nothing is learned yet"):
        learner.predict([[0.0]])
    learner.partial_fit([[0.0]], ["a"])
    with pytest.raises(InputError, match="1 samples wait: call flush"):
        learner.predict([[0.0]])
    with pytest.raises(InputError, match="nothing is learned yet"):
        learner.unused_units()
    assert learner.flush().predict([[0.0]]).tolist() == ["a"]


def test_no_samples():
    learner = OnlineClassifier(**SMALL).partial_fit(np.zeros((0, 3)), [])
    assert learner.steps == 0 and learner.input_shape == (3,)
    learner.partial_fit(np.zeros((1, 3)), [0])
    assert learner.predict(np.zeros((0, 3))).shape == (0,)
    assert learner.predict_proba(np.zeros((0, 3))).shape == (0, 1)
    with pytest.raises(InputError, match="no samples to score"):
        learner.score(np.zeros((0, 3)), [])


def test_a_loss_that_is_not_finite_names_layer_and_step():
    x, y = stream(20)
    learner = OnlineClassifier(**{**SMALL, "learning_rate": 1e30})
    with pytest.raises(InputError, match=r"at step \d+, first in layer \w+: .*learning_rate"):
        learner.partial_fit(x, y)
    learner = OnlineClassifier(**SMALL).partial_fit(x, y)
    learner.network.parameters["dense0"][0, 0] = np.nan
    with pytest.raises(InputError, match=r"loss is not finite at step 2., first in layer dense0"):
        learner.partial_fit(x, y)
    with pytest.raises(InputError, match=r"outputs are not finite .* layer dense0"):
        learner.predict(x)
    with pytest.raises(InputError, match="weights are not finite"):
        learner.save("nowhere.npz")


@pytest.mark.filterwarnings("ignore:.*infinite importance")
@pytest.mark.parametrize("size", [1e20, 1.7e18])
def test_inputs_that_are_too_large_are_named(size):
    x, y = stream(60)
    learner = OnlineClassifier(**{**SMALL, "running_standardize": False})
    with pytest.raises(
        InputError, match=r"not finite at step \d+.*: the inputs reach .*e\+\d+: scale"
    ):
        learner.partial_fit(x * size, y)


def test_an_outlier_in_a_late_part_of_a_call_is_named(monkeypatch):
    monkeypatch.setattr("minipw.online.learner.COPIED_AT_ONCE", 8 * 5 * 10)  # ten samples at a time
    x, y = stream(60)
    learner = OnlineClassifier(**{**SMALL, "running_standardize": False}).partial_fit(x, y)
    x[15] = 1e22
    with pytest.raises(InputError, match=r"the outputs are not finite .*: the inputs reach 1e\+22"):
        learner.predict(x)


def test_unused_units():
    x, y = stream(60)
    few = {"density": 0.2, "pair_weights_per_class": 8, "reserve": 0, "learning_rate": 0.01}
    learner = OnlineClassifier("mlp-30-1", **few)
    found = learner.partial_fit(x, y).unused_units()
    network = learner.network
    read = np.union1d(network.pairs.i, network.pairs.j)
    assert found["units"] == 30 and found["unread"] == 30 - read.size > 0
    start = OnlineClassifier("mlp-30-1", **few)
    start.partial_fit(x[:1], y[:1])  # a standardized first sample is 0 and changes nothing
    moved = (start.network.parameters["dense0"] != network.parameters["dense0"]).any(0)
    assert 0 < moved.sum() < 30
    assert found["never_won"] == np.isin(np.flatnonzero(~moved), read).sum() > 0


def test_more_memory_than_is_free_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "_system_memory", lambda: 1 << 20)
    learner = OnlineClassifier("mlp-700-1")
    with pytest.raises(InputError, match=r"GiB needed, 0\.0 GiB free: mlp-700-1 with 11 outputs"):
        learner.partial_fit([[0.0]], [0])
    with pytest.raises(InputError, match="GiB needed"):
        OnlineClassifier("mlp-1000000000-1").partial_fit([[0.0]], [0])


@pytest.mark.parametrize("backbone, size", [("mlp-500-1", 1), ("mlp-300-2", 64), ("mlp-40-1", 8)])
def test_the_memory_asked_for_is_enough(backbone, size, monkeypatch):
    asked = []
    monkeypatch.setattr("minipw.network.cost.require_memory", lambda size, what: asked.append(size))
    x, y = stream(size, features=50)
    tracemalloc.start()
    try:
        OnlineClassifier(backbone, batch_size=size).partial_fit(x, y)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < asked[0] < 10 * peak + (1 << 20)


@pytest.mark.parametrize("count", [0, -1, 1.5, "a", True, None])
def test_a_bad_number_of_features_is_refused(count):
    learner = OnlineClassifier(**SMALL).partial_fit([[0.0], [1.0]], [0, 1])
    with pytest.raises(InputError, match=f"{count!r} features.*at least 1"):
        learner.add_features(count)
    with pytest.raises(InputError, match="at least 1, or a list of new names"):
        learner.add_features(["a", "a"])
    assert learner.input_shape == (1,)
    learner.add_features(np.int64(2))
    assert learner.input_shape == (3,)


def test_tables_of_pandas():
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    learner, x = OnlineClassifier(**SMALL), np.eye(2)
    for y in (["a", pd.NA], pd.Series(["a", None], dtype="string"), pd.array([1, None], "Int64")):
        with pytest.raises(InputError, match=r"y\[1\] is missing"):
            learner.partial_fit(x, y)
    with pytest.raises(
        InputError, match="y of type DataFrame is not a list of labels: use a list or an array"
    ):
        learner.partial_fit(x, pd.DataFrame({"a": [1, 2], "b": [3, 4]}))
    assert learner.classes_ == []
    learner.partial_fit(pd.DataFrame(x), pd.Series(["a", "b"], dtype="string"))
    assert learner.classes_ == ["a", "b"]
