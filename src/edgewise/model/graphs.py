"""Split models of a scenario, and the servers that run them. Forbidden here: I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from edgewise.errors import ScenarioError
from edgewise.model.grammar.pipelines import GraphSpec
from edgewise.model.problems import unique
from edgewise.model.topology import Topology
from edgewise.model.work import Edge, Task, TaskGraph


@dataclass(frozen=True, slots=True)
class SplitModel:
    """Queries of one network whose operators may run on several servers.

    Attributes:
        rate_qps: Poisson rate of its queries.
        network: an ONNX file, or the name of a known network; None where `graph` is written out.
        graph: its operators and tensors; None where they are read from `network`.
        shapes: of inputs with free axes.
        branches: to contract a sub-graph to; None: as far as costs nothing.
    """

    name: str
    rate_qps: float
    network: str | None = None
    graph: TaskGraph | None = None
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    branches: int | None = None


@dataclass(frozen=True, slots=True)
class ServerGroup:
    """Servers of one power: how many, and operations per second of each."""

    name: str
    servers: int
    power_ops: float


def build_graphs(specs: Sequence[GraphSpec], problems: list[str]) -> tuple[SplitModel, ...]:
    """The split models of a checked form.

    Problems: names given twice, tensors of unknown operators, cycles.
    """
    unique("graphs", [spec.name for spec in specs], problems)
    found = []
    for i, spec in enumerate(specs):
        graph = None
        try:
            if spec.operators:
                tasks = tuple(Task(operator.name, operator.work_ops) for operator in spec.operators)
                edges = tuple(Edge(t.source, t.target, t.size_bytes, t.tensor) for t in spec.tensors)
                graph = TaskGraph(spec.name, tasks, edges)
        except ValueError as error:
            problems.append(f"graphs[{i}]: {error}; change its tensors")
        found.append(SplitModel(spec.name, spec.rate_qps, spec.network, graph, spec.shapes, spec.branches))
    return tuple(found)


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
    for link in topology.links:
        if not link.shared or link.delay_s or link.deviation_s:
            raise ScenarioError(
                f"links: between {' and '.join(link.ends)}: graphs know links without delay and one rate "
                "for both directions; set shared: both, and delay_s and deviation_s to 0"
            )
        found[link.ends] = link.bandwidth_bps
    return found
