"""Requests of services at a gateway, without sockets: which replica gets each, and what became of it.

Synchronous and free of I/O; what calls the policy, and for how long, is handed in. The policy sees the view
that it sees in simulation, of one world, with this site's request as the only head: sites decide alone.
Counts of the gateway's own requests are exact, those of other gateways are what replicas last said.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewise.arrays import Ints
from edgewise.core.guard import Caller, Guard, at_once, begin
from edgewise.core.keyed import Key
from edgewise.core.one_world import batched
from edgewise.core.orchestrate import HOLD, RequestPolicy, new_view
from edgewise.core.orchestrate.counting import NO_HEAD, READY, REMOVING, STARTING, Head, count, known
from edgewise.errors import ProtocolError
from edgewise.model.services import Services

log = logging.getLogger("edgewise.dispatching")
OUTCOMES = ("in_time", "late", "dropped", "failed")
WEIGHT = 0.2  # of a new measurement in a moving mean


@dataclass(slots=True, eq=False)
class Replica:
    """A replica as a gateway sees it.

    Attributes:
        service, station: indices; station 0 is the cloud.
        wanted: False: it gets no more requests, and ends when it has none.
        up: whether it answers.
        mine: requests that this gateway has sent and that have not ended.
        others: requests of other gateways, as far as it said.
    """

    name: str
    service: int
    station: int
    wanted: bool = True
    up: bool = False
    mine: int = 0
    others: int = 0

    @property
    def held(self) -> int:
        """Requests that it has or will get."""
        return self.mine + self.others


class Dispatching:
    """Decides where requests go, and counts them.

    Args:
        services: what may be asked for, and where it may run.
        site: index of this gateway's site.
        policy: decides.
        seed: of the policy's own draws.
        clock: seconds since the system began.
        asking: calls the policy, and may limit how long that takes; without an answer a request goes to the
            cloud.
    Attributes:
        guard: why the last request was not the policy's to decide, and how often.
        replicas: by name, those in the cloud included.
        service_s: (S,) measured mean time of a request on a replica.
        arrived: (S,) requests that came.
        ended: by outcome, (S,) requests that ended; what arrived and has not ended waits.
    """

    def __init__(
        self,
        services: Services,
        site: int,
        policy: RequestPolicy,
        seed: int,
        clock: Callable[[], float],
        asking: Caller = at_once,
    ) -> None:
        self.guard, self._seed = Guard(asking), seed
        self.services, self.site, self.clock = services, site, clock
        self.replicas = {
            name: Replica(name, s, 0) for s, names in enumerate(services.cloud) for name in names
        }
        self.service_s = services.service_s.copy()
        self.arrived = np.zeros(len(services.names), dtype=np.int64)
        self.ended = {outcome: np.zeros_like(self.arrived) for outcome in OUTCOMES}
        self.view = new_view(services.system, 1, np.array([seed], dtype=np.uint64))
        self.view.cloud_delay_s[:] = services.system.delay_s[site, 0]
        self.use(policy)

    def use(self, policy: RequestPolicy, asking: Caller | None = None) -> None:
        """Take a policy from now on, and what calls it unless that is None.

        Raises:
            PolicyError: it does not fit these services.
        """
        asked = batched(policy)
        begin(asked, self.services.system, Key(self._seed))
        self.policy, self.guard = asked, Guard(asking or self.guard.asking)

    def decide(self, service: int, left_s: float, size_bytes: float, queue: int = 1) -> Replica | None:
        """The replica that gets a request; None to hold it and ask again later.

        Args:
            left_s: time until the client wants the answer.
            queue: requests that wait at this site, this one included.
        Raises:
            ProtocolError: 409 it cannot end in time, 503 no replica of the service is up.
        """
        self._check_time(service, left_s, size_bytes)
        station = self.ask(service, left_s, size_bytes, queue)
        if station == HOLD:
            return None
        found = self._open(service)
        there = [replica for replica in found if replica.station == station]
        return min(there or found, key=lambda r: (r.station, r.held))

    def ask(self, service: int, left_s: float, size_bytes: float, queue: int = 1) -> int:
        """The station that the policy chooses, or HOLD; the cloud where the policy fails."""
        now_s, view, system = self.clock(), self.view, self.services.system
        took_s, cores = float(self.service_s[service]), float(system.service_cpu_cores[service])
        if system.replica_cpu_cores[service] > 0.0:
            cores = 0.0  # its replica holds them
        view.clock_s[:] = now_s
        count(system, view, self._known(), self.service_s)
        view.site[0, self.site] = Head(0, service, queue, now_s + left_s, took_s, cores, 0.0, size_bytes)
        station = self.guard.ask(
            lambda: int(self.policy.decide(view)[0, self.site]), lambda: 0, self._impossible
        )
        if self.guard.new:
            log.error("policy failed", extra={"policy": self.policy.name, "why": self.guard.fault})
        view.site[0, self.site] = NO_HEAD
        return station

    def _impossible(self, station: int) -> str | None:
        """Why a request cannot go to a station, if so."""
        return (
            None if HOLD <= station < self.services.system.stations else "chose a station that there is not"
        )

    def measured(
        self, replica: Replica, size_bytes: float, total_s: float, took_s: float, alone: bool
    ) -> None:
        """An answer came back.

        Args:
            total_s: from its sending to its answer; took_s: of that, at the replica.
            alone: nobody else was at the replica when it was sent: it took its service time.
        """
        if alone and took_s > 0.0:
            self.service_s[replica.service] += WEIGHT * (took_s - self.service_s[replica.service])
        if replica.station == 0:
            ways_s = total_s - took_s - 8.0 * size_bytes / self.services.system.wan_bps
            self.view.cloud_delay_s[:] += WEIGHT * (max(ways_s, 0.0) - self.view.cloud_delay_s)

    def report(self) -> dict[str, Any]:
        """What the controller asks for: totals of services, and the state of each replica."""
        names = self.services.names
        return {
            "policy": self.policy.name,
            "fault": self.guard.fault,
            "cloud_delay_s": float(self.view.cloud_delay_s[0]),
            "services": {
                name: {"arrived": int(self.arrived[s]), **{o: int(self.ended[o][s]) for o in OUTCOMES}}
                for s, name in enumerate(names)
            },
            "replicas": {
                r.name: {"service": names[r.service], "up": r.up, "wanted": r.wanted, "held": r.mine}
                for r in self.replicas.values()
            },
        }

    def _open(self, service: int) -> list[Replica]:
        """Replicas that take requests of a service.

        Raises:
            ProtocolError: there is none; status 503.
        """
        found = [r for r in self.replicas.values() if r.service == service and r.up and r.wanted]
        if not found:
            raise ProtocolError(f"no replica of {self.services.names[service]!r} is up", status=503)
        return found

    def _check_time(self, service: int, left_s: float, size_bytes: float) -> None:
        system = self.services.system
        ways_s = system.delay_s[self.site] + 8.0 * size_bytes / system.lan_bps
        ways_s[0] = self.view.cloud_delay_s[0] + 8.0 * size_bytes / system.wan_bps
        need_s = self.service_s[service] + min(ways_s[r.station] for r in self._open(service))
        if need_s > left_s:
            raise ProtocolError(
                f"refused: cannot end in time: takes {need_s:.3f} s at its nearest replica, "
                f"{max(left_s, 0.0):.3f} s are left",
                status=409,
            )

    def _known(self) -> Ints:
        return known(
            [
                (r.station, r.service, r.held, (READY if r.up else STARTING) if r.wanted else REMOVING)
                for r in self.replicas.values()
                if r.up or r.wanted
            ]
        )


def rehearse(services: Services, policy: RequestPolicy) -> None:
    """Let a policy decide once, on replicas of its own, so that it is compiled before it counts.

    Raises:
        PolicyError: it does not fit these services.
    """
    made = Dispatching(services, 0, policy, 0, lambda: 0.0)
    for replica in made.replicas.values():
        replica.up = True
    made.decide(0, 1e6, 1.0)
