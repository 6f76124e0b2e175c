"""The decision core for requests of services: events in, commands out. A request is an item without a stream.

One core stands at each site and decides alone: the policy sees the view that it sees in simulation, of one
world, with this site's request as the only head. Counts of the site's own requests are exact, those of others
are what replicas last said. Forbidden here: I/O, clocks, async. A request is in one of three states:

    unknown ──RequestArrived──▶ waiting ──Send──▶ sent ──RequestEnded──▶ unknown
                                  ▲  │ Wait, Drop   │ RequestReturned
                                  └──┴──────────────┘ RequestAgain

Its rules are the kernels of `request_rules` and `orchestrate.counting`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from edgewise.core.dispatch.events import (
    Drop,
    Needs,
    ReplicaChanged,
    ReplicaForgotten,
    ReplicaTold,
    RequestAgain,
    RequestArrived,
    RequestCommand,
    RequestEnded,
    RequestEvent,
    RequestReturned,
    Send,
    Wait,
)  # fmt: skip
from edgewise.core.dispatch.request_rules import CLOUD, TRIES, in_time, least_way_s, possible, too_late
from edgewise.core.guard import Guard, Strict, begin
from edgewise.core.keyed import Key
from edgewise.core.one_world import batched
from edgewise.core.orchestrate import HOLD, ReplicaView, RequestPolicy, new_view
from edgewise.core.orchestrate.counting import (
    NO_HEAD,
    READY,
    REMOVING,
    STARTING,
    Head,
    count,
    known,
    request_cores,
)
from edgewise.core.shadow import Shadow
from edgewise.model.orchestration import System
from edgewise.model.services import Services

OUTCOMES = ("in_time", "late", "dropped", "failed")
WEIGHT = 0.2  # of a new measurement in a moving mean


@dataclass(slots=True, eq=False)
class Replica:
    """A replica as a site sees it; `mine` are the site's own requests there, `others` those of others."""

    name: str
    service: int
    station: int
    wanted: bool = True
    up: bool = False
    mine: int = 0
    others: int = 0
    serves: int = 1

    @property
    def held(self) -> int:
        """Requests that it has or will get."""
        return self.mine + self.others


@dataclass(slots=True, eq=False)
class _Undecided:
    service: int
    deadline_s: float
    size_bytes: float
    needs: Needs | None = None
    replica: Replica | None = None
    sent_s: float = 0.0
    lost: int = 0  # replicas, with it
    alone: bool = False  # nobody else was at its replica when it was sent: it takes its service time


class Adviser:
    """A policy of requests under guard.

    Args:
        policy: begun here.
        seed: of its own draws.
        guard: asks it.
    Raises:
        PolicyError: it does not fit the system.
    """

    def __init__(self, policy: RequestPolicy, system: System, seed: int, guard: Guard) -> None:
        self.policy, self.guard = batched(policy), guard
        begin(self.policy, system, Key(seed))

    def station(self, view: ReplicaView, b: int) -> int:
        """Where it sends the head of site b, or HOLD; the cloud where it fails."""
        return self.guard.ask(
            partial(_chosen, self.policy, view, b), lambda: CLOUD, partial(_broken, view, b)
        )


def _chosen(policy: Any, view: ReplicaView, b: int) -> int:
    return int(policy.decide(view)[0, b])


def _broken(view: ReplicaView, b: int, station: int) -> str | None:
    return None if possible(view, 0, b, station) else "chose a station that cannot serve the request"


