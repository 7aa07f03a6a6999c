"""A network from its description: architecture, first weights and pairs, passes, cost."""

from minipw.network.architecture import Architecture
from minipw.network.network import Network
