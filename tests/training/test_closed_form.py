"""Runs of the closed form: nothing lost, no order, three heads against their definitions."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from stored_records import SETTINGS

from minipw import InputError
from minipw.experiments.store import cell_key, run_key
from minipw.network.feature_map import feature_map
from minipw.paper.cells import OUTLINES
from minipw.parameters import CLOSED_FORM, OF_NETWORKS, WITHOUT_NETWORK
from minipw.training import closed_form_run
from minipw.training.checkpoint import Checkpointer, Stopped
from minipw.training.closed_form import HEADS, SHRINKAGE
from minipw.training.closed_form_run import ClosedFormRun
from minipw.training.record import fault
from minipw.training.run import Run, begin, train
from minipw.training.settings import Settings, resolve
from minipw.training.streams import seed_generators

NAMES = {"experiment": "split", "head": "ridge", "backbone": "random-30"}


@pytest.fixture
def data(tiny_dataset):
    """47 + 33 images of 8 by 8 pixels in 5 classes, so that no task is a whole number of steps."""
    return tiny_dataset(classes=5, train=47, test=33)


def settings_for(data, given=None, **change):
    """Resolved settings of a small run."""
    return resolve(data, **{**NAMES, **change}, given=given)[0]


def learned(data, given=None, **change):
    """A run that has learned its stream."""
    run = begin(settings_for(data, given, **change), 3, data)
    run.learn(lambda run: None)
    return run


@pytest.mark.parametrize("first", [16, 40, 1000])
@pytest.mark.parametrize("given", [{}, {"blur": 0.5}])
def test_every_sample_is_learned_once_and_the_first_make_the_features(
    data, monkeypatch, first, given
):
    # Tasks have 10 to 19 samples: the first ones lie in one task, in several, and in all.
    monkeypatch.setattr(closed_form_run, "FIRST", first)
    run = learned(data, given)
    seen = begin(settings_for(data, given), 3, data)
    batches = [(t, next(t.batches(seen.samples, t.train.size, 1))) for t in seen.tasks]
    parts = [task.training_batch(data, rows)[:2] for task, rows in batches]
    x, labels = map(np.concatenate, zip(*parts, strict=True))
    z = feature_map("random-30", x[:first], seed_generators(3)["weights"])(x).astype(np.float64)
    assert len(z) == 47
    np.testing.assert_array_equal(run.sums.counts, np.bincount(data.y_train))
    # Sums of 47 float32 products.
    np.testing.assert_allclose(np.tril(run.sums.G), np.tril(z.T @ z), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(run.sums.M, z.T @ np.eye(5)[labels], rtol=1e-4, atol=1e-4)
    assert len(run.matrix) == 4 and run.steps <= run.total_steps


@pytest.mark.parametrize("head", CLOSED_FORM)
def test_order_changes_nothing(data, head):
    x = data.batch(data.x_test).reshape(len(data.x_test), -1)
    sharp = learned(data, head=head, backbone="identity")
    for other in (
        learned(data, {"blur": 1.0}, head=head, backbone="identity"),
        learned(data, head=head, backbone="identity", experiment="iid"),
    ):
        # Sums of float32 products, 1e-7, are divided by the least lambda or by 1e-4.
        rtol = 2e-2 if head == "lda" else 1e-3
        np.testing.assert_allclose(other.scores(x), sharp.scores(x), rtol=rtol, atol=1e-3)


@pytest.mark.parametrize("head", ["lda", "ncm"])
def test_means_by_their_definition(rng, head):
    z, labels = rng.standard_normal((60, 7)), np.arange(60) % 3  # the fourth class is unseen
    z += labels[:, None] * rng.standard_normal(7)
    empty, solution = HEADS[head]
    sums = empty(7, 4)
    for part in (slice(0, 25), slice(25, 60)):
        sums.add(z[part], labels[part])
    scores = solution(sums)[0](z)
    S, means = np.eye(7), [z[labels == c].mean(0) for c in range(3)]
    if head == "lda":
        S = sum((a - means[c])[:, None] * (a - means[c]) for a, c in zip(z, labels, strict=True))
        S = (1 - SHRINKAGE) * S / 60 + SHRINKAGE * np.eye(7)
    for c in range(3):
        expected = (z - means[c] / 2) @ np.linalg.solve(S, means[c])
        np.testing.assert_allclose(scores[:, c], expected, rtol=1e-9, atol=1e-9)
    assert (scores[:, 3] == -np.inf).all()


def test_the_matrix_begins_with_chance_and_unseen_classes_are_never_predicted(data):
    run = learned(data)
    assert run.matrix[0] == [20.0] * 3
    assert run.matrix[1][1:] == [0.0, 0.0]
    multi = learned(data, multi_head=True)
    assert multi.matrix[0] == [100 / task.classes.sum() for task in multi.tasks]
    for task, accuracy in zip(multi.tasks[1:], multi.matrix[1][1:], strict=True):
        # Of a task that is unseen, all samples get its first class.
        share = (data.y_test[task.test] == np.flatnonzero(task.classes)[0]).mean()
        assert accuracy == pytest.approx(100 * share)
    assert np.mean(multi.matrix[-1]) >= np.mean(run.matrix[-1]) > 80  # patterns under noise


def test_features_that_do_not_fit_are_made_again(data, monkeypatch):
    kept = learned(data, experiment="permuted", given={"tasks": 3})
    assert len(kept.tested) == 3
    monkeypatch.setattr(closed_form_run, "available_memory", lambda: 0)
    again = learned(data, experiment="permuted", given={"tasks": 3})
    assert again.tested == {} and again.matrix == kept.matrix


@pytest.mark.parametrize("head", CLOSED_FORM)
def test_record(data, head):
    settings = settings_for(data, head=head)
    record = train(settings, 3, data)
    assert fault(record) is None and not record["settings"].keys() & set(OF_NETWORKS)
    older = {**record, "settings": asdict(settings)}  # older ones hold a rule that did nothing
    assert older["settings"].items() > record["settings"].items() and fault(older) is None
    assert cell_key(older) == cell_key(record) == run_key(asdict(settings), None, data.identity)
    assert (record["parameters"], record["online_accuracy"], record["curve"]) == (150, None, [])
    assert ("lambda" in record, "freedom" in record) == (head == "ridge",) * 2
    assert train(settings, 3, data)["accuracy_matrix"] == record["accuracy_matrix"]
    assert record["steps"] == 3


def test_held_out_samples_are_not_learned(data):
    run = learned(data, {"held_out": 0.2})
    assert run.sums.counts.sum() == len(run.dataset.y_train) < 47


def test_an_interrupted_run_leaves_nothing(data, tmp_path):
    path = tmp_path / "run.npz"
    stopping = Checkpointer(str(path), "k", lambda: True, interval=-1.0)
    with pytest.raises(Stopped, match="1"):
        train(settings_for(data), 3, data, checkpointer=stopping)
    assert not path.exists()


def test_what_a_head_can_be(data):
    assert isinstance(begin(settings_for(data), 0, data), ClosedFormRun)
    network = resolve(data, "split", backbone="mlp-30-1", given={"batch_size": 8})[0]
    assert isinstance(begin(network, 0, data), Run)
    for head, backbone in (("pairwise", "scales-7200"), ("ridge", "mlp-30-1")):
        with pytest.raises(InputError, match="unknown"):
            begin(replace(network, head=head, backbone=backbone), 0, data)
    with pytest.raises(InputError, match="on the CPU alone"):
        begin(settings_for(data), 0, data, xp=object())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"given": {"lr": 1}}, "^lr is no setting$"),
        ({"given": {"head": "fc"}}, "^head is no setting$"),
        ({"protocol": "own"}, "protocol is 'own': use released or paper"),
        ({"backbone": 3}, "backbone is 3: use text"),
        ({"rule": ""}, "rule is '': use adagrad, s-mas or sgd"),
        ({"rule": "adam"}, "rule is 'adam': use adagrad, s-mas or sgd"),
        ({"dataset": "mnist"}, "dataset is 'mnist': use one that datasets.load returns"),
    ],
)
def test_settings_that_do_not_exist(data, change, message):
    with pytest.raises(InputError, match=message):
        resolve(**{"dataset": data, "experiment": "split", **change})


@pytest.mark.parametrize("seed", [-1, 1.5, "0", None])
def test_a_seed_is_a_whole_number(data, seed):
    with pytest.raises(InputError, match=r"^seed is "):
        begin(settings_for(data), seed, data)


def test_settings_of_networks_need_not_be_said_of_a_closed_form():
    words = {"experiment": "split", "dataset": "mnist", "multi_head": False}
    said = Settings(**words, backbone="scales-7200", head="ridge")
    assert said == Settings(**words, backbone="scales-7200", head="ridge", **WITHOUT_NETWORK)
    with pytest.raises(InputError, match="rule is '': use adagrad, s-mas or sgd"):
        Settings(**words, backbone="mlp-30-1", head="fc")


def test_default_backbones(tiny_dataset):
    found = {
        (shape, experiment): resolve(tiny_dataset(shape), experiment, head="ridge")[0].backbone
        for shape in ((8, 8, 1), (7, 8, 1), (20,))
        for experiment in ("split", "permuted")
    }
    images = [key for key, backbone in found.items() if backbone == "scales-1800"]
    assert images == [((8, 8, 1), "split")]
    assert {*found.values()} == {"scales-1800", "random-1000"}
    assert resolve(OUTLINES["mnist"], "split", head="ridge")[0].backbone == "scales-7200"


def test_keys_hold_what_has_an_effect_and_older_ones_stay(data):
    settings = asdict(settings_for(data))
    key = run_key(settings, 3, "tiny")
    others = {"rule": "adagrad", "learning_rate": 0.3, "batch_size": 9, "gelu": "exact"}
    assert run_key({**settings, **others}, 3, "tiny") == key
    for change in ({"head": "lda"}, {"backbone": "random-31"}, {"blur": 0.5}, {"tasks": 3}):
        assert (run_key({**settings, **change}, 3, "tiny") == key) == ("tasks" in change)
    record = train(settings_for(data), 3, data)
    assert cell_key(record, 3) == run_key(settings, 3, data.identity)
    # The key of a network as records of before have it.
    assert run_key(SETTINGS, 0, "tiny") == (
        '[{"backbone": "mlp-30-1", "batch_size": 8, "blur": 0.0, "class_mask": null, '
        '"classes_per_task": 2, "dataset": null, "density": 0.3, "epochs": 1, '
        '"evaluate_every": 0, "experiment": "split", "gelu": "tanh", "head": "pairwise", '
        '"held_out": 0.0, "importance_lambda": 0.8, "kwta_threshold": "k", "label": null, '
        '"learning_rate": 0.1, "multi_head": false, "pair_weights": 100, "pairs": "released", '
        '"rule": "adagrad", "smas_norm": null, "tasks": null}, 0, "tiny", 1]'
    )
