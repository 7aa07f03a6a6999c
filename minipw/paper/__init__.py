"""Printed numbers and released settings of the paper, as data."""

from minipw.paper.cells import Cell, cells
from minipw.paper.released import PROTOCOLS, printed_accuracy, released_settings
