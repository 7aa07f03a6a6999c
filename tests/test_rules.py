"""The three learning rules against loops, and what an update may and may not touch."""

import numpy as np
import pytest
import reference

from minipw import InputError
from minipw.backend.arrays import BLOCK
from minipw.backend.sparse_gradient import Columns
from minipw.backend.threads import THREADS
from minipw.rules import STEPS, Rule, update, zero_importance

# A handful of float64 operations a step, five steps.
ROUNDING = {"rtol": 1e-13, "atol": 1e-15}

RULES = {
    "sgd": Rule("sgd", 0.05),
    "adagrad": Rule("adagrad", 0.01, 0.8),
    "s-mas": Rule("s-mas", 0.02, 0.3),
}


@pytest.fixture(params=RULES)
def rule(request):
    return RULES[request.param]


def draw_gradient(rng, rule, shape, dtype=np.float64):
    lead = (2,) if rule.needs_output_norm else ()
    return rng.standard_normal((*lead, *shape)).astype(dtype)


def by_loops(rule, theta, omega, gradient):
    """The same step in `reference`: theta and omega after it."""
    if rule.name == "sgd":
        return reference.sgd_step(theta, gradient, rule.learning_rate), omega
    if rule.name == "adagrad":
        u = reference.adagrad_update(gradient)
    else:
        u = reference.smas_update(gradient[1])
        gradient = gradient[0]
    return reference.streaming_step(
        theta, omega, gradient, u, rule.learning_rate, rule.importance_lambda
    )


def by_formula(rule, theta, omega, gradient):
    """The same step on whole arrays."""
    if rule.name == "sgd":
        return theta - rule.learning_rate * gradient, omega
    g, u = (gradient, gradient**2) if rule.name == "adagrad" else (gradient[0], abs(gradient[1]))
    omega = omega + rule.importance_lambda * u
    return theta - rule.learning_rate * g / np.sqrt(omega + 1e-6), omega


@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 1, 4)])
def test_steps_equal_the_loops(rule, xp, host, rng, shape):
    theta, omega = rng.standard_normal(shape), np.zeros(shape)
    ours, our_omega = xp.asarray(theta.copy()), xp.asarray(omega.copy())
    for _ in range(5):
        gradient = draw_gradient(rng, rule, shape)
        theta, omega = by_loops(rule, theta, omega, gradient)
        update(rule, ours, our_omega, xp.asarray(gradient))
        np.testing.assert_allclose(host(ours), theta, **ROUNDING)
        np.testing.assert_allclose(host(our_omega), omega, **ROUNDING)


def test_importance_is_updated_before_it_is_used():
    # Omega = 0 + 0.25 * 2^2 = 1 and g / sqrt(1 + 1e-6) = 2 (1 - 5e-7): the step is 0.1 * 2.
    # With the old Omega it would be 0.1 * 2 / sqrt(1e-6) = 200.
    theta, omega = np.array([3.0]), np.zeros(1)
    update(Rule("adagrad", 0.1, 0.25), theta, omega, np.array([2.0]))
    assert omega == 1.0
    np.testing.assert_allclose(theta, 3 - 0.2 * (1 - 5e-7), rtol=1e-12)  # next term 4e-13


def test_smas_takes_importance_from_the_second_gradient():
    # Omega = 0 + 0.5 * |-2| = 1, the step 0.1 * 3 / sqrt(1 + 1e-6), towards minus g = 3.
    theta, omega = np.array([0.0]), np.zeros(1)
    update(Rule("s-mas", 0.1, 0.5), theta, omega, np.array([[3.0], [-2.0]]))
    assert omega == 1.0
    np.testing.assert_allclose(theta, -0.3 * (1 - 5e-7), rtol=1e-12)


@pytest.mark.parametrize("threads", [1, 2])
def test_blocks_and_threads_give_the_bits_of_the_plain_step(rule, rng, threads):
    shape = (3, BLOCK - 5)  # two whole blocks and a part of one
    theta, omega = rng.standard_normal(shape), rng.uniform(0, 2, shape)
    gradient = draw_gradient(rng, rule, shape)
    expected, expected_omega = theta.copy(), omega.copy()
    STEPS[rule.name](rule, expected, expected_omega, gradient)
    with THREADS.use(threads):
        update(rule, theta, omega, gradient)
    np.testing.assert_array_equal(theta, expected)
    np.testing.assert_array_equal(omega, expected_omega)


