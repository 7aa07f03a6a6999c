"""minipw: continual learning with the pairwise layer, by hand.

Letters, the same in every file:

    R  runs trained at once (seeds)      B  batch         D  inputs
    H  units before the head             K  winners       C  classes
    P  pair weights                      T  tasks

The rooms, in reading order:

    nn/           the mathematics: each forward beside its backward
    rules.py      Algorithm 1: importance and update
    ridge.py      the closed form: statistics that add, weights that solve them
    gradcheck.py  finite differences
    network/      a network from its description: first weights, passes, cost
    training/     one run: settings, tasks, the streaming loop, record, metrics
    online/       classifiers for one's own stream
    experiments/  many runs: store, workers, tables, figures, tuning
    bench/        step times against the machine's own floor
    cli/          the command line, one file a subcommand

    kernels/      the operations of nn/ and rules.py again, fast
    backend/      NumPy or CuPy, threads, device, memory, files of arrays
    datasets/     find, download, verify, read
    paper/        printed numbers and released settings
    parameters.py the table of every parameter; progress.py the progress bar

Where the paper's text is in the code:

    section 3.1, k-WTA with subtraction      nn/kwta.py
    section 3.2, figure 2c, pairwise layer   nn/pairwise.py
    Algorithm 1, lines 9 to 11               rules.py
    UpdateRuleAdagrad, UpdateRuleSMAS        rules.py, nn/loss.py (output_norm)
    section 4.1, split and permuted tasks    training/tasks.py
    section 4.1.2, the networks              network/architecture.py, network/network.py
    appendix B, initialization               network/initialization.py
"""

__version__ = "0.1.0"


class InputError(ValueError):
    """Input that cannot be used: one line that says what, where and what to do."""