class RequestCore:
    """Sends the requests of a site to replicas through a policy, and counts what becomes of them.

    Args:
        services: what may be asked for, and where it may run.
        site: index of the site.
        policy: decides.
        seed: of the policy's own draws.
        guard: asks the policy; without an answer a request goes to the cloud.
    Attributes:
        adviser: the policy, why the last request was not its to decide, and how often.
        shadow: watches, if there is one.
        replicas: by name, those in the cloud included.
        service_s: (S,) measured mean time of a request on a replica.
        arrived: (S,) requests that came.
        ended: by outcome, (S,) requests that ended.
    """

    def __init__(
        self, services: Services, site: int, policy: RequestPolicy, seed: int, guard: Guard | None = None
    ) -> None:
        self.services, self.site, self.seed, self.now_s = services, site, seed, 0.0
        self.replicas = {
            name: Replica(name, s, CLOUD) for s, names in enumerate(services.cloud) for name in names
        }
        self.service_s = services.service_s.copy()
        self.arrived = np.zeros(len(services.names), dtype=np.int64)
        self.ended = {outcome: np.zeros_like(self.arrived) for outcome in OUTCOMES}
        self.shadow: Shadow[int] | None = None
        asks = [request_cores(services.system, s, 1.0) for s in range(len(services.names))]
        self._asks_cores = np.array(asks) > 0.0  # asked once: a whole `System` costs a kernel 10 µs
        self._requests: dict[int, _Undecided] = {}
        self._view = new_view(services.system, 1, np.array([seed], dtype=np.uint64))
        self._view.cloud_delay_s[:] = services.system.delay_s[site, CLOUD]
        self.adviser = Adviser(policy, services.system, seed, guard or Guard())

    def use(self, policy: RequestPolicy, guard: Guard | None = None) -> None:
        """Take a policy from now on, and who asks it unless that is None.

        Raises:
            PolicyError: it does not fit these services.
        """
        self.adviser = Adviser(policy, self.services.system, self.seed, guard or self.adviser.guard)

    def watch_with(self, policy: RequestPolicy | None, guard: Guard | None = None) -> None:
        """Ask a second policy the same from now on, and compare; None: no longer.

        Raises:
            PolicyError: it does not fit these services.
        """
        self.shadow = None
        if policy is not None:
            who = Adviser(policy, self.services.system, self.seed, guard or Guard())
            self.shadow = Shadow(who.policy, who.guard, self._place_of)

    def _place_of(self, station: int) -> dict[Hashable, str]:
        places = self.services.spec.cloud, *self.services.nodes
        return {"request": "(held)" if station == HOLD else places[station]}

    def view(self) -> ReplicaView:
        """What the policy may see now, of one world, without a head; its arrays hold until the next event."""
        rows = [
            (r.station, r.service, r.held, (READY if r.up else STARTING) if r.wanted else REMOVING, r.serves)
            for r in self.replicas.values()
            if r.up or r.wanted
        ]
        self._view.clock_s[:] = self.now_s
        self._view.site[0, self.site] = NO_HEAD
        count(self.services.system, self._view, known(rows), self.service_s)
        return self._view

    def handle(self, event: RequestEvent) -> list[RequestCommand]:
        """Apply one event and return what is to be done.

        Raises:
            ValueError: no such request or replica is known.
        """
        self.now_s = event.time_s
        match event:
            case RequestArrived():
                self._requests[event.request] = _Undecided(
                    event.service, event.deadline_s, event.size_bytes, event.needs
                )
                self.arrived[event.service] += 1
                return [self._decide(event.request)]
            case RequestAgain():
                return [self._decide(event.request)]
            case RequestReturned():
                self._returned(event)
            case RequestEnded():
                request = self._requests.pop(event.request)
                judged = "in_time" if in_time(event.time_s, request.deadline_s) else "late"
                self.ended[event.outcome or judged][request.service] += 1
            case ReplicaChanged():
                place = event.name, event.service, event.station
                replica = self.replicas.setdefault(event.name, Replica(*place))
                replica.wanted, replica.up, replica.serves = event.wanted, event.up, event.serves
            case ReplicaTold():
                replica = self.replicas[event.name]
                replica.others = max(event.queued - replica.mine, 0)
            case ReplicaForgotten():
                del self.replicas[event.name]
        return []

    def validate(self) -> None:
        """Check every invariant; tests call it at teardown."""
        sent = Counter(r.replica.name for r in self._requests.values() if r.replica is not None)
        for replica in self.replicas.values():
            assert replica.mine == sent[replica.name], "a replica's requests are not those sent there"
            assert replica.others >= 0
        open_now = np.bincount([r.service for r in self._requests.values()], minlength=self.arrived.size)
        assert (self.arrived == open_now + sum(self.ended.values())).all(), "a request was lost"

    def report(self) -> dict[str, Any]:
        """What the controller asks for: totals of services, and the state of each replica."""
        names = self.services.names
        return {
            "policy": self.adviser.policy.name,
            "fault": self.adviser.guard.fault,
            "faults": dict(self.adviser.guard.faults),
            "cloud_delay_s": float(self._view.cloud_delay_s[0]),
            "services": {
                name: {"arrived": int(self.arrived[s]), **{o: int(self.ended[o][s]) for o in OUTCOMES}}
                for s, name in enumerate(names)
            },
            "replicas": {
                r.name: {"service": names[r.service], "up": r.up, "wanted": r.wanted, "held": r.mine}
                for r in self.replicas.values()
            },
        }

    def _decide(self, number: int) -> RequestCommand:
        """Where a request goes: of the station that the policy chooses, the replica with least to do."""
        request = self._requests[number]
        service = request.service
        if request.lost == TRIES:
            return Drop(number, f"{TRIES} replicas were lost with it", late=False)
        found = [r for r in self.replicas.values() if r.service == service and r.up and r.wanted]
        if not found:
            return Drop(number, f"no replica of {self.services.names[service]!r} is up", late=False)
        view, took_s = self.view(), self._needs(request).service_s
        need = self.services.system, view, 0, self.site, service, request.size_bytes, False
        way_s = least_way_s(*need)
        if too_late(self.services.system.drops, self.now_s + way_s, took_s, request.deadline_s):
            return Drop(number, _why(took_s + way_s, request.deadline_s - self.now_s), late=True)
        station = self._station(view, request)
        if station == HOLD:
            return Wait(number)
        there = [replica for replica in found if replica.station == station]
        replica = min(there or found, key=lambda r: (r.station, r.held))
        request.replica, request.sent_s, request.alone = replica, self.now_s, replica.held == 0
        replica.mine += 1
        return Send(number, replica.name)

    def _station(self, view: ReplicaView, request: _Undecided) -> int:
        s = request.service
        queue = sum(each.replica is None for each in self._requests.values())
        took_s, cores, memory_bytes = self._needs(request)
        cores = cores if self._asks_cores[s] else 0.0
        head = Head(0, s, queue, request.deadline_s, took_s, cores, memory_bytes, request.size_bytes)
        view.site[0, self.site] = head
        station = self.adviser.station(view, self.site)
        if (shadow := self.shadow) is not None:
            asked, check = partial(_chosen, shadow.policy, view, self.site), partial(_broken, view, self.site)
            shadow.watch(asked, station, self.now_s, check)
        view.site[0, self.site] = NO_HEAD
        return station

    def _needs(self, request: _Undecided) -> Needs:
        s = request.service
        usual = float(self.service_s[s]), float(self.services.system.service_cpu_cores[s]), 0.0
        return request.needs or Needs(*usual)

    def _returned(self, event: RequestReturned) -> None:
        request = self._requests[event.request]
        replica, request.replica = request.replica, None
        if replica is None:
            raise ValueError(f"request {event.request} was not sent")
        replica.mine -= 1
        if event.lost:
            replica.up = False
            request.lost += 1
        if not event.answered:
            return
        if request.alone and request.needs is None and event.took_s > 0.0:
            self.service_s[request.service] += WEIGHT * (event.took_s - self.service_s[request.service])
        if replica.station == CLOUD:
            sent_s = 8.0 * request.size_bytes / self.services.system.wan_bps
            ways_s = max(event.time_s - request.sent_s - event.took_s - sent_s, 0.0)
            self._view.cloud_delay_s[:] += WEIGHT * (ways_s - self._view.cloud_delay_s)


def _why(need_s: float, left_s: float) -> str:
    return (
        f"refused: cannot end in time: takes {need_s:.3f} s at its nearest replica, "
        f"{max(left_s, 0.0):.3f} s are left"
    )


def rehearse(services: Services, policy: RequestPolicy) -> None:
    """Let a policy decide once, on replicas of its own, so that it is compiled before it counts.

    Raises:
        PolicyError: it does not fit these services, raises, or chooses what cannot be.
    """
    core = RequestCore(services, 0, policy, 0, Strict(policy.name))
    for replica in core.replicas.values():
        replica.up = True
    core.handle(RequestArrived(0.0, 0, 0, 1e6, 1.0))
    core.handle(RequestReturned(1.0, 0, True, 1.0))
