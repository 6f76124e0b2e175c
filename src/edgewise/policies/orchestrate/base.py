"""The base of replica policies."""

from __future__ import annotations

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.keyed import Key
from edgewise.core.orchestrate import ReplicaCommands, ReplicaView
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


def needs(system: System) -> Floats:
    """(S, 2) cores and memory that a replica holds while it lives; no cores where requests hold their own."""
    return np.stack([system.replica_cpu_cores, system.service_memory_bytes], axis=1)


def room(system: System, view: ReplicaView) -> Floats:
    """(W, N, 2) cores and memory that are free on the nodes now."""
    free = np.stack([view.free_cpu_cores, view.free_memory_bytes], axis=2)
    found: Floats = np.maximum(free[:, system.first_machine[1] :], 0.0)
    return found


@policy("none")
class Unchanged(Orchestration):
    """No replica is added or removed."""

    def decide(self, view: ReplicaView) -> ReplicaCommands:
        """No commands."""
        return ReplicaCommands.of_worlds([[]] * view.worlds)
