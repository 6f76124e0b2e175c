"""Policies of many worlds under guard: where a world has no answer of use, another one stands there.

What stands there is what the cores take live: a request goes to the cloud, no replica comes or goes, and
another policy chooses among jobs. Forbidden here: rules about scheduling.
"""

from functools import partial
from typing import Any

import numpy as np

from edgewise.arrays import Bools, Ints
from edgewise.core.defer import CapacityView, DeferralPolicy
from edgewise.core.defer.core import broken as broken_turns
from edgewise.core.dispatch.request_rules import CLOUD
from edgewise.core.guard import Guard, begin
from edgewise.core.keyed import Key
from edgewise.core.one_world import OneByOne, batched
from edgewise.core.orchestrate import HOLD, ReplicaView, broken as broken_commands, commands_of
from edgewise.errors import PolicyError

NO_STATION = HOLD - 1


class Guarded:
    """Base: a policy as drivers ask it, for all worlds at once.

    Args:
        policy: of one world or of many.
        guard: asks it.
    """

    batched = True

    def __init__(self, policy: Any, guard: Guard) -> None:
        self.policy, self.guard, self.name = batched(policy), guard, policy.name

    def reset(self, world: Any, key: Key) -> None:
        """Start anew.

        Raises:
            PolicyError: it cannot begin.
        """
        self.world = world
        begin(self.policy, world, key)


class GuardedRequests(Guarded):
    """Requests → stations."""

    def decide(self, view: ReplicaView) -> Ints:
        """(W, B) stations; `ReplicaWorlds.step` under this guard replaces what is not possible."""
        heads: Bools = view.site.view(np.ndarray)["head"] >= 0
        asked, ask = self.policy, self.guard.ask
        if isinstance(asked, OneByOne):
            due = heads.sum(axis=1)
            found = [
                ask(
                    partial(_in_world, asked, view, heads, world),
                    partial(_cloud, heads[world]),
                    questions=int(due[world]),
                )
                for world in range(view.worlds)
            ]
            stations = np.array(found).reshape(heads.shape)
        else:
            stations = ask(
                lambda: _stations(asked.decide(view), heads),
                lambda: _cloud(heads),
                questions=int(np.count_nonzero(heads)),
            )
        return stations


class GuardedReplicas(Guarded):
    """Replicas → nodes, at the beginning of a frame."""

    def decide(self, view: ReplicaView) -> Ints:
        """(W, C, 2) `commands_of`."""
        check, asked, ask = partial(broken_commands, self.world), self.policy, self.guard.ask
        none = np.zeros((view.worlds, 0, 2), dtype=np.int64)
        if not isinstance(asked, OneByOne):
            return ask(lambda: np.ascontiguousarray(asked.decide(view)), lambda: none, check, view.worlds)
        found = [
            ask(lambda at=world: commands_of([asked.in_world(view, at)])[0], lambda: none[0], check)  # type: ignore[misc]
            for world in range(view.worlds)
        ]
        made = np.zeros((view.worlds, max(map(len, found)), 2), dtype=np.int64)
        for world, commands in enumerate(found):
            made[world, : len(commands)] = commands
        return made


class GuardedJobs(Guarded):
    """Jobs → slots.

    Args:
        policy, guard: as of all.
        instead: chooses where the policy gives no answer of use.
    """

    def __init__(self, policy: DeferralPolicy, guard: Guard, instead: DeferralPolicy) -> None:
        super().__init__(policy, guard)
        self.instead = batched(instead)

    def reset(self, world: Any, key: Key) -> None:
        """See `Guarded`."""
        super().reset(world, key)
        self.instead.reset(world, key)

    def decide(self, view: CapacityView) -> Any:
        """(W, P) whose turn it is to start."""
        asked, ask, worlds = self.policy, self.guard.ask, len(view.job)
        if not isinstance(asked, OneByOne):
            instead = partial(self.instead.decide, view)
            return ask(lambda: np.asarray(asked.decide(view)), instead, partial(broken_turns, view), worlds)
        return np.array([
            ask(
                partial(asked.array_in_world, view, world, view.job[world]),
                lambda at=world: self.instead.decide(view)[at],  # type: ignore[misc]
                partial(broken_turns, view.of_world(world)),
            )
            for world in range(worlds)
        ])  # fmt: skip


def _in_world(asked: OneByOne, view: ReplicaView, heads: Bools, world: int) -> Ints:
    """Stations of the heads of one world."""
    return _stations(asked.array_in_world(view, world, view.head[world]), heads[world])


def _cloud(heads: Bools) -> Ints:
    """The cloud for every head."""
    return np.where(heads, CLOUD, HOLD)


def _stations(answer: Any, heads: Bools) -> Ints:
    """Stations of heads as whole numbers; what is none is no station.

    Raises:
        PolicyError: there is not one for each head.
    """
    found = np.asarray(answer)
    if found.shape != heads.shape or found.dtype.kind not in "iuf":
        raise PolicyError(f"gives {found.dtype} of shape {found.shape}, needs stations of {heads.shape}")
    if found.dtype.kind == "f":
        found = np.where(np.isfinite(found) & (found == np.floor(found)), found, NO_STATION)
    return np.ascontiguousarray(np.where(heads, found, HOLD), dtype=np.int64)
