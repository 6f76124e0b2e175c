"""What a backend of pipelines gives: addresses, a way to run processes, shaped and routed flows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from edgewise.arrays import Ints
from edgewise.model.network import Network


@dataclass(frozen=True, slots=True)
class Flow:
    """One edge of a job between two nodes, as the plan wants it.

    Attributes:
        port: of the receiving task; no two flows of a backend share one, so it names the flow.
        source, target: nodes.
        path: links from source to target; none when they are the same node.
        rate_bps: payload bits per second; 0: it may not send. Infinite within a node.
    """

    port: int
    source: int
    target: int
    path: tuple[int, ...]
    rate_bps: float


class Testbed(Protocol):
    """Nodes and links that are really there."""

    name: str
    shapes: bool
    """Whether the backend holds flows to their rates; otherwise the senders must."""
    network: Network

    def address(self, node: int) -> str:
        """IP address of a node."""

    def port(self) -> int:
        """A port that no flow has had."""

    def command(self, node: int, argv: Sequence[str]) -> list[str]:
        """The command line that runs `argv` on a node."""

    def apply(self, flows: Sequence[Flow]) -> int:
        """Make these the flows there are, whatever was before; returns how many commands it took."""

    def set_link(self, link: int, up: bool) -> None:
        """Cut a link, or mend it."""

    def link_bytes(self) -> Ints:
        """(L, 2) bytes that each link has carried, from its first end and from its second."""

    def close(self) -> None:
        """Leave nothing behind."""


def nodes_on(network: Network, flow: Flow) -> list[int]:
    """Nodes along a flow's path.

    Raises:
        ValueError: the path does not lead from source to target.
    """
    at, passed = flow.source, [flow.source]
    for link in flow.path:
        ends = network.ends[link].tolist()
        if at not in ends:
            raise ValueError(f"flow to port {flow.port}: link {link} does not continue its path")
        at = ends[1 - ends.index(at)]
        passed.append(at)
    if at != flow.target:
        raise ValueError(f"flow to port {flow.port}: its path ends at node {at}, not at {flow.target}")
    return passed
