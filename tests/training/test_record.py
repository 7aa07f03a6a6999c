"""The format of records: every field is checked, and what a run writes is one."""

import json
import re

import pytest
from stored_records import SETTINGS, stored
from test_run import BASE

from minipw.training.record import FIELDS, OPTIONAL, fault
from minipw.training.run import train


@pytest.mark.parametrize("experiment", ["split", "permuted", "iid"])
def test_what_a_run_writes_is_a_record(tiny_dataset, experiment):
    settings = BASE.__class__(**{**vars(BASE), "experiment": experiment, "evaluate_every": 3})
    record = json.loads(json.dumps(train(settings, 0, tiny_dataset(train=400, test=120))))
    assert fault(record) is None and record["results"] == 1
    for name in record:
        lacking = {key: value for key, value in record.items() if key != name}
        if name in OPTIONAL:
            assert fault(lacking) is None
        else:
            assert fault(lacking) == f"not a result of minipw (it has no {name})"


@pytest.mark.parametrize(
    "value", [None, "two", True, -1, float("nan"), float("inf"), [], {}, 1e301]
)
@pytest.mark.parametrize("name", FIELDS)
def test_a_field_of_another_type_or_range_is_named(name, value):
    allowed = {
        "forgetting": (None, -1),
        "backward_transfer": (None, -1),
        "forward_transfer": (None, -1),
        "curve": ([],),
        "online_accuracy": (None,),
    }
    text = {"dataset", "digest", "note", "gpu", "warning"}
    reason = fault({**stored(0), name: value})
    if value in allowed.get(name, ()) or (name in text and value == "two"):
        assert reason is None
    elif name == "format" and value == -1:
        assert reason == "a result of format -1, this version reads 1"
    else:
        assert reason.startswith("not a result of minipw (") and "\n" not in reason
        assert re.search(f"{name} |its accuracies do not fit|it has no", reason)


@pytest.mark.parametrize(
    "change, says",
    [
        ({"settings": {**SETTINGS, "backbone": 7}}, "backbone is 7: use text"),
        ({"settings": {**SETTINGS, "learning_rate": 0}}, "learning_rate is 0: use a number above"),
        ({"settings": {**SETTINGS, "a\nb": 0}}, r"'a\\nb' is no setting"),
        ({"settings": {k: v for k, v in SETTINGS.items() if k != "rule"}}, "settings has no rule"),
        ({"tasks": []}, "its accuracies do not fit 0 tasks"),
        ({"tasks": ["a"]}, "its accuracies do not fit 1 tasks"),
        ({"accuracy_matrix": [[1.0, 1.0]] * 2}, "its accuracies do not fit 2 tasks"),
        ({"accuracy_matrix": [[1.0, "1"]] * 3}, "accuracy_matrix is '1': use a number from 0 to"),
        ({"curve": [[1, [1.0] * 3]]}, "its accuracies do not fit 2 tasks"),
        ({"curve": [[1]]}, r"curve is \[1\]"),
        ({"unused_units": {"units": 1, "unread": 0}}, "unused_units has no never_won"),
        ({"versions": {"minipw": 1}}, "versions has no python"),
    ],
)
def test_what_does_not_fit_is_named(change, says):
    assert re.search(says, fault(stored(0, **change)))
    assert fault(stored(0)) is None
