"""Runs of the closed form with a context for each layout of the pixels."""

import json

from minipw.datasets.catalog import load
from minipw.training.run import begin
from minipw.training.settings import resolve


def test_permuted_images_are_learned_without_forgetting(command):
    flags = ["--exp", "permuted", "--dataset", "mnist-5k", "--tasks", "2", "--head", "ridge"]
    status, out, err = command(*flags, "--backbone", "contexts-15", "--json", "--quiet")
    record = json.loads(out)
    assert status == 0 and record["accuracy"] > 94, err
    assert abs(record["forgetting"]) < 0.5 and record["settings"]["backbone"] == "contexts-15"
    assert record["accuracy_matrix"][1][0] > 94 > 60 > record["accuracy_matrix"][1][1]
    status, out, err = command("--exp", "split", "--head", "ncm", "--backbone", "contexts-15")
    assert status == 2 and "contexts-15 is of head ridge alone" in err


def test_what_no_context_has_learned_anew_is_not_computed_again():
    dataset = load("mnist-5k")
    settings, _ = resolve(
        dataset, "permuted", backbone="contexts-15", head="ridge", given={"tasks": 3}
    )
    run, computed, stale = begin(settings, 0, dataset), [], []
    scores = run.learner.decision_function
    run.learner.decision_function = lambda x: computed.append(len(x)) or scores(x)
    run.learn(lambda run: computed and stale.append(computed.pop()))
    total = 9 * dataset.x_test.shape[0]
    assert 3 * dataset.x_test.shape[0] <= sum(stale) < 0.75 * total
    run.tested.clear()
    assert run.evaluate(lambda run: None) == run.matrix[-1]
