"""Streams in a joint run: `Simulation` knows their queues, and has a core for dispatch of its own.

Workers hold their part of nodes for life, so streams ask nothing of the plane. That their nodes fail they
know of the same timeline.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from edgewise.sim.joint.parts import Rank
from edgewise.sim.outcome import Outcome
from edgewise.sim.simulate import Simulation


class StreamsPart:
    """Streams on workers.

    Args:
        simulation: before its first stream.
    Attributes:
        outcome: what it left behind, once it is finished.
    """

    commands: tuple[type, ...] = ()
    outcome: Outcome

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation

    def next_s(self) -> float:
        """Never."""
        return math.inf

    def advance(self, to_s: float) -> None:
        """Take all events before a time."""
        self.simulation.run_until(to_s)

    def change_node(self, node: str, up: bool, now_s: float) -> None:
        """It is in the timeline that the simulation has."""

    def due(self, now_s: float) -> Iterable[tuple[Rank, Any]]:
        """Nothing."""
        return ()

    def take(self, command: Any, now_s: float) -> Iterable[Any]:
        """No command is for streams."""
        raise AssertionError(command)

    def finish(self) -> None:
        """To the end of the scenario, and what is under way then."""
        self.outcome = self.simulation.run()
