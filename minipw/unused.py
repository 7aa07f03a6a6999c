"""Units before the head that do nothing."""

import numpy as np

from minipw.backend import to_host
from minipw.kernels.pairwise_cpu import used_units


def unused_units(network, importance, rule):
    """Count the units that never won and those that no output reads.

    Parameters
    ----------
    network : Network
    importance : dict of str to ndarray
    rule : Rule
        That the network was trained by.

    Returns
    -------
    dict
        "units": H. "unread": those that no pair joins to an output. "never_won": those of
        the others whose weights have no importance, since no step changed them (with
        convolutions: those of whole filters); None for SGD and lambda 0, which keep none. A unit
        that was k-WTA's threshold has a gradient, as if it had won.
    """
    units, pairs = network.architecture.units, network.pairs
    read = np.ones(units, bool)
    if pairs is not None:
        read[:] = False
        read[used_units(to_host(pairs.i), to_host(pairs.j), units)] = True
    name, shape, _ = network.layers[-1]
    changed = to_host(importance[name]).reshape(-1, shape[-1]).any(0)
    keeps_none = rule.name == "sgd" or rule.importance_lambda == 0
    idle = read & ~np.tile(changed, units // shape[-1])  # the filter is the last axis
    return {
        "units": units,
        "never_won": None if keeps_none else int(idle.sum()),
        "unread": int((~read).sum()),
    }


def unused_lines(unused):
    """What to say of them, a str each, when they are over a tenth of the units.

    unused : dict from `unused_units`, or None where a record has none
    """
    if unused is None:
        return
    units = unused["units"]
    if 10 * unused["unread"] > units:
        yield f"{unused['unread']} of {units} units before the head are in no pair"
    if 10 * (unused["never_won"] or 0) > units:
        yield f"{unused['never_won']} of {units} units before the head never won"
