"""What a person reads of a run: its settings and its results."""

from minipw.experiments.tables import RULE_NAMES
from minipw.network.diagnostics import unused_lines
from minipw.parameters import CLOSED_FORM, SHUFFLED
from minipw.training.closed_form_run import FIRST
from minipw.training.metrics import mean_and_interval

DATASET_NAMES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar-10": "CIFAR-10"}
WORTH_SAYING = 0.05
"""Share of the training samples that incomplete batches leave out."""


def title(settings, dataset_name):
    """One line that names a run."""
    mode = "multi-head" if settings.multi_head else "single-head"
    experiment = {"split": "Split", "permuted": "Permuted", "iid": "IID"}[settings.experiment]
    rule = "" if settings.head in CLOSED_FORM else f", {RULE_NAMES[settings.rule]}"
    name = DATASET_NAMES.get(dataset_name, dataset_name)
    if settings.blur:
        blurred = f"blurred over {settings.blur:g} of a task"
        mode += ", shuffled" if settings.blur == SHUFFLED else f", {blurred}"
    return f"{experiment} {name}, {mode}: {settings.backbone}, {settings.head} head{rule}"


def settings_text(state, source, dataset_name):
    """The resolved settings of a run, before it starts.

    Parameters
    ----------
    state : Run or ClosedFormRun
    source : str
        The row of the released settings that unset flags came from.
    dataset_name : str
    """
    settings = state.settings
    if settings.head in CLOSED_FORM:
        return closed_form_text(state, source, dataset_name)
    network = state.network
    units = network.architecture.units
    head = network.parameters["head"].size
    kwta = "none"
    if settings.density is not None:
        kwta = f"{network.winners} of {units} units win (density {settings.density:g}, "
        kwta += f"threshold {settings.kwta_threshold})"
    regularization = f"lambda {settings.importance_lambda:g}, " * (settings.rule != "sgd")
    sizes = [task.train.size for task in state.tasks]
    left_out = sum(size % settings.batch_size for size in sizes)
    dropped, each = "", " in each epoch" * (settings.epochs > 1)
    if left_out >= WORTH_SAYING * sum(sizes):
        dropped = f"; {left_out:,} of {sum(sizes):,} samples fill no batch{each} and are left out"
    lines = [
        title(settings, dataset_name),
        f"  settings    {source}",
        f"  training    learning rate {settings.learning_rate:g}, "
        f"{regularization}batch {settings.batch_size}, "
        f"{settings.epochs} epoch{'s' * (settings.epochs > 1)}, {state.total_steps:,} steps, "
        f"{len(state.tasks)} task{'s' * (len(state.tasks) > 1)}{dropped}",
        f"  k-WTA       {kwta}; GELU {settings.gelu}",
        f"  parameters  {network.parameter_count:,} ({network.parameter_count - head:,} backbone, "
        f"{head:,} head)",
    ]
    if settings.head == "pairwise":
        lines[-1] += f"; pairs {settings.pairs}"
        if head < settings.pair_weights:
            lines[-1] += f", {head:,} of {settings.pair_weights:,} as each class has equally many"
    if settings.rule == "s-mas":
        lines[-1] += f"; S-MAS norm {settings.smas_norm}"
    if settings.multi_head:
        lines[-1] += f"; class mask {settings.class_mask}"
    return "\n".join(lines)


def closed_form_text(state, source, dataset_name):
    """`settings_text` without a network."""
    tasks, classes, chosen = len(state.tasks), state.dataset.classes, state.map_words
    about = ", anew for each layout of the pixels" if chosen.contexts else ""
    if chosen.sizes:
        sides = " and ".join(f"{size} by {size}" for size in chosen.sizes)
        about = f" ({sides} pixels, grid {chosen.grid}){about}"
    samples = sum(task.train.size for task in state.tasks)
    sums = state.features * (classes + state.features * (state.settings.head != "ncm"))
    lines = [
        title(state.settings, dataset_name),
        f"  settings    {source}",
        f"  features    {state.features:,} of {state.settings.backbone}"
        f"{about}, made from the first {min(FIRST, samples):,} samples",
        f"  training    one pass, {samples:,} samples, {tasks} task{'s' * (tasks > 1)}",
        f"  parameters  {state.features * classes:,}; sums of {8 * sums / 2**20:,.1f} MiB",
    ]
    return "\n".join(lines)


def result_text(record, beside=""):
    """Accuracies of one run.

    Parameters
    ----------
    record : dict from `train.run`
    beside : str
        What to print behind the accuracy.
    """
    matrix, learned = record["accuracy_matrix"], record["task_accuracy"]
    width = max(len(name) for name in record["tasks"])
    lines = [f"  {'task':{width}}  when learned  at the end"]
    for n, name in enumerate(record["tasks"]):
        lines.append(f"  {name:{width}}  {matrix[n + 1][n]:10.1f} %  {learned[n]:8.1f} %")
    lines.append(f"accuracy {record['accuracy']:.2f} % of all test images{beside}")
    if record["forgetting"] is not None:
        lines.append(
            f"forgetting {record['forgetting']:.2f}, "
            f"backward transfer {record['backward_transfer']:.2f}, "
            f"forward transfer {record['forward_transfer']:.2f} points"
        )
    seconds = f"in {record['seconds']:.1f} s with all tests"
    if record["online_accuracy"] is not None:
        rate = record["steps"] / record["seconds"]
        lines.append(
            f"online (test-then-train) {record['online_accuracy']:.2f} %, {record['steps']:,} "
            f"steps {seconds} ({rate:.0f} steps/s)"
        )
    else:
        times = len(record["tasks"])
        lines.append(f"solved {times} time{'s' * (times > 1)}, {seconds}")
    if "lambda" in record:
        lines[-1] += f"; lambda {record['lambda']:.3g}, {record['freedom']:,.0f} degrees of freedom"
    lines += [f"note: {line}" for line in unused_lines(record.get("unused_units"))]
    if record["note"]:
        lines.append(f"note: {record['note']}")
    return "\n".join(lines)


def summary_text(records, beside=""):
    """Mean accuracy over seeds with its standard error and 95 % interval."""
    mean, error, half_width = mean_and_interval([record["accuracy"] for record in records])
    text = f"accuracy {mean:.2f} %"
    if error is not None:
        text += f" ± {error:.2f} (standard error), 95 % interval ± {half_width:.2f}"
    text += f", {len(records)} run{'s' * (len(records) > 1)}"
    return text + beside
