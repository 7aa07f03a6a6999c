"""Shards learned in parallel: the weights of one machine, whatever happens to workers."""

import functools
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from learner_streams import stream

from minipw import InputError
from minipw.online import OnlineClassifier, StreamingRidgeClassifier, learn_shards

X, Y = stream(600, features=6, classes=4)
PARTS = [slice(n, n + 90) for n in range(0, 600, 90)]
SHARDS = [(X[part], Y[part]) for part in PARTS]
TESTS = Path(__file__).parents[1]


def small(**settings):
    return StreamingRidgeClassifier(**{"size": 60, "first": 200, **settings})


def assert_one_machine_s(learner, x=X, y=Y):
    """The counts and the scores of a learner that saw all samples itself."""
    one = small().partial_fit(x, y)
    assert dict(zip(learner.classes_, learner.counts, strict=True)) == dict(
        zip(one.classes_, one.counts, strict=True)
    )
    mine, theirs = (m.decision_function(x)[:, np.argsort(m.classes_)] for m in (learner, one))
    # The sums are float64 and differ by the order of additions alone.
    np.testing.assert_allclose(mine, theirs, atol=1e-6 * abs(theirs).max())


def test_processes_learn_what_one_machine_does():
    """With the features of the first two shards and a part of the third."""
    environment = dict(os.environ)
    learner = small()
    assert learn_shards(learner, SHARDS) is learner
    assert_one_machine_s(learner)
    assert dict(os.environ) == environment


@pytest.fixture
def threads():
    with ThreadPoolExecutor(2) as pool:
        yield pool


def test_any_order_behind_features_and_samples_that_were_learned_before(threads):
    learner = small().partial_fit(X[:250], Y[:250])
    shards = [(X[n : n + 50].tolist(), Y[n : n + 50].tolist()) for n in range(250, 600, 50)]
    learn_shards(learner, iter(shards[::-1]), threads)
    assert_one_machine_s(learner)
    other = learn_shards(small(like=None), [], threads)
    assert other.classes_ == [] and other.statistics is None


def test_fewer_samples_than_fix_features_wait(threads):
    learner = learn_shards(small(), SHARDS[:2], threads)
    assert learner.waiting == 180
    assert_one_machine_s(learner.partial_fit(X[180:], Y[180:]))


def test_weights_columns_and_sparse_samples(threads):
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    from scipy.sparse import coo_array

    weights = np.arange(600) % 3.0
    shards = [(X[part], Y[part], weights[part]) for part in PARTS]
    repeated = X.repeat(weights.astype(int), 0), Y.repeat(weights.astype(int))
    learner = learn_shards(small(first=100), shards, threads)
    assert sum(learner.counts) == (weights > 0).sum()
    one = small(first=100).partial_fit(X, Y, weights)
    np.testing.assert_allclose(
        learner.predict_proba(repeated[0]), one.predict_proba(repeated[0]), atol=1e-6
    )
    assert_one_machine_s(learn_shards(small(), [(coo_array(x), y) for x, y in SHARDS], threads))
    frames = [(pd.DataFrame(x, columns=list("abcdef")), y) for x, y in SHARDS]
    learner = learn_shards(small(), frames, threads)
    assert learner.columns == tuple("abcdef")
    with pytest.raises(InputError, match="shard 1: column 1 is 'f' where 'a' was before"):
        learn_shards(learner, [(frames[0][0].iloc[:, ::-1], SHARDS[0][1])], threads)


def test_files_and_functions(tmp_path, threads):
    names = ["red", "green", "blue", "grey"]
    text = np.array(names)[Y]
    np.savez(tmp_path / "a.npz", x=X[:250], y=text[:250])
    np.savez(tmp_path / "b.npz", x_train=X[250:300], y_train=text[250:300])
    lines = [f"{y},{','.join(map(repr, x))}" for x, y in zip(X.tolist(), text, strict=True)]
    (tmp_path / "c.csv").write_text("colour,a,b,c,d,e,f\n" + "\n".join(lines[300:500]))
    paths = [str(tmp_path / "a.npz"), tmp_path / "b.npz", tmp_path / "c.csv"]
    shards = [*paths, lambda: (X[500:], text[500:])]
    assert_one_machine_s(learn_shards(small(), shards, threads, label="colour"), y=text)
    (tmp_path / "bad.csv").write_text("colour,a\nred,x\n")
    learner = small()
    with pytest.raises(InputError, match=r"^shard 2 \(.*bad.csv\): .* line 2: 'x' in column 'a'"):
        learn_shards(learner, [*paths[:1], tmp_path / "bad.csv"], threads, label="colour")


def fail():
    raise RuntimeError("the disk\nis gone")


BAD = {
    "shard 5: X has samples of shape": (X[:3, :2], Y[:3]),
    "shard 5: y\\[0\\] is 'a', text, but": (X[:1], ["a"]),
    "shard 5: RuntimeError: the disk is gone$": fail,
    r"shard 5 \(gone.npz\): FileNotFoundError": "gone.npz",
    "shard 5: TypeError": 5,
    "shard 5: it is an array, not a pair": X,
}


