"""Files of one's own as other programs leave them: packed, indexed, with gaps, in other scales."""

import gzip

import numpy as np
import pytest
from data_files import RNG, error, load

from minipw import InputError
from minipw.datasets import user_files
from minipw.online.classifier import OnlineClassifier

pytestmark = pytest.mark.usefixtures("isolated")

LINES = ["a,b,y", *(f"{n},{n % 3},{'uv'[n % 2]}" for n in (3, 1, 4, 1, 5, 9, 2, 6, 5, 3))]


def plain(lines, tab=False):
    text = "\n".join(lines) + "\n"
    return (text.replace(",", "\t") if tab else text).encode()


@pytest.mark.parametrize("tab", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["d.csv", "d.tsv", "d.csv.gz", "d.tsv.gz", "d.gz", "D.CSV.GZ"])
def test_a_table_is_read_by_its_content(tmp_path, name, packed, tab):
    (tmp_path / "plain.csv").write_bytes(plain(LINES))
    content = plain(LINES, tab)
    (tmp_path / name).write_bytes(gzip.compress(content) if packed else content)
    expected = load(str(tmp_path / "plain.csv"), label="y", raw=True)
    found = load(str(tmp_path / name), label="y", raw=True)
    assert (found.labels, found.columns, found.digest) == (("u", "v"), ("a", "b"), expected.digest)
    assert found.x_train[:3].tolist() == [[3, 0], [1, 1], [4, 1]]


def test_a_packed_table_that_is_cut_off(tmp_path):
    path = tmp_path / "d.csv.gz"
    path.write_bytes(gzip.compress(plain(LINES))[:-9])
    assert "ends early" in error(load, str(path), label="y")


def test_a_line_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(user_files, "LINE", 1000)
    path = tmp_path / "d.csv"
    for text in ("x" * 5000, "a,y\n" + "1" * 5000):
        path.write_bytes(gzip.compress(text.encode()))
        assert "has a line of over 1,000 letters" in error(load, str(path), label="y")


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "Unnamed: 0.1", " "])
@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_column_without_a_name_is_left_out(tmp_path, capsys, name, place):
    """The row numbers of a data frame tell the class where a file is sorted by class."""
    lines = [line.split(",") for line in LINES]
    for n, line in enumerate(lines):
        line.insert(place, str(n - 1) if n else name)
    path = tmp_path / "d.csv"
    path.write_bytes(plain(map(",".join, lines)))
    data = load(str(path), label="y", raw=True)
    assert data.columns == ("a", "b") and data.x_train[:2].tolist() == [[3, 0], [1, 1]]
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and f"warning: {path}: column {place + 1} has no name" in err


def test_a_column_that_counts_the_lines_is_named(tmp_path, capsys):
    path = tmp_path / "d.csv"
    path.write_bytes(plain(["id,b,y", *(f"{n + 7},{n % 3},{'uv'[n % 2]}" for n in range(12))]))
    assert load(str(path), label="y", raw=True).columns == ("id", "b")
    assert "warning: " in (err := capsys.readouterr().err) and "'id' counts the lines" in err


def test_true_and_false_are_one_and_zero(tmp_path):
    rows = ["True,1.5,u", "false,2,v", "TRUE,nan,u", "FALSE,,v"]
    (tmp_path / "d.csv").write_bytes(plain(["a,b,y", *rows]))
    x, classes, _ = user_files.read_csv(tmp_path / "d.csv", "y", missing=True)
    np.testing.assert_array_equal(x, [[1, 1.5], [0, 2], [1, np.nan], [0, np.nan]])
    assert classes == ["u", "v"] * 2


@pytest.mark.parametrize("word", ["", " ", "NA", "nan", "NaN", "N/A", "<NA>", "null", "None", "?"])
def test_words_for_what_is_missing(tmp_path, word):
    (tmp_path / "d.csv").write_bytes(plain(["a,b,y", f"1,{word},u"]))
    x, *_ = user_files.read_csv(tmp_path / "d.csv", "y", missing=True)
    np.testing.assert_array_equal(x, [[1, np.nan]])


@pytest.mark.parametrize("cell", ["inf", "-Infinity", "1e39", "two", "1 2"])
def test_what_is_not_a_number_is_not_missing(tmp_path, cell):
    (tmp_path / "d.csv").write_bytes(plain(["a,b,y", f"1,{cell},u"]))
    message = error(user_files.read_csv, tmp_path / "d.csv", "y", missing=True)
    assert f"line 2: {cell!r} in column 'b' is not a number" in message


def test_missing_values_of_a_npz(tmp_path):
    x = np.array([[1.0, np.nan], [2, 3]])
    np.savez(tmp_path / "d.npz", x_train=x, y_train=[0, 1], x_test=x, y_test=[0, 1])
    path = str(tmp_path / "d.npz")
    assert "x_train: nan at [0, 1]" in (said := error(load, path, raw=True))
    assert "stream --missing" in said
    np.testing.assert_array_equal(load(path, raw=True, missing=True).x_train, x)