@pytest.mark.parametrize("lead", [(), (3,)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_columns_give_the_bits_of_the_dense_update(rule, rng, lead, dtype):
    shape = (*lead, 4, 50)
    index = np.array([0, 3, 4, 17, 49])
    values = draw_gradient(rng, rule, (*lead, 4, 5), dtype)
    dense = np.zeros((*values.shape[:-1], 50), dtype)
    dense[..., index] = values
    theta = rng.standard_normal(shape).astype(dtype)
    omega = rng.uniform(0, 1, shape).astype(dtype)
    start = theta.copy()
    theta_columns, omega_columns = theta.copy(), omega.copy()
    update(rule, theta, omega, dense)
    update(rule, theta_columns, omega_columns, Columns(index, values))
    assert theta_columns.tobytes() == theta.tobytes()
    assert omega_columns.tobytes() == omega.tobytes()
    changed = np.flatnonzero((theta != start).reshape(-1, 50).any(0))
    np.testing.assert_array_equal(changed, index)


def test_a_zero_gradient_leaves_theta_bit_for_bit(rule, rng):
    theta, omega = rng.standard_normal(20), np.zeros(20)
    kept = theta.tobytes()
    update(rule, theta, omega, np.zeros_like(draw_gradient(rng, rule, (20,))))
    assert theta.tobytes() == kept
    assert not omega.any()


def test_float32_stays_float32(rule, rng):
    theta, omega = rng.standard_normal((3, 5)).astype(np.float32), np.zeros((3, 5), np.float32)
    gradient = draw_gradient(rng, rule, (3, 5), np.float32)
    wide = (a.astype(np.float64) for a in (theta, omega, gradient))
    expected, expected_omega = by_formula(rule, *wide)
    update(rule, theta, omega, gradient)
    assert theta.dtype == omega.dtype == np.float32
    # About ten float32 roundings of 6e-8.
    np.testing.assert_allclose(theta, expected, rtol=6e-7, atol=6e-8)
    np.testing.assert_allclose(omega, expected_omega, rtol=6e-7)


def test_the_gradient_is_left_alone_and_may_be_strided(rule, rng):
    gradient = draw_gradient(rng, rule, (5, 3))
    theta, omega = rng.standard_normal((5, 3)), np.ones((5, 3))
    expected, _ = by_formula(rule, theta, omega, gradient)
    strided = np.asfortranarray(gradient)
    update(rule, theta, omega, strided)
    np.testing.assert_allclose(theta, expected, **ROUNDING)
    np.testing.assert_array_equal(strided, gradient)


@pytest.mark.parametrize("which", ["theta", "omega"])
def test_a_parameter_that_would_be_copied_is_refused(rule, rng, which):
    arrays = {"theta": np.ones((3, 5)), "omega": np.ones((3, 5))}
    arrays[which] = np.ones((5, 3)).T
    with pytest.raises(ValueError, match="contiguous"):
        update(rule, **arrays, gradient=draw_gradient(rng, rule, (3, 5)))
    np.testing.assert_array_equal(arrays["theta"], 1)
    np.testing.assert_array_equal(arrays["omega"], 1)


def test_sgd_leaves_the_importance_alone(rng):
    omega = rng.uniform(0, 1, (4, 6))
    kept = omega.copy()
    update(RULES["sgd"], np.ones((4, 6)), omega, rng.standard_normal((4, 6)))
    columns = Columns(np.array([1, 4]), rng.standard_normal((4, 2)))
    update(RULES["sgd"], np.ones((4, 6)), omega, columns)
    np.testing.assert_array_equal(omega, kept)


def test_only_smas_needs_the_output_norm():
    assert [name for name, rule in RULES.items() if rule.needs_output_norm] == ["s-mas"]


def test_importance_begins_at_zero_in_the_shape_and_type_of_each_parameter():
    parameters = {"a": np.ones((2, 3), np.float32), "b": np.ones(4)}
    importance = zero_importance(parameters)
    assert importance.keys() == parameters.keys()
    for name, omega in importance.items():
        assert omega.shape == parameters[name].shape
        assert omega.dtype == parameters[name].dtype
        assert not omega.any()


@pytest.mark.parametrize("name", ["adagrad", "s-mas"])
@pytest.mark.parametrize("importance_lambda", [0, 0.0, 1e-60])
def test_a_rule_without_importance_is_refused(name, importance_lambda):
    says = f"importance_lambda .* makes the steps of {name} those of sgd times 1,000: use rule sgd"
    with pytest.raises(InputError, match=says):
        Rule(name, 0.1, importance_lambda)
    assert Rule("sgd", 0.1, importance_lambda).importance_lambda == importance_lambda