@pytest.mark.parametrize("shards", [None, "wine.npz", 5])
def test_shards_are_a_list(shards):
    with pytest.raises(InputError, match=r"shards of type \w+: use a list of pairs or paths"):
        learn_shards(small(), shards)
    with pytest.raises(InputError, match=r"^OnlineClassifier has no sums"):
        learn_shards(OnlineClassifier("mlp-20-1"), [])


def test_files_say_what_they_lack(tmp_path):
    np.savez(tmp_path / "a.npz", inputs=X)
    (tmp_path / "a.csv").write_text("a,kind\n1,x\n")
    with pytest.raises(InputError, match="it has inputs: x and y, or x_train and y_train"):
        learn_shards(small(), [tmp_path / "a.npz"])
    with pytest.raises(InputError, match="which column has the classes"):
        learn_shards(small(), [tmp_path / "a.csv"])


@pytest.mark.parametrize("says", BAD)
def test_a_shard_that_fails_is_named_and_nothing_is_learned(says, threads):
    for learner in (small(), small().partial_fit(X[:210], Y[:210])):
        before = learner.waiting, list(learner.counts), list(learner.classes_)
        with pytest.raises(InputError, match=f"^{says}") as caught:
            learn_shards(learner, [*SHARDS[:4], BAD[says], *SHARDS[4:]], threads)
        assert "\n" not in str(caught.value)
        assert (learner.waiting, learner.counts, learner.classes_) == before
        assert learner.features is None or not learner.features.standardizer.closed


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_dies_is_one_line():
    learner = small().partial_fit(X[:210], Y[:210])
    with pytest.raises(InputError, match=r"^a worker failed .* nothing was learned"):
        learn_shards(learner, [die])
    assert sum(learner.counts) == 210


SLEEPER = """
import os, sys, time
from minipw.online import StreamingRidgeClassifier, learn_shards
import numpy as np

def slow():
    open(f"{sys.argv[1]}/{os.getpid()}", "w").close()
    time.sleep(600)

if __name__ == "__main__":
    x, y = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2
    learn_shards(StreamingRidgeClassifier(size=9, first=20).partial_fit(x, y), [slow, slow])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_stays_behind(tmp_path, number):
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    (tmp_path / "pids").mkdir()
    command = [sys.executable, tmp_path / "sleeper.py", tmp_path / "pids"]
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent), "TMPDIR": str(tmp_path)}
    parent = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: list((tmp_path / "pids").iterdir()))
    parent.send_signal(number)
    _, error = parent.communicate(timeout=30)
    pids = [int(path.name) for path in (tmp_path / "pids").iterdir()]
    wait_until(lambda: not any(map(running, pids)))
    if number == signal.SIGINT:
        assert error.rstrip().endswith("KeyboardInterrupt")
        assert not list(tmp_path.glob("tmp*"))  # nor a file


def running(pid):
    """Whether there is such a process, and it is more than an entry of the process table."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def slow_shard(folder, n):
    """A shard that a worker needs a while for, and says that it began."""
    (folder / f"{n}-{os.getpid()}-{time.monotonic_ns()}").touch()
    time.sleep(0.15)
    return SHARDS[n]


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """Of a scheduler with two workers, each a process."""
    distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
    folder = str(tmp_path_factory.mktemp("dask"))
    options = {"dashboard_address": None, "local_directory": folder, "silence_logs": 50}
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, **options) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_a_cluster_with_a_worker_that_dies(client, tmp_path):
    shards = [functools.partial(slow_shard, tmp_path, n) for n in range(len(SHARDS))]

    def kill():  # a worker that has learned a shard and is at another one
        wait_until(lambda: len(begun()) > 4)
        os.kill(begun()[-1][1], signal.SIGKILL)

    def begun():
        names = [path.name.split("-") for path in tmp_path.iterdir()]
        return sorted([(int(n), int(pid)) for n, pid, _ in names])

    with ThreadPoolExecutor(1) as pool:
        killer = pool.submit(kill)
        learner = learn_shards(small(), shards, client)
        killer.result()
    assert_one_machine_s(learner)
    assert len({pid for _, pid in begun()}) > 2 or len(begun()) > len(SHARDS)


def test_arrays_of_dask(client, threads):
    array = pytest.importorskip("dask.array", reason="dask is not installed")
    x, y = array.from_array(X, chunks=(90, 2)), array.from_array(Y, chunks=70)
    for executor in (client, threads):
        assert_one_machine_s(learn_shards(small(), (x, y), executor))
    blocks = x.rechunk((90, 6)).to_delayed().ravel(), y.rechunk(90).to_delayed().ravel()
    assert_one_machine_s(learn_shards(small(), zip(*blocks, strict=True), client))
    with pytest.raises(InputError, match="shard 4: RuntimeError: the disk is gone"):
        learn_shards(small(), [*SHARDS[:3], fail], client)


def test_a_function_that_no_worker_can_get_is_named():
    learner = StreamingRidgeClassifier(size=20, first=20).partial_fit(X[:20], Y[:20])
    with pytest.raises(InputError, match=r"lambda.*Functions must be at the top level of a module"):
        learn_shards(learner, [lambda: (X[20:40], Y[20:40])])
