"""Runs of the closed form with a context for each layout of the pixels."""

import json


def test_permuted_images_are_learned_without_forgetting(command):
    flags = ["--exp", "permuted", "--dataset", "mnist-5k", "--tasks", "2", "--head", "ridge"]
    status, out, err = command(*flags, "--backbone", "contexts-15", "--json", "--quiet")
    record = json.loads(out)
    assert status == 0 and record["accuracy"] > 94, err
    assert abs(record["forgetting"]) < 0.5 and record["settings"]["backbone"] == "contexts-15"
    assert record["accuracy_matrix"][1][0] > 94 > 60 > record["accuracy_matrix"][1][1]
    status, out, err = command("--exp", "split", "--head", "ncm", "--backbone", "contexts-15")
    assert status == 2 and "contexts-15 is of head ridge alone" in err
