"""Labels of any library are plain values of one kind, and come back as they were learned."""

from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from learner_streams import SMALL, stream

from minipw import InputError
from minipw.online.classifier import OnlineClassifier
from minipw.online.labels import as_labels, label_array, label_list


@given(data=st.data(), kind=st.sampled_from([st.text(), st.integers(), st.booleans()]))
def test_label_arrays_lose_nothing(data, kind):
    labels = data.draw(st.lists(st.one_of(kind, st.none()), max_size=5))
    back = label_array(as_labels(labels, len(labels), [None])).tolist()
    assert back == labels and [type(a) for a in back] == [type(b) for b in labels]


class Scalar:
    """A number of another library: equal ones have different hashes."""

    ndim, shape = 0, ()

    def __init__(self, value, name="item"):
        setattr(self, name, lambda: value)

    def __hash__(self):
        return id(self)


TIMES = ["2024-01-01", "2024-02-01"]
SAME = {
    "tensors": ([Scalar(3), Scalar(5)], [3, 5]),
    "scalars": ([Scalar("a", "as_py"), Scalar("b", "asscalar")], ["a", "b"]),
    "arrays": ([np.array(3), np.array(5)], [3, 5]),
    "numpy": ([np.int8(3), np.float32(5)], [3, 5.0]),
    "truth": ([np.True_, False], [True, False]),
    "text": (np.array(["a", "b"], object), ["a", "b"]),
    "generator": ((label for label in "ab"), ["a", "b"]),
    "tuples": ([(np.int64(1), "a"), (np.int64(2), "b")], [(1, "a"), (2, "b")]),
    "dates": ([date(2024, 1, 1), date(2024, 2, 1)], [date(2024, 1, 1), date(2024, 2, 1)]),
    "decimals": ([Decimal("0.1"), Decimal(1)], [Decimal("0.1"), Decimal(1)]),
} | {
    unit: (np.array(TIMES, f"datetime64[{unit}]"), [datetime(2024, 1, 1), datetime(2024, 2, 1)])
    for unit in ("M", "D", "s", "us", "ns")
}


@pytest.mark.parametrize("name", SAME)
def test_scalars_of_other_libraries(name):
    given, expected = SAME[name]
    labels = label_list(given, "y", [])
    assert labels == expected and list(map(type, labels)) == list(map(type, expected))


def test_labels_of_pandas():
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    times = pd.Series(pd.to_datetime(TIMES))
    assert label_list(times, "y", []) == [datetime(2024, 1, 1), datetime(2024, 2, 1)]
    zoned = datetime(2024, 1, 1, tzinfo=UTC)
    assert label_list(times.dt.tz_localize("UTC"), "y", [])[0] == zoned
    assert label_list(pd.Categorical(["b", "a"]), "y", []) == ["b", "a"]
    for missing in (pd.NA, pd.NaT):
        with pytest.raises(InputError, match=r"y\[1\] is missing: leave out"):
            label_list(["a", missing], "y", [])


@pytest.mark.parametrize("labels", [TIMES, [datetime(2024, 1, 1), datetime(2024, 2, 1)]])
@pytest.mark.parametrize("unit", ["D", "ns"])
def test_times_are_learned_and_saved(labels, unit, tmp_path):
    x, y = stream(60, classes=2)
    times = np.array(labels, f"datetime64[{unit}]")[y]
    learner = OnlineClassifier(**SMALL).partial_fit(x[:30], times[:30])
    learner.partial_fit(x[30:], times[30:].astype("datetime64[us]").tolist())
    learner.save(tmp_path / "m.npz")
    other = OnlineClassifier.load(tmp_path / "m.npz")
    assert other.classes_ == learner.classes_ and len(other.classes_) == 2
    assert (other.predict(x) == times).mean() == learner.score(x, times) > 0.9


