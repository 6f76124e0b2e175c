"""What a run used: who held what of nodes and links, and how busy workers, replicas and servers were.

Columns of the tables of `edgewise.report.use`. Forbidden here: printing and files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewise.core.dispatch.request_rules import CLOUD
from edgewise.core.ledger import NodeLedger, Reservation
from edgewise.core.plane import HoldsChanged, Plane
from edgewise.model.catalog import Resources
from edgewise.model.scenario import Scenario
from edgewise.model.work import INFERENCE, variant_holds
from edgewise.sim.joint.holders import Holders
from edgewise.sim.joint.loop import JointClock

if TYPE_CHECKING:
    from edgewise.sim.requests import RequestSites
    from edgewise.sim.stations.split import SplitWorld

DECIDED = {"orchestrate": "services", "place": "pipelines", "defer": "jobs"}
"""Whose reservations a decision makes."""
Columns = Mapping[str, Any]


def workers_hold(scenario: Scenario) -> tuple[Reservation, ...]:
    """What workers hold of nodes for life."""
    catalog = scenario.catalog
    return tuple(
        Reservation(worker.name, worker.node, *variant_holds(catalog.variant(worker.variant)))
        for worker in scenario.topology.workers
    )


def servers_hold(scenario: Scenario) -> tuple[Reservation, ...]:
    """What servers of split models hold of nodes for life."""
    return tuple(
        Reservation(f"{graph.name} on {node.name}", node.name, Resources(*needs), INFERENCE)
        for graph in scenario.graphs
        if any(needs := (graph.cpu_cores, graph.memory_bytes))
        for node in scenario.topology.nodes
        if node.speed_ops > 0
    )


def holders_of(scenario: Scenario, ledger: NodeLedger, works: Sequence[str]) -> Holders:
    """Notes who holds what of a ledger in a run of these kinds of work."""
    return Holders(ledger, scenario.topology.nodes, _work_of(scenario, works))


def _work_of(scenario: Scenario, works: Sequence[str]) -> Callable[[Reservation], str]:
    servers = {each.owner for each in servers_hold(scenario)}
    workers = "streams" if "streams" in works else "services"
    return lambda each: DECIDED.get(each.decision, "graphs" if each.owner in servers else workers)


def held_for_life(scenario: Scenario) -> Columns:
    """Who holds what in a run of streams alone: workers, on nodes that come and go."""
    plane = Plane(NodeLedger(scenario.topology.nodes))
    plane.handle(HoldsChanged(workers_hold(scenario)), 0.0)
    holders = holders_of(scenario, plane.ledger, ("streams",))
    nodes, lag_s = scenario.topology.nodes, scenario.telemetry_lag_s
    JointClock([], plane, nodes, scenario.timeline, lag_s, holders=holders).run()
    holders.finish(scenario.duration_s)
    return holders.records()


def server_use(scenario: Scenario, world: SplitWorld) -> Columns:
    """How busy the servers of split models were."""
    nodes = [node.name for node in scenario.topology.nodes if node.speed_ops > 0]
    end_s, busy_s = world.engine.now_s, world.engine.tallies()["busy_s"][: world.servers].tolist()
    return {
        "work": ["graphs"] * world.servers,
        "worker": [f"server on {name}" for name in nodes],
        "node": nodes,
        "busy_s": busy_s,
        "there_s": [end_s] * world.servers,
    }


def replica_use(scenario: Scenario, sites: RequestSites, holders: Holders) -> Columns:
    """How busy replicas were; those of one service on one node, or in the cloud, are a row."""
    names, nodes = sites.services.names, sites.services.nodes
    there_s = np.zeros_like(sites.queues.worked_s)
    for start_s, end_s, held in holders.spans:
        if held.work == "services" and held.place in nodes:
            service = held.owner.rpartition(f"-{held.place}-")[0]
            there_s[names.index(service), nodes.index(held.place) + 1] += end_s - start_s
    for each in sites.queues.replicas.values():
        if each.station == CLOUD:
            there_s[each.service, CLOUD] += each.serves * scenario.duration_s
    assert scenario.spec.services is not None, "who has requests has services"
    stations = (scenario.spec.services.cloud, *nodes)
    rows = [(s, n) for s, n in np.argwhere(there_s > 0.0).tolist()]
    return {
        "work": ["services"] * len(rows),
        "worker": [f"{names[s]} on {stations[n]}" for s, n in rows],
        "node": [None if n == CLOUD else stations[n] for _, n in rows],
        "busy_s": [float(sites.queues.worked_s[s, n]) for s, n in rows],
        "there_s": [float(there_s[s, n]) for s, n in rows],
    }
