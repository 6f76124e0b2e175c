"""What a run used: who held what of nodes and links, and how busy workers, replicas and servers were.

Columns of the tables of `edgewise.report.use`. Forbidden here: printing and files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.dispatch.request_rules import CLOUD
from edgewise.core.holders import (
    DECIDED,
    OTHER,
    TOTAL,
    Held,
    Holders,
    figures,
    hold_records,
    totals,
)
from edgewise.core.ledger import NodeLedger, Reservation
from edgewise.core.plane import HoldsChanged, Plane
from edgewise.model.scenario import Scenario
from edgewise.model.topology import Resources
from edgewise.model.work import INFERENCE, variant_holds
from edgewise.sim.clock import JointClock
from edgewise.sim.requests.state import worked_until

if TYPE_CHECKING:
    from edgewise.core.defer import Trajectories
    from edgewise.model.orchestration import System
    from edgewise.sim.requests.sites import RequestSites

POOL = "all nodes"  # what they are called where nobody tells them apart
Columns = Mapping[str, Any]


def workers_hold(scenario: Scenario) -> tuple[Reservation, ...]:
    """What workers that never go hold of nodes for life."""
    catalog = scenario.catalog
    return tuple(
        Reservation(worker.name, worker.node, *variant_holds(catalog.variant(worker.variant)))
        for worker in scenario.topology.for_good
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


def held_for_life(scenario: Scenario, works: Sequence[str]) -> dict[Reservation, str]:
    """What workers, and servers of split models, hold of nodes for life; and for which kind of work."""
    services = scenario.spec.services if "streams" not in works else None
    mine = {
        node.name
        for node in scenario.topology.nodes
        if services and (scenario.spec.streams is None or node.cluster == services.cloud)
    }
    held = {each: "services" if each.node in mine else "streams" for each in workers_hold(scenario)}
    return held | dict.fromkeys(servers_hold(scenario) if "graphs" in works else (), "graphs")


def holders_of(scenario: Scenario, ledger: NodeLedger, for_life: Mapping[Reservation, str]) -> Holders:
    """Notes who holds what of a ledger, beside what `held_for_life` gives."""
    work_of = {each.owner: work for each, work in for_life.items()}
    pooled = {worker.name for worker in scenario.topology.workers if worker.pool is not None}
    return Holders(
        ledger, scenario.topology.nodes,
        lambda each: ("services" if scenario.spec.streams is None else "streams")
        if each.owner in pooled
        else DECIDED.get(each.decision) or work_of.get(each.owner, OTHER),
    )  # fmt: skip


def workers_held(scenario: Scenario) -> Columns:
    """Who holds what in a run of streams alone: workers, on nodes that come and go."""
    plane, for_life = Plane(NodeLedger(scenario.topology.nodes)), held_for_life(scenario, ("streams",))
    plane.handle(HoldsChanged(tuple(for_life)), 0.0)
    holders = holders_of(scenario, plane.ledger, for_life)
    nodes, lag_s = scenario.topology.nodes, scenario.telemetry_lag_s
    JointClock([], plane, nodes, scenario.timeline, lag_s, holders=holders).run()
    holders.finish(scenario.duration_s)
    return hold_records(holders.spans)


def replicas_held(scenario: Scenario, system: System, names: Sequence[str], counts: Ints) -> Columns:
    """Who holds what where services run in slots.

    Args:
        names: (S,) of services.
        counts: (F, N, S) replicas on each node at the beginning of each frame.
    """
    nodes, (frames, *_) = scenario.topology.nodes, counts.shape
    own = [node for node in nodes if node.cluster != scenario.spec.served.cloud]
    end_s, frame_s = scenario.duration_s, scenario.duration_s / frames
    for_life = held_for_life(scenario, ("services",)).items()
    held = [Held(each.node, each.owner, work, *figures(each.resources)) for each, work in for_life]
    spans = [(0.0, end_s, what) for what in (*totals(nodes), *held)]
    for n, s in np.argwhere(counts.any(axis=0)).tolist():
        count = counts[:, n, s]
        memory_bytes, cores = system.replica_holds[s].tolist()
        edges = [0, *(np.flatnonzero(np.diff(count)) + 1).tolist(), frames]
        for first, last in pairwise(edges):
            if number := int(count[first]):
                what = Held(
                    own[n].name,
                    f"{names[s]}-{own[n].name}",
                    "services",
                    number * cores,
                    number * memory_bytes,
                )
                spans.append((first * frame_s, last * frame_s, what))
    return hold_records(spans)


def pool_held(worlds: Trajectories, world: int, start: Ints) -> Columns:
    """Who holds what where jobs and work that is not simulated have one pool.

    Args:
        start: (J,) slot in which each job of the world started, -1 where it did not.
    """
    slot_s, total, left = worlds.slot_s, worlds.total, worlds.left_over[world]
    edges = [0, *(np.flatnonzero(np.diff(left, axis=0).any(axis=1)) + 1).tolist(), len(left)]
    spans = [(0.0, len(left) * slot_s, Held(POOL, "", TOTAL, *total.tolist()))]
    spans += [
        (first * slot_s, last * slot_s, Held(POOL, "other work", OTHER, *(total - left[first]).tolist()))
        for first, last in pairwise(edges)
    ]
    for job in np.flatnonzero(start >= 0).tolist():
        ends = min(start[job] + worlds.duration[world, job], len(left))
        what = Held(POOL, f"job {job}", "jobs", *worlds.demand[world, job].tolist())
        spans.append((float(start[job] * slot_s), float(ends * slot_s), what))
    return hold_records(spans)


def server_use(scenario: Scenario, busy_s: Floats) -> Columns:
    """How busy the servers of split models were, (S,) seconds of the run."""
    nodes = [node.name for node in scenario.topology.nodes if node.speed_ops > 0]
    return {
        "work": ["graphs"] * len(nodes),
        "worker": [f"server on {name}" for name in nodes],
        "node": nodes,
        "busy_s": busy_s.tolist(),
        "there_s": [scenario.duration_s] * len(nodes),
    }


def workers_there(scenario: Scenario, columns: Columns, holders: Holders) -> Columns:
    """How busy streams' workers were; those of pools are there while they hold their part of a node."""
    pooled = [worker for worker in scenario.topology.workers if worker.pool is not None]
    servers = {worker.name: scenario.catalog.variant(worker.variant).servers for worker in pooled}
    there_s = dict.fromkeys(servers, 0.0)
    for start_s, end_s, held in holders.spans:
        if held.owner in there_s:
            there_s[held.owner] += (end_s - start_s) * servers[held.owner]
    rows = [k for k, name in enumerate(columns["worker"]) if there_s.get(name, 1.0) > 0.0]
    found = {name: [column[k] for k in rows] for name, column in columns.items()}
    found["there_s"] = [
        there_s.get(name, s) for name, s in zip(found["worker"], found["there_s"], strict=True)
    ]
    return found


