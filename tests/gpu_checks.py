"""What must hold on a device: functions of the module cupy, run with pytest or without.

    python tests/gpu_checks.py [--device | --data | --kernels]

--device says which device there is and stops, --data runs those on full MNIST alone,
--kernels a short part for a tool that watches memory. Without pytest this is the way to
run them; `test_gpu.py` hands the same functions to pytest. Each compares the device with the
NumPy backend, a run with itself, or a run with the paper, and raises AssertionError.
"""

import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import golden_steps
import gpu_closed_form
import gpu_operations
from golden_steps import host
from gpu_operations import CLASSES, OPERATIONS, TOLERANCE, assert_close

from minipw import InputError, datasets
from minipw.backend import cuda
from minipw.backend.arrays import to_device
from minipw.network.architecture import Architecture
from minipw.network.network import Network
from minipw.online.classifier import OnlineClassifier
from minipw.rules import Rule, update, zero_importance
from minipw.training.many_seeds import create_runs, run_seeds, run_stack, seeds_that_fit
from minipw.training.settings import Settings, resolve
from minipw.training.stacked_runs import Stack

SETTINGS = Settings(
    experiment="split",
    dataset="mnist-5k",
    backbone="mlp-200-1",
    head="pairwise",
    rule="adagrad",
    multi_head=False,
    learning_rate=2e-4,
    density=0.15,
    importance_lambda=0.8,
    batch_size=64,
    epochs=1,
    pair_weights=15_000,
)


def networks(dtype, xp, seed, backbone, head):
    """The same three stacked networks on the host and on the device."""
    shape = (8, 8, 1) if backbone.startswith("cnn") else (12,)
    architecture = Architecture(shape, CLASSES, backbone, head, 0.3, 400)
    found = []
    for module in (np, xp):
        parts = []
        for r in range(3):
            rng = np.random.default_rng([seed, r])
            part = Network.create(architecture, rng, rng, dtype, 9, module)
            if head == "pairwise":
                part.parameters["head"] *= 1000  # of order 1: no gradient near its rounding
            parts.append(part)
        found.append(Network.stack(parts))
    return found


def check_networks(xp):
    """Loss, logits, and parameters and importance after three steps, R = 3."""
    for dtype in TOLERANCE:
        for backbone in ("mlp-33-1", "mlp-20-3", "cnn-s", "cnn-m"):
            for head in ("pairwise", "fc"):
                for name in ("sgd", "adagrad", "s-mas"):
                    rule = Rule(name, 0.001, 0.3)
                    reference, ours = networks(dtype, xp, 5, backbone, head)
                    three_steps(xp, rule, reference, ours, dtype)


def draw_away_from_kinks(network, rng, dtype):
    """A batch (3, 9, ...) whose k-WTA thresholds are far from the next units' values.

    Rounding may swap two units that are nearly equal, and with them their gradients.
    """
    x = rng.standard_normal((3, 180, *network.architecture.input_shape)).astype(dtype)
    _, caches = network.forward(x)
    (*_, (_, (before_gelu, s, _))), _, _ = caches
    row = np.sort((before_gelu * s).reshape(3, 180, -1))
    v = row.shape[-1] - 1 - network.winners
    gap = np.diff(row[..., v - 1 : v + 2]).min(-1)  # (3, 180)
    keep = np.argsort(gap)[:, -9:]
    return np.stack([x[r, keep[r]] for r in range(3)])


def three_steps(xp, rule, reference, ours, dtype):
    rng = np.random.default_rng(0)
    omega, our_omega = (zero_importance(n.parameters) for n in (reference, ours))
    for values in (*omega.values(), *our_omega.values()):
        values += 0.1  # from zero on, a step divides by 1e-3 what may be a rounding of zero
    for _ in range(3):
        x = draw_away_from_kinks(reference, rng, dtype)
        labels = rng.integers(0, CLASSES, (3, 9))
        loss, logits, gradients = reference.loss_gradients(x, labels, rule)
        our_loss, our_logits, our_gradients = ours.loss_gradients(
            to_device(xp, x), to_device(xp, labels), rule
        )
        # Three steps through up to four layers: with every float32 input off by 1e-6 of
        # itself this holds too.
        assert_close(our_loss, loss, 30)
        assert_close(our_logits, logits, 30)
        for key in gradients:
            update(rule, reference.parameters[key], omega[key], gradients[key])
            update(rule, ours.parameters[key], our_omega[key], our_gradients[key])
            assert_close(ours.parameters[key], reference.parameters[key], 30)
            assert_close(our_omega[key], omega[key], 30)


def check_golden_steps(xp):
    for name in golden_steps.NAMES:
        golden_steps.check(name, "device", xp=xp)


def changes(xp, seeds, steps, settings=SETTINGS):
    """What steps of their first tasks change in the parameters of runs, on the host."""
    data = datasets.load("mnist-5k")
    stack = Stack(create_runs(settings, seeds, data, xp))
    before = {name: host(w).copy() for name, w in stack.network.parameters.items()}
    tasks = [run.tasks[0] for run in stack.runs]
    size = settings.batch_size
    stack.load(tasks, np.stack([t.train[: steps * size].reshape(steps, size) for t in tasks]))
    for _ in range(steps):
        stack.step()
    return {name: host(w) - before[name] for name, w in stack.network.parameters.items()}


