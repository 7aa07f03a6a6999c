"""The mathematics: pure functions, each forward beside its backward.

A forward returns `(y, cache)`; its backward takes `(dy, cache)` and returns the
gradients in the forward's argument order; those of the scalars in `loss.py`, whose
dy is 1, take the cache alone. Axes before the named ones are open:
the functions never look at them. A backward's `dy` may have more of them in
front than the forward had, so several gradients go through one cached forward.
"""

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
from minipw.nn.patches import PatchFeatures, patch_features
from minipw.nn.random_features import RandomFeatures, identity, random_features
