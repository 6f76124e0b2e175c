"""The registry of replica policies, and how a wanted number of replicas becomes commands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewise.arrays import Ints
from edgewise.core.orchestration import ReplicaPolicy, ReplicaView
from edgewise.model.orchestration import System
from edgewise.policies.names import Names

_names = Names("replica policy")

replica_policy = _names.add


def names() -> list[str]:
    """Every replica policy that `load` finds, sorted."""
    return sorted(_names)


def load(name: str) -> ReplicaPolicy:
    """A new replica policy.

    Raises:
        PolicyError: nothing has that name.
    """
    policy: ReplicaPolicy = _names.create(name)
    return policy


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


@replica_policy("none")
class Unchanged:
    """No replica is added or removed."""

    name = "none"

    def reset(self, system: System) -> None:
        """Nothing to remember."""

    def scale(self, view: ReplicaView) -> Ints:
        """(W, 0, 2) no commands."""
        return np.zeros((view.worlds, 0, 2), dtype=np.int64)
