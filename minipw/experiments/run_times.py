"""How long runs take: guessed from their operations, learned from the runs done before."""

import statistics

from minipw import InputError
from minipw.experiments.store import cell_key, core_seconds
from minipw.network.cost import step_operations
from minipw.network.head_implementation import expected_implementation
from minipw.paper.cells import OUTLINES, Outline
from minipw.training.settings import Settings


class RunTimes:
    """Seconds that runs take on one core, or on a GPU where the seeds of a cell share them.

    Parameters
    ----------
    datasets : dict of str to Dataset
        Those at hand; another is taken for the whole published one.
    records : iterable of dict
        Of runs done before, on CPUs or GPUs.
    """

    def __init__(self, datasets, records=()):
        self.datasets = datasets
        self.totals = {"cpu": {}, "cuda": {}}  # device: key: [seconds, runs]
        self.guesses = {}
        for record in records:
            self.add(record)

    def add(self, record):
        """Learn from a run."""
        totals = self.totals.get(record.get("device", "cpu"))
        if totals is None or "dataset" not in record["settings"]:
            return
        key = cell_key(record)
        total = totals.setdefault(key, [0.0, 0])
        total[0] += core_seconds(record)
        total[1] += 1
        if key not in self.guesses:
            self.guesses[key] = self._guess(record)

    def _guess(self, record):
        """`estimated_seconds` under each of a run's kinds; of some there is nothing to learn.

        Of those on data that are not at hand, with settings that this version does not know,
        or tested all along, which takes longer than to learn.
        """
        try:
            settings = Settings(**record["settings"])
            data = self.datasets.get(settings.dataset) or OUTLINES.get(settings.dataset)
            same = data and record.get("digest", "") == getattr(data, "digest", "")
            if not same or settings.evaluate_every:
                return {}
            samples = data.train if isinstance(data, Outline) else len(data.y_train)
            return dict.fromkeys(kinds(settings), estimated_seconds(settings, data, samples))
        except (TypeError, InputError):
            return {}

    def learned_on(self, device):
        """Whether any run on a device, "cpu" or "cuda", tells how long others take there."""
        return any(self.guesses[key] for key in self.totals[device])

    def expected(self, keys, sizes, device="cpu"):
        """Seconds of runs with some settings, as a dict.

        The mean of the runs done so far with the same settings; where there are none, the
        estimate, scaled as it turned out for the likest runs that were done: see `kinds`.

        Parameters
        ----------
        keys : dict of Settings to str
            `run_key` without a seed.
        sizes : dict of Settings to float
            `estimated_seconds`.
        """
        means, ratios = {}, {}
        for key, (seconds, runs) in self.totals[device].items():
            means[key] = seconds / runs
            for kind, guess in self.guesses[key].items():
                ratios.setdefault(kind, []).append(means[key] / guess)
        scales = {kind: statistics.median(found) for kind, found in ratios.items()}
        return {
            s: means.get(key)
            or sizes[s] * next((scales[kind] for kind in kinds(s) if kind in scales), 1.0)
            for s, key in keys.items()
        }


def kinds(settings):
    """What runs may have in common that take alike, the closest likeness first."""
    network = settings.backbone, settings.head
    return (settings.experiment, *network), network, (settings.head,), ()


def estimated_seconds(settings, dataset, samples):
    """A rough guess of a run's time on one core, before anything was measured.

    Parameters
    ----------
    settings : Settings
    dataset : Dataset or Outline
    samples : int
        To train on.
    """
    architecture, batch = settings.architecture(dataset), settings.batch_size
    tasks = settings.tasks if settings.experiment == "permuted" else 1
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
