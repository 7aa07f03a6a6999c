"""A network from a description: parameters, forward, backward, prediction.

    backbone (dense or convolution, then GELU, once a layer) -> k-WTA -> head

The head is dense ("fc") or pairwise. There are no biases (section 4.1.2).
"""

import numpy as np

from minipw.backend.arrays import array_module, to_device
from minipw.backend.sparse_gradient import Columns, add_gradients
from minipw.backend.threads import THREADS
from minipw.network.head_implementation import cpu_evaluation_batch, stacked, with_implementations
from minipw.network.initialization import PAIRWISE_STD, he_normal, sample_pairs
from minipw.nn.conv import conv2d_backward, conv2d_forward
from minipw.nn.dense import dense_backward, dense_forward
from minipw.nn.gelu import gelu_backward, gelu_forward
from minipw.nn.kwta import kwta_backward, kwta_forward
from minipw.nn.loss import (
    output_norm_backward,
    output_norm_forward,
    softmax_cross_entropy_backward,
    softmax_cross_entropy_forward,
)
from minipw.nn.pairwise import Pairs, pairwise_backward, pairwise_forward

SMALLEST_SHARE = 16
"""Samples of a batch that are worth a thread."""
SMALL_BATCH, FEW_COLUMNS = 8, 0.3
"""In a batch of up to 8 samples, when at most this share of a layer's units has a gradient,
only their columns of dw are computed and updated."""


