"""k-WTA and the pairwise layer as plain loops. The letters are those of `reference`."""

import numpy as np


def kwta_threshold(row, winners, threshold):
    """The value that k-WTA subtracts from one row.

    Parameters
    ----------
    row : sequence of H floats
    winners : int
        K; in [1, H - 1] for "k+1", in [1, H] for "k".
    threshold : str
        "k+1": the (K + 1)-th largest value, K units stay without ties.
        "k": the K-th largest value, K - 1 units stay without ties.

    Returns
    -------
    v : float
    """
    rank = {"k+1": winners + 1, "k": winners}[threshold]  # 1 is the largest
    return sorted(row, reverse=True)[rank - 1]


def kwta(x, winners, threshold="k+1"):
    """k-winners-take-all with subtraction.

        y[b, h] = max(x[b, h] - v[b], 0)

    The winners are the units strictly above v[b], see `kwta_threshold`.

    Parameters
    ----------
    x : ndarray of shape (B, H)
    winners : int
    threshold : str

    Returns
    -------
    y : ndarray of shape (B, H)
    """
    batch, units = x.shape
    y = np.zeros((batch, units))
    for b in range(batch):
        v = kwta_threshold(x[b], winners, threshold)
        for h in range(units):
            if x[b, h] > v:
                y[b, h] = x[b, h] - v
    return y


def kwta_gradient(x, winners, threshold, dy):
    """Gradient of `kwta` by x.

    v is itself one of the inputs, x[b, t]. A winner's y = x[b, h] - x[b, t] has
    the slope 1 by its own input and -1 by x[b, t]; every other output is 0
    nearby. So dx = dy on the winners and dx[b, t] = -(sum of the winners' dy).
    Where several units equal v the derivative does not exist; the lowest index
    among them is taken as t.

    Parameters
    ----------
    dy : ndarray of shape (B, H)

    Returns
    -------
    dx : ndarray of shape (B, H)
    """
    batch, units = x.shape
    dx = np.zeros((batch, units))
    for b in range(batch):
        v = kwta_threshold(x[b], winners, threshold)
        t = 0
        while x[b, t] != v:
            t += 1
        for h in range(units):
            if x[b, h] > v:
                dx[b, h] += dy[b, h]
                dx[b, t] -= dy[b, h]
    return dx


def pairwise(x, w, i, j, classes):
    """Pairwise interaction layer: products of two units, one output each.

        y[b, c] = sum over p with p mod C = c of w[p] x[b, i[p]] x[b, j[p]]

    Parameters
    ----------
    x : ndarray of shape (B, H)
    w : ndarray of shape (P,)
    i, j : sequence of P ints in [0, H)
        Pairs may repeat and share units.
    classes : int
        C

    Returns
    -------
    y : ndarray of shape (B, C)
    """
    batch = x.shape[0]
    y = np.zeros((batch, classes))
    for b in range(batch):
        for p in range(len(w)):
            y[b, p % classes] += w[p] * x[b, i[p]] * x[b, j[p]]
    return y


def pairwise_gradient(x, w, i, j, classes, dy):
    """Gradient of `pairwise` by x and w.

    One term is w x_i x_j inside y_c. Its derivative by w is x_i x_j, by x_i it is
    w x_j, by x_j it is w x_i; each is multiplied by dy_c and added up over the
    terms. A pair of a unit with itself gets both additions: 2 w x_i.

    Parameters
    ----------
    dy : ndarray of shape (B, C)

    Returns
    -------
    dx : ndarray of shape (B, H)
    dw : ndarray of shape (P,)
    """
    batch = x.shape[0]
    dx = np.zeros(x.shape)
    dw = np.zeros(len(w))
    for b in range(batch):
        for p in range(len(w)):
            dz = dy[b, p % classes]
            dw[p] += dz * x[b, i[p]] * x[b, j[p]]
            dx[b, i[p]] += dz * w[p] * x[b, j[p]]
            dx[b, j[p]] += dz * w[p] * x[b, i[p]]
    return dx, dw
