"""Files of learners: whole or refused, and going on from one equals never having stopped."""

import io
import json
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learner_streams import SMALL, assert_same, images, label_lists, stream

from minipw import InputError
from minipw.backend import files
from minipw.online import model_file
from minipw.online.classifier import OnlineClassifier

TINY = {**SMALL, "backbone": "mlp-6-1", "density": 0.4}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The bytes of a small model file with every kind of part in it."""
    path = tmp_path_factory.mktemp("model") / "m.npz"
    x, y = stream(30)
    OnlineClassifier(batch_size=4, **TINY).partial_fit(x, y).save(path)
    return path.read_bytes()


@settings(max_examples=20, deadline=None)
@given(
    labels=label_lists(2, 5),
    size=st.integers(1, 5),
    stop=st.integers(0, 30),
    head=st.sampled_from(["pairwise", "fc"]),
    rule=st.sampled_from(["adagrad", "s-mas", "sgd"]),
    classes=st.booleans(),
)
def test_going_on_equals_never_having_stopped(
    tmp_path_factory, labels, size, stop, head, rule, classes
):
    path = tmp_path_factory.mktemp("model") / "m.npz"
    *labels, later = labels
    x, y = stream(30, classes=len(labels))
    y = [labels[c] for c in y]
    options = {"head": head, "rule": rule, "batch_size": size, "missing": True, "seed": 3}
    options |= {"classes": labels[:1] if classes else None, **SMALL, "learning_rate": 1e-3}
    x[4, 2] = np.nan
    whole = OnlineClassifier(**options).partial_fit(x[:stop], y[:stop])
    whole.save(path)
    resumed = OnlineClassifier.load(path)
    assert resumed.settings == whole.settings and resumed.reserve == whole.reserve
    for learner in (whole, resumed):
        learner.partial_fit(x[stop:], y[stop:]).flush().partial_fit(x[:size], [later] * size)
    assert_same(whole, resumed)
    assert [type(label) for label in whole.classes_] == [type(c) for c in resumed.classes_]
    np.testing.assert_array_equal(whole.predict_proba(x), resumed.predict_proba(x))


def test_images_and_convolutions(tmp_path):
    x, y = images()
    learner = OnlineClassifier("cnn-s", density=0.2, pair_weights_per_class=50, batch_size=5)
    learner.partial_fit(x, y).save(tmp_path / "m.npz")
    resumed = OnlineClassifier.load(tmp_path / "m.npz")
    assert_same(learner.partial_fit(x, y), resumed.partial_fit(x, y))


def test_features_added_before_and_after(tmp_path):
    x, y = stream(20)
    learner = OnlineClassifier(missing=True, **SMALL).partial_fit(x[:, :3], y)
    learner.add_features(1)
    learner.save(tmp_path / "m.npz")
    resumed = OnlineClassifier.load(tmp_path / "m.npz")
    for model in (learner, resumed):
        model.partial_fit(x[:, :4], y).add_features(1)
        model.partial_fit(x, y)
    assert_same(learner, resumed)


def test_the_file_holds_no_pickle_and_says_what_it_is(saved):
    with np.load(io.BytesIO(saved), allow_pickle=False) as archive:
        facts = json.loads(archive["facts"].tobytes())
        assert all(archive[name].dtype.kind in "iuf" for name in archive.files)
    assert facts["format"] == "minipw model" and facts["version"] == 2
    assert len(facts["checksum"]) == 64


@pytest.mark.parametrize("label", [b"x", frozenset([1]), (1, (b"x",)), 1j])
def test_a_label_that_cannot_be_saved_is_named(tmp_path, label):
    learner = OnlineClassifier(**TINY).partial_fit([[0.0]], [label])
    with pytest.raises(InputError, match="cannot be saved: use text, numbers"):
        learner.save(tmp_path / "m.npz")
    assert list(tmp_path.iterdir()) == []


def refused(path, data):
    """Whether the bytes are refused as they must be; else they must be a whole model."""
    path.write_bytes(data)
    try:
        learner = OnlineClassifier.load(path)
    except InputError as error:
        assert str(path) in str(error) and "\n" not in str(error)
        return True
    return learner


def fuzz(path, data, positions, masks):
    """Flip bits; what is accepted is what was saved."""
    path.write_bytes(data)
    original, caught = OnlineClassifier.load(path), 0
    for position, mask in zip(positions, masks, strict=True):
        changed = bytearray(data)
        changed[position] ^= mask
        found = refused(path, bytes(changed))
        if found is True:
            caught += 1
        else:
            assert_same(found, original)
    return caught


def test_flipped_bits(saved, tmp_path, rng):
    positions = np.concatenate([rng.integers(0, len(saved), 150), len(saved) - 1 - np.arange(60)])
    masks = 1 << rng.integers(0, 8, positions.size)
    # Some bits of a zip archive mean nothing: dates, attributes.
    assert fuzz(tmp_path / "m.npz", saved, positions, masks.tolist()) > 150


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_bit_flipped(saved, tmp_path):
    positions = np.repeat(np.arange(len(saved)), 8)
    fuzz(tmp_path / "m.npz", saved, positions, (1 << np.arange(positions.size) % 8).tolist())


@pytest.mark.parametrize("count", [0, 1, 3, 4, 22, 30, 127, 128, 129])
def test_truncated(saved, tmp_path, count):
    path = tmp_path / "m.npz"
    for data in (saved[:count], saved[: len(saved) - count - 1], saved[count + 1 :]):
        assert refused(path, data) is True


def test_truncated_anywhere(saved, tmp_path, rng):
    for count in rng.integers(0, len(saved), 100):
        assert refused(tmp_path / "m.npz", saved[:count]) is True


@settings(max_examples=50, deadline=None)
@given(data=st.binary(max_size=300), prefix=st.sampled_from([b"", b"PK\3\4", b"\x93NUMPY\1\0"]))
def test_any_bytes(tmp_path_factory, data, prefix):
    assert refused(tmp_path_factory.mktemp("m") / "m.npz", prefix + data) is True


def rewritten(saved, change):
    """The file with parts changed and the checksum made right again."""
    with np.load(io.BytesIO(saved)) as archive:
        arrays = {name: archive[name] for name in archive.files}
    head = json.loads(arrays.pop("facts").tobytes())
    change(arrays, head)
    head["checksum"] = model_file.checksum(arrays, head["facts"])
    out = io.BytesIO()
    np.savez(out, facts=np.frombuffer(json.dumps(head).encode(), np.uint8), **arrays)
    return out.getvalue()


CHANGES = [
    ("reads up to 2: it was written by", lambda a, h: h.update(version=3)),
    ("has format version", lambda a, h: h.update(version="1")),
    ("is not a model of minipw", lambda a, h: h.update(format="other")),
    ("such a model .*: 'steps'", lambda a, h: h["facts"].pop("steps")),
    ("such a model .*: 'standardizer'", lambda a, h: a.pop("standardizer")),
    ("such a model .*: 'importance/head'", lambda a, h: a.pop("importance/head")),
    ("head of shape", lambda a, h: a.update({"parameter/head": a["parameter/head"][1:]})),
    ("pairs do not fit", lambda a, h: a.update(pairs=a["pairs"] + 100)),
    ("pairs of shape", lambda a, h: a.update(pairs=a["pairs"][:1])),
    ("waiting of shape", lambda a, h: a.update(waiting=a["waiting"][:, :2])),
    ("dense0 of", lambda a, h: a.update({"importance/dense0": np.zeros(3, np.float32)})),
    ("dense0", lambda a, h: a.update({"parameter/dense0": a["parameter/dense0"].astype("f8")})),
    ("standardizer of shape", lambda a, h: a.update(standardizer=np.zeros((3, 2)))),
    ("learning_rate is -1", lambda a, h: h["facts"]["settings"].update(learning_rate=-1)),
    ("unexpected keyword", lambda a, h: h["facts"]["settings"].update(other=1)),
]


@pytest.mark.parametrize("message, change", CHANGES, ids=[message for message, _ in CHANGES])
def test_files_with_other_contents(saved, tmp_path, message, change):
    path = tmp_path / "m.npz"
    path.write_bytes(rewritten(saved, change))
    with pytest.raises(InputError, match=message) as caught:
        OnlineClassifier.load(path)
    assert str(path) in str(caught.value)


def test_rewriting_alone_is_accepted(saved, tmp_path):
    assert refused(tmp_path / "m.npz", rewritten(saved, lambda a, h: None)) is not True


def test_foreign_files(tmp_path):
    path = tmp_path / "f.npz"
    np.savez(path, x=np.zeros(3))
    with pytest.raises(InputError, match=r"f\.npz is not a model of minipw"):
        OnlineClassifier.load(path)
    np.savez(path, facts=np.array([{}], object))
    with pytest.raises(InputError, match="damaged or not a model of minipw"):
        OnlineClassifier.load(path)
    np.save(tmp_path / "a.npy", np.zeros(3))
    with pytest.raises(InputError, match="damaged or not a model of minipw"):
        OnlineClassifier.load(tmp_path / "a.npy")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("facts.npy", b"not an array")
    with pytest.raises(InputError, match="damaged or not a model of minipw"):
        OnlineClassifier.load(path)
    with pytest.raises(InputError, match=r"cannot read the model .*none: No such file"):
        OnlineClassifier.load(tmp_path / "none")
    with pytest.raises(InputError, match="cannot read the model"):
        OnlineClassifier.load(tmp_path)


def test_a_link_keeps_pointing_to_the_file(tmp_path):
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "m.npz", tmp_path / "link.npz"
    link.symlink_to(target)
    learner = OnlineClassifier(**TINY)
    for count in (1, 2):  # the first makes the file that the link names
        learner.partial_fit([[0.0]], [count]).save(link)
        assert link.is_symlink() and OnlineClassifier.load(target).samples == count
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "folder", target, link]


@pytest.mark.parametrize("mode", [0o444, 0o600, 0o664])
def test_a_file_keeps_its_mode(tmp_path, mode):
    path = tmp_path / "m.npz"
    OnlineClassifier(**TINY).save(path)
    path.chmod(mode)
    OnlineClassifier(**TINY).partial_fit([[0.0]], [0]).save(path)
    assert path.stat().st_mode & 0o777 == mode and OnlineClassifier.load(path).samples == 1


def test_facts_are_checked_before_the_arrays_are_read(tmp_path):
    facts = np.frombuffer(b"[2]", np.uint8)
    np.savez(tmp_path / "f.npz", unreadable=np.array([None]), facts=facts)

    def refuse(facts):
        raise InputError(f"version {facts[0]}")

    with pytest.raises(InputError, match="version 2"):
        files.read(tmp_path / "f.npz", refuse)


def test_a_loaded_learner_predicts_at_once(tmp_path):
    x, y = stream(40)
    learner = OnlineClassifier(**SMALL).partial_fit(x, y)
    learner.save(tmp_path / "m.npz")
    expected = learner.decision_function(x)
    loaded = OnlineClassifier.load(tmp_path / "m.npz")
    np.testing.assert_array_equal(loaded.decision_function(x), expected)
