"""The base of replica policies, and how a wanted number of replicas becomes commands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewise.arrays import Ints
from edgewise.core.orchestration import ReplicaView
from edgewise.model.orchestration import System
from edgewise.policies.registry import policy


class Orchestration:
    """Base of all that ship: they see many worlds at once."""

    decision, batched = "orchestrate", True
    name = ""

    def reset(self, system: System) -> None:
        """Remember the system."""
        self.system = system


def alive(view: ReplicaView) -> Ints:
    """(W, N, S) replicas that stay: ready or starting, and not to be removed."""
    counts: Ints = (view.ready + view.starting - view.removing)[:, 1:]
    return counts


def stacked(worlds: Sequence[Sequence[tuple[int, int]]]) -> Ints:
    """(W, C, 2) commands of each world, filled up with "none"."""
    most = max((len(commands) for commands in worlds), default=0)
    out = np.zeros((len(worlds), most, 2), dtype=np.int64)
    for w, commands in enumerate(worlds):
        if commands:
            out[w, : len(commands)] = commands
    return out


@policy("none")
class Unchanged(Orchestration):
    """No replica is added or removed."""

    def scale(self, view: ReplicaView) -> Ints:
        """(W, 0, 2) no commands."""
        return np.zeros((view.worlds, 0, 2), dtype=np.int64)
