"""Algorithm 1 on a GPU: importance and update in one pass over memory (update.cu)."""

import numpy as np

from minipw.backend.arrays import array_module
from minipw.kernels import launcher


def update(rule, theta, omega, gradient, epsilon):
    """`rules.update` for a gradient that is an ndarray; epsilon is added to the importance."""
    gradient = array_module(gradient).ascontiguousarray(gradient)
    lead = (2,) if rule.needs_output_norm else ()
    launcher.expect("theta", theta, theta.shape)
    launcher.expect("omega", omega, theta.shape, theta.dtype)
    launcher.expect("gradient", gradient, (*lead, *theta.shape), theta.dtype)
    sgd = rule.name == "sgd"
    width = launcher.pack_width(theta.size, theta, omega, gradient)
    arguments = {"theta": theta, "gradient": gradient, "packs": np.int64(theta.size // width)}
    arguments["learning_rate"] = float(rule.learning_rate)
    template = (theta.dtype, width)
    if not sgd:
        arguments = {"theta": theta, "omega": omega, **arguments}
        arguments["importance_lambda"] = float(rule.importance_lambda)
        arguments["epsilon"] = epsilon
        template = (*template, rule.needs_output_norm)
    grid = (-(-theta.size // (width * launcher.BLOCK)),)
    kernel = "update_sgd" if sgd else "update_importance"
    launcher.launch(("pack.cu", "update.cu"), kernel, template, grid, arguments)
