"""What is counted of a run's memory, by hand."""

from dataclasses import replace

from stacked_cases import BASE

from minipw.network import cost
from minipw.network.architecture import Architecture


def test_values_of_a_sample_by_hand():
    pairwise = Architecture((28, 28, 1), 10, "mlp-700-1", "pairwise")
    # pixels; before and after GELU and its factor; three arrays of k-WTA; units x classes
    assert cost.sample_values(pairwise) == 784 + 3 * 700 + 3 * 700 + 700 * 10
    assert cost.sample_values(pairwise, True) == 784 + 6 * 700 + 5 * 250_000
    cnn = Architecture((28, 28, 1), 10, "cnn-s", "fc")
    # 7 x 7 places of 7 x 7 patches and of 64 filters
    assert cost.sample_values(cnn) == 784 + 49 * 49 + 3 * 49 * 64 + 3 * 49 * 64


def test_runs_that_fit():
    assert cost.runs_that_fit(10_000, 1000, 700) == 10
    assert cost.runs_that_fit(10, 1000, 700) == 1
    pairwise = Architecture((28, 28, 1), 10, "mlp-700-1", "pairwise")
    settings = replace(BASE, batch_size=64)
    size = cost.run_bytes(pairwise, settings)
    parameters = 784 * 700 + 250_000
    values = 784 + 6 * 700 + 7000
    assert size == 4 * (6 * parameters + 2 * 64 * values) + 32 * 250_000
    assert cost.run_bytes(pairwise, replace(settings, rule="s-mas")) > size
    assert cost.samples_that_fit(1 << 36, pairwise) == 10_000
    assert cost.samples_that_fit(0, pairwise) == 1
    # 0.8 / 2 of the bytes of 1001 samples
    assert cost.samples_that_fit(1001 * 4 * cost.sample_values(pairwise), pairwise) == 400
