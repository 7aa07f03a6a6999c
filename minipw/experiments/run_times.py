"""How long runs take: estimated from their operations, scaled by the runs done before."""

import math
import statistics

from minipw import InputError
from minipw.experiments.store import core_seconds
from minipw.network.cost import step_operations
from minipw.network.feature_map import feature_count
from minipw.network.head_implementation import expected_implementation
from minipw.paper.cells import OUTLINES, Outline
from minipw.parameters import CLOSED_FORM, WITHOUT_NETWORK
from minipw.training.settings import Settings


class RunTimes:
    """Measured over estimated times of finished runs, by device.

    Parameters
    ----------
    datasets : dict of str to Dataset
        Those that were loaded. Others are taken to be the published ones, whole.
    records : iterable of dict
    """

    def __init__(self, datasets, records=()):
        self.datasets = datasets
        self.ratios = {"cpu": [], "cuda": []}
        for record in records:
            self.add(record)

    def add(self, record):
        """Learn from a finished run, if its time can be compared with an estimate.

        It cannot if its data are unknown, if this version does not know its settings, or if it
        drew a learning curve, whose tests take longer than training.
        """
        try:
            settings = Settings(**{**WITHOUT_NETWORK, **record["settings"]})
            data = self.datasets.get(settings.dataset) or OUTLINES.get(settings.dataset)
            same = data and record.get("digest", "") == getattr(data, "digest", "")
            if same and not settings.evaluate_every:
                ratio = core_seconds(record) / estimated_seconds(settings, data)
                self.ratios[record.get("device", "cpu")].append(ratio)
        except (TypeError, KeyError, InputError):
            pass

    def scale(self, device):
        """Median ratio of measured to estimated seconds on a device, None before the first run.

        On a GPU, where seeds are trained together, a run's seconds are its share.
        """
        return statistics.median(self.ratios[device]) if self.ratios[device] else None


def estimated_seconds(settings, dataset):
    """A rough estimate of a run's time on one core, before anything was measured.

    Parameters
    ----------
    settings : Settings
    dataset : Dataset or Outline
    """
    samples = dataset.train if isinstance(dataset, Outline) else len(dataset.y_train)
    tasks = settings.tasks if settings.experiment == "permuted" else 1
    if settings.head in CLOSED_FORM:
        features, sums = feature_count(settings.backbone, dataset.shape), settings.head != "ncm"
        solutions = -(-dataset.classes // settings.classes_per_task)
        solutions = {"split": solutions, "permuted": tasks, "iid": 1}[settings.experiment]
        learned = tasks * samples * features * (4 * math.prod(dataset.shape) + sums * features)
        return (learned + sums * solutions * 2 * features**3) / 5e10
    architecture, batch = settings.architecture(dataset), settings.batch_size
    steps = tasks * settings.epochs * samples / batch
    seconds = 1e-3 + step_operations(architecture, batch, settings.rule) / 5e10
    if settings.head == "pairwise":
        seconds += 2.5e-8 * expected_implementation(architecture, batch)[1]
        seconds += 1.5e-9 * architecture.pair_weights
    return steps * seconds


def duration(seconds):
    """Seconds as people say them: "45 s", "12 min", "3 h 20 min"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
