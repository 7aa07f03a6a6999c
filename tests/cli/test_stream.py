"""`stream`: the online classifier on a file in its own order."""

import json
import os
import signal
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from minipw import InputError, datasets
from minipw.cli import stream
from minipw.cli.stream import follow, result_lines
from minipw.online.classifier import OnlineClassifier
from minipw.training.checkpoint import StopRequest

SMALL = ("--backbone", "mlp-100-1", "--learning-rate", 0.01)


@pytest.fixture
def wine(tmp_path):
    """Path of 150 samples of 3 classes in 4 columns of different scales, class after class."""
    rng = np.random.default_rng(0)
    lines = ["alcohol,kind,acid,sugar,colour"]
    for n, kind in enumerate(("red", "white", "rosé")):
        for a, *rest in rng.normal(np.eye(4)[n] * 5, 1, (50, 4)).round(3):
            lines.append(",".join([f"{1000 * a}", kind, *map(str, rest)]))
    path = tmp_path / "wine.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


@pytest.fixture
def flags(wine):
    return ("stream", wine, "--label", "kind", *SMALL)


def test_each_sample_is_predicted_before_it_is_learned(wine):
    """Against the same by hand, one sample after the other."""
    dataset = datasets.load(wine, label="kind", raw=True)
    assert dataset.x_train[:, 0].std() > 500  # as it stands in the file
    learner, by_hand = (OnlineClassifier("mlp-100-1", learning_rate=0.01) for _ in "ab")
    with StopRequest() as stop:
        right = follow(learner, dataset, stop, quiet=True)
    expected = []
    for x, y in zip(dataset.x_train, dataset.y_train, strict=True):
        label = dataset.labels[y]
        expected.append(bool(expected) and by_hand.predict([x])[0] == label)
        by_hand.partial_fit([x], [label])
    np.testing.assert_array_equal(right, expected)
    x = dataset.x_test
    np.testing.assert_array_equal(learner.decision_function(x), by_hand.decision_function(x))
    assert learner.classes_ == ["red", "white", "rosé"]  # in the order of the file


def test_the_result_is_what_was_predicted(command, flags, wine, tmp_path):
    model, picture = tmp_path / "m.npz", tmp_path / "s.png"
    status, out, err = command(*flags, "--json", "--save-model", model, "--plot", picture)
    assert status == 0, err
    result, learner = json.loads(out), OnlineClassifier.load(str(model))
    dataset = datasets.load(wine, label="kind", raw=True)
    truth = np.array(dataset.labels)[dataset.y_test]
    predicted = learner.predict(dataset.x_test)
    assert result["accuracy"] == pytest.approx(100 * (predicted == truth).mean())
    for kind, accuracy in result["class_accuracy"].items():
        own = truth == kind
        assert accuracy == pytest.approx(100 * (predicted[own] == kind).mean())
    ends, accuracies = zip(*result["curve"], strict=True)
    assert ends[-1] == result["samples"] == 120 and len(ends) == 20
    weights = np.diff([0, *ends])
    assert np.average(accuracies, weights=weights) == pytest.approx(result["online_accuracy"])
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert result["accuracy"] > 60  # three classes, one after the other: chance is 33
    for text in ("test-then-train", "rosé", f"accuracy {result['accuracy']:.2f} %"):
        assert text in err


def test_a_stream_goes_on_from_a_model(command, flags, wine, tmp_path):
    """The same file twice: as one learner that saw it twice."""
    first, second = tmp_path / "1.npz", tmp_path / "2.npz"
    assert command(*flags, "--batch-size", 7, "--quiet", "--save-model", first)[0] == 0
    bare = flags[:4]
    status, out, err = command(*bare, "--load-model", first, "--save-model", second)
    assert status == 0 and "120 samples learned before" in out, err
    dataset = datasets.load(wine, label="kind", raw=True)
    learner = OnlineClassifier("mlp-100-1", learning_rate=0.01, batch_size=7)
    labels = [dataset.labels[y] for y in dataset.y_train]
    for _ in range(2):
        learner.partial_fit(dataset.x_train, labels).flush()
    found = OnlineClassifier.load(str(second))
    x = dataset.x_test
    np.testing.assert_array_equal(found.decision_function(x), learner.decision_function(x))


