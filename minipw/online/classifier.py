"""The online classifier: it learns a stream once, in its order, and is not told of tasks."""

import math

import numpy as np

from minipw import InputError
from minipw.network import diagnostics
from minipw.network.architecture import CONVOLUTIONS
from minipw.online import growth, state, step
from minipw.online.learner import Learner
from minipw.online.standardize import Standardizer
from minipw.rules import Rule, zero_importance

GROWTH = 16
"""A head grows by an output a class, or by one for every so many that it has."""


class OnlineClassifier(Learner):
    """Learns labelled samples one after the other, and predicts at any time.

    Samples are learned in batches of `batch_size`, in their order, however the calls cut the
    stream: those that do not fill one wait for the next call, or for `flush`. A new label
    gets an output of its own, and the other outputs stay as they are.

    Parameters
    ----------
    backbone : str
        "mlp-WIDTH-DEPTH"; "cnn-s" or "cnn-m" for images (height, width, channels).
    learning_rate : float, above 0, or None
        None: 0.0015 with a pairwise head, 0.01 for sparse samples; with a dense head
        0.025 n^(-0.35) for n samples a class so far.
    density : float in (0, 1), or None
        Fraction of the units that win; None leaves k-WTA out.
    importance_lambda : float, at least 0
        How fast importance grows: stability against plasticity.
    batch_size : int, at least 1
        1 learns each sample before the call returns.
    pair_weights_per_class : int or None
        None: a tenth of all pairs, but at least 2,500, where they exist, and at most 25,000.
    reserve : int, at least 0
        Outputs without a class, none if `classes` is given. They learn that no sample is
        theirs, so a new class, which takes one of them, knows what it is not.
    classes : sequence of labels or None
        Classes that are known to come.
    seed : int, at least 0
        All random choices follow from it.
    running_standardize : bool
        Subtract the mean and divide by the standard deviation of all samples so far, for
        each feature, or for each channel with a cnn. Sparse samples are only divided. Values
        that are far off do not count; `standardizer.cut` says how many.
    standardized_limit : float, above 0
        Standardized values are cut to plus or minus this.
    missing : bool
        True: NaN is an unknown value and stands for the mean. False: NaN is refused.
    bias : bool
        A dense backbone has a constant input beside the features.
    class_weight : {None, "balanced"}
        "balanced" weights samples by the inverse frequency of their class so far.
    half_life : float, above 0, or None
        Samples after which importance counts half, so that an old world is forgotten.
    head, rule, kwta_threshold, gelu, smas_norm, device : as in `parameters.PARAMETERS`

    Attributes
    ----------
    classes_ : list of the labels, in the order they were first seen
    counts : list of int, the samples learned of each
    steps, samples : int, batches and samples learned
    loss : float or None, mean cross-entropy of the last batch before it was learned
    input_shape, columns : tuple or None
        Shape of a sample, and the names of its features where a table gave them.
    network, importance : Network or None, and a dict of str to ndarray, for each parameter
    """

    def __init__(
        self,
        backbone="mlp-500-1",
        head="pairwise",
        rule="adagrad",
        learning_rate=None,
        density=0.2,
        importance_lambda=0.3,
        batch_size=1,
        pair_weights_per_class=None,
        reserve=10,
        classes=None,
        seed=0,
        running_standardize=True,
        standardized_limit=3.0,
        missing=False,
        bias=True,
        class_weight=None,
        half_life=None,
        kwta_threshold="k+1",
        gelu="tanh",
        smas_norm="mean",
        device="cpu",
    ):
        given = {k: v for k, v in locals().items() if k not in ("self", "classes", "__class__")}
        super().__init__(state.checked(given))
        given = self.settings
        rate = given["learning_rate"] or step.PAIRWISE_RATE
        self.rule = Rule(given["rule"], rate, given["importance_lambda"], given["smas_norm"])
        self.reserve = given["reserve"] if classes is None else 0
        self.network, self.importance, self.standardizer = None, {}, None
        self.loss = None
        self.steps = self.samples = self.age = 0
        self._waiting = None  # samples (fewer than a batch), their labels and weights
        self.add_classes(() if classes is None else classes)

    kind = "network"

    def _announce(self, count):
        if self.network is not None:
            outputs, seed = self.network.architecture.classes, self.settings["seed"]
            more = len(self.classes_) + count + self.reserve - outputs
            if more > 0:  # by several where there are many, as each copies the head
                more = max(more, outputs // GROWTH)
                state.grow(self, growth.add_outputs, more, seed, self.batch_size)

    def flush(self):
        """Learn the samples that wait for a full batch, as a smaller one; returns self."""
        with self._learning:
            if self.waiting:
                batch = self._waiting
                self._waiting = batch[0][:0], [], batch[2][:0]
                self._learn(*batch)
        return self

    @property
    def batch_size(self):
        """Samples that a step learns."""
        return self.settings["batch_size"]

    @property
    def waiting(self):
        """Samples that wait for a full batch."""
        return 0 if self._waiting is None else len(self._waiting[1])

    def unused_units(self):
        """Units before the head that do nothing; see `network.diagnostics`."""
        self._require_learned()
        return diagnostics.unused_units(self.network, self.importance, self.rule)

    def _state(self):
        state.require_finite(self)
        return state.state(self)

    @classmethod
    def _restore(cls, arrays, facts):
        return state.restore(cls, arrays, facts)

    def add_features(self, features, earlier=None):
        """Append features, by their number or names, to samples of shape (N, D).

        In earlier samples they count as `earlier`; None: as missing, or as 0 without `missing`.
        """
        with self._learning, self._lock:
            if earlier is None:
                earlier = math.nan if self.settings["missing"] else 0.0
            columns, count = self._more_columns(features, earlier)
            x, labels, weights = self._waiting
            unknown = np.full((len(x), count), earlier)
            if self.network is not None:
                state.grow(self, growth.add_inputs, count, self.settings["seed"])
            self._waiting = np.concatenate([x, unknown], axis=1), labels, weights
            self._widen(columns)
            self.features = len(columns)
            self.standardizer.add_features(count, earlier)

    def _begin(self, shape, centred=True):
        """Fix the shape of a sample, or raise InputError where no network can have it."""
        _ = growth.architecture(self.settings, shape, 2).winners
        convolutional = self.settings["backbone"] in CONVOLUTIONS
        self.features = shape[-1] if convolutional else math.prod(shape)
        options = self.settings["standardized_limit"], self.settings["missing"], centred
        self.standardizer = Standardizer(self.features, *options)
        self.constant = growth.constant_input(self.features, centred)
        self.input_shape, self._waiting = shape, (np.zeros((0, *shape)), [], np.zeros(0))

    def _require_learned(self):
        if self.network is None:
            advice = f"; {self.waiting} samples wait: call flush" if self.waiting else ""
            raise InputError(f"nothing is learned yet: call partial_fit first{advice}")

    def _take(self, x, labels, weights):
        """Learn the full batches of the samples that waited and came; the rest waits."""
        if self.waiting:
            x, labels = np.concatenate([self._waiting[0], x]), self._waiting[1] + labels
            weights = np.concatenate([self._waiting[2], weights])
        size = self.batch_size
        whole = len(x) // size * size
        self._waiting = x[:0], [], weights[:0]  # also where a batch fails
        for start in range(0, whole, size):
            part = slice(start, start + size)
            self._learn(x[part], labels[part], weights[part])
        self._waiting = x[whole:].copy(), labels[whole:], weights[whole:].copy()

    def _logits(self, x):
        return step.logits(self, x)

    def _learn(self, x, labels, weights):
        """Learn one batch; new labels get an output before, and the first batch a network."""
        with self._lock:
            if not all(label in self._index for label in labels):
                self.add_classes(labels)
            if self.network is None:
                outputs = len(self.classes_) + self.reserve
                architecture = growth.architecture(self.settings, self.input_shape, outputs)
                network = growth.create(architecture, self.settings["seed"], self.batch_size)
                state.set_network(self, network, zero_importance(network.parameters))
            step.learn(self, x, labels, weights)
