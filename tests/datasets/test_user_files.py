"""Data sets of one's own: .csv files, large numbers, what the command line makes of them."""

import json
from pathlib import Path

import numpy as np
import pytest
from data_files import error, load, npz
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minipw import InputError
from minipw.datasets import user_files

pytestmark = pytest.mark.usefixtures("isolated")

CSV_LETTERS = ",;\t\n\r\"'ye0.1 \0"
NETWORK = ("--backbone", "mlp-20-1", "--batch-size", 4, "--pair-weights", 60)
SMALL = (*NETWORK, "--density", 0.3)


@pytest.fixture
def csv_file(tmp_path):
    """A function that writes a .csv of lines and returns its path."""

    def write(*lines, name="d.csv", encoding="utf-8"):
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n", encoding=encoding)
        return str(path)

    return write


@pytest.fixture
def wine(csv_file):
    """Path of 60 samples of 3 classes in 4 columns, class after class."""
    rng = np.random.default_rng(0)
    lines = ["alcohol,kind,acid,sugar"]
    for n, kind in enumerate(("red", "white", "rosé")):
        for a, b, c in rng.normal(10 * n, 1, (20, 3)).round(3):
            lines.append(f"{a},{kind},{b},{c}")
    return csv_file(*lines, name="wine.csv")


def test_csv_is_split_and_standardized(csv_file):
    lines = [f"{n},{'ba'[n % 2]},7" for n in range(10)]  # b a b a ...
    data = load(csv_file("size,kind,constant", *lines), label="kind")
    assert data.labels == ("a", "b") and data.classes == 2
    # of a (1 3 5 7 9) and of b (0 2 4 6 8) the fifth is for testing
    np.testing.assert_array_equal(data.y_train, [1, 0] * 4)
    np.testing.assert_array_equal(data.y_test, [1, 0])
    # sizes 0 to 7: mean 3.5, variance (64 - 1) / 12 = 5.25
    np.testing.assert_allclose(data.x_train[:, 0], (np.arange(8) - 3.5) / 5.25**0.5, rtol=1e-6)
    np.testing.assert_allclose(data.x_test[:, 0], (np.array([8, 9]) - 3.5) / 5.25**0.5, rtol=1e-6)
    assert not data.x_train[:, 1].any() and data.x_train.dtype == np.float32


@pytest.mark.parametrize(
    "texts, order",
    [(["10", "9", "1e1.5"], ["10", "1e1.5", "9"]), (["10", "9", "-1"], ["-1", "9", "10"])],
)
def test_classes_are_ordered_as_numbers_where_they_are(csv_file, texts, order):
    path = csv_file("x,y", *(f"{n},{text}" for text in texts for n in range(5)))
    assert load(path, label="y").labels == tuple(order)


def test_other_delimiters_and_a_byte_order_mark(csv_file):
    path = csv_file("x;y", *("1.5;a" for _ in range(5)), encoding="utf-8-sig")
    x, classes, _ = user_files.read_csv(path, "y")
    np.testing.assert_array_equal(x, np.full((5, 1), 1.5, np.float32))
    assert classes == ["a"] * 5
    path = csv_file("x\ty", "1\ta")
    assert user_files.read_csv(path, "y")[1] == ["a"]


def test_endings_in_capitals(csv_file, command):
    path = csv_file("x,y", *(f"{n},{kind}" for n in range(10) for kind in "ab"))
    capitals = Path(path).rename(Path(path).with_suffix(".CSV"))
    flags = ("--exp", "split", "--dataset", capitals, "--label", "y", "--backbone", "mlp-20-1")
    status, out, err = command(*flags, "--batch-size", 4, "--quiet")
    assert status == 0 and out.startswith("accuracy "), err


