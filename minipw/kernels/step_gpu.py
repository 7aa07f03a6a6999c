"""The batch of a step of R runs on a GPU, and what is counted after it (step.cu)."""

from minipw.backend.arrays import array_module
from minipw.kernels import launcher


def gather_batch(data, labels, rows, position, permutation, scale, shift):
    """Inputs (R, B, *shape), float32, and labels (R, B) of a batch.

    Parameters
    ----------
    data : uint8 or float32 ndarray of shape (N, *shape)
    labels : int64 ndarray of shape (N,)
    rows : int64 ndarray of shape (n, R, B), rows of the data for n batches
    position : int64 ndarray of shape (1,), the batch
    permutation : int64 ndarray of shape (R, D), or None
    scale, shift : float32 ndarray of shape (channels,), for uint8
    """
    xp, (runs, batch) = array_module(data), rows.shape[1:]
    x = xp.empty((runs, batch, *data.shape[1:]), "float32")
    y = xp.empty((runs, batch), "int64")
    inputs = x.size // (runs * batch)
    permuted = permutation is not None
    launcher.expect("labels", labels, data.shape[:1], "int64")
    launcher.expect("rows", rows, rows.shape, "int64")
    if permuted:
        launcher.expect("permutation", permutation, (runs, inputs), "int64")
    arguments = {"data": data, "labels": labels, "rows": rows, "position": position}
    arguments["permutation"] = permutation if permuted else rows
    arguments |= {"scale": scale, "shift": shift, "x": x, "y": y}
    arguments |= {"batch": batch, "inputs": inputs, "channels": scale.size}
    template = (x.dtype, data.dtype, permuted)
    launcher.launch(("step.cu",), "gather_batch", template, (runs * batch,), arguments)
    return x, y


def tally(z, labels, loss, correct, finite, finite_steps, position):
    """Count, in place, correct predictions of logits z (R, B, C) and steps with a finite loss."""
    z = array_module(z).ascontiguousarray(z)
    runs, batch, classes = z.shape
    launcher.expect("z", z, z.shape)
    launcher.expect("labels", labels, (runs, batch), "int64")
    launcher.expect("loss", loss, (runs,), z.dtype)
    arguments = {"z": z, "labels": labels, "loss": loss, "correct": correct}
    arguments |= {"finite": finite, "finite_steps": finite_steps, "position": position}
    arguments |= {"batch": batch, "classes": classes}
    launcher.launch(("step.cu",), "tally", (z.dtype,), (runs,), arguments, 8)
