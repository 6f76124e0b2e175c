"""What nodes have, what is held of them for life, and whether one more worker would fit."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from edgewise.model.deploy import fits
from edgewise.model.scenario import Scenario
from edgewise.model.topology import Node, Resources

SAID = ("cores", "memory", "accelerator memory", "storage")  # in the order of `topology.KINDS`


class NodeRoom(NamedTuple):
    """A node.

    Attributes:
        has, held: in the order of `topology.KINDS`; `held` for life: by workers, and servers of split models.
    """

    node: str
    cluster: str
    has: tuple[float, ...]
    held: tuple[float, ...]

    @property
    def free(self) -> tuple[float, ...]:
        """What is left."""
        return tuple(max(has - held, 0.0) for has, held in zip(self.has, self.held, strict=True))

    def lacks(self, needs: Resources) -> str | None:
        """What is missing for it, in words; None: it fits."""
        if fits(needs.as_tuple(), self.free, self.has):
            return None
        rows = zip(SAID, needs.as_tuple(), self.free, self.has, strict=True)
        what, wants, free, has = max(rows, key=lambda row: (row[1] - row[2]) / max(row[3], row[1], 1e-9))
        return f"{amount(what, free)} of {amount(what, has)} {what} free, it takes {amount(what, wants)}"


def amount(what: str, value: float) -> str:
    """So much of a resource, as people say it."""
    if what == "cores":
        return f"{value:.3g}"
    return f"{value / 1e9:.3g} GB" if value >= 1e9 or value == 0.0 else f"{value / 1e6:.3g} MB"


def rooms_of(scenario: Scenario) -> dict[str, NodeRoom]:
    """Of each node, by name."""
    held: dict[str, list[float]] = {node.name: [0.0] * len(SAID) for node in scenario.topology.nodes}
    for worker in scenario.topology.at_first:
        _hold(held[worker.node], scenario.catalog.variant(worker.variant).resources.as_tuple())
    for graph in scenario.graphs:
        for node in scenario.topology.nodes:
            if node.speed_ops > 0.0:
                _hold(held[node.name], Resources(graph.cpu_cores, graph.memory_bytes).as_tuple())
    return {node.name: _room(node, held[node.name]) for node in scenario.topology.nodes}


def more(scenario: Scenario, rooms: Mapping[str, NodeRoom], variant: str, nodes: Iterable[str]) -> int:
    """How many more workers of a variant fit some nodes together."""
    needs, count = scenario.catalog.variant(variant).resources, 0
    for name in nodes:
        room = rooms[name]
        parts = [(free, need) for free, need in zip(room.free, needs.as_tuple(), strict=True) if need > 0.0]
        count += min((int(free / need + 1e-9) for free, need in parts), default=1)
    return count


def _hold(held: list[float], needs: tuple[float, ...]) -> None:
    for k, value in enumerate(needs):
        held[k] += value


def _room(node: Node, held: list[float]) -> NodeRoom:
    return NodeRoom(node.name, node.cluster, node.resources.as_tuple(), tuple(held))
