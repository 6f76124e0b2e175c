"""Streams in a joint run: `Simulation` knows their queues, and has a core for dispatch of its own.

Workers hold their part of nodes for life, so streams ask nothing of the plane. That their nodes fail they
know of the same timeline.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgewise.core.dispatch.state import State, Weights, weigh
from edgewise.sim.joint.parts import Bystander
from edgewise.sim.outcome import Outcome
from edgewise.sim.simulate import Simulation
from edgewise.sim.streams.guests import Guests


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

    def host(self, names: Sequence[str], count: int) -> Guests | None:
        """Requests, at most so many, at workers of these names to which a stream could be bound at first.

        Returns:
            None: there is no such worker.
        """
        run, world = self.simulation, self.simulation.world
        rest, found = {world.worker_names.index(name) for name in names}, list[int]()
        known, weighed = State.of(run.core.view()), Weights.of(world.workers)
        for i in range(len(run.trace) if rest else 0):
            weigh(known, run.rows.item(i), weighed)
            found += [w for w in rest if weighed.feasible[w]]
            if not (rest := rest.difference(found)):
                break
        if not found:
            return None
        nodes = {world.worker_names[w]: world.node_names[int(world.node[w])] for w in found}
        guests = Guests(run.carrier, count, {world.worker_names[w]: w for w in found}, nodes)
        run.truth = run.carrier.truth[: len(run.trace)]
        return guests

    def advance(self, to_s: float) -> None:
        """Take all events before a time."""
        self.simulation.run_until(to_s)

    def finish(self) -> None:
        """To the end of the scenario, and what is under way then."""
        self.outcome = self.simulation.run()
