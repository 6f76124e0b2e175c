"""Who holds what of the nodes of a live system, written down as it changes: the time line of its records.

The controller looks at its own ledger a few times a second. What is held now is in the store, too, with since
when, so that a controller that takes over goes on where the former one ended.
"""

import logging
from collections.abc import Iterator

import numpy as np

from edgewise.core.holders import DECIDED, FLOWS, OTHER, Held, Holders
from edgewise.core.ledger import Reservation
from edgewise.model.pipelines import carried_over
from edgewise.model.scenario import Scenario
from edgewise.model.ways import routes_of
from edgewise.runtime import clock
from edgewise.runtime.controller.live_plane import LivePlane
from edgewise.runtime.controller.pipelines import LivePipelines
from edgewise.runtime.watch.logs import SaidOnce

log = logging.getLogger("edgewise.records")


class LiveHolds:
    """Writes down who holds what.

    Args:
        plane: whose ledger.
        pipelines: reserve rates of links, while there are any.
    """

    def __init__(self, plane: LivePlane, pipelines: LivePipelines) -> None:
        self.plane, self.store, self._pipelines = plane, plane.store, pipelines
        self._scenario: Scenario | None = None
        self._holders: Holders | None = None
        self._going_on = SaidOnce(log, "holds")

    def go_on(self) -> None:
        """Look, and write down what has changed, where that can be."""
        with self._going_on():
            self.step(clock.unix_s())

    def step(self, now_s: float) -> None:
        """Write down what has changed since.

        Raises:
            StoreError: it cannot be written now; the next step does it.
        """
        if not self.plane.has_scenario:
            return
        scenario, place = self.plane.scenario, self._pipelines.core
        holders = self._holders_of(scenario)
        fresh = scenario is not self._scenario or holders.place is not place
        holders.place = place
        if fresh:
            self._lay(holders, scenario)
        holders.look(now_s)
        if fresh:
            self.store.records.note_totals(holders.totals())
            self._scenario = scenario
        self._write(holders)

    def _lay(self, holders: Holders, scenario: Scenario) -> None:
        """Flows between nodes hold of the cables that messages share, where their links run over such."""
        holders.on_net, holders.flows = (), tuple
        if scenario.sharing == "none" or (core := holders.place) is None:
            return
        routes = routes_of(scenario.topology)
        carried = carried_over(core.network, routes)

        def flows() -> Iterator[Held]:
            for link, bps in zip(routes.names, np.tensordot(core.flows_bps(), carried, 2), strict=True):
                if bps > 0.0:
                    yield Held(link, FLOWS, DECIDED["place"], bps=float(bps))

        holders.on_net, holders.flows = routes.between, flows

    def end(self, now_s: float) -> None:
        """Nobody holds anything any more."""
        if (holders := self._holders) is not None:
            holders.look(now_s)
            holders.spans += [(since_s, now_s, what) for since_s, what in holders.open if since_s < now_s]
            holders.go_on(())
            self._write(holders, always=True)

    def _write(self, holders: Holders, always: bool = False) -> None:
        if always or holders.changed:
            self.store.records.note_spans(holders.spans, holders.open)
            holders.spans, holders.changed = [], False

    def _holders_of(self, scenario: Scenario) -> Holders:
        """Those of the scenario's nodes; where another one had others, who still holds what goes on."""
        if self._holders is None or scenario is not self._scenario:
            former, works = self._holders, _Works(scenario)
            self._holders = Holders(self.plane.ledger, scenario.topology.nodes, works.of)
            self._holders.go_on(self.store.records.held() if former is None else former.open)
            if former is not None:
                self._holders.spans, self._holders.changed = former.spans, former.changed
        return self._holders


class _Works:
    """Which kind of work holds something."""

    def __init__(self, scenario: Scenario) -> None:
        topology, catalog = scenario.topology, scenario.catalog
        graphs = {graph.name for graph in scenario.graphs}
        models = {variant.name: variant.model for variant in catalog.variants}
        others = "services" if "streams" not in scenario.holds and scenario.services else "streams"
        self._of = {
            worker.name: "graphs" if models[worker.variant] in graphs else others
            for worker in topology.workers
        }
        self._else = OTHER if scenario.services is None else "services"  # replicas that nobody decided on yet

    def of(self, held: Reservation) -> str:
        """Of a reservation."""
        return self._of.get(held.owner) or DECIDED.get(held.decision) or self._else
