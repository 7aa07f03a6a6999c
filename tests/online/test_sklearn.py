"""The estimator of scikit-learn, under scikit-learn's own checks."""

import inspect
import pickle
import subprocess
import sys

import numpy as np
import pytest
from learner_streams import stream

from minipw import InputError
from minipw.online.classifier import OnlineClassifier

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.ensemble import AdaBoostClassifier
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from minipw.online.sklearn import PairwiseClassifier

SMALL = {"backbone": "mlp-40-1", "random_state": 0}


@pytest.mark.parametrize("options", [{}, {"batch_size": 8}, {"head": "fc", "missing": True}])
def test_the_checks_of_scikit_learn(options):
    """All but those of a fit that the order of samples and their repetition leave alone."""
    count, skipped = 0, []
    for estimator, check in estimator_checks_generator(
        PairwiseClassifier(**{**SMALL, "random_state": None}, **options)
    ):
        if check.func.__name__.startswith("check_sample_weight_equivalence"):
            continue  # a weight is a factor of one step, a repetition several; order counts too
        try:
            check(estimator)
            count += 1
        except pytest.skip.Exception:
            raise
        except BaseException as stop:
            if type(stop).__name__ != "SkipTest":
                raise
            skipped.append(str(stop))
    assert count > 45 and all("SCIPY_ARRAY_API" in reason for reason in skipped)


