"""Split models of a scenario: their operators, and the servers that they share. Forbidden here: I/O."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgewise.errors import ScenarioError
from edgewise.model.deploy import fits
from edgewise.model.grammar.pipelines import GraphSpec
from edgewise.model.problems import unique
from edgewise.model.topology import KINDS, Catalog, Resources, Topology
from edgewise.model.work import Edge, Task, TaskGraph


@dataclass(frozen=True, slots=True)
class ServerGroup:
    """Servers of one power: how many, and operations per second of each."""

    name: str
    servers: int
    power_ops: float


def check_graphs(specs: Sequence[GraphSpec], problems: list[str]) -> None:
    """Names given twice, tensors of unknown operators and cycles are problems."""
    unique("graphs", [spec.name for spec in specs], problems)
    for i, spec in enumerate(specs):
        try:
            graph_of(spec)
        except ValueError as error:
            problems.append(f"graphs[{i}]: {error}; change its tensors")


def check_servers(
    specs: Sequence[GraphSpec], catalog: Catalog, topology: Topology, problems: list[str]
) -> None:
    """Servers of split models that do not fit beside the workers of their nodes are problems."""
    left = {node.name: np.array(node.resources.as_tuple()) for node in topology.nodes}
    for worker in topology.at_first:
        left[worker.node] -= catalog.variant(worker.variant).resources.as_tuple()
    for i, spec in enumerate(specs):
        needs = Resources(spec.cpu_cores, spec.memory_bytes).as_tuple()
        for node in topology.nodes if any(needs) else ():
            if node.speed_ops > 0.0 and not fits(needs, left[node.name].tolist(), node.resources.as_tuple()):
                kind, most = max(zip(KINDS, needs - left[node.name], strict=True), key=lambda each: each[1])
                problems.append(
                    f"graphs[{i}].{kind}: a server of {spec.name!r} does not fit node {node.name!r} beside "
                    f"its workers, by {most:g}; lower it or workers.count, or add resources"
                )
                break
            left[node.name] -= needs if node.speed_ops > 0.0 else 0.0


def graph_of(spec: GraphSpec) -> TaskGraph:
    """The operators and tensors that are written out; none where they are read from a network.

    Raises:
        ValueError: a tensor names an unknown operator, or there is a cycle.
    """
    tasks = tuple(Task(operator.name, operator.work_ops) for operator in spec.operators)
    edges = tuple(Edge(t.source, t.target, t.size_bytes, t.tensor) for t in spec.tensors)
    return TaskGraph(spec.name, tasks, edges)


def server_groups(topology: Topology) -> tuple[ServerGroup, ...]:
    """One group for each cluster whose nodes have a speed.

    Raises:
        ScenarioError: nodes of a cluster differ, or none has a speed.
    """
    groups = []
    for cluster in topology.clusters:
        speeds = {node.speed_ops for node in cluster.nodes}
        if len(speeds) > 1:
            different = ", ".join(f"{speed:g}" for speed in sorted(speeds))
            raise ScenarioError(
                f"cluster {cluster.name!r}: its nodes have speed_ops {different}; "
                "graphs need equal servers in a cluster: put the others in a cluster of their own"
            )
        if speeds != {0.0}:
            groups.append(ServerGroup(cluster.name, len(cluster.nodes), speeds.pop()))
    if not groups:
        raise ScenarioError("clusters: no node has speed_ops, which graphs need; give some nodes a speed")
    return tuple(groups)


def group_links(topology: Topology) -> dict[tuple[str, str], float]:
    """(cluster, cluster) → bits/s of the link between them, or between the nodes of one.

    Raises:
        ScenarioError: a link has a delay, or one rate for each direction.
    """
    found = {}
    clusters = {cluster.name for cluster in topology.clusters}
    for link in [link for link in topology.links if clusters.issuperset(link.ends)]:
        if not link.shared or link.delay_s or link.deviation_s:
            raise ScenarioError(
                f"links: between {' and '.join(link.ends)}: graphs know links without delay and one rate "
                "for both directions; set shared: both, and delay_s and deviation_s to 0"
            )
        found[link.ends] = link.bandwidth_bps
    return found
