"""The base of replica policies."""

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.keyed import Key
from edgewise.core.orchestrate import ReplicaView, commands_of
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
    return np.asarray((view.ready + view.starting - view.removing)[:, 1:])


def room(system: System, view: ReplicaView) -> Floats:
    """(W, N, 2) memory and cores that are free on the nodes now."""
    free = np.stack([view.free_memory_bytes, view.free_cpu_cores], axis=2)
    return np.asarray(np.maximum(free[:, system.first_machine[1] :], 0.0))


@policy("none")
class Unchanged(Orchestration):
    """No replica is added or removed."""

    rests = True

    def decide(self, view: ReplicaView) -> Ints:
        """No commands."""
        return commands_of([[]] * view.worlds)
