"""A second policy in shadow: it gets the same events, its commands are logged and never carried out."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgewise.arrays import Bools
from edgewise.core.dispatch.events import Bind, Event, StreamOpened, WorkerChanged
from edgewise.core.dispatch.policy import DispatchPolicy
from edgewise.core.dispatch.streams import DispatchCore
from edgewise.core.guard import Caller
from edgewise.core.world import World
from edgewise.model.work import Stream

log = logging.getLogger("edgewise.shadow")


class Shadow:
    """A core of its own beside the one that decides.

    Args:
        world, policy, seed, asking: as of `DispatchCore`.
        now_s: when it begins.
        streams: open at that time; it decides them first.
        up: (W,) which workers are up.
    """

    def __init__(
        self,
        world: World,
        policy: DispatchPolicy,
        seed: int,
        now_s: float,
        streams: Sequence[Stream],
        up: Bools,
        asking: Caller,
    ) -> None:
        self.core = DispatchCore(world, policy, seed, asking=asking)
        self.began_s, self.now_s = now_s, now_s
        self._opened = self._same = self._other = self._only_here = self._only_there = self._neither = 0
        self._workers: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        for worker in np.flatnonzero(~up):
            self.core.handle(WorkerChanged(now_s, int(worker), False))
        for stream in streams:
            self.core.handle(StreamOpened(now_s, stream))

    def handle(self, event: Event, carried_out: Mapping[int, int]) -> None:
        """Decide one event.

        Args:
            carried_out: stream id → worker, as the policy in use has bound them after this event.
        """
        names, self.now_s = self.core.world.worker_names, event.time_s
        for command in self.core.handle(event):
            where = {"worker": names[command.worker]} if isinstance(command, Bind) else {}
            what = {"command": type(command).__name__, "stream": command.stream_id, **where}
            log.info("would have", extra=what)
        if isinstance(event, StreamOpened):
            self._compare(event.stream.id, carried_out.get(event.stream.id))

    def report(self) -> dict[str, Any]:
        """What it would have done with the streams that opened since it began."""
        return {
            "policy": self.core.policy.name,
            "seconds": self.now_s - self.began_s,
            "streams": self._opened,
            "same_worker": self._same,
            "other_worker": self._other,
            "bound_only_by_shadow": self._only_here,
            "bound_only_by_policy_in_use": self._only_there,
            "refused_by_both": self._neither,
            "workers": dict(self._workers),
            "refusals": dict(self._reasons),
            "bound_now": len(self.core.bindings),
            "refused_now": len(self.core.refused),
            "faults": dict(self.core.faults),
        }

    def _compare(self, stream_id: int, there: int | None) -> None:
        here = self.core.bindings.get(stream_id)
        self._opened += 1
        self._same += here is not None and here == there
        self._other += here is not None and there is not None and here != there
        self._only_here += here is not None and there is None
        self._only_there += here is None and there is not None
        self._neither += here is None and there is None
        if here is None:
            self._reasons[self.core.refused[stream_id]] += 1
        else:
            self._workers[self.core.world.worker_names[here]] += 1
