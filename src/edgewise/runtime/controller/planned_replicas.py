"""Replicas of services as processes that are wanted: those that still fit, and the first ones."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgewise.arrays import Floats
from edgewise.model.scenario import Scenario
from edgewise.model.services import Services, first_replicas, served_by_workers
from edgewise.model.topology import have_room
from edgewise.runtime.controller.known import core_of
from edgewise.runtime.controller.planned_ports import PlannedPorts
from edgewise.runtime.store import Process, Store
from edgewise.runtime.testbeds.spaces import SPACES


def held(scenario: Scenario, services: Services | None, workers: Sequence[Process]) -> Floats:
    """(N, 2) memory and cores that workers which serve requests, or come and go, hold of nodes now."""
    nodes = () if services is None else services.nodes
    serve = frozenset() if services is None else served_by_workers(services.spec, scenario.topology)
    found = np.zeros((len(nodes), 2))
    for worker, process in zip(scenario.topology.workers, workers, strict=True):
        counts = worker.pool is not None or worker.variant in serve
        if counts and process.wanted and worker.node in nodes:
            needs = scenario.catalog.variant(worker.variant).resources
            found[nodes.index(worker.node)] += needs.memory_bytes, needs.cpu_cores
    return found


def replicas(
    store: Store,
    ports: PlannedPorts,
    services: Services | None,
    kinds: Mapping[str, dict[str, Any]],
    pooled: Floats,
) -> list[Process]:
    """Replicas that are wanted already and still fit; the first ones of services that have none."""
    if services is None:
        return []
    store.put("services", {name: kinds[name] for name in services.names})
    needs, total = services.system.replica_holds, services.system.node_has
    spaces = store.get(SPACES, {})
    left = total - pooled
    kept: list[Process] = []
    for running in store.processes("replica"):
        old, place = running.process, services.place(running.process.settings)
        if place is None or not old.wanted:
            continue
        n, s = place
        if have_room(needs[s], left[n], total[n]).all():
            left[n] -= needs[s]
            fresh = {name: old.settings[name] for name in ("service", "node", "entity")}
            kept.append(
                replace(old, settings={**kinds[services.names[s]], **fresh, **spaces.get(fresh["node"], {})})
            )
    have, taken = {p.settings["service"] for p in kept}, {r.process.name for r in store.processes()}
    first = services.system.initial.sum(axis=0).tolist()
    wish = [0 if name in have else count for name, count in zip(services.names, first, strict=True)]
    placed = first_replicas(wish, needs, left)
    for n, s in np.repeat(np.argwhere(placed), placed[placed > 0], axis=0).tolist():
        kept.append(replica(services, n, s, taken, kinds[services.names[s]], spaces, ports.free()))
        taken.add(kept[-1].name)
    return kept


def replica(
    services: Services,
    n: int,
    s: int,
    taken: Collection[str],
    settings: Mapping[str, Any],
    spaces: Mapping[str, Mapping[str, str]],
    port: int,
) -> Process:
    """A replica of service s on node n, with the least number that gives a name which is not `taken`.

    Args:
        spaces: what `SPACES` of the store says of each node.
    """
    service, node, number = services.names[s], services.nodes[n], 0
    while f"{service}@{node}#{number}" in taken:
        number += 1
    more = {"service": service, "node": node, "entity": 10_000 * (s + 1) + 100 * n + number}
    made = {**settings, **more, **spaces.get(node, {})}
    return Process(f"{service}@{node}#{number}", "replica", port, made, core_of(n + number))
