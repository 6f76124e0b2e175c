"""What is left on the nodes: workers and replicas hold theirs in one ledger, deferrable jobs get the rest."""

from __future__ import annotations

from collections.abc import Sequence

from edgewise.core.ledger import NodeLedger, Reservation
from edgewise.model.catalog import Resources
from edgewise.model.scenario import Scenario
from edgewise.model.work import variant_holds
from edgewise.runtime.store import Running


def ledger_of(scenario: Scenario, rows: Sequence[Running]) -> NodeLedger:
    """Nodes with the workers and replicas that are wanted or still run; where one lacks room, all there is.

    Args:
        rows: the processes of the live system.
    """
    topology, catalog = scenario.topology, scenario.catalog
    ledger = NodeLedger(topology.nodes)
    nodes = {node.name for node in topology.nodes}
    variants = {variant.name for variant in catalog.variants}
    gone = {r.process.name for r in rows if not r.process.wanted and r.handle is None}
    held = [(worker.name, worker.node, worker.variant) for worker in topology.workers]
    held += [
        (r.process.name, r.process.settings["node"], r.process.settings["service"])
        for r in rows
        if r.process.kind == "replica"
    ]
    for name, node, variant in held:
        if name not in gone and node in nodes and variant in variants:
            hold = variant_holds(catalog.variant(variant))
            hold = hold._replace(resources=_at_most(hold.resources, ledger.free(node)))
            ledger.reserve(Reservation(name, node, *hold))
    return ledger


def _at_most(needs: Resources, free: Resources) -> Resources:
    return Resources(*map(min, needs.as_tuple(), free.as_tuple()))
