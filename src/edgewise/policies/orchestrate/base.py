"""The registry of replica policies, and how a wanted number of replicas becomes commands."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from edgewise.core.orchestration import ReplicaPolicy, ReplicaView
from edgewise.errors import PolicyError
from edgewise.model.orchestration import Ints, System

P = TypeVar("P", bound=type)
_registered: dict[str, type] = {}


def replica_policy(name: str) -> Callable[[P], P]:
    """Register a class as the replica policy `name`.

    Raises:
        PolicyError: another class has that name.
    """

    def register(cls: P) -> P:
        other = _registered.get(name)
        if other is not None and other.__qualname__ != cls.__qualname__:
            raise PolicyError(f"replica policy {name!r} is taken by {other.__module__}.{other.__qualname__}")
        cls.name = name  # type: ignore[attr-defined]
        _registered[name] = cls
        return cls

    return register


def names() -> list[str]:
    """Every replica policy that `load` finds, sorted."""
    return sorted(_registered)


def load(name: str) -> ReplicaPolicy:
    """A new replica policy.

    Raises:
        PolicyError: nothing has that name.
    """
    if name not in _registered:
        near = difflib.get_close_matches(name, names(), 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise PolicyError(f"no replica policy {name!r}{hint} Have: {', '.join(names())}")
    policy: ReplicaPolicy = _registered[name]()
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
