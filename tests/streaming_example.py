"""The worked example of ENTS (fig. 2) and small random networks, shared by the tests of placement."""

from dataclasses import replace
from itertools import pairwise

import numpy as np

from edgewise.config import load_scenario
from edgewise.core.place import NetworkView, PipelineArrays, Placement, arrays_of, free_of
from edgewise.model.pipelines import Network, Pipeline, network_of
from edgewise.model.scenario import Scenario
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.workloads.pipelines import pipelines_of


def edge_scenario(seed: int, nodes: int, **pipelines: object) -> Scenario:
    """The shipped scenario on another network, with other pipelines."""
    settings = {"topology.seed": seed, "topology.nodes": nodes}
    return load_scenario("recognition", settings | {f"pipelines.0.{k}": v for k, v in pipelines.items()})


def edge_network(seed: int, nodes: int = 30, mean_bps: float = 1e6) -> Network:
    network = network_of(edge_scenario(seed, nodes))
    return replace(network, bandwidth_bps=network.bandwidth_bps * (mean_bps / 1e6))


def sharing(network: Network) -> Network:
    """The same, where tasks of a node share what one of them has alone."""
    return replace(network, cores=network.task_cores)


def streaming_jobs(
    seed: int, network: Network, count: int, kind: str = "recognition"
) -> tuple[Pipeline, ...]:
    """At random nodes of an `edge_network`."""
    return pipelines_of(edge_scenario(seed, len(network.names), count=count, generate=kind), seed)


def example_network(detour: float = 6.0) -> Network:
    """e4 reaches e1 over e2 (width 10) and over e3 (width `detour`)."""
    links = [("e2", "e4", 10.0), ("e1", "e2", 10.0), ("e3", "e4", detour), ("e1", "e3", detour)]
    names = ("e1", "e2", "e3", "e4")
    ends = np.array([(names.index(a), names.index(b)) for a, b, _ in links])
    return Network(
        names, np.array([200.0, 1.0, 1.0, 50.0]), np.full(4, 100.0), ends, np.array([w for *_, w in links])
    )


def example_job() -> Pipeline:
    """a feeds b and c (data 1 and 2); all work 55, 5 of it in a; the input is 5. Data in bits."""
    tasks = (Task("a", 5.0, 1.0), Task("b", 50.0, 1.0), Task("c", 0.0, 1.0))
    edges = (Edge("a", "b", 1 / 8), Edge("a", "c", 2 / 8))
    return Pipeline("example", TaskGraph("example", tasks, edges), "e4", 5 / 8, frames=10.0)


def whole_job() -> Pipeline:
    """The same job in one piece."""
    graph = TaskGraph("whole", (Task("all", 55.0, 3.0),), ())
    return Pipeline("whole", graph, "e4", 5 / 8, frames=10.0)


def place_by_hand(
    network: Network, job: Pipeline, nodes: dict[str, str], flows: dict[str, tuple[list[str], float]]
) -> Placement:
    """A placement from names; a flow is named by its head task and given as (nodes on its way, bandwidth)."""
    arrays = arrays_of(job, 0, network)
    order = job.graph.order()
    start, links, width = [0], [], []
    for head in arrays.head:
        way, rate = flows.get(order[head], ([], np.inf))
        path = [network.link(a, b) for a, b in pairwise(way)]
        links += path
        start.append(start[-1] + len(path))
        width.append(rate)
    node = np.array([network.node(nodes[name]) for name in order])
    return Placement(arrays, node, np.array(start), np.array(links, dtype=np.int64), np.array(width))


def view_of(
    network: Network, waiting: list[PipelineArrays], running: tuple[Placement, ...] = ()
) -> NetworkView:
    memory, link = free_of(network, running)
    return NetworkView(0.0, network, memory, link, waiting, running)


def small_case(seed: int, nodes: int = 12, count: int = 6) -> tuple[Network, list[PipelineArrays]]:
    network = edge_network(seed, nodes)
    jobs = streaming_jobs(seed, network, count, kind="random")
    return network, [arrays_of(job, i, network) for i, job in enumerate(jobs)]