class Network:
    """Parameters of one network, or of R stacked ones, and its passes.

    Attributes
    ----------
    architecture : Architecture
    parameters : dict of str to ndarray
        "dense0", ... of shape (..., D, H), "conv0", ... of shape (..., rows, columns,
        channels, filters), "head" of shape (..., P) or (..., H, C).
    pairs : Pairs or None
        Those of the pairwise head, with the implementation that training uses.
    evaluation_pairs : Pairs or None
        The same pairs with the one that `logits` uses.
    evaluation_batch : int or None
        Samples that `logits` works on at once; None leaves it to `head_implementation`.
    """

    def __init__(self, architecture, parameters, pairs=None, batch_size=64):
        self.architecture = architecture
        self.parameters = parameters
        self.layers = architecture.layers()
        self.winners = architecture.winners
        self.approximate_gelu = architecture.gelu == "tanh"
        self.evaluation_batch = None
        self.pairs = self.evaluation_pairs = pairs
        if pairs is not None:
            xp = array_module(parameters["head"])
            pairs = with_implementations(pairs, architecture, batch_size, xp)
            self.pairs, self.evaluation_pairs = pairs

    @classmethod
    def create(cls, architecture, weights_rng, pairs_rng, dtype=np.float32, batch_size=64, xp=np):
        """A network with the initial parameters of appendix B.

        Parameters
        ----------
        architecture : Architecture
        weights_rng, pairs_rng : numpy.random.Generator
        dtype : float32, or float64 for gradient checks
        batch_size : int
            Of the training steps: the fastest implementation of the head depends on it.
        xp : module
            numpy or cupy. The host draws the same numbers for both.
        """
        units, classes = architecture.units, architecture.classes
        _ = architecture.winners  # refuse a bad density before anything is drawn
        layers, pairs = architecture.layers(), None
        parameters = {layer.name: he_normal(weights_rng, layer.shape, dtype) for layer in layers}
        if architecture.head == "pairwise":
            sampling = architecture.pairs
            i, j = sample_pairs(pairs_rng, units, architecture.pair_weights, classes, sampling)
            pairs = Pairs(i, j, classes)
            parameters["head"] = (PAIRWISE_STD * weights_rng.standard_normal(i.size)).astype(dtype)
        else:
            parameters["head"] = he_normal(weights_rng, (units, classes), dtype)
        parameters = {name: to_device(xp, value) for name, value in parameters.items()}
        return cls(architecture, parameters, pairs, batch_size)

    @classmethod
    def stack(cls, networks):
        """R networks of one architecture as one with a leading axis R."""
        first = networks[0]
        xp = array_module(first.parameters["head"])
        parameters = {
            name: xp.stack([network.parameters[name] for network in networks])
            for name in first.parameters
        }
        pairs = stacked([network.pairs for network in networks], xp) if first.pairs else None
        return cls(first.architecture, parameters, pairs)

    @property
    def parameter_count(self):
        """Trainable weights, of all stacked runs together."""
        return sum(value.size for value in self.parameters.values())

    def forward(self, x, gradient=True):
        """Logits of a batch.

        Parameters
        ----------
        x : ndarray of shape (..., B, *input_shape)
        gradient : bool
            False when no backward will follow.

        Returns
        -------
        logits : ndarray of shape (..., B, C)
        caches : tuple
            What `backward` needs: (dense or convolution, GELU) of each layer, k-WTA, head.
        """
        lead = x.shape[: x.ndim - len(self.architecture.input_shape)]
        if self.layers[0].stride is None:
            x = x.reshape(*lead, -1)  # (..., B, D)
        layer_caches, kwta_cache = [], None
        for name, _, stride, _ in self.layers:
            w = self.parameters[name]
            x, cache = dense_forward(x, w) if stride is None else conv2d_forward(x, w, stride)
            x, gelu_cache = gelu_forward(x, self.approximate_gelu)
            layer_caches.append((cache, gelu_cache))
        x = x.reshape(*lead, -1)  # (..., B, H)
        if self.architecture.density is not None:
            x, kwta_cache = kwta_forward(x, self.winners)
        w = self.parameters["head"]
        if self.pairs is None:
            logits, head_cache = dense_forward(x, w)
        else:
            pairs = self.pairs if gradient else self.evaluation_pairs
            logits, head_cache = pairwise_forward(x, w, pairs, gradient)
        return logits, (layer_caches, kwta_cache, head_cache)

    def backward(self, dlogits, caches):
        """Gradients of every parameter.

        Parameters
        ----------
        dlogits : ndarray of shape (..., B, C)
            One gradient, or several on an axis in front of those of the forward.
        caches : tuple from `forward`

        Returns
        -------
        dict of str to ndarray or Columns
            By the names of `parameters`, with the axis of dlogits in front.
        """
        layer_caches, kwta_cache, head_cache = caches
        gradients = {}
        head_backward = dense_backward if self.pairs is None else pairwise_backward
        dx, gradients["head"] = head_backward(dlogits, head_cache)
        if kwta_cache is not None:
            dx = kwta_backward(dx, kwta_cache)  # (..., B, H)
        dx = dx.reshape(*dx.shape[:-1], *self.layers[-1].output_shape)
        for n in reversed(range(len(self.layers))):
            layer, (cache, gelu_cache) = self.layers[n], layer_caches[n]
            dx = gelu_backward(dx, gelu_cache)
            layer_backward = _dense_backward if layer.stride is None else conv2d_backward
            dx, gradients[layer.name] = layer_backward(dx, cache, n > 0)
        return gradients

    def loss_gradients(self, x, labels, rule, mask=None, masking="exclude", weights=None):
        """One forward and one backward pass for a learning rule; threads share the batch.

        Parameters
        ----------
        x : ndarray of shape (..., B, *input_shape)
        labels : int ndarray of shape (..., B)
        rule : Rule
            For S-MAS one backward pass takes the gradients of the loss and of the output
            norm, stacked.
        mask, masking : as in `softmax_cross_entropy_forward`
        weights : ndarray of shape (B,), or None
            Factors of the samples' gradients.

        Returns
        -------
        loss : ndarray of shape (...)
        logits : ndarray of shape (..., B, C)
        gradients : dict for `rules.update`
        """
        xp, batch_size = array_module(x), labels.shape[-1]
        runs = (slice(None),) * (labels.ndim - 1)  # the leading axes
        mask_per_sample = mask is not None and mask.ndim > 1 and mask.shape[-2] == batch_size

        def share_gradients(share):
            """Loss, logits and gradients of a slice of the batch, weighted by its length."""
            logits, caches = self.forward(x[(*runs, share)])
            share_mask = mask[..., share, :] if mask_per_sample else mask
            loss, loss_cache = softmax_cross_entropy_forward(
                logits, labels[..., share], share_mask, masking
            )
            dlogits = softmax_cross_entropy_backward(loss_cache)
            if rule.needs_output_norm:
                _, norm_cache = output_norm_forward(logits, rule.smas_norm)
                dlogits = xp.stack([dlogits, output_norm_backward(norm_cache)])
            if weights is not None:
                dlogits = dlogits * weights[share, None]
            if (weight := (share.stop - share.start) / batch_size) < 1:
                loss, dlogits = loss * loss.dtype.type(weight), dlogits * weight
            return loss, logits, self.backward(dlogits, caches)

        parts = THREADS.map(share_gradients, THREADS.shares(batch_size, SMALLEST_SHARE))
        loss, logits, gradients = parts[0]
        for other_loss, other_logits, others in parts[1:]:
            loss, logits = loss + other_loss, xp.concatenate([logits, other_logits], axis=-2)
            gradients = {name: add_gradients(g, others[name]) for name, g in gradients.items()}
        return loss, logits, gradients

    def logits(self, x):
        """Logits (..., N, C) of N samples x, (..., N, *input_shape), in batches; N is 1 or more."""
        axis = x.ndim - len(self.architecture.input_shape) - 1
        runs = (slice(None),) * axis  # the leading axes
        size = self.evaluation_batch
        size = size or cpu_evaluation_batch(self.evaluation_pairs, self.architecture)
        batches = [slice(start, start + size) for start in range(0, x.shape[axis], size)]
        parts = THREADS.map(lambda batch: self.forward(x[(*runs, batch)], False)[0], batches)
        return array_module(x).concatenate(parts, axis=-2)


def _dense_backward(dy, cache, input_gradient):
    """`dense_backward`, with dw as `Columns` when few units have a gradient at all."""
    if dy.shape[-2] > SMALL_BATCH or array_module(dy) is not np:
        return dense_backward(dy, cache, input_gradient)
    index = np.flatnonzero((dy != 0).reshape(-1, dy.shape[-1]).any(0))
    if index.size > FEW_COLUMNS * dy.shape[-1]:
        return dense_backward(dy, cache, input_gradient)
    x, w = cache
    dx, dw = dense_backward(dy[..., index], (x, w[..., index]), input_gradient)
    return dx, Columns(index, dw)
