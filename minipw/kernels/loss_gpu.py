"""Softmax cross-entropy on a GPU: the loss and its gradient in one launch (loss.cu)."""

import numpy as np

from minipw.backend.arrays import array_module
from minipw.kernels import launcher


def forward(z, labels, mask):
    """`softmax_cross_entropy_forward` for logits z as the mask leaves them.

    The cache is (dz, mask), dz before the mask.
    """
    xp = array_module(z)
    z, labels = xp.ascontiguousarray(z), xp.ascontiguousarray(labels, "int64")
    launcher.expect("z", z, z.shape)
    launcher.expect("labels", labels, z.shape[:-1], "int64")
    (*lead, batch, classes), runs = z.shape, int(np.prod(z.shape[:-2]))
    loss, dz = xp.empty(runs, z.dtype), xp.empty_like(z)
    arguments = {"z": z, "labels": labels, "loss": loss, "dz": dz}
    arguments |= {"batch": batch, "classes": classes}
    shared = launcher.BLOCK * z.itemsize
    launcher.launch(("pack.cu", "loss.cu"), "softmax_loss", (z.dtype,), (runs,), arguments, shared)
    return loss.reshape(lead), (dz, mask)


def backward(cache):
    """`softmax_cross_entropy_backward`."""
    dz, mask = cache
    return dz if mask is None else dz * mask
