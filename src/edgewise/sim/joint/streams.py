"""Streams in a joint run: `Simulation` knows their queues, and has a core for dispatch of its own.

Workers hold their part of nodes for life, so streams ask nothing of the plane. That their nodes fail they
know of the same timeline.
"""

from __future__ import annotations

from edgewise.sim.joint.parts import Bystander
from edgewise.sim.outcome import Outcome
from edgewise.sim.simulate import Simulation


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

    def advance(self, to_s: float) -> None:
        """Take all events before a time."""
        self.simulation.run_until(to_s)

    def finish(self) -> None:
        """To the end of the scenario, and what is under way then."""
        self.outcome = self.simulation.run()
