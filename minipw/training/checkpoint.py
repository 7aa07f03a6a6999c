"""Checkpoints of unfinished runs, and how a run is asked to stop."""

import contextlib
import hashlib
import os
import signal
import time

from minipw import InputError
from minipw.backend import files


def save(path, arrays, facts):
    """`files.write`, in a folder that is made if need be. InputError when it fails."""
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        files.write(path, arrays, facts)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def load(path):
    """The arrays and facts that `save` wrote. InputError when the file is not whole."""
    try:
        arrays, facts = files.read(path)
        if facts is None:
            raise ValueError(f"it has no {files.FACTS}")
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except Exception as error:  # a damaged archive raises any of a dozen kinds
        raise InputError(f"{path} is not a whole file of minipw ({error}); delete it") from None
    return arrays, facts


def path_for(folder, key):
    """The file in `folder` for the run with this key."""
    return os.path.join(folder, hashlib.sha256(key.encode()).hexdigest()[:20] + ".npz")


class StopRequest:
    """A context in which the first Ctrl-C is a request to stop after the step in progress.

    The second Ctrl-C interrupts at once. `on_request` is called at the first.
    """

    def __init__(self, on_request=lambda: None):
        self.asked, self.on_request = False, on_request

    def __call__(self):
        """Whether a stop was asked for."""
        return self.asked

    def __enter__(self):
        self._before = None
        with contextlib.suppress(ValueError):  # other threads than the main one have no signals
            self._before = signal.signal(signal.SIGINT, self._request)
        return self

    def _request(self, *_):
        self.asked = True
        signal.signal(signal.SIGINT, self._before)
        self.on_request()

    def __exit__(self, *_):
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)


class Stopped(Exception):
    """A run stopped on request, after it was saved."""


class Checkpointer:
    """Saves a run now and then, and when it is asked to stop.

    Parameters
    ----------
    path : str or None
        The .npz file. None saves nothing.
    key : str
        Identifies the run: another run's checkpoint is refused.
    stop : callable
        Says, after each step, whether to save the run and raise `Stopped`.
    interval : float
        Seconds between two checkpoints.
    """

    def __init__(self, path, key, stop=lambda: False, interval=30.0):
        self.path, self.key, self.stop, self.interval = path, key, stop, interval
        self.saved_at = time.monotonic()

    @property
    def advice(self):
        """What becomes of an interrupted run, for the message."""
        if self.path is None:
            return "; with --out it would have been saved"
        return "; the same command goes on from here"

    def resume(self, run):
        """Restore a run from its checkpoint, if there is one; returns the seconds it took."""
        if self.path is None:
            return 0.0
        files.remove_leftovers(os.path.dirname(self.path))
        if not os.path.exists(self.path):
            return 0.0
        arrays, facts = load(self.path)
        if facts["key"] != self.key:
            raise InputError(f"{self.path} is the checkpoint of another run; delete it")
        run.restore(arrays, facts["run"])
        return facts["seconds"]

    def after_step(self, run, seconds):
        """Save the run if it is time to; raise `Stopped` if that was asked for."""
        stopping = self.stop()
        due = time.monotonic() - self.saved_at > self.interval
        if self.path is not None and run.resumable and (stopping or due):
            arrays, facts = run.state()
            save(self.path, arrays, {"key": self.key, "seconds": seconds, "run": facts})
            self.saved_at = time.monotonic()
        if stopping:
            raise Stopped(run.steps)

    def finish(self):
        """Remove the checkpoint of a run that is done."""
        if self.path is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)
