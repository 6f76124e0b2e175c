"""What a cluster's nodes have, and what pods of others ask of them: the scheduler's own sums, by watch.

A node's room is taken by the *requests* of its pods, whoever made them, until they have ended. All nodes and
all pods of the cluster are watched for that, and projected to a few numbers each.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lightkube import ALL_NS, Client
from lightkube.resources.core_v1 import Node, Pod

from edgewise.model.topology import Resources
from edgewise.runtime.backends.contract import NodeSeen
from edgewise.runtime.backends.kubernetes.manifest import KIND, SYSTEM
from edgewise.runtime.backends.kubernetes.seen import ObjectWatch, is_ready

ENDED = ("Succeeded", "Failed")
CLOSED = ("NoSchedule", "NoExecute")  # effects of taints, none of which our pods tolerate
UNITS = {"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12} | {
    f"{unit}i": 2.0 ** (10 * power) for power, unit in enumerate("KMGT", 1)
}
Held = Mapping[str, tuple[float, float]]  # cores and bytes of memory, by namespace and name of a pod


@dataclass(frozen=True, slots=True)
class PodAsks:
    """What is kept of a pod: its node, of which system of ours it is, and what it asks for."""

    node: str | None
    system: str | None
    asks: tuple[float, float]


@dataclass(frozen=True, slots=True)
class NodeHas:
    """What is kept of a node: whether it is ready, and takes pods, and what these may have of it."""

    ready: bool
    takes: bool
    has: tuple[float, float]


class ClusterNodes:
    """The nodes of a cluster and what pods of others than `system` ask of them.

    Args:
        held: what the ledger has already of pods that somebody else runs, see `TakenPods`: the rest counts.
    Raises:
        RunError: the API server does not answer, or refuses.
    """

    def __init__(self, client: Client, system: str, held: Callable[[], Held] = dict) -> None:
        self.system, self._held = system, held
        self._changes = 0
        self._summed: tuple[tuple[int, Held], dict[str, NodeSeen]] = (-1, {}), {}  # after what, and what then
        self._nodes = ObjectWatch(client, Node, {}, node_has, self._changed)
        self._pods = ObjectWatch(client, Pod, {}, pod_asks, self._changed, ALL_NS)
        for watch in (self._nodes, self._pods):
            watch.begin(watching=True)

    def seen(self) -> dict[str, NodeSeen]:
        """Every node as it was last seen, by name; pods are summed anew where something has changed."""
        after = self._changes, self._held()  # first: what changes meanwhile is seen by the next
        if self._summed[0] != after:
            self._summed = after, self._sum(after[1])
        return self._summed[1]

    def _changed(self) -> None:
        self._changes += 1

    def _sum(self, held: Held) -> dict[str, NodeSeen]:
        others: dict[str, list[float]] = {}
        for key, pod in self._pods.rows.items():
            if pod.node is not None and pod.system != self.system:
                rest = _beyond(pod.asks, held.get(key, (0.0, 0.0)))
                others[pod.node] = _plus(others.get(pod.node, (0.0, 0.0)), rest)
        return {
            name: NodeSeen(
                node.ready, Resources(*node.has), Resources(*others.get(name, (0.0, 0.0))), node.takes
            )
            for name, node in self._nodes.rows.items()
        }


def node_has(node: Any) -> NodeHas:
    """What is kept of a node."""
    taints = [each.effect for each in node.spec.taints or ()] if node.spec else []
    closed = bool(node.spec and node.spec.unschedulable) or any(each in CLOSED for each in taints)
    return NodeHas(is_ready(node), not closed, amounts(node.status and node.status.allocatable))


def pod_asks(pod: Any) -> PodAsks:
    """What is kept of a pod; one that has ended asks for nothing. Gateways are in no ledger of ours."""
    labels = pod.metadata.labels or {}
    system = None if labels.get(KIND) == "gateway" else labels.get(SYSTEM)
    if pod.status is not None and pod.status.phase in ENDED:
        return PodAsks(None, system, (0.0, 0.0))
    return PodAsks(pod.spec.nodeName, system, asked_by(pod.spec))


def asked_by(spec: Any) -> tuple[float, float]:
    """Cores and bytes of memory that a pod asks for.

    What starts it up runs before its containers, one after another, and needs room then; what starts it up
    and stays is a container more (Kubernetes' sidecars).
    """
    stays, first = [0.0, 0.0], [0.0, 0.0]
    for each in spec.initContainers or ():
        asks = _asks(each)
        if each.restartPolicy == "Always":
            stays = _plus(stays, asks)
            first = _most(first, stays)
        else:
            first = _most(first, _plus(stays, asks))
    for each in spec.containers:
        stays = _plus(stays, _asks(each))
    cores, memory_bytes = _plus(_most(first, stays), amounts(spec.overhead))
    return cores, memory_bytes


def amounts(of: Mapping[str, str] | None) -> tuple[float, float]:
    """Cores and bytes of memory, as Kubernetes writes them."""
    known = of or {}
    return quantity(known.get("cpu", "0")), quantity(known.get("memory", "0"))


def quantity(text: str) -> float:
    """A number as Kubernetes writes it: 250m, 2, 16Gi, 500M."""
    unit = text.lstrip("0123456789.+-")
    return float(text[: len(text) - len(unit)]) * (UNITS[unit] if unit else 1.0)


def _asks(container: Any) -> tuple[float, float]:
    return amounts(container.resources and container.resources.requests)


def _plus(one: Iterable[float], other: Iterable[float]) -> list[float]:
    return [a + b for a, b in zip(one, other, strict=True)]


def _beyond(one: Iterable[float], other: Iterable[float]) -> list[float]:
    return [max(a - b, 0.0) for a, b in zip(one, other, strict=True)]


def _most(one: Iterable[float], other: Iterable[float]) -> list[float]:
    return [max(a, b) for a, b in zip(one, other, strict=True)]
