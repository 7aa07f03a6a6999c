"""The state of a ridge classifier as arrays and facts."""

from minipw import InputError
from minipw.backend.arrays import to_device, to_host
from minipw.online.labels import decode_label, encode_label
from minipw.online.waiting import Early
from minipw.ridge import Statistics, solve


def state(learner):
    """What a learner needs to go on.

    Returns
    -------
    arrays : dict of str to ndarray
    facts : dict that JSON can hold
    """
    arrays, waiting = learner._first.state()
    facts = {"settings": learner.settings, "counts": learner.counts, "waiting": waiting}
    facts["classes"] = [encode_label(label) for label in learner.classes_]
    facts |= {"input_shape": learner.input_shape, "columns": learner.columns}
    if learner.features is not None:
        more, facts["features"] = learner.features.state()
        arrays |= more
    if learner.statistics is not None:
        facts["squares"], facts["early"] = learner.statistics.squares, learner._early.known
        arrays |= zip(("counts", "G", "M"), map(to_host, learner.statistics.sums()), strict=True)
        if learner._solved is not None:  # whose lam may be that of fewer samples
            facts["lam"], facts["found_at"] = learner._solved.lam, learner._found_at
            facts["freedom"] = learner._solved.freedom
            facts["asked"] = learner._asked
    if learner._ahead is not None:
        more, facts["ahead"] = state(learner._ahead)
        arrays |= {f"ahead/{name}": array for name, array in more.items()}
    return arrays, facts


def restore(kind, arrays, facts):
    """The learner of class `kind` whose `state` this is."""
    if facts.get("features", {}).get("words", "").startswith("patches"):
        facts["settings"]["features"] = "patches"  # "auto" meant them in older files
    learner = kind(**facts["settings"], classes=map(decode_label, facts["classes"]))
    learner.counts, learner.columns = list(facts["counts"]), decode_label(facts["columns"])
    if facts["input_shape"] is None:
        return learner
    learner._begin(tuple(facts["input_shape"]))
    learner.features.restore(arrays, facts["features"])
    learner._first.restore(arrays, facts["waiting"])
    if "G" in arrays:
        features, classes = learner.features.count, len(learner.classes_)
        shapes = {"counts": (classes,), "G": (features,) * 2, "M": (features, classes)}
        if any(arrays[name].shape != shape for name, shape in shapes.items()):
            raise InputError("the sums do not fit the settings")
        sums = (to_device(learner._xp, arrays[name]) for name in shapes)
        learner.statistics = Statistics(*sums, facts["squares"])
        learner._early = Early(facts.get("early", ()))
        if "lam" in facts:
            learner._solved = solved = solve(learner.statistics, facts["lam"])
            if "freedom" in facts:  # older files do not say it; solving again estimates it anew
                solved.freedom = facts["freedom"]
                solved.refresh(learner.statistics)
            learner._found_at, learner._asked = facts["found_at"], facts.get("asked", False)
    if "ahead" in facts:
        own = {n.removeprefix("ahead/"): a for n, a in arrays.items() if n.startswith("ahead/")}
        learner._ahead = restore(kind, own, facts["ahead"])
    return learner