@pytest.mark.parametrize(
    "lines, text",
    [
        (["x,z", "1,2"], "has no column 'y'; the columns are x, z"),
        ([""], "does not begin with a line of column names"),
        (["y,y", "1,2"], "has several columns 'y'"),
        (["y", "1"], "has no column beside the label"),
        (["x,y"], "holds no samples"),
        (["x,y", "1,a", "1,a,2"], "line 3: has 3 values, not 2"),
        (["x,y", "1,a", "two,a"], "line 3: 'two' in column 'x' is not a number, or too large"),
        (["w,x,y", "1,,a"], "line 2: '' in column 'x' is a missing value; fill it in, or use `str"),
        (["x,y", "nan,a"], "line 2: 'nan' in column 'x' is a missing value"),
        (["x,y", "NA,a"], "line 2: 'NA' in column 'x' is a missing value"),
        (["x,y", "inf,a"], "line 2: 'inf' in column 'x' is not a number, or too large"),
        (["x;y", "1,5;a"], "'1,5' in column 'x' is not a number, or too large; write only"),
        (["x,y", "1,NaN"], "line 2: has no label ('NaN'); fill it in or remove the line"),
        (["PK\3\4 zip"], "is a .zip archive; unpack it"),
        (["x,y", "1e39,a"], "line 2: '1e39' in column 'x' is not a number, or too large"),
        (["x,y", "1_5,a"], "line 2: '1_5' in column 'x' is not a number, or too large"),
        (["x,y", "1, "], "line 2: has no label"),
        (["x,y", *["1,a"] * 4], "class 'a' has 4 samples; give at least 5"),
    ],
)
def test_damaged_csv(csv_file, lines, text):
    path = csv_file(*lines)
    message = error(lambda path: load(path, label="y"), path)
    assert text in message and path in message


def test_a_quoted_header_and_blank_lines(csv_file):
    path = csv_file('"a, b";"c, d";y', "1;2;u", "  ", "", '3;4;"u\nv"', " ; ; ")
    x, classes, _ = user_files.read_csv(path, "y")
    np.testing.assert_array_equal(x, [[1, 2], [3, 4]])
    assert classes == ["u", "u v"]  # a label is one line


def test_a_file_that_is_not_utf_8(csv_file):
    path = csv_file("x,y", "1,rosé", encoding="latin-1")
    assert "is not UTF-8 text; save it as UTF-8" in error(lambda p: load(p, label="y"), path)


def test_names_of_equal_numbers_have_an_order(csv_file):
    path = csv_file("x,y", *(f"{n},{text}" for text in ("1.0", "01", "1", "0") for n in range(5)))
    assert load(path, label="y").labels == ("0", "01", "1", "1.0")


def test_very_large_class_numbers_are_refused_at_once(command, tmp_path):
    labels = np.array([0, 1_000_000] * 4)
    x = np.zeros((8, 4), np.float32)
    np.savez(tmp_path / "d.npz", x_train=x, y_train=labels, x_test=x, y_test=labels)
    flags = ("--exp", "split", "--dataset", tmp_path / "d.npz", "--head", "fc", "--batch-size", 1)
    status, _, err = command(*flags, "--backbone", "mlp-3-1", "--density", 0.7)
    assert status == 2 and "number the classes without gaps" in err


def test_label_belongs_to_csv(csv_file, tmp_path):
    path = csv_file("x,y", "1,a")
    assert "--label COLUMN" in error(load, path)
    assert "--label is for .csv files" in error(lambda p: load(p, label="y"), npz(tmp_path))


@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(content=st.binary(max_size=100) | st.text(CSV_LETTERS, max_size=60).map(str.encode))
def test_random_csv_is_read_or_an_input_error(tmp_path, content):
    path = tmp_path / "d.csv"
    path.write_bytes(b"x,y\n" + content)
    try:
        x, classes, _ = user_files.read_csv(path, "y")
    except InputError as caught:
        assert str(path) in str(caught) and "\n" not in str(caught)
    else:
        assert x.shape == (len(classes), 1) and np.isfinite(x).all()


def test_a_csv_on_the_command_line(command, wine):
    flags = ("--exp", "split", "--dataset", wine, "--label", "kind", "--classes-per-task", 1)
    status, out, err = command(*flags, *SMALL, "--json")
    assert status == 0
    record = json.loads(out)
    assert sorted(record["tasks"]) == ["classes red", "classes rosé", "classes white"]
    assert record["settings"]["label"] == "kind" and record["steps"] == 3 * 16 // 4
    status, out, err = command("--exp", "split", "--dataset", wine, *SMALL)
    assert (status, out) == (2, "") and "--label COLUMN" in err


def test_settings_of_a_csv_are_searched_in_other_processes(command, wine, tmp_path):
    best = tmp_path / "best.json"
    flags = ("--exp", "split", "--dataset", wine, "--label", "kind", *NETWORK)
    search = ("--learning-rates", "1e-3,1e-2", "--densities", "0.3", "--out", tmp_path / "runs")
    # a split of single classes leaves 14 samples each, 1 of them held out
    status, _, err = command("tune", best, *flags, "--classes-per-task", 1, *search)
    assert status == 0, err
    assert json.loads(best.read_text())["label"] == "kind"
    status, out, err = command("--settings", best, "--json")
    assert status == 0, err
    assert json.loads(out)["settings"]["label"] == "kind"