def test_a_class_may_be_too_small_to_be_tested(command, wine):
    with open(wine, "a", encoding="utf-8") as file:
        file.write("\n1,orange,2,3,4\n2,orange,2,3,4\n")
    flags = ("stream", wine, "--label", "kind", *SMALL, "--json")
    status, out, err = command(*flags)
    result = json.loads(out)
    assert status == 0 and result["samples"] == 3 * 40 + 2, err
    assert list(result["class_accuracy"]) == ["red", "rosé", "white"]
    assert result["untested"] == ["orange"]
    assert "note: too few samples to test: orange" in list(result_lines(result))


def test_a_file_without_anything_to_test(command, tmp_path):
    path = tmp_path / "few.csv"
    path.write_text("x,kind\n1,a\n2,b\n3,a\n")
    status, _, err = command("stream", path, "--label", "kind", *SMALL)
    assert status == 2 and "no class has 5 samples" in err


def test_a_few_more_samples_for_a_model(command, wine, tmp_path):
    model, few = tmp_path / "m.npz", tmp_path / "few.csv"
    few.write_text("\n".join(Path(wine).read_text(encoding="utf-8").splitlines()[:5]))
    stream = ("stream", "--label", "kind", "--head", "ridge")
    assert command(*stream, wine, "--save-model", model)[0] == 0
    status, out, _ = command("stream", few, "--label", "kind", "--load-model", model)
    assert status == 0 and "4 samples in their own order, 0 others are for testing" in out
    assert "none of all test samples, online 100.00 %, 4 samples" in out
    load_model = ("--label", "kind", "--load-model", model)
    figure = ("--plot", tmp_path / "p.png")
    status, out, _ = command("stream", few, *load_model, "--json", *figure)
    result = json.loads(out)
    assert status == 0 and result["accuracy"] is None and result["online_accuracy"] == 100
    status, out, _ = command("stream", few, *load_model, "--quiet")
    assert (status, out) == (0, "online 100.00 %\n")


def test_a_file_with_its_columns_in_another_order(command, flags, wine, tmp_path):
    model, other = tmp_path / "m.npz", tmp_path / "other.csv"
    assert command(*flags, "--save-model", model)[0] == 0
    lines = [line.split(",") for line in Path(wine).read_text(encoding="utf-8").splitlines()]
    other.write_text("\n".join(",".join(line[::-1]) for line in lines), encoding="utf-8")
    rest = ("--label", "kind", "--load-model", model)
    status, _, err = command("stream", other, *rest)
    assert status == 2 and err.startswith(
        f"error: {other}, column 1 is 'colour' where 'alcohol' was before: keep their order"
    )
    assert command("stream", wine, *rest)[0] == 0


def test_quiet_is_one_line(command, flags):
    status, out, err = command(*flags, "--quiet")
    assert status == 0 and err == "" and out.startswith("accuracy ") and out.count("\n") == 1


def test_pixels_of_a_npz_in_its_order(command, tiny_npz):
    flags = ("stream", tiny_npz, *SMALL, "--json", "--head", "fc")
    status, out, err = command(*flags)
    result = json.loads(out)
    assert status == 0 and result["settings"]["head"] == "fc", err
    assert result["accuracy"] > 60 and set(result["class_accuracy"]) == {"0", "1", "2", "3"}


def test_an_interrupt_keeps_what_was_learned(command, flags, tmp_path, monkeypatch):
    model, before = tmp_path / "m.npz", OnlineClassifier.partial_fit

    def interrupted(self, x, y):
        if self.samples == 30:
            signal.raise_signal(signal.SIGINT)
        return before(self, x, y)

    monkeypatch.setattr(OnlineClassifier, "partial_fit", interrupted)
    status, _, err = command(*flags, "--save-model", model)
    assert status == 130 and "interrupted after 31 samples" in err
    assert OnlineClassifier.load(str(model)).samples == 31


