"""Algorithm 1: importance, and the update that it slows down.

    line 10:  Omega <- Omega + lambda u
    line 11:  theta <- theta - eta g (Omega + eps)^(-1/2)

    Adagrad   u = g^2
    S-MAS     u = |gradient of the output norm|
    SGD       theta <- theta - eta g; there is no Omega

g is the gradient of the loss by theta. Omega never shrinks and is updated before
it is used. An entry with g = u = 0 is left exactly as it is, which is why a
gradient may come as `Columns`: the entries outside need no visit.
"""

from dataclasses import dataclass

import numpy as np

from minipw import InputError, parameters
from minipw.backend.arrays import array_module
from minipw.backend.cuda import has_kernels
from minipw.backend.sparse_gradient import Columns
from minipw.kernels import update_cpu, update_gpu

EPSILON = 1e-6


@dataclass(frozen=True)
class Rule:
    """A learning rule and its constants.

    name : {"adagrad", "s-mas", "sgd"}
    learning_rate : float
        eta, above 0.
    importance_lambda : float
        lambda, above 0 but for SGD: how fast importance grows, stability against plasticity.
    smas_norm : {"sum", "mean"}
        Of the squared logits over the classes; see `output_norm_forward`.
    """

    name: str
    learning_rate: float
    importance_lambda: float = 0.8
    smas_norm: str = "mean"

    def __post_init__(self):
        parameters.check(rule=self.name, smas_norm=self.smas_norm)
        if self.name != "sgd" and np.float32(self.importance_lambda) <= 0:
            raise InputError(
                f"importance_lambda {self.importance_lambda:g} makes the steps of {self.name} "
                f"those of sgd times {EPSILON**-0.5:,.0f}: use rule sgd, or a larger one"
            )

    @property
    def needs_output_norm(self):
        """Whether `update` expects the gradient of the output norm behind the loss's."""
        return self.name == "s-mas"


def update(rule, theta, omega, gradient):
    """One step of Algorithm 1 for one parameter, in place.

    Parameters
    ----------
    rule : Rule
    theta, omega : contiguous ndarray of shape (...)
        Parameter and its importance.
    gradient : ndarray of shape (...), or Columns of its last axis
        For S-MAS (2, ...): the gradient of the loss, then of the output norm.
    """
    if isinstance(gradient, Columns):
        index, values = gradient
        columns = theta.take(index, axis=-1), omega.take(index, axis=-1)
        update(rule, *columns, values)
        theta[..., index], omega[..., index] = columns
    elif has_kernels(array_module(theta)):
        update_gpu.update(rule, theta, omega, gradient, EPSILON)
    elif array_module(theta) is np:
        update_cpu.update(rule, theta, omega, gradient, EPSILON)
    else:
        STEPS[rule.name](rule, theta, omega, gradient)


def sgd(rule, theta, omega, g):
    """Plain gradient descent, on arrays of shape (n,) as the others."""
    lr = rule.learning_rate
    theta -= lr * g


def adagrad(rule, theta, omega, g):
    """Lines 10 and 11 with u = g^2."""
    lr, lam, sqrt = rule.learning_rate, rule.importance_lambda, array_module(theta).sqrt
    omega += lam * g**2
    theta -= lr * (g / sqrt(omega + EPSILON))


def smas(rule, theta, omega, gradients):
    """Lines 10 and 11 with u = |dn|; g is the gradient of the loss, dn of the output norm."""
    lr, lam, sqrt = rule.learning_rate, rule.importance_lambda, array_module(theta).sqrt
    g, dn = gradients
    omega += lam * abs(dn)
    theta -= lr * (g / sqrt(omega + EPSILON))


STEPS = {"sgd": sgd, "adagrad": adagrad, "s-mas": smas}
"""What each word after --rule does, in place; the kernels do the same, faster."""


def zero_importance(parameters):
    """Omega before the first step: zeros in the shape of every parameter."""
    return {name: array_module(value).zeros_like(value) for name, value in parameters.items()}
