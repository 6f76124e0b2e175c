"""Who holds what of nodes in a run, whatever kinds of work are in it.

Columns of the tables of `edgewise.report.use`. Forbidden here: printing and files.
"""

from collections.abc import Mapping, Sequence

from edgewise.core.holders import DECIDED, OTHER, Holders, hold_records
from edgewise.core.ledger import NodeLedger, Reservation
from edgewise.core.plane import HoldsChanged, Plane
from edgewise.model.scenario import Scenario
from edgewise.model.topology import Resources
from edgewise.model.work import INFERENCE, variant_holds
from edgewise.run.tables import Columns
from edgewise.sim.clock import JointClock


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
    services = scenario.services if "streams" not in works else None
    mine = {
        node.name
        for node in scenario.topology.nodes
        if services and ("streams" not in scenario.holds or node.cluster == services.cloud)
    }
    held = {each: "services" if each.node in mine else "streams" for each in workers_hold(scenario)}
    return held | dict.fromkeys(servers_hold(scenario) if "graphs" in works else (), "graphs")


def holders_of(scenario: Scenario, ledger: NodeLedger, for_life: Mapping[Reservation, str]) -> Holders:
    """Notes who holds what of a ledger, beside what `held_for_life` gives."""
    work_of = {each.owner: work for each, work in for_life.items()}
    pooled = {worker.name for worker in scenario.topology.workers if worker.pool is not None}
    return Holders(
        ledger, scenario.topology.nodes,
        lambda each: ("services" if "streams" not in scenario.holds else "streams")
        if each.owner in pooled
        else DECIDED.get(each.decision) or work_of.get(each.owner, OTHER),
    )  # fmt: skip


def workers_held(scenario: Scenario) -> Columns:
    """Who holds what in a run of streams alone: workers, on nodes that come and go."""
    plane, for_life = Plane(NodeLedger(scenario.topology.nodes)), held_for_life(scenario, ("streams",))
    plane.handle(HoldsChanged(tuple(for_life)), 0.0)
    holders = holders_of(scenario, plane.ledger, for_life)
    nodes, lag_s = scenario.topology.nodes, scenario.telemetry.lag_s
    JointClock([], plane, nodes, scenario.timeline, lag_s, holders=holders).run()
    holders.finish(scenario.duration_s)
    return hold_records(holders.spans)


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
