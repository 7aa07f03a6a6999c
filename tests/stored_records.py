"""Records of runs as a store holds them, made by hand."""

from minipw.training.record import RECORD_FORMAT

SETTINGS = {
    "experiment": "split",
    "dataset": "tiny",
    "backbone": "mlp-30-1",
    "head": "pairwise",
    "rule": "adagrad",
    "multi_head": False,
    "learning_rate": 0.1,
    "density": 0.3,
    "importance_lambda": 0.8,
    "batch_size": 8,
    "epochs": 1,
    "pair_weights": 100,
}


def stored(seed, accuracy=50.5, settings=None, dataset="tiny", **more):
    """The record of a run of two tasks, without the fields that older records lack."""
    return {
        "format": RECORD_FORMAT,
        "settings": SETTINGS if settings is None else settings,
        "seed": seed,
        "dataset": dataset,
        "note": "",
        "device": "cpu",
        "threads": 1,
        "parameters": 1000,
        "accuracy": accuracy,
        "average_accuracy": accuracy,
        "tasks": ["classes 0 1", "classes 2 3"],
        "task_accuracy": [accuracy, accuracy],
        "accuracy_matrix": [[25.0, 25.0], [accuracy, 0.0], [accuracy, accuracy]],
        "forgetting": 0.0,
        "backward_transfer": 0.0,
        "forward_transfer": -25.0,
        "online_accuracy": 50.0,
        "steps": 48,
        "seconds": 1.5,
        "versions": {"minipw": "0.1.0", "python": "3", "numpy": "2", "scipy": "1"},
        **more,
    }
