"""Classifiers for one's own stream, and their scikit-learn and River faces."""

from minipw.online.classifier import OnlineClassifier
from minipw.online.contexts import ContextRidgeClassifier
from minipw.online.drift import DriftingRidgeClassifier
from minipw.online.learner import Learner
from minipw.online.ridge import StreamingRidgeClassifier
from minipw.online.shards import learn_shards

load = Learner.load