# Images and pixels


def images(shape, dtype=np.uint8, factor=1):
    return (RNG.integers(0, 256, (6, *shape)) * factor).astype(dtype)


def save(folder, x, **other):
    y = np.arange(6) % 3
    np.savez(folder / "d.npz", **{"x_train": x, "y_train": y, "x_test": x, "y_test": y, **other})
    return str(folder / "d.npz")


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (4, 8, 9), (2, 5, 6)])
@pytest.mark.parametrize("dtype, factor", [(np.uint8, 1), (np.float32, 1 / 255)])
def test_channels_first_are_refused_with_the_cure(tmp_path, shape, dtype, factor):
    x = images(shape, dtype, factor)
    message = error(load, save(tmp_path, x))
    assert f"x_train: has shape {x.shape}, which looks like channels first" in message
    assert message.endswith("turn it: x.transpose(0, 2, 3, 1)")
    turned = x.transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(load(save(tmp_path, turned)).x_train, turned)


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28)])
def test_a_convolution_refuses_channels_first(shape):
    x = images(shape)
    with pytest.raises(InputError, match=r"channels come last, x\.transpose"):
        OnlineClassifier("cnn-s", density=0.2).partial_fit(x, range(6))
    learner = OnlineClassifier("cnn-s", density=0.2, pair_weights_per_class=9)
    assert learner.partial_fit(x.transpose(0, 2, 3, 1)[:1], [0]).samples == 1


@pytest.mark.parametrize("shape", [(32, 32, 3), (3, 3, 2), (28, 28, 1), (5, 6, 13), (4, 9, 3)])
def test_channels_last_are_taken(tmp_path, shape):
    assert load(save(tmp_path, images(shape))).shape == shape


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i4", "u2", "f2"])
@pytest.mark.parametrize("shape", [(9, 9), (9, 9, 3), (81,)])
def test_pixels_of_another_type_are_refused_with_the_cure(tmp_path, capsys, dtype, shape):
    x = images(shape, dtype)
    message = error(load, save(tmp_path, x))
    assert "x_train: holds " in message and "look like pixels that are not scaled" in message
    assert message.endswith("save x.astype(numpy.uint8), which is standardized")
    data = load(save(tmp_path, x.astype(np.uint8)))
    assert data.x_train.dtype == np.uint8 and abs(data.batch(data.x_train).mean()) < 1e-5
    scaled = load(save(tmp_path, x / 255)).x_train
    assert scaled.min() >= 0 and scaled.max() <= 1
    one = error(load, save(tmp_path, x / 255, x_test=x))  # each part by itself
    assert "x_test: holds" in one and capsys.readouterr().err == ""
    raw = load(save(tmp_path, x), raw=True).x_train  # a stream standardizes them
    np.testing.assert_array_equal(raw.reshape(x.shape), x)


@pytest.mark.parametrize(
    "x, says",
    [
        (images((9, 9), "f8") / 16, True),  # pixels 0 to 16
        (images((9, 9), "u2", 257), True),  # 0 to 65,535
        (RNG.normal(1000, 1, (6, 4)), True),
        (RNG.normal(0, 1e-5, (6, 4)), True),
        (RNG.normal(0, 1, (6, 4)), False),
        (np.eye(6, 500), False),
        (RNG.normal(0, 1, (6, 4)) > 0, False),
    ],
)
def test_numbers_far_from_one_are_named(tmp_path, capsys, x, says):
    load(save(tmp_path, x))
    err = capsys.readouterr().err
    assert ("x_train: holds" in err and "scale them" in err) if says else err == ""


def test_the_home_folder_is_expanded(tmp_path, monkeypatch, command):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    x = np.arange(20.0)[:, None] % 5
    np.savez("d.npz", x_train=x, y_train=x[:, 0], x_test=x, y_test=x[:, 0])
    assert load("~/d.npz").x_train.shape == (20, 1)
    small = ("--backbone", "mlp-20-1", "--density", 0.3, "--pair-weights", 60)
    flags = ("--exp", "split", "--classes-per-task", 1, "--batch-size", 2, "--dataset", "~/d.npz")
    status, _, err = command(*flags, *small, "--out", "~/runs", "--plot", "~/p.png", "--quiet")
    assert status == 0, err
    status, _, err = command("stream", "~/d.npz", "--save-model", "~/m.npz", "--quiet")
    assert status == 0, err
    assert {"d.npz", "m.npz", "p.png", "runs"} <= {path.name for path in tmp_path.iterdir()}
    assert not (tmp_path / "~").exists()