def test_pipeline_search_and_cross_validation():
    x, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    x, y = x[order], np.array(["setosa", "versicolor", "virginica"])[y[order]]
    pipeline = make_pipeline(StandardScaler(), PairwiseClassifier(**SMALL))
    grid = {"pairwiseclassifier__learning_rate": [1e-9, 1e-2]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(x, y)
    assert search.best_params_ == {"pairwiseclassifier__learning_rate": 1e-2}
    assert cross_val_score(search.best_estimator_, x, y, cv=3).mean() > 0.8
    assert set(search.predict(x)) <= set(y)


def test_the_logic_is_the_learner_s():
    x, y = stream(60)
    estimator = PairwiseClassifier(**SMALL, batch_size=7).fit(x, y)
    settings = {**estimator.get_params(), "seed": estimator.learner_.settings["seed"]}
    del settings["random_state"]
    learner = OnlineClassifier(**settings, classes=[0, 1, 2]).partial_fit(x, y).flush()
    np.testing.assert_array_equal(estimator.predict_proba(x), learner.predict_proba(x))
    np.testing.assert_array_equal(estimator.predict(x), learner.predict(x))


def test_the_parameters_are_the_learner_s():
    own = inspect.signature(PairwiseClassifier).parameters
    other = inspect.signature(OnlineClassifier).parameters
    assert own.keys() - other.keys() == {"random_state"}
    assert other.keys() - own.keys() == {"classes", "seed", "device"}
    assert all(own[name].default == other[name].default for name in own.keys() & other.keys())


def test_classes_that_come_later_are_sorted():
    x, y = stream(60)
    estimator = PairwiseClassifier(**SMALL).partial_fit(x[y == 2], y[y == 2])
    assert estimator.classes_.tolist() == [2]
    estimator.partial_fit(x[y == 0], y[y == 0]).partial_fit(x[y == 1], y[y == 1], classes=[0, 1, 5])
    assert estimator.learner_.classes_ == [2, 0, 1, 5] and estimator.classes_.tolist() == [
        0,
        1,
        2,
        5,
    ]
    best = estimator.predict_proba(x).argmax(1)
    np.testing.assert_array_equal(estimator.predict(x), estimator.classes_[best])
    assert (best == y).mean() > 0.5
    np.testing.assert_array_equal(estimator.decision_function(x).argmax(1), best)


def test_two_classes_have_one_decision():
    x, y = stream(60, classes=2)
    estimator = PairwiseClassifier(**SMALL).fit(x, y)
    decision = estimator.decision_function(x)
    assert decision.shape == (60,)
    np.testing.assert_array_equal(decision > 0, estimator.predict(x) == 1)


def test_missing_values_and_images():
    x, y = stream(40)
    x[::2, 0] = np.nan
    assert PairwiseClassifier(**SMALL, missing=True).fit(x, y).predict(x).shape == (40,)
    with pytest.raises(ValueError, match="NaN"):
        PairwiseClassifier(**SMALL).fit(x, y)
    images = np.random.default_rng(0).integers(0, 255, (6, 8, 8, 1))
    PairwiseClassifier("cnn-s", density=0.2, pair_weights_per_class=20).fit(images, [0, 1] * 3)


def test_clone_and_pickle():
    x, y = stream(40)
    estimator = PairwiseClassifier(**SMALL, batch_size=3).partial_fit(x, y)
    other = pickle.loads(pickle.dumps(estimator))
    for model in (estimator, other):
        model.partial_fit(x, y)
    np.testing.assert_array_equal(estimator.predict_proba(x), other.predict_proba(x))
    with pytest.raises(NotFittedError):
        clone(estimator).predict(x)


def test_bad_parameters_are_refused_when_they_are_used():
    estimator = PairwiseClassifier(learning_rate=-1)
    with pytest.raises(InputError, match="learning_rate is -1"):
        estimator.fit([[0.0], [1.0]], [0, 1])


@pytest.mark.parametrize("module", ["sklearn", "river"])
def test_a_missing_package_is_named_with_its_extra(module):
    program = f"import sys; sys.modules[{module!r}] = None; import minipw.online.{module}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1 and f"pip install 'minipw[{module}]'" in done.stderr


def test_samples_that_wait_can_be_learned_by_flush():
    x, y = stream(10)
    estimator = PairwiseClassifier(**SMALL, batch_size=64).partial_fit(x, y)
    with pytest.raises(InputError, match="10 samples wait: call flush"):
        estimator.predict(x)
    assert estimator.flush() is estimator
    assert estimator.predict(x).shape == (10,) and estimator.learner_.waiting == 0
    with pytest.raises(NotFittedError):
        PairwiseClassifier().flush()


def test_labels_of_another_kind_are_refused():
    x = np.eye(4)
    model = PairwiseClassifier(**SMALL).partial_fit(x[:2], ["a", "b"])
    with pytest.raises(InputError, match=r"y\[0\] is 1, a number, but 'a', text, is a label"):
        model.partial_fit(x[2:], [1, 2])
    assert model.partial_fit(x[2:], ["b", "c"]).classes_.tolist() == ["a", "b", "c"]
    numbers = PairwiseClassifier(**SMALL).partial_fit(x[:2], [1, 2])
    with pytest.raises(InputError, match=r"y\[0\] is 'a', text, but 1, a number, is a label"):
        numbers.partial_fit(x[2:], ["a", "b"])


WORDS = {"sport": "goal team win match ball coach", "food": "bread soup salt oven spice pan"}


def texts(count):
    """Short texts of two topics among words that both have, and their topics."""
    rng = np.random.default_rng(0)
    common = [f"word{n}" for n in range(500)]
    topics = rng.choice(list(WORDS), count)
    words = [[*rng.choice(WORDS[t].split(), 3), *rng.choice(common, 20)] for t in topics]
    return [" ".join(rng.permutation(line)) for line in words], topics


def test_text_in_a_pipeline():
    x, y = texts(400)
    for step in (CountVectorizer(), TfidfVectorizer()):
        pipeline = make_pipeline(step, PairwiseClassifier(random_state=0))
        assert pipeline.fit(x[:300], y[:300]).score(x[300:], y[300:]) > 0.9


def test_one_hot_columns_in_a_pipeline():
    rng = np.random.default_rng(0)
    x = rng.choice(["a", "b", "c", "d"], (400, 6))
    y = (x[:, 0] == "a") | (x[:, 1] == "b")
    pipeline = make_pipeline(OneHotEncoder(), PairwiseClassifier(random_state=0))
    assert pipeline.fit(x[:300], y[:300]).score(x[300:], y[300:]) > 0.95


def test_boosting_takes_it():
    x, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    boosted = AdaBoostClassifier(PairwiseClassifier(random_state=0), n_estimators=3)
    assert boosted.fit(x[order], y[order]).score(x, y) > 0.9


def test_a_fit_that_fails_leaves_nothing_fitted():
    x, y = stream(20)
    estimator = PairwiseClassifier(**SMALL).fit(x, y)
    estimator.set_params(learning_rate=-1)
    with pytest.raises(InputError):
        estimator.fit(x, y)
    with pytest.raises(NotFittedError):
        estimator.predict(x)


def test_marked_values_are_missing():
    """What stands under a mask, 1e6, is not learned."""
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    x, y = stream(60)
    known = np.ones(x.shape, bool)
    known[::2, 0] = False
    masked = np.ma.array(np.where(known, x, 1e6), mask=~known)
    objects = pd.DataFrame(x).astype(object).where(known, pd.NA)
    plain = np.where(known, x, np.nan)
    expected = PairwiseClassifier(**SMALL, missing=True).fit(plain, y).predict_proba(plain)
    rows = [row for _, row in objects.iterrows()]
    for same in (masked, list(masked), objects, objects.to_numpy(), rows):
        model = PairwiseClassifier(**SMALL, missing=True).fit(same, y)
        np.testing.assert_array_equal(model.predict_proba(same), expected)
        with pytest.raises(ValueError, match="NaN"):
            PairwiseClassifier(**SMALL).fit(same, y)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")  # rows have ours
@pytest.mark.parametrize("names", [[0, 1, 2, 3, 4], list("abcde"), [("a", n) for n in range(5)]])
def test_columns_that_move_are_refused(names):
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    x, y = stream(60)
    frame = pd.DataFrame(x, columns=pd.Index(names, tupleize_cols=False))
    turned = frame.iloc[:, ::-1]
    for model in (PairwiseClassifier(**SMALL).fit(frame, y), PairwiseClassifier(**SMALL)):
        model.partial_fit(frame, y)
        for call in (model.predict, lambda x, model=model: model.partial_fit(x, y)):
            with pytest.raises(ValueError, match=r"keep their order|same order"):
                call(turned)
        with pytest.raises(InputError, match="keep their order"):
            model.predict([turned.iloc[0]])
        assert model.predict([frame.iloc[0]]) == model.predict(x[:1])


def test_labels_that_are_missing_or_times():
    x, y = stream(60, classes=2)
    text = np.array(["a", "b"], object)[y]
    for missing in (None, np.nan):
        with pytest.raises(ValueError, match=r"y\[0\] is missing|NaN"):
            PairwiseClassifier(**SMALL).fit(x, [missing, *text[1:]])
    with pytest.raises(InputError, match=r"y\[0\] is missing"):
        PairwiseClassifier(**SMALL).fit(x, np.ma.array(y, mask=np.arange(60) == 0))
    times = np.array(["2024-01-01", "2024-02-01"], "datetime64[ns]")[y]
    assert PairwiseClassifier(**SMALL).fit(x, times).score(x, times) > 0.9
