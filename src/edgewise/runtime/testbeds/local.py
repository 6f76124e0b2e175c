"""`local`: all nodes are this machine. Senders pace themselves, so rates are real and paths are not.

A flow over a link that is down stops, as it would; which links carried what is not measured here.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Sequence

import numpy as np

from edgewise.arrays import Ints
from edgewise.model.network import Network
from edgewise.runtime.testbeds.base import Flow, nodes_on


class LocalTestbed:
    """Every node is 127.0.0.1; see `Backend`."""

    name = "local"
    shapes = False

    def __init__(self, network: Network) -> None:
        self.network = network
        self.flows: dict[int, Flow] = {}
        self._down: set[int] = set()

    def address(self, node: int) -> str:
        """Localhost, whatever the node."""
        return "127.0.0.1"

    def port(self) -> int:
        """A port that is free now."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    def command(self, node: int, argv: Sequence[str]) -> list[str]:
        """As it is."""
        return list(argv)

    def apply(self, flows: Sequence[Flow]) -> int:
        """Note the flows; the session tells the senders their rates."""
        for flow in flows:
            nodes_on(self.network, flow)
        wanted = {flow.port: flow for flow in flows}
        changed = sum(self.flows.get(port) != flow for port, flow in wanted.items())
        changed += len(self.flows.keys() - wanted.keys())
        self.flows = wanted
        return changed

    def sender_rate_bps(self, port: int) -> float:
        """What the sender of a flow may send now; infinite for a flow that is not planned."""
        flow = self.flows.get(port)
        if flow is None:
            return math.inf
        return 0.0 if self._down.intersection(flow.path) else flow.rate_bps

    def set_link(self, link: int, up: bool) -> None:
        """Flows over a link that is down get nothing."""
        (self._down.discard if up else self._down.add)(link)

    def link_bytes(self) -> Ints:
        """Nothing is known: all zero."""
        return np.zeros((len(self.network.bandwidth_bps), 2), dtype=np.int64)

    def close(self) -> None:
        """Nothing to remove."""
