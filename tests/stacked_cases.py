"""Settings of tiny runs that are trained together, and how their records compare."""

from minipw.training.settings import Settings

BASE = Settings(
    experiment="split",
    dataset="tiny",
    backbone="mlp-60-1",
    head="pairwise",
    rule="adagrad",
    multi_head=False,
    learning_rate=0.0004,
    density=0.2,
    importance_lambda=0.8,
    batch_size=10,
    epochs=1,
    pair_weights=1000,
)
CASES = [
    {},
    {"rule": "s-mas"},
    {"rule": "sgd", "learning_rate": 0.03},
    {"head": "fc", "learning_rate": 0.01},
    {"head": "fc", "rule": "s-mas", "density": None, "gelu": "exact", "learning_rate": 0.01},
    {"experiment": "permuted", "tasks": 3, "learning_rate": 0.0002},
    {"experiment": "iid", "pairs": "distinct", "kwta_threshold": "k+1"},
    {"multi_head": True},
    {"multi_head": True, "class_mask": "exclude", "classes_per_task": 3, "rule": "s-mas"},
    {"epochs": 2, "evaluate_every": 7},
    {"experiment": "permuted", "tasks": 2, "evaluate_every": 9, "learning_rate": 0.0002},
    {"backbone": "cnn-s", "learning_rate": 0.0001},
    {"backbone": "mlp-40-3", "batch_size": 16},
    {"held_out": 0.2},
]


def same_facts(record, other, but=()):
    """Whether two records agree in all but time and what is named."""
    ignored = {"seconds", "runs_together", *but}
    return {k: v for k, v in record.items() if k not in ignored} == {
        k: v for k, v in other.items() if k not in ignored
    }
