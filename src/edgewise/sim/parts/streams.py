"""Streams in a joint run: workers that are there for good hold their part of nodes for life."""

from collections.abc import Sequence

from edgewise.core.dispatch.state import State
from edgewise.sim.parts.part import Bystander
from edgewise.sim.simulate import Simulation
from edgewise.sim.streams.guests import Guests
from edgewise.sim.streams.tables import Outcome


class StreamsPart(Bystander):
    """Streams on workers.

    Args:
        simulation: before its first stream.
    Attributes:
        outcome: what it left behind, once it is finished.
    """

    outcome: Outcome

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation

    def host(self, names: Sequence[str]) -> Guests:
        """Requests at workers of these names."""
        run, world = self.simulation, self.simulation.world
        at = {name: world.worker_names.index(name) for name in names}
        nodes = {name: world.node_names[int(world.node[w])] for name, w in at.items()}
        return Guests(run.carrier, at, nodes, State.of(run.core.view()).real, run.measured_requests)

    def advance(self, to_s: float) -> None:
        """Take all events before a time."""
        self.simulation.run_until(to_s)

    def finish(self) -> None:
        """To the end of the scenario, and what is under way then."""
        self.outcome = self.simulation.run()
