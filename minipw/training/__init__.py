"""One run: its settings, its tasks, the streaming loop, and the record that it leaves."""

from minipw.training.run import Run, train
from minipw.training.settings import Settings, resolve