@pytest.mark.parametrize(
    "extra, says",
    [
        (("--multi-head",), "stream does not take --multi-head (see run.py stream --help)"),
        (("--epochs", 2), "stream does not take --epochs 2"),
        (("--runs", 2), "stream does not take --runs 2"),
        (("--out", "runs"), "stream does not take --out runs"),
        (("--protocol", "paper"), "stream does not take --protocol paper"),
        (("--save-model", "m.txt"), "model m.txt: name it .npz"),
        (("--save-model", "missing/m.npz"), "missing is no folder that can be written"),
        (("--load-model", "missing.npz"), "--backbone cannot be given with --load-model"),
        (("--plot", "a.bmp"), "name it .png, .svg or .pdf"),
        (("--density", 2, "--quiet"), "density"),
    ],
)
def test_errors(command, flags, extra, says):
    status, out, err = command(*flags, *extra)
    assert (status, out) == (2, "") and says in err and err.count("\n") == 1


def test_models_belong_to_streams(command, tiny_npz):
    for flag in ("--save-model", "--load-model"):
        status, _, err = command("--exp", "split", "--dataset", tiny_npz, flag, "m.npz")
        assert status == 2 and f"train does not take {flag} m.npz" in err


def test_a_model_of_another_shape_is_refused(command, flags, tiny_npz, tmp_path):
    model = tmp_path / "m.npz"
    assert command(*flags, "--quiet", "--save-model", model)[0] == 0
    status, _, err = command("stream", tiny_npz, "--load-model", model)
    assert status == 2 and "warning: the model's classes ('red'," in err
    assert "error: X has samples of shape (8, 8, 1), those before had (4,)" in err


@pytest.mark.parametrize("content", ["data", "folder"])
def test_a_file_that_is_no_model_is_not_replaced(command, flags, tiny_npz, tmp_path, content):
    path = tiny_npz
    if content == "folder":
        path = tmp_path / "folder.npz"
        path.mkdir()
    status, out, err = command(*flags, "--save-model", path)
    assert (status, out) == (2, "") and err.count("\n") == 1
    if content == "data":
        assert "it is not replaced" in err
        np.load(path)["x_train"]


def test_what_a_loaded_model_cannot_change(command, flags, tmp_path):
    model = tmp_path / "m.npz"
    assert command(*flags, "--quiet", "--save-model", model)[0] == 0
    bare = (*flags[:4], "--load-model", model)
    for flag, value in (("--seed", 5), ("--head", "fc"), ("--density", 0.3)):
        status, _, err = command(*bare, flag, value)
        assert status == 2 and f"{flag} cannot be given with --load-model" in err
    for extra in (("--rule", "sgd", "--lambda", 1), ("--head", "fc", "--pair-weights", 9)):
        status, _, err = command(*flags, *extra)
        assert status == 2 and "has no effect without" in err
    assert command(*bare, "--save-model", model, "--quiet")[0] == 0  # a model may be replaced


def test_a_model_with_announced_classes_alone(command, flags, tmp_path):
    model = str(tmp_path / "m.npz")
    OnlineClassifier(classes=["red"]).save(model)
    status, out, err = command(*flags[:4], "--load-model", model)
    assert status == 0 and "accuracy" in out, err


def test_units_that_do_nothing_are_named():
    result = {
        "curve": [[10, 50.0]],
        "class_accuracy": {"a": 50.0},
        "accuracy": 50.0,
        "online_accuracy": 50.0,
        "samples": 10,
        "seconds": 2.0,
        "untested": [],
        "unused_units": {"units": 40, "never_won": 5, "unread": 0},
    }
    *_, rate, note = result_lines(result)
    assert "(5 a second)" in rate and note == "note: 5 of 40 units before the head never won"


def test_the_model_is_checked_before_anything_is_read(command, monkeypatch):
    monkeypatch.setattr(stream.datasets, "load", lambda *_, **__: pytest.fail("read"))
    status, _, err = command("stream", "mnist", "--load-model", "missing.npz")
    assert status == 2 and "missing.npz" in err
    with pytest.raises(InputError):
        OnlineClassifier.load("missing.npz")


