"""Checkpoints of unfinished runs, and how a run is asked to stop."""

import contextlib
import hashlib
import os
import signal
import time

from minipw import InputError, files


def save(path, arrays, facts):
    """Replace the file at `path`, so that a reader finds the old one or the new one.

    Parameters
    ----------
    path : str ending in .npz
    arrays : dict of str to ndarray
    facts : what JSON can hold

    Raises
    ------
    InputError
        When the file cannot be written; the old one is then still there.
    """
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        files.write(path, arrays, facts)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def load(path):
    """What `save` wrote.

    Returns
    -------
    arrays : dict of str to ndarray
    facts : object

    Raises
    ------
    InputError
        When the file cannot be read or is not whole.
    """
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
    """Turns the first Ctrl-C into a request that is met after the step in progress.

    Used as a context; the second Ctrl-C interrupts at once.
    """

    def __init__(self, on_request=lambda: None):
        self.asked, self.on_request = False, on_request

    def __call__(self):
        """Whether a stop was asked for."""
        return self.asked

    def __enter__(self):
        self._before = None
        with contextlib.suppress(ValueError):  # outside the main thread there are no signals
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
    """A run was left on request after it was saved."""


class Checkpointer:
    """Saves a run every so often, and when it is asked to stop.

    Parameters
    ----------
    path : str or None
        Of the checkpoint, .npz. None: nothing is saved.
    key : str
        Which run it is of; another run's checkpoint is refused.
    stop : callable
        Says, after each step, whether to save, leave and raise `Stopped`.
    interval : float
        Seconds between two checkpoints.
    """

    def __init__(self, path, key, stop=lambda: False, interval=30.0):
        self.path, self.key, self.stop, self.interval = path, key, stop, interval
        self.saved_at = time.monotonic()

    @property
    def advice(self):
        """What to tell whoever interrupted the run."""
        if self.path is None:
            return "; with --out it would have been saved"
        return "; the same command goes on from here"

    def resume(self, run):
        """Restore a run from its checkpoint, if there is one.

        Returns
        -------
        float
            Seconds that were spent on it before.
        """
        if self.path is None or not os.path.exists(self.path):
            return 0.0
        arrays, facts = load(self.path)
        if facts["key"] != self.key:
            raise InputError(f"{self.path} is the checkpoint of another run; delete it")
        run.restore(arrays, facts["run"])
        return facts["seconds"]

    def after_step(self, run, seconds):
        """Save if it is time to, or leave if that is wanted."""
        stopping = self.stop()
        due = time.monotonic() - self.saved_at > self.interval
        if self.path is not None and (stopping or due):
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
