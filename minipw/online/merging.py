"""What one ridge classifier takes from another: its features, or what it has learned."""

from minipw import InputError
from minipw.backend.arrays import to_device, to_host
from minipw.online import validation
from minipw.ridge import Statistics


def take_features(learner, like):
    """Give a new learner the features of another, which must be fixed."""
    if not isinstance(like, type(learner)):
        raise InputError(f"`like` is of type {type(like).__name__}: use a {type(learner).__name__}")
    if like.statistics is None:
        raise InputError(
            f"`like` has no features yet, {like.waiting} of its {like.settings['first']} first "
            "samples came: call its flush, or learn more"
        )
    own, theirs, unsaid = learner.settings, like.settings, type(learner)().settings
    for name in ("features", "size", "seed", "first", "missing"):
        if own[name] not in (unsaid[name], theirs[name]):
            raise InputError(f"{name} is that of `like`, {theirs[name]!r}: leave it out")
    like.features.close()
    kept = {name: own[name] or theirs[name] for name in ("device", "class_weight")}
    learner.settings = theirs | kept
    learner._begin(like.input_shape)
    learner.columns = like.columns
    learner.features.restore(*like.features.state())
    learner.statistics = Statistics.empty(learner.features.count, 0, learner._xp)


def merge(learner, other):
    """Add what `other` has learned, its sums or the samples that still wait."""
    if learner.settings["missing"] != other.settings["missing"]:
        raise InputError("one learner has missing=True, the other has not: they do not merge")
    shapes = learner.input_shape, other.input_shape
    if None not in shapes and shapes[0] != shapes[1]:
        raise InputError(f"learners of samples of shapes {shapes[0]} and {shapes[1]} do not merge")
    validation.check_columns(other.columns, learner.columns)
    if other.statistics is not None:
        add_sums(learner, other)
        return
    learner.add_classes(other.classes_)
    if learner.input_shape is None and other.input_shape is not None:
        learner._begin(other.input_shape)
    for part in list(other._first.parts):
        learner._take(*part)


def add_sums(learner, other):
    """Add the sums of another, whose classes may come in another order."""
    if learner.statistics is None:
        raise InputError("this learner has no features yet: make it with `like` the other")
    if other.features is not None and not learner.features.same(other.features):
        raise InputError("learners of other features do not merge: make one with `like`")
    learner.add_classes(other.classes_)
    place, ours = [learner._index[label] for label in other.classes_], learner.statistics
    counts, G, M = (to_device(learner._xp, to_host(a)) for a in other.statistics.sums())
    no_counts, no_M = map(learner._xp.zeros_like, (ours.counts, ours.M))
    sums = Statistics(no_counts, G, no_M, other.statistics.squares)
    sums.counts[place], sums.M[:, place] = counts, M
    ours.merge(sums)
    learner._early.known += other._early.known
    for n, count in zip(place, list(other.counts), strict=True):
        learner.counts[n] += count
    learner._solved = None