def test_dates_and_the_announced_missing_are_saved(tmp_path):
    x, y = stream(60, classes=2)
    for classes in ([date(2024, 1, 1), date(2024, 2, 1)], ["a", None]):
        learner = OnlineClassifier(classes=classes, **SMALL)
        labels = [classes[n] for n in y]
        learner.partial_fit(x, labels).save(tmp_path / "m.npz")
        other = OnlineClassifier.load(tmp_path / "m.npz")
        assert other.classes_ == classes
        assert np.mean([a == b for a, b in zip(other.predict(x), labels, strict=True)]) > 0.9


MISSING = [None, np.nan, np.float32("nan"), np.ma.masked, np.datetime64("NaT"), Decimal("sNaN")]


@pytest.mark.parametrize("missing", MISSING, ids=repr)
def test_missing_labels(missing):
    x = np.eye(3)
    with pytest.raises(InputError, match=r"y\[1\] is missing: leave out .*add_classes\(\[None\]\)"):
        OnlineClassifier(**SMALL).partial_fit(x, ["a", missing, "b"])
    with pytest.raises(InputError, match=r"y\[1\] is missing"):
        OnlineClassifier(**SMALL).partial_fit(x, [("a", 1), ("a", missing), ("b", 1)])
    learner = OnlineClassifier(classes=["a", None], **SMALL).partial_fit(x, ["a", missing, "b"])
    assert learner.classes_ == ["a", None, "b"]
    masked = np.ma.array([1, 2, 3], mask=[0, 1, 0])
    with pytest.raises(InputError, match=r"y\[1\] is missing"):
        OnlineClassifier(**SMALL).partial_fit(x, masked)


MIXED = [
    ([1, 2], [True], r"y\[0\] is True, a truth value, but 1, a number, is a label"),
    ([True, False], [1], r"y\[0\] is 1, a number, but True, a truth value, is a label"),
    ([1, 2], ["1"], r"y\[0\] is '1', text, but 1, a number"),
    (["1"], [1.0], r"y\[0\] is 1\.0, a number, but '1', text"),
    (["a"], [b"a"], r"b'a', bytes, but 'a', text"),
    (["a"], [("a",)], r"a tuple of \(text\), but 'a', text"),
    ([(1, "a")], [(True, "a")], r"a tuple of \(a truth value, text\), but"),
    ([1.5, 2], [datetime(2024, 1, 1)], r"a time, but 1\.5, a number"),
    ([datetime(2024, 1, 1)], [date(2024, 1, 1)], r"date, but datetime.*, a time"),
]


@pytest.mark.parametrize("before, after, says", MIXED)
def test_kinds_are_not_mixed(before, after, says):
    x = np.eye(2)
    learner = OnlineClassifier(**SMALL).partial_fit(x[: len(before)], before)
    announced = OnlineClassifier(classes=before, **SMALL)
    calls = (
        lambda: learner.partial_fit(x[:1], after),
        lambda: learner.score(x[:1], after),
        lambda: announced.partial_fit(x[:1], after),
    )
    for call in calls:
        with pytest.raises(InputError, match=says):
            call()
    with pytest.raises(InputError, match=r"classes\[0\] is .*: use labels of one kind"):
        learner.add_classes(after)
    with pytest.raises(InputError, match=r"y\[\d\] is "):
        OnlineClassifier(**SMALL).partial_fit(np.eye(len(before + after)), before + after)


def test_equal_numbers_are_one_class():
    learner = OnlineClassifier(**SMALL).partial_fit(np.eye(4), [1, 1.0, 2.0, np.float32(2)])
    assert learner.classes_ == [1, 2]
    assert learner.score(np.eye(4), [1.0, 1, 2, 2]) == learner.score(np.eye(4), [1, 1, 2, 2])


def test_labels_that_hash_by_identity_are_refused():
    class Vector(Scalar):
        ndim, shape = 1, (2,)

    for bad in (object(), Vector(1), np.array([1]), [1], {"a": 1}):
        with pytest.raises(InputError, match=r"y\[0\] is .*, not hashable by its value: use one"):
            label_list([bad], "y", [])
    with pytest.raises(InputError, match="not a time to the microsecond"):
        label_list(np.array([1], "datetime64[ns]"), "y", [])
    members = Enum("Colour", "RED BLUE")
    assert label_list(list(members), "y", []) == list(members)
