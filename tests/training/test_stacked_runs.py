"""R runs in one: what comes out is what single runs give."""

from dataclasses import replace

import numpy as np
import pytest
from stacked_cases import BASE, CASES, same_facts

from minipw import InputError
from minipw.backend.threads import THREADS
from minipw.experiments.schedule import execute_together
from minipw.experiments.workers import Item, dataset_of
from minipw.training.checkpoint import Stopped
from minipw.training.many_seeds import create_runs, run_seeds, run_stack
from minipw.training.run import Run, train
from minipw.training.stacked_runs import Stack


@pytest.fixture
def data(tiny_dataset):
    """Classes of different sizes, so that the runs' tasks end at different steps."""
    dataset = tiny_dataset(train=400, test=120)
    kept = np.ones(400, bool)
    for label, count in enumerate((10, 0, 50, 37)):
        kept[np.flatnonzero(dataset.y_train == label)[:count]] = False
    return replace(dataset, x_train=dataset.x_train[kept], y_train=dataset.y_train[kept])


def defining_form(run):
    """A run whose head is trained as a stack on a CPU is, so that both add in one order."""
    if run.network.pairs is not None:
        run.network.pairs = replace(run.network.pairs, implementation=None)
    return run


def single(settings, seed, data):
    """A single run after its last step, and its record; see `defining_form`."""
    state = defining_form(Run(settings, seed, data))
    return state, train(settings, seed, data, run=state)


@pytest.mark.parametrize("changes", CASES, ids=" ".join)
def test_three_runs_are_three_single_runs(data, changes):
    # Bit for bit: a stacked matrix product is one BLAS call a run, the head
    # has its defining form, and everything else works on entries or along the last axes.
    settings = replace(BASE, **changes)
    runs = create_runs(settings, (4, 5, 6), data, np)
    records = run_stack(runs)
    for stacked, record in zip(runs, records, strict=True):
        alone, expected = single(settings, stacked.seed, data)
        for name, w in alone.network.parameters.items():
            np.testing.assert_array_equal(stacked.network.parameters[name], w)
            np.testing.assert_array_equal(stacked.importance[name], alone.importance[name])
        assert same_facts(record, expected) and record["runs_together"] == 3
    assert len({record["online_accuracy"] for record in records}) > 1


@pytest.mark.parametrize("rule", ["adagrad", "s-mas"])
def test_small_batches(data, rule):
    # Up to 8 samples only columns with a gradient are multiplied: of the stack the columns
    # of any run, of a single run its own. BLAS may add in another order then; of 100
    # float32 steps 1e-4 is left of the agreement.
    settings = replace(BASE, batch_size=4, rule=rule)
    runs = create_runs(settings, (4, 5, 6), data, np)
    run_stack(runs)
    for stacked in runs:
        alone, _ = single(settings, stacked.seed, data)
        for name, w in alone.network.parameters.items():
            np.testing.assert_allclose(
                stacked.network.parameters[name], w, rtol=1e-4, atol=1e-4 * np.abs(w).max()
            )


def test_threads_share_a_stack(data):
    settings = replace(BASE, batch_size=40)
    with THREADS.use(2):
        threaded = create_runs(settings, (4, 5, 6), data, np)
        run_stack(threaded)
    runs = create_runs(settings, (4, 5, 6), data, np)
    run_stack(runs)
    for one, other in zip(threaded, runs, strict=True):
        for name, w in one.network.parameters.items():  # sums of two halves, a few steps
            np.testing.assert_allclose(w, other.network.parameters[name], rtol=1e-4, atol=1e-6)


def test_runs_of_unequal_length_are_refused(data):
    runs = create_runs(BASE, (4, 5), data, np)
    runs[1].tasks = runs[1].tasks[:1]
    with pytest.raises(ValueError, match="equally many steps"):
        Stack(runs)


def test_seconds_are_shared_and_the_bar_follows(data):
    class Bar:
        n, descriptions = 0, set()

        def set_description(self, text, refresh):
            self.descriptions.add(text)

        def update(self, steps):
            self.n += steps

    bar = Bar()
    records = run_stack(create_runs(BASE, (0, 1), data, np), bar)
    assert bar.n == records[0]["steps"] == records[1]["steps"]
    assert bar.descriptions == {"task 1 of 2", "task 2 of 2"}
    assert records[0]["seconds"] == records[1]["seconds"] > 0


def test_a_stop_leaves_at_once(data):
    calls = iter(range(1000))
    with pytest.raises(Stopped) as stopped:
        run_stack(create_runs(BASE, (0, 1), data, np), stop=lambda: next(calls) == 10)
    assert stopped.value.args[0] == 10 - 4 + 1  # after four tests of untrained networks


