"""minipw: continual learning with the pairwise layer, by hand.

Letters, the same in every file:

    R  runs trained at once (seeds)      B  batch         D  inputs
    H  units before the head             K  winners       C  classes
    P  pair weights                      T  tasks

Where the paper's text is in the code:

    section 3.1, k-WTA with subtraction      nn/kwta.py
    section 3.2, figure 2c, pairwise layer   nn/pairwise.py
    Algorithm 1, lines 9 to 11               rules.py
    UpdateRuleAdagrad, UpdateRuleSMAS        rules.py, nn/loss.py (output_norm)
    section 4.1, split and permuted tasks    streams.py
    section 4.1.2, the networks              architecture.py, model.py
    appendix B, initialization               architecture.py
"""

__version__ = "0.1.0"


class InputError(ValueError):
    """Input that cannot be used: one line that says what, where and what to do."""