def check_thirty_runs_against_one(xp):
    together = changes(xp, range(30), 10)
    for seed in (0, 7, 29):
        for name, change in changes(xp, [seed], 10).items():
            # A library may add in another order for another number of runs, and rounding
            # may swap nearly equal units of k-WTA. With initial weights off by 1e-6 of
            # themselves 6e-6 was seen.
            difference = np.linalg.norm(together[name][seed] - change[0])
            assert difference < 1e-3 * np.linalg.norm(change[0])


def check_two_runs_are_bit_equal(xp):
    for rule in ("adagrad", "s-mas"):
        changed = {**SETTINGS.__dict__, "rule": rule, "backbone": "mlp-100-1"}
        settings = Settings(**{**changed, "pair_weights": 4_000})
        data, found = datasets.load("mnist-5k"), []
        for _ in range(2):
            runs = create_runs(settings, range(3), data, xp)
            records = run_stack(runs)
            parameters = [host(w) for run in runs for w in run.network.parameters.values()]
            found.append((parameters, [record["accuracy_matrix"] for record in records]))
        for one, other in zip(found[0][0], found[1][0], strict=True):
            np.testing.assert_array_equal(one, other)
        assert found[0][1] == found[1][1]


def check_online_classifier(xp):
    """Learned class by class on the device as on the CPU: but for rounding the same answers."""
    data = datasets.load("mnist-5k")
    order = np.argsort(data.y_train[:600], kind="stable")
    x, y = data.x_train[order], data.y_train[order]
    scores = []
    for device in ("cpu", "cuda"):
        learner = OnlineClassifier("mlp-200-1", batch_size=8, device=device).partial_fit(x, y)
        scores.append(learner.score(data.x_test, data.y_test))
    # of 1,000 test images one in a hundred may be decided by the last digits
    assert abs(scores[0] - scores[1]) < 0.01 and scores[0] > 0.3, scores


def check_closed_form(xp, images=2000, filters=100):
    """The same lam and outputs as on the CPU, to 1e-4 of a label."""
    try:
        data = datasets.load("cifar-10", download=False)
    except InputError:
        data = gpu_closed_form.drawn(images, 500)
    part = SimpleNamespace(name=data.name, classes=data.classes)
    part.x_train, part.y_train = data.x_train[:images], data.y_train[:images]
    part.x_test, part.y_test = data.x_test[:500], data.y_test[:500]
    (_, (expected, outputs)), (_, (found, ours)) = (
        gpu_closed_form.closed_form(module, part, filters) for module in (np, xp)
    )
    # lam is where a parabola through float32 scores is least; the scores hardly change there
    assert abs(np.log(found.lam / expected.lam)) < 0.01
    assert np.abs(ours - outputs).max() < 1e-4


def mean_accuracy(xp, experiment, runs):
    """Mean accuracy over seeds of the paper's first network on full MNIST, per cent."""
    data = datasets.load("mnist", download=False)
    settings, _ = resolve(data, experiment)
    count = min(runs, seeds_that_fit(settings, data, xp))
    began, accuracies = time.perf_counter(), []
    for part in run_seeds(settings, range(runs), data, xp, count):
        accuracies += [record["accuracy"] for _, record in part]
    seconds, mean = time.perf_counter() - began, np.mean(accuracies)
    print(f"{experiment} MNIST, {runs} runs: {mean:.2f} % in {seconds:.1f} s", flush=True)
    return mean


def check_split_accuracy(xp):
    assert abs(mean_accuracy(xp, "split", 30) - 83.1) < 1  # table 1, its mean over 30 seeds


def check_permuted_accuracy(xp):
    assert abs(mean_accuracy(xp, "permuted", 10) - 95.4) < 0.5  # table 3; seeds differ by 0.1


WHOLE = (
    check_networks, check_golden_steps, check_two_runs_are_bit_equal,
    check_thirty_runs_against_one, check_online_classifier, check_closed_form,
)  # fmt: skip
DATA = (check_split_accuracy, check_permuted_accuracy)
"""Those that need full MNIST."""


def main(flags):
    """Run the checks that the flag stands for; see the top of the file."""
    xp = cuda.device_module("cuda")
    checks = OPERATIONS + WHOLE
    if "--device" in flags:
        print(cuda.device_text())
        return 0
    if "--data" in flags:
        checks = DATA
        try:
            datasets.load("mnist", download=False)
        except InputError as error:
            print(f"skipped: {error}")
            return 0
    if "--kernels" in flags:
        # Without its pool CuPy allocates every array alone, and an access beyond it shows.
        xp.cuda.set_allocator(None)
        gpu_operations.SIZES, checks = (33,), OPERATIONS[2:]
    failed = 0
    for check in checks:
        began = time.perf_counter()
        try:
            check(xp)
            outcome = "ok"
        except Exception as error:  # the others are still worth knowing of
            failed += 1
            outcome = f"FAILED {type(error).__name__}: {error}".replace("\n", " ")
        print(f"{check.__name__} {time.perf_counter() - began:.1f} s {outcome}", flush=True)
    print(f"{len(checks) - failed} of {len(checks)} checks hold", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