def test_a_run_that_diverges_is_named_and_the_others_go_on(data):
    settings = replace(BASE, learning_rate=0.002)
    single_run = Run(settings, 5, data)
    runs = create_runs(settings, (4, 5, 6), data, np)
    stack = Stack(runs)
    # A weight this large overflows the products of the third step's batch or before.
    runs[1].network.parameters["dense0"][0] = single_run.network.parameters["dense0"][0] = 3e38
    with np.errstate(over="ignore", invalid="ignore"):
        stack.learn(lambda stack: None)
        with pytest.raises(InputError) as alone:
            single_run.learn(lambda run: None)
    assert list(stack.failures) == [1]
    assert str(stack.failures[1]) == f"seed 5: {alone.value}"
    for position in (0, 2):
        one, expected = single(settings, runs[position].seed, data)
        for name, w in one.network.parameters.items():
            np.testing.assert_array_equal(runs[position].network.parameters[name], w)
        assert runs[position].matrix == expected["accuracy_matrix"]


def test_weights_that_are_not_finite_fail_their_run_alone(data):
    runs = create_runs(BASE, (4, 5, 6), data, np)
    stack = Stack(runs)
    plain, last = stack.step, runs[1].tasks[0].steps(BASE.batch_size, 1)

    def step():
        plain()
        if stack.steps + 1 == last:  # no later loss of this task shows it
            runs[1].network.parameters["dense0"][3, 7] = np.inf

    stack.step = step
    stack.learn(lambda stack: None)
    (failure,) = stack.failures.values()
    assert str(failure).startswith(
        f"seed 5: layer dense0 holds weights that are not finite after step {last}"
    )
    for position in (0, 2):
        _, expected = single(BASE, runs[position].seed, data)
        assert runs[position].matrix == expected["accuracy_matrix"]


def test_a_later_step_is_found_again(data):
    """The loss of single runs and of the stack stops being finite at the same step."""
    settings = replace(BASE, rule="sgd", learning_rate=3e18, head="fc")
    runs = create_runs(settings, (4, 5), data, np)
    outcomes = run_stack(runs)
    for run_, outcome in zip(runs, outcomes, strict=True):
        with np.errstate(over="ignore", invalid="ignore"), pytest.raises(InputError) as alone:
            Run(settings, run_.seed, data).learn(lambda run: None)
        assert str(outcome) == f"seed {run_.seed}: {alone.value}"
        assert "at step 1," not in str(outcome)


def test_when_every_run_has_failed_the_stack_ends(data):
    settings = replace(BASE, learning_rate=1e30, epochs=50)
    runs = create_runs(settings, (4, 5), data, np)
    outcomes = run_stack(runs)
    assert all(isinstance(outcome, InputError) for outcome in outcomes)
    assert runs[0].steps < 50  # of 750


@pytest.mark.parametrize("together, sizes", [(1, [1, 1, 1]), (2, [2, 1]), (5, [3])])
def test_so_many_at_a_time(data, together, sizes):
    parts = list(run_seeds(BASE, [7, 8, 9], data, np, together))
    assert [len(part) for part in parts] == sizes
    records = [record for part in parts for _, record in part]
    assert [record["seed"] for record in records] == [7, 8, 9]
    for record in records:
        assert same_facts(record, train(BASE, record["seed"], data))


def test_fewer_are_tried_when_memory_is_short(data, monkeypatch):
    tried = []

    def limited(runs, *_):
        tried.append([run.seed for run in runs])
        if len(runs) > 2:
            raise MemoryError("out of it")
        return [{"seed": run.seed} for run in runs]

    monkeypatch.setattr("minipw.training.many_seeds.run_stack", limited)
    released = []
    monkeypatch.setattr("minipw.training.many_seeds.release_memory", lambda: released.append(1))
    parts = list(run_seeds(BASE, range(5), data, np, 5))
    assert tried == [[0, 1, 2, 3, 4], [0, 1, 2], [0, 1], [2, 3], [4]]
    assert [seed for part in parts for seed, _ in part] == [0, 1, 2, 3, 4] and len(released) == 2


def test_one_run_that_does_not_fit_is_an_error(data, monkeypatch):
    def too_much(*_):
        raise MemoryError("out of it")

    monkeypatch.setattr("minipw.training.many_seeds.run_stack", too_much)
    with pytest.raises(MemoryError, match="out of it"):
        list(run_seeds(BASE, [0], data, np, 1))


def test_items_are_grouped_by_settings(tiny_npz):
    dataset_of.cache_clear()
    settings = replace(BASE, dataset=tiny_npz)
    wrong = replace(settings, batch_size=1000)
    items = [
        Item(s, seed) for seed in (0, 1) for s in (settings, wrong, replace(settings, rule="sgd"))
    ]
    done = list(execute_together(items, np, lambda: False))
    assert {item for item, _ in done} == set(items) and len(done) == 6
    for item, outcome in done:
        if item.settings == wrong:
            assert "batch size 1000 is more" in str(outcome)
        else:
            assert (outcome["seed"], outcome["settings"]["rule"]) == (item.seed, item.settings.rule)
    assert list(execute_together(items, np, lambda: True)) == []
    dataset_of.cache_clear()
