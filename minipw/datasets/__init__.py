"""Data sets: find, download, verify, read; a user's own files."""

from minipw.datasets.catalog import load
from minipw.datasets.dataset import Dataset
