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

from minipw import parameters
from minipw.backend.arrays import BLOCK, array_module, blocks
from minipw.backend.cuda import has_kernels
from minipw.backend.sparse_gradient import Columns
from minipw.backend.threads import THREADS
from minipw.kernels import update_gpu

EPSILON = 1e-6


@dataclass(frozen=True)
class Rule:
    """A learning rule and its constants.

    name : {"adagrad", "s-mas", "sgd"}
    learning_rate : float
        eta, above 0.
    importance_lambda : float
        lambda, at least 0: how fast importance grows, stability against plasticity.
    smas_norm : {"sum", "mean"}
        Of the squared logits over the classes; see `output_norm_forward`.
    """

    name: str
    learning_rate: float
    importance_lambda: float = 0.8
    smas_norm: str = "mean"

    def __post_init__(self):
        parameters.check(rule=self.name, smas_norm=self.smas_norm)

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
    if not isinstance(gradient, Columns):
        _update_array(rule, theta, omega, gradient)
        return
    index, values = gradient
    theta_columns, omega_columns = theta.take(index, axis=-1), omega.take(index, axis=-1)
    _update_array(rule, theta_columns, omega_columns, values)
    theta[..., index] = theta_columns
    if rule.name != "sgd":
        omega[..., index] = omega_columns


def _update_array(rule, theta, omega, gradient):
    xp, step = array_module(theta), STEPS[rule.name]
    if has_kernels(xp):
        return update_gpu.update(rule, theta, omega, gradient, EPSILON)
    theta, omega = _flat(theta), _flat(omega)
    gradient = gradient.reshape(*gradient.shape[: rule.needs_output_norm], -1)

    def work(share):
        for block in blocks(share, xp):
            t = theta[block]
            step(xp, rule, t, omega[block], gradient[..., block], xp.empty_like(t))

    THREADS.map(work, THREADS.shares(theta.size, smallest=BLOCK))


def _flat(x):
    """x as one axis, without a copy."""
    if not x.flags.c_contiguous:
        raise ValueError("parameters are updated in place and must be contiguous")
    return x.reshape(-1)


def sgd(xp, rule, theta, omega, gradient, scratch):
    """theta <- theta - eta g, on arrays of shape (n,); the others have this form too."""
    xp.multiply(gradient, rule.learning_rate, out=scratch)
    theta -= scratch


def adagrad(xp, rule, theta, omega, gradient, scratch):
    """Omega <- Omega + lambda g^2, then line 11."""
    xp.multiply(gradient, gradient, out=scratch)
    scratch *= rule.importance_lambda
    omega += scratch
    _scaled_step(xp, rule, theta, omega, gradient, scratch)


def smas(xp, rule, theta, omega, gradients, scratch):
    """Omega <- Omega + lambda |gradient of the output norm|, then line 11."""
    gradient, norm_gradient = gradients
    xp.abs(norm_gradient, out=scratch)
    scratch *= rule.importance_lambda
    omega += scratch
    _scaled_step(xp, rule, theta, omega, gradient, scratch)


def _scaled_step(xp, rule, theta, omega, gradient, scratch):
    """Line 11: theta <- theta - eta g (Omega + eps)^(-1/2)."""
    xp.add(omega, EPSILON, out=scratch)
    xp.sqrt(scratch, out=scratch)
    xp.divide(gradient, scratch, out=scratch)
    scratch *= rule.learning_rate
    theta -= scratch


STEPS = {"sgd": sgd, "adagrad": adagrad, "s-mas": smas}
"""What each word after --rule does."""


def zero_importance(parameters):
    """Omega before the first step: zeros in the shape of every parameter."""
    return {name: array_module(value).zeros_like(value) for name, value in parameters.items()}
