"""The comparison on streams that drift: its streams drift, and its table is whole."""

import json

import numpy as np
import pytest

pytest.importorskip("river", reason="river is not installed")

import compare_drift


def test_a_sample_is_predicted_before_it_is_learned():
    class Memory:
        def __init__(self):
            self.known = {}

        def predict_one(self, x):
            return self.known.get(x["a"])

        def learn_one(self, x, y):
            self.known[x["a"]] = y

    samples = [({"a": n % 5}, n % 5) for n in range(20)]
    assert compare_drift.prequential(Memory(), samples)[0] == 75  # not the first of each


def test_the_concept_of_sea_changes_three_times():
    x, y = zip(*compare_drift.STREAMS["SEA"](1), strict=True)
    sums, y = np.array([row[0] + row[1] for row in x]), np.array(y)
    found, thresholds = [], np.arange(6, 11, 0.5)
    for part in np.split(np.arange(len(y)), 4):
        right = [np.mean((sums[part] > t) == y[part]) for t in thresholds]
        found.append(thresholds[np.argmax(right)])
        assert max(right) == pytest.approx(0.9, abs=0.02)  # one label in ten is noise
    assert found == [8, 9.5, 9, 7] and len(y) == 4 * compare_drift.PART


def test_every_method_on_every_stream_in_the_file(monkeypatch, tmp_path):
    monkeypatch.setattr(compare_drift, "PART", 15)
    monkeypatch.setattr("sys.argv", ["compare_drift.py", "--seeds", "2", "--json", f"{tmp_path}/d"])
    compare_drift.main()
    found = json.loads((tmp_path / "d").read_text())
    assert found["seeds"] == 2 and found["streams"].keys() == compare_drift.METHODS.keys()
    for row in found["streams"].values():
        assert row.keys() == compare_drift.STREAMS.keys()
        for cell in row.values():
            assert 0 < cell["accuracy"][0] <= 100 and cell["microseconds"] > 0
    ours, face = (found["streams"][name] for name in list(compare_drift.METHODS)[:2])
    assert ours["SEA"]["accuracy"] == face["SEA"]["accuracy"]  # its columns are sorted by name
