"""Requests and replicas in slots: many worlds in step, on arrays.

A slot that begins at time T goes: requests that arrived until T join their site's queue; those that cannot
end in time leave it; orchestration (at the start of a frame) adds and removes replicas; every site sends its
head to a station; stations work through [T, T + slot), event by event.

    worlds = ReplicaWorlds(system, requests, seeds=range(64))
    view = worlds.reset()
    while not worlds.done:
        if worlds.frame_begins:
            applied = worlds.scale(commands)       # (W, K, 2) -> (W, K) bool
        result = worlds.step(stations)             # (W, B) -> SlotResult; worlds.view is the next slot's
    outcome = worlds.outcome()
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from edgewise.core.orchestration import ReplicaView, Requests, SlotResult
from edgewise.model.orchestration import Bools, Floats, Ints, System


class Outcome(NamedTuple):
    """What a run came to; F frames. arrived = in_time + late + dropped + waiting, per world.

    Attributes:
        arrived, in_time, late, dropped: (W, F) requests by the frame in which it happened.
        waiting: (W,) requests that had not ended at the end: at sites, on the way, queued, worked on.
        forwarded_bytes: (W, F) payload sent to the cloud or to nodes of other sites.
        local_bytes: (W, F) payload sent to nodes of the own site.
        image_bytes: (W, F) image layers pulled.
    """

    arrived: Ints
    in_time: Ints
    late: Ints
    dropped: Ints
    waiting: Ints
    forwarded_bytes: Floats
    local_bytes: Floats
    image_bytes: Floats

    @property
    def throughput_rate(self) -> Floats:
        """(W,) Φ': requests done within their deadline / requests arrived."""
        raise NotImplementedError

    @property
    def frame_throughput_rate(self) -> Floats:
        """(W, F) Φ_f, the same per frame; NaN where nothing arrived."""
        raise NotImplementedError

    @property
    def cost_bytes(self) -> Floats:
        """(W, F) Φ_c: forwarded and image bytes."""
        raise NotImplementedError


class ReplicaWorlds:
    """W worlds of one system that go through their slots together.

    Args:
        system: sites, nodes, services.
        requests: W worlds of them.
        slots: how many; a multiple of `system.frame_slots`.
        seeds: (W,) key of each world's own draws (delays, service times).
        threads: how many to use; None for all that numba has.
    Raises:
        ScenarioError: requests break a rule (order, range, sign), or slots is no multiple of a frame.
    """

    def __init__(
        self,
        system: System,
        requests: Requests,
        slots: int,
        seeds: Sequence[int],
        threads: int | None = 1,
    ) -> None:
        raise NotImplementedError

    view: ReplicaView
    slot: int

    def reset(self, requests: Requests | None = None, seeds: Sequence[int] | None = None) -> ReplicaView:
        """Back to slot 0, if given with other requests (same number of worlds) and seeds."""
        raise NotImplementedError

    @property
    def done(self) -> bool:
        """Whether all slots have passed."""
        raise NotImplementedError

    @property
    def frame_begins(self) -> bool:
        """Whether this slot is the first of a frame, when `scale` may be called."""
        raise NotImplementedError

    def scale(self, commands: Ints) -> Bools:
        """Carry out (W, K, 2) commands of a `ReplicaPolicy`; (W, K) which were valid."""
        raise NotImplementedError

    def step(self, stations: Ints) -> SlotResult:
        """Dispatch every site's head, (W, B) station or HOLD, and let the slot pass.

        Raises:
            PolicyError: a station that does not exist, or does not host the service; nothing has changed then.
        """
        raise NotImplementedError

    def outcome(self) -> Outcome:
        """What it came to so far."""
        raise NotImplementedError