SECONDS = 1_700_000_000 + np.arange(30) * 7  # a float32 is within 64 of such a number


def test_large_numbers_of_a_csv_keep_their_differences(csv_file):
    lines = [f"{t},{t // 7 % 2}" for t in SECONDS]
    path = csv_file("time,kind", *lines)
    raw = load(path, label="kind", raw=True)
    np.testing.assert_array_equal(np.sort(np.concatenate([raw.x_train, raw.x_test])[:, 0]), SECONDS)
    scaled = load(path, label="kind")
    assert scaled.x_train.dtype == np.float32 and np.unique(scaled.x_train).size == 24
    assert scaled.x_train.mean() == pytest.approx(0, abs=1e-6)
    assert scaled.x_train.std() == pytest.approx(1, abs=1e-6)


def test_large_numbers_of_a_npz_keep_their_differences_in_a_stream(tmp_path):
    x, y = SECONDS[:, None].astype(float), np.arange(30) % 2
    np.savez(tmp_path / "t.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    path = str(tmp_path / "t.npz")
    np.testing.assert_array_equal(load(path, raw=True).x_train, x)
    assert load(path).x_train.dtype == np.float32


def test_a_column_that_is_constant_but_for_rounding(csv_file):
    path = csv_file("a,b,kind", *[f"0.1,{n},{n % 2}" for n in range(30)])
    assert np.abs(load(path, label="kind").x_train[:, 0]).max() < 1e-6


def test_few_samples_a_class_can_be_held_out(command, csv_file, tmp_path):
    rows = [f"{10 * (n % 3) + n / 50},{n % 3}" for n in range(15)]  # 4 a class are trained on
    path = csv_file("a,kind", *rows)
    flags = ("--exp", "split", "--dataset", path, "--label", "kind", "--classes-per-task", 1)
    network = ("--backbone", "mlp-20-1", "--batch-size", 2, "--pair-weights", 60)
    search = ("--learning-rates", "1e-3", "--densities", "0.3", "--out", tmp_path / "runs")
    status, _, err = command("tune", tmp_path / "best.json", *flags, *network, *search)
    assert status == 0, err


def test_settings_of_a_csv_with_other_data(command, wine, tiny_npz, tmp_path):
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"label": "kind", "multi_head": True, "dataset": wine}))
    flags = ("--settings", path, *SMALL, "--json")
    status, out, err = command(*flags, "--exp", "split", "--dataset", tiny_npz)
    assert status == 0, err
    settings = json.loads(out)["settings"]
    assert settings["multi_head"] and settings["label"] is None
    status, out, err = command(*flags, "--exp", "iid", "--dataset", wine)
    assert status == 0, err
    settings = json.loads(out)["settings"]
    assert not settings["multi_head"] and settings["label"] == "kind"


@pytest.mark.parametrize("words", ["--exp split --dataset mnist-5k", "stream mnist-5k"])
def test_a_label_is_refused_where_there_are_no_columns(command, words):
    status, out, err = command(*words.split(), "--label", "kind")
    assert (status, out) == (2, "") and "mnist-5k: --label is for .csv files; leave it out" in err


@pytest.mark.parametrize("value", [None, 0, -5])
def test_pair_weights_of_a_settings_file(command, tiny_npz, tmp_path, value):
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"pair_weights": value}))
    flags = ("--exp", "split", "--dataset", tiny_npz, "--backbone", "mlp-20-1", "--density", 0.3)
    status, _, err = command(*flags, "--settings", path)
    says = "a pairwise head needs" if value is None else "use a whole number of at least 1"
    assert status == 2 and f"pair_weights is {value}: {says}" in err


@pytest.mark.parametrize("line", ['"1.0,2.0,b', '1.0,2.0,"b'])
@pytest.mark.parametrize("lines", [10, 60_000])
def test_an_open_quote_is_named_by_its_line(line, lines, tmp_path):
    path = tmp_path / "open.csv"
    path.write_text("\n".join(["p,q,kind", *["1.0,2.0,a"] * 3, line, *["1.5,2.5,b"] * lines]))
    with pytest.raises(InputError, match=r"open\.csv, line 5: .*; close or remove the quotes"):
        user_files.read_csv(path, "kind")