def test_a_home_that_cannot_be_written(process, flags, tiny_npz, tmp_path):
    """Nothing of the package needs a home; matplotlib warns of its cache and goes on."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("XDG", "MPL"))}
    environment |= {"HOME": "/proc/none", "OMP_NUM_THREADS": "1"}
    model, picture = tmp_path / "m.npz", tmp_path / "p.png"
    done = process(*flags, "--save-model", model, "--plot", picture, env=environment)
    assert done.returncode == 0 and "error" not in done.stderr, done.stderr
    assert model.exists() and picture.exists()
    small = ("--backbone", "mlp-20-1", "--batch-size", 8, "--out", tmp_path / "out")
    done = process("--exp", "split", "--dataset", tiny_npz, *small, env=environment)
    assert done.returncode == 0, done.stderr


def test_missing_values_on_the_command_line(command, wine, tmp_path):
    """Without --missing the first empty cell is named; with it each is an unknown value."""
    lines = Path(wine).read_text(encoding="utf-8").splitlines()
    for n, word in ((5, ""), (6, "NA"), (9, "nan"), (70, "None")):
        cells = lines[n].split(",")
        lines[n] = ",".join([*cells[:2], word, *cells[3:]])
    Path(wine).write_text("\n".join(lines), encoding="utf-8")
    flags = ("stream", wine, "--label", "kind", *SMALL)
    status, out, err = command(*flags)
    assert (status, out) == (2, "") and err.count("\n") == 1
    assert "line 6: '' in column 'acid' is a missing value; fill it in, or use `stream --m" in err
    model = tmp_path / "m.npz"
    status, _, err = command(*flags, "--missing", "--save-model", model)
    assert status == 0, err
    data = datasets.load(wine, label="kind", raw=True, missing=True)
    assert np.isnan(data.x_train).sum() + np.isnan(data.x_test).sum() == 4
    learner = OnlineClassifier("mlp-100-1", learning_rate=0.01, missing=True)
    learner.partial_fit(data.x_train, [data.labels[y] for y in data.y_train])
    found = OnlineClassifier.load(model)
    x = data.x_test
    np.testing.assert_array_equal(found.decision_function(x), learner.decision_function(x))
    bare = ("stream", wine, "--label", "kind", "--load-model", model)
    assert command(*bare)[0] == 0  # the model takes missing values
    status, _, err = command(*bare, "--missing")
    assert status == 2 and "--missing cannot be given with --load-model" in err


def test_the_row_numbers_of_a_data_frame_are_not_learned(command, tmp_path):
    """Noise, sorted by class: with its row numbers 70 % and more, without them chance."""
    rng, accuracy = np.random.default_rng(0), {}
    x, y = rng.normal(size=(600, 3)).round(3), np.repeat(["a", "b"], 300)
    for name in ("", "number"):
        lines = [f"{name},p,q,r,kind"]
        rows = enumerate(zip(x, y, strict=True))
        lines += [f"{n},{','.join(map(str, row))},{k}" for n, (row, k) in rows]
        path = tmp_path / f"noise{name}.csv"
        path.write_text("\n".join(lines))
        status, out, err = command("stream", path, "--label", "kind", "--json", "--batch-size", 10)
        assert status == 0, err
        said = "column 'number' counts the lines" if name else "column 1 has no name"
        assert f"warning: {path}: {said}" in err
        accuracy[name] = json.loads(out)["accuracy"]
    assert accuracy[""] < 60  # 120 samples: chance is 50, two deviations 9
    assert accuracy["number"] > accuracy[""] + 8


def test_only_a_model_is_replaced(command, flags, tmp_path):
    """Before anything is learned: a pipe, text, another program's arrays."""
    path = tmp_path / "m.npz"
    arrays = partial(np.savez, path, x=1)
    for make in (partial(os.mkfifo, path), partial(path.write_text, "x"), arrays):
        make()
        before = path.stat()
        status, out, err = command(*flags, "--save-model", path)
        assert (status, out) == (2, "") and "it is not replaced" in err and path.stat() == before
        path.unlink()
