"""A policy of requests under guard: what it is asked, and what it may not answer."""

from functools import partial
from typing import Any

from edgewise.core.dispatch.request_rules import CLOUD, possible
from edgewise.core.guard import Guard, begin
from edgewise.core.keyed import Key
from edgewise.core.one_world import batched
from edgewise.core.orchestrate import ReplicaView, RequestPolicy
from edgewise.model.orchestration import System

IMPOSSIBLE = "chose a station that cannot serve the request"


class Adviser:
    """A policy of requests under guard.

    Args:
        policy: begun here, with a system and a key of its own draws.
        guard: asks it.
    Raises:
        PolicyError: it does not fit the system.
    """

    def __init__(self, policy: RequestPolicy, system: System, key: Key, guard: Guard) -> None:
        self.policy, self.guard = batched(policy), guard
        begin(self.policy, system, key)

    def station(self, view: ReplicaView, b: int) -> int:
        """Where it sends the head of site b, or HOLD; the cloud where it fails."""
        return self.guard.ask(partial(chosen, self.policy, view, b), lambda: CLOUD, partial(broken, view, b))


def chosen(policy: Any, view: ReplicaView, b: int) -> int:
    """The station that a policy of requests says, unguarded."""
    return int(policy.decide(view)[0, b])


def broken(view: ReplicaView, b: int, station: int) -> str | None:
    """Why a station cannot be had; None where it can."""
    return None if possible(view, 0, b, station) else IMPOSSIBLE
