"""The base of replica policies."""

from __future__ import annotations

from edgewise.arrays import Ints
from edgewise.core.keyed import Key
from edgewise.core.orchestration import ReplicaCommands, ReplicaView
from edgewise.model.orchestration import System
from edgewise.policies.registry import policy


class Orchestration:
    """Base of all that ship: they see many worlds at once."""

    decision, batched = "orchestrate", True
    name = ""

    def reset(self, world: System, key: Key) -> None:
        """Remember the system; draws come from `view.seed`."""
        self.system = world


def alive(view: ReplicaView) -> Ints:
    """(W, N, S) replicas that stay: ready or starting, and not to be removed."""
    counts: Ints = (view.ready + view.starting - view.removing)[:, 1:]
    return counts


@policy("none")
class Unchanged(Orchestration):
    """No replica is added or removed."""

    def decide(self, view: ReplicaView) -> ReplicaCommands:
        """No commands."""
        return ReplicaCommands.of_worlds([[]] * view.worlds)
