"""Images whose pixels were permuted: how rough a sample is, and the layout that smooths it.

Neighbouring pixels of an image are alike. With x the values of a sample,

    r(x) = mean over neighbouring pixels of (x_i - x_j)^2 / (2 var x)      roughness

is near 1 for pixels in random places, and at most 0.762 for every one of the 200,000 images of
MNIST, Fashion-MNIST and CIFAR-10. So one sample without a label says whether its layout is
known. One that is not known comes from the samples themselves: each input is joined to the
few that it correlates with most, the shortest paths between inputs become distances in a
plane (classical scaling, then stress majorization: de Leeuw 1977, Tenenbaum et al. 2000), and
each place in the plane is given a pixel (linear assignment). The result may be turned or
mirrored, which patches do not mind.
"""

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, shortest_path

NEIGHBOURS = 4
"""Inputs that each is joined to; a pixel has as many."""
LIVELY = 0.15, 0.25
"""Least deviation, of the largest, of inputs that make a layout; the smoother result is taken."""
ROUNDS = 5
"""Steps of stress majorization."""
FITS = 0.8
"""Roughness that fits a layout: its own leaves at most 0.762, another at least 0.87."""
TRIES, AGAIN, LEAST = 3, 3, 150
"""Searches for a context, and rounds of each; samples that it opens with."""
SEEDS, CORE = 20, 100
"""Samples that a search for alike ones begins with, and how many it ends with."""


def roughness(x, order, shape):
    """r of samples x (N, D), float64, with input order[k] at pixel k of shape: ndarray (N,)."""
    image = x[:, order].reshape(len(x), *shape)
    down, right = np.diff(image, axis=1), np.diff(image, axis=2)
    squares = (down**2).sum((1, 2)) + (right**2).sum((1, 2))
    pairs = down[0].size + right[0].size
    return squares / (pairs * np.maximum(2 * x.var(1), 1e-9))


def find_order(x, shape):
    """The input at each pixel, an int ndarray (D,), that smooths samples x (N, D).

    ValueError where the samples have too few lively inputs for a layout.
    """
    orders = [_order(x, shape, lively) for lively in LIVELY]
    return min(orders, key=lambda order: roughness(x, order, shape).mean())


def alike(x, rng):
    """The rows of CORE samples of x (N, D) that are of one kind: int ndarray.

    It begins with those most like a random one, as vectors. Then each round takes the most
    likely under how often an input of the last ones is lit, against how often any is.
    """
    lit = x > x.min()
    unit = x - x.min()
    unit /= np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), 1e-9)
    rows = np.argsort(-(unit @ unit[rng.integers(len(unit))]))[:SEEDS]
    every = np.clip(lit.mean(0), 0.01, 0.99)
    for size in (30, 45, 70, CORE, CORE, CORE):
        own = np.clip((lit[rows].sum(0) + every) / (len(rows) + 2), 0.01, 0.99)
        odds = lit @ np.log(own / every) + ~lit @ np.log((1 - own) / (1 - every))
        rows = np.argsort(-odds)[:size]
    return rows


def _order(x, shape, lively):
    places, live = _plane(x, lively)
    places = places - places.mean(0)
    places = places @ np.linalg.eigh(places.T @ places)[1][:, ::-1]  # the long axis first
    pixels = np.indices(shape).reshape(2, -1).T - (np.array(shape) - 1) / 2
    order = np.full(len(pixels), -1)

    def assign(places, inputs):
        free = np.flatnonzero(order < 0)
        distances = ((places[:, None] - pixels[free]) ** 2).sum(-1)
        row, column = linear_sum_assignment(distances)
        order[free[column]] = inputs[row]

    assign(places, live)
    deviation = x.std(0)
    rest = np.setdiff1d(np.flatnonzero(deviation > 0), live)
    if len(rest):  # outwards of those that they are most like
        z = (x - x.mean(0)) / np.maximum(deviation, 1e-9)
        most = np.argsort(-(z[:, rest].T @ z[:, live]), 1)[:, :3]
        assign(1.1 * places[most].mean(1), rest)
    order[order < 0] = np.setdiff1d(np.arange(len(pixels)), order)
    return order


def _plane(x, lively):
    """Places (n, 2) of the lively inputs, a pixel apart, and which inputs these are (n,)."""
    deviation = x.std(0)
    live = np.flatnonzero(deviation > lively * deviation.max())
    if len(live) <= NEIGHBOURS:
        raise ValueError("too few inputs vary")
    z = (x[:, live] - x[:, live].mean(0)) / deviation[live]
    correlation = z.T @ z / len(z)
    np.fill_diagonal(correlation, -1)
    near = np.argsort(-correlation, 1)[:, :NEIGHBOURS].ravel()
    row = np.repeat(np.arange(len(live)), NEIGHBOURS)
    far = np.sqrt(np.maximum(1 - correlation[row, near], 1e-3))
    graph = csr_array((far, (row, near)), correlation.shape)
    graph = graph.maximum(graph.T)
    _, part = connected_components(graph, directed=False)
    kept = part == np.bincount(part).argmax()
    paths = shortest_path(graph, directed=False)[np.ix_(kept, kept)]
    S = paths**2
    d, V = np.linalg.eigh(-(S - S.mean(0) - S.mean(1)[:, None] + S.mean()) / 2)
    places = V[:, -2:] * np.sqrt(np.maximum(d[-2:], 1e-9))
    weight = 1 / np.maximum(paths, 1e-2) ** 2
    np.fill_diagonal(weight, 0)
    inverse = np.linalg.inv(np.diag(weight.sum(1)) - weight + 1 / len(weight))
    for _ in range(ROUNDS):
        B = -weight * paths / _distances(places, 1)
        np.fill_diagonal(B, 0)
        np.fill_diagonal(B, -B.sum(1))
        places = inverse @ (B @ places)
    nearest = np.sort(_distances(places, np.inf), 1)[:, :NEIGHBOURS]
    return places / max(np.sqrt((nearest**2).mean()), 1e-9), live[kept]


def _distances(places, own):
    """Distances between places (n, n), at least 1e-6, and `own` on the diagonal."""
    apart = np.sqrt(((places[:, None] - places) ** 2).sum(-1))
    apart = np.maximum(apart, 1e-6)
    np.fill_diagonal(apart, own)
    return apart


def find_context(x, shape, first, rng):
    """A layout, and which of samples x (N, D) it smooths, bool (N,), of one kind or more.

    It is made of the last `first` that it smooths. No layout where these are few, and neither
    where they are not even those that it came from.
    """
    found = None
    for _ in range(TRIES):
        rows = alike(x, rng)
        try:
            for _ in range(AGAIN):
                order = find_order(x[rows], shape)
                own = roughness(x, order, shape) <= FITS
                if own.sum() < CORE:
                    break
                rows = np.flatnonzero(own)[-first:]
        except (ValueError, np.linalg.LinAlgError):
            continue
        if own.sum() >= LEAST:
            return order, own
        found = own if own.sum() >= CORE else found
    return None, found