def replica_use(scenario: Scenario, sites: RequestSites, holders: Holders) -> Columns:
    """How busy replicas were; those of one service on one node, or in the cloud, are a row."""
    names, nodes = sites.services.names, sites.services.nodes
    there_s = np.zeros_like(sites.queues.run.worked_s)
    for start_s, end_s, held in holders.spans:
        service, of_replica, _ = held.owner.rpartition(f"-{held.place}-")
        if held.work == "services" and held.place in nodes and of_replica:
            there_s[names.index(service), nodes.index(held.place) + 1] += end_s - start_s
    for each in sites.queues.replicas.values():
        if each.station == CLOUD and each.worker < 0:
            there_s[each.service, CLOUD] += each.serves * scenario.duration_s
    stations = (scenario.spec.served.cloud, *nodes)
    worked_s = worked_until(sites.queues.run, scenario.duration_s)
    rows = [(s, n) for s, n in np.argwhere(there_s > 0.0).tolist()]
    return {
        "work": ["services"] * len(rows),
        "worker": [f"{names[s]} on {stations[n]}" for s, n in rows],
        "node": [None if n == CLOUD else stations[n] for _, n in rows],
        "busy_s": [float(worked_s[s, n]) for s, n in rows],
        "there_s": [float(there_s[s, n]) for s, n in rows],
    }
