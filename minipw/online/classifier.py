"""The online classifier: it learns a stream once, in its order, and is not told of tasks."""

import math

import numpy as np

from minipw import InputError, parameters
from minipw.backend.arrays import array_module, to_device, to_host
from minipw.backend.cuda import device_module
from minipw.network import diagnostics
from minipw.network.architecture import CONVOLUTIONS
from minipw.online import growth, model_file, state, validation
from minipw.online.standardize import Standardizer
from minipw.rules import Rule, update, zero_importance

COPIED_AT_ONCE = 16 << 20
"""Bytes of samples that a call converts to float64 at a time."""


class OnlineClassifier:
    """Learns labelled samples one after the other, and predicts at any time.

    Samples are learned in batches of `batch_size`, in their order. However the calls cut
    the stream, the batches are the same: samples that do not fill one wait for the next
    call, or for `flush`. A new label gets an output of its own, and the other outputs stay
    as they are. Every method raises an InputError that says what is wrong, where, and what
    to do.

    Parameters
    ----------
    backbone : str
        "mlp-WIDTH-DEPTH"; "cnn-s" or "cnn-m" for images (height, width, channels).
    head : {"pairwise", "fc"}
    rule : {"adagrad", "s-mas", "sgd"}
    learning_rate : float, above 0
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
        theirs, so a new class, which takes one of them, knows what it is not. Another is
        then added.
    classes : sequence of labels or None
        Classes that are known to come.
    seed : int, at least 0
        All random choices follow from it.
    running_standardize : bool
        Subtract the mean and divide by the standard deviation of all samples so far, for
        each feature, or for each channel with a cnn.
    standardized_limit : float, above 0
        Standardized values are cut to plus or minus this.
    missing : bool
        True: NaN is an unknown value and stands for the mean. False: NaN is refused.
    kwta_threshold, gelu, smas_norm : as in `Architecture` and `Rule`
    device : {"cpu", "cuda"}

    Attributes
    ----------
    classes_ : list of the labels, in the order they were first seen
    steps, samples : int, batches and samples learned
    loss : float or None
        Mean cross-entropy of the last batch before it was learned.
    input_shape, columns : tuple or None
        Shape of a sample, and the names of its features where a table gave them.
    network, importance : Network or None, and a dict of str to ndarray, for each parameter
    """

    def __init__(
        self,
        backbone="mlp-500-1",
        head="pairwise",
        rule="adagrad",
        learning_rate=1.5e-3,
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
        kwta_threshold="k+1",
        gelu="tanh",
        smas_norm="mean",
        device="cpu",
    ):
        given = {name: v for name, v in locals().items() if name not in ("self", "classes")}
        self.settings = state.checked(given)
        parts = ("rule", "learning_rate", "importance_lambda", "smas_norm")
        self.rule = Rule(*(self.settings[name] for name in parts))
        self.reserve = self.settings["reserve"] if classes is None else 0
        self.classes_, self._index = [], {}
        self.network, self.importance, self.standardizer = None, {}, None
        self.input_shape = self.columns = self.loss = None
        self.steps = self.samples = 0
        self._waiting = None  # samples (fewer than a batch) and their labels
        self.add_classes(() if classes is None else classes)

    def add_classes(self, labels):
        """Add outputs for classes that are known to come."""
        labels = validation.label_list(labels, "classes")
        new = [label for label in dict.fromkeys(labels) if label not in self._index]
        if new and self.network is not None:
            state.grow(self, growth.add_outputs, len(new), self.settings["seed"], self.batch_size)
        self._index |= {label: n for n, label in enumerate(new, len(self.classes_))}
        self.classes_ += new

    def partial_fit(self, x, y):
        """Learn samples, in their order; returns self.

        When it fails in a batch, the batches before it are learned; the other samples, and
        those that waited, are dropped.

        Parameters
        ----------
        x : array-like of shape (N, D), (N, height, width) or (N, height, width, channels)
            Real numbers of any type. N may be 1, or too large for float64 in memory.
        y : list or array of N hashable labels
            `save` accepts only text, numbers, True, False, None and tuples of these.
        """
        columns, x = validation.column_names(x) or self.columns, self._checked(x)
        labels = validation.as_labels(y, len(x))
        if self.input_shape is None:
            self._begin(x.shape[1:])
        self.columns = columns
        size = self.batch_size
        rows = size * max(1, COPIED_AT_ONCE // (8 * size * math.prod(self.input_shape)))
        for n in range(0, len(x), rows):
            self._take(x[n : n + rows].astype(np.float64), labels[n : n + rows])
        return self

    def flush(self):
        """Learn the samples that wait for a full batch, as a smaller one; returns self."""
        if self.waiting:
            x, labels = self._waiting
            self._waiting = x[:0], []
            self._learn(x, labels)
        return self

    @property
    def batch_size(self):
        """Samples that a step learns."""
        return self.settings["batch_size"]

    @property
    def waiting(self):
        """Samples that wait for a full batch."""
        return 0 if self._waiting is None else len(self._waiting[1])

    def decision_function(self, x):
        """Logits of the classes in `classes_`: float32 ndarray of shape (N, C)."""
        x = self._checked(x)
        self._require_network()
        classes, rows = len(self.classes_), max(1, COPIED_AT_ONCE // (8 * x[:1].size or 1))
        logits = [np.zeros((0, classes), np.float32)]
        with np.errstate(over="ignore", invalid="ignore"):  # reported below
            for start in range(0, len(x), rows):
                inputs = self._inputs(x[start : start + rows].astype(np.float64))
                logits.append(to_host(self.network.logits(inputs))[:, :classes])
                if not np.isfinite(logits[-1]).all():
                    raise InputError(self._divergence("the outputs are", inputs))
        return np.concatenate(logits)

    def predict_proba(self, x):
        """Softmax of the logits over `classes_`: float64 ndarray of shape (N, C)."""
        z = self.decision_function(x).astype(np.float64)
        e = np.exp(z - z.max(1, keepdims=True, initial=-np.inf))
        return e / e.sum(1, keepdims=True)

    def predict(self, x):
        """The most likely label of each sample: ndarray of shape (N,)."""
        return validation.label_array(self.classes_)[self.decision_function(x).argmax(1)]

    def score(self, x, y):
        """Fraction of the samples whose label is predicted, in [0, 1]."""
        best = self.decision_function(x).argmax(1).tolist()
        labels = validation.as_labels(y, len(best))
        if not best:
            raise InputError("no samples to score")
        correct = [self.classes_[b] == label for b, label in zip(best, labels, strict=True)]
        return sum(correct) / len(best)

    def unused_units(self):
        """Units before the head that do nothing; see `network.diagnostics`."""
        self._require_network()
        return diagnostics.unused_units(self.network, self.importance, self.rule)

    def save(self, path):
        """Replace the file at `path`; what `load` reads from it goes on bit for bit."""
        if self.network is not None and diagnostics.nonfinite_parameter(self.network):
            raise InputError("weights are not finite: not saved; use a smaller learning_rate")
        model_file.save(path, *state.state(self))

    @classmethod
    def load(cls, path, device=None):
        """The learner that `save` wrote, on `device`: "cpu", "cuda", or None for the same."""
        parameters.check(device=device or "cpu")
        arrays, facts = model_file.load(path)
        with model_file.refusing_damage(path):
            facts["settings"]["device"] = device = device or facts["settings"]["device"]
        device_module(device)  # that it is not there is not the file's fault
        with model_file.refusing_damage(path):
            return state.restore(cls, arrays, facts)

    def add_features(self, count):
        """Append features that no sample had so far, to samples of shape (N, D).

        In earlier samples they count as missing, or as 0 without `missing`.
        """
        if self.input_shape is None or len(self.input_shape) != 1:
            raise InputError("features can be added only to samples of shape (N, D)")
        count, (x, labels) = validation.feature_count(count), self._waiting
        unknown = np.full((len(x), count), np.nan if self.settings["missing"] else 0.0)
        if self.network is not None:
            state.grow(self, growth.add_inputs, count, self.settings["seed"])
        self._waiting = np.concatenate([x, unknown], axis=1), labels
        self.input_shape, self.columns = (self.input_shape[0] + count,), None
        self.standardizer.add_features(count)

    def _begin(self, shape):
        """Fix the shape of a sample, or raise InputError where no network can have it."""
        _ = growth.architecture(self.settings, shape, 2).winners
        convolutional = self.settings["backbone"] in CONVOLUTIONS
        features = shape[-1] if convolutional else math.prod(shape)
        limit, missing = self.settings["standardized_limit"], self.settings["missing"]
        self.standardizer = Standardizer(features, limit, missing)
        self.input_shape, self._waiting = shape, (np.zeros((0, *shape)), [])

    def _checked(self, x):
        validation.check_columns(validation.column_names(x), self.columns)
        flags = self.settings["running_standardize"], self.settings["missing"]
        return validation.as_samples(x, self.input_shape, *flags)

    def _require_network(self):
        if self.network is None:
            advice = f"; {self.waiting} samples wait: call flush" if self.waiting else ""
            raise InputError(f"nothing is learned yet: call partial_fit first{advice}")

    def _take(self, x, labels):
        """Learn the full batches of the samples that waited and came; the rest waits."""
        if self.waiting:
            x, labels = np.concatenate([self._waiting[0], x]), self._waiting[1] + labels
        size = self.batch_size
        whole = len(x) // size * size
        self._waiting = x[:0], []  # also where a batch fails
        for start in range(0, whole, size):
            self._learn(x[start : start + size], labels[start : start + size])
        self._waiting = x[whole:].copy(), labels[whole:]

    def _learn(self, x, labels):
        """Algorithm 1 on one batch: x float64 ndarray of shape (B, *input_shape)."""
        if not all(label in self._index for label in labels):
            self.add_classes(labels)
        if self.network is None:
            outputs = len(self.classes_) + self.reserve
            architecture = growth.architecture(self.settings, self.input_shape, outputs)
            network = growth.create(architecture, self.settings["seed"], self.batch_size)
            state.set_network(self, network, zero_importance(network.parameters))
        if self.settings["running_standardize"]:
            self.standardizer.update(x.reshape(-1, self.standardizer.mean.size))
        x, y = self._inputs(x), np.array([self._index[label] for label in labels])
        y = to_device(array_module(x), y)
        with np.errstate(over="ignore", invalid="ignore"):  # the loss shows it
            loss, _, gradients = self.network.loss_gradients(x, y, self.rule)
            if not math.isfinite(loss := float(loss)):  # the only wait for a GPU in a step
                raise InputError(self._divergence("the loss is", x))
            for name, gradient in gradients.items():
                update(self.rule, self.network.parameters[name], self.importance[name], gradient)
        self.loss, self.steps, self.samples = loss, self.steps + 1, self.samples + len(x)

    def _inputs(self, x):
        """Samples as the network sees them: standardized, float32."""
        if self.settings["running_standardize"]:
            flat = x.reshape(-1, self.standardizer.mean.size)
            x = self.standardizer.transform(flat).reshape(x.shape)
        elif self.settings["missing"]:
            x = np.where(np.isnan(x), 0.0, x)
        return to_device(array_module(self.network.parameters["head"]), x.astype(np.float32))

    def _divergence(self, what, x):
        smaller = f"begin again with a smaller learning_rate ({self.rule.learning_rate / 10:g})"
        return diagnostics.divergence(self.network, x, self.steps + 1, smaller, what)
