"""The decision core for requests of services: events in, commands out. A request is an item without a stream.

One core stands at each site and decides alone: the policy sees the view that it sees in simulation, of one
world, with this site's request as the only head. Counts of the site's own requests are exact, those of others
are what replicas last said. Forbidden here: I/O, clocks, async. A request is in one of three states:

    unknown ──RequestArrived──▶ waiting ──Send──▶ sent ──RequestReturned──▶ unknown
               RequestAgain ▲   │    ▲ │            │ its replica is lost
                            └───┘    └─┼────────────┘
                             Wait      └──Drop, RequestEnded──▶ unknown

What becomes of a request is said by the kernels of `request_flow`, which the loop of a simulation calls as
well; its rules are those of `request_rules` and `orchestrate.counting`.
"""

from collections.abc import Hashable
from functools import partial
from typing import Any

import numpy as np

from edgewise.arrays import Floats, Ints, figure
from edgewise.core.dispatch import desks, request_flow as flow
from edgewise.core.dispatch.events import (
    Drop,
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
from edgewise.core.dispatch.request_policy import Adviser, broken, chosen
from edgewise.core.dispatch.request_rules import TRIES
from edgewise.core.dispatch.shares import ROOM_S, Shares, room_at
from edgewise.core.guard import Guard, Shadow, Strict
from edgewise.core.keyed import Key
from edgewise.core.orchestrate import HOLD, ReplicaView, RequestPolicy
from edgewise.model.orchestration import System
from edgewise.model.services import Services


class DeskRoom:
    """Desks of some sites, which may need more room.

    Args:
        sites: whose desks; all know the same services.
        seed, requests: see `new_desks`.
    Attributes:
        desks: as they are.
    """

    def __init__(self, services: Services, sites: Ints, seed: int, requests: int = 16) -> None:
        self.desks = desks.new_desks(services, sites, seed, requests)

    def take_replica(self, d: int) -> int:
        """A free row for a replica that a desk comes to know."""
        free = np.flatnonzero(self.desks.replica["service"][d] == desks.FREE)
        if not free.size:
            self.desks = desks.with_replicas(self.desks, self.desks.order.shape[1])
            return self.take_replica(d)
        at, desk = int(free[0]), self.desks.desk[d]
        self.desks.order[d, desk.replicas] = at
        desk.replicas += 1
        return at

    def drop_replica(self, d: int, row: int) -> None:
        """It is known no more."""
        order, desk = self.desks.order[d], self.desks.desk[d]
        kept = order[: desk.replicas]
        kept = kept[kept != row]
        order[: kept.size], desk.replicas = kept, kept.size
        self.desks.replica[d, row].service = desks.FREE

    def take_request(self) -> int:
        """A free row for a request."""
        free = np.flatnonzero(self.desks.asked["known"] == 0)
        if not free.size:
            asked = np.concatenate([self.desks.asked, np.zeros_like(self.desks.asked)])
            self.desks = self.desks._replace(asked=asked.view(np.recarray))
            return self.take_request()
        return int(free[0])


class Replica:
    """A replica as a site sees it; `mine` are the site's own requests there, `others` those of others."""

    service, station, mine, others, serves = map(figure, ("service", "station", "mine", "others", "serves"))
    wanted, up = map(figure, ("wanted", "up"))

    def __init__(self, name: str, room: DeskRoom, d: int) -> None:
        self.name, self._room, self._d = name, room, d
        self.row = room.take_replica(d)

    @property
    def record(self) -> Any:
        """Its row of the desk."""
        return self._room.desks.replica[self._d, self.row]


class RequestCore:
    """Sends the requests of a site to replicas through a policy, and counts what becomes of them.

    Args:
        services: what may be asked for, and where it may run.
        site: index of the site.
        policy: decides.
        seed: of the policy's own draws.
        guard: asks the policy; without an answer a request goes to the cloud.
        room: of this desk and others, so that a simulation has all sites' in the same arrays; None: its own.
    Attributes:
        adviser: the policy, why the last request was not its to decide, and how often.
        shadow: watches, if there is one.
        replicas: by name, workers of streams that serve requests included.
    """

    def __init__(
        self,
        services: Services,
        site: int,
        policy: RequestPolicy,
        seed: int,
        guard: Guard | None = None,
        room: DeskRoom | None = None,
    ) -> None:
        self.services, self.site, self.seed, self.now_s = services, site, seed, 0.0
        self.room = room or DeskRoom(services, np.array([site]), seed)
        self._d = 0 if room is None else site
        self.replicas: dict[str, Replica] = {}
        for name, s, station, _, there in services.workers:
            self._change(ReplicaChanged(0.0, name, s, station, wanted=there, up=False))
        self.shadow: Shadow[int] | None = None
        self._rows: dict[int, int] = {}  # of requests, by number
        self._shares = [Shares() for _ in services.names]
        self._rooms = [(0.0, 0)] * len(services.names)  # until when it holds, and how many
        mine: Any = [part[self._d : self._d + 1] for part in self.room.desks.seen]
        self._view = ReplicaView(*mine)
        self.adviser = Adviser(policy, *self.given, guard or Guard())

    @property
    def given(self) -> tuple[System, Key]:
        """What policies begin with."""
        return self.services.system, Key(self.seed)

    @property
    def service_s(self) -> Floats:
        """(S,) measured mean time of a request on a replica."""
        found: Floats = self.room.desks.service_s[self._d]
        return found

    @property
    def least_s(self) -> Floats:
        """(S,) what nine of ten requests take at least, as measured."""
        found: Floats = self.room.desks.least_s[self._d]
        return found

    @property
    def arrived(self) -> Ints:
        """(S,) requests that came."""
        found: Ints = self.room.desks.arrived[self._d]
        return found

    @property
    def said(self) -> dict[str, int]:
        """What was done with requests, and how often, see `desks.SAID`."""
        desk = self.room.desks.desk[self._d]
        return {name: int(desk[name]) for name in desks.SAID}

    @property
    def ended(self) -> dict[str, Ints]:
        """By outcome, (S,) requests that ended."""
        return dict(zip(desks.OUTCOMES, self.room.desks.ended[self._d], strict=True))

    def enter(self, now_s: float, client: str, service: int, number: int) -> bool | None:
        """A client asks: whether its request has its turn now, or waits; None: too many of its wait."""
        return self._shares[service].enter(now_s, client, number, self._room(now_s, service))

    def turn_away(self, now_s: float, client: str, service: int) -> float:
        """Count a request for which there is no place, and say in how many seconds its client is told."""
        self.arrived[service] += 1
        self.ended["dropped"][service] += 1
        return self._shares[service].refuse(now_s, client)

    def make_way(self, now_s: float, client: str, service: int, number: int) -> list[int]:
        """A request that had its turn, or waited for it, is over; those whose turn it is now."""
        return self._shares[service].end(client, number, self._room(now_s, service))

    def _room(self, now_s: float, service: int) -> int:
        """How many requests of a service may be under way: those at replicas, and on their ways there."""
        until_s, room = self._rooms[service]
        if now_s >= until_s:
            up = [each.station for each in self.replicas.values() if each.service == service and each.up]
            delays_s, served_s = self.services.system.delay_s[self.site], float(self.service_s[service])
            depth = self._shares[service].depth(now_s)
            room = max(sum(room_at(depth, float(delays_s[station]), served_s) for station in up), 1)
            self._rooms[service] = now_s + ROOM_S, room
        return room

    def use(self, policy: RequestPolicy, guard: Guard | None = None) -> None:
        """Take a policy from now on, and who asks it unless that is None.

        Raises:
            PolicyError: it does not fit these services.
        """
        self.adviser = Adviser(policy, *self.given, guard or self.adviser.guard)

    def watch_with(self, policy: RequestPolicy | None, guard: Guard | None = None) -> None:
        """Ask a second policy the same from now on, and compare; None: no longer.

        Raises:
            PolicyError: it does not fit these services.
        """
        self.shadow = None
        if policy is not None:
            who = Adviser(policy, *self.given, guard or Guard())
            self.shadow = Shadow(who.policy, who.guard, self._place_of)

    def _place_of(self, station: int) -> dict[Hashable, str]:
        places = self.services.spec.cloud, *self.services.nodes
        return {"request": "(held)" if station == HOLD else places[station]}

    def view(self) -> ReplicaView:
        """What the policy may see now, of one world, without a head; its arrays hold until the next event."""
        self._count_anew()
        desks.count_all(self.room.desks, self._d, self.now_s)
        return self._view

    def _count_anew(self) -> None:
        """Replicas may have changed here, or the view by who was given it: all is counted next time."""
        self.room.desks.changed[self._d] = True

    def handle(self, event: RequestEvent) -> list[RequestCommand]:
        """Apply one event and return what is to be done.

        Raises:
            ValueError: no such request or replica is known.
        """
        self._count_anew()
        self.now_s, x = event.time_s, self.room.desks
        match event:
            case RequestArrived():
                return self._obeyed(event.request, self._come(event))
            case RequestAgain(now_s, number):
                return self._obeyed(number, flow.again(x, self._rows[number], now_s))
            case RequestReturned(now_s, number, how, took_s):
                row = self._rows[number]
                if x.asked[row].replica < 0:
                    raise ValueError(f"request {number} was not sent")
                return self._obeyed(number, flow.come_back(x, row, now_s, flow.HOW.index(how), took_s))
            case RequestEnded(_, number):
                if x.asked[self._rows[number]].replica >= 0:
                    raise ValueError(f"request {number} has not come back")
                return self._obeyed(number, flow.leave(x, self._rows[number]))
            case ReplicaChanged():
                self._change(event)
            case ReplicaTold():
                desks.tell(x, self._d, self.replicas[event.name].row, event.queued)
            case ReplicaForgotten():
                self._forget(self.replicas[event.name])
        return []

    def _come(self, event: RequestArrived) -> int:
        row = self._rows[event.request] = self.room.take_request()
        what = (self._d, event.service), (event.time_s, event.deadline_s), event.size_bytes
        return flow.come(self.room.desks, row, *what)

    def _change(self, event: ReplicaChanged) -> None:
        replica = self.replicas.get(event.name)
        if replica is None:
            replica = self.replicas[event.name] = Replica(event.name, self.room, self._d)
            row = self.room.desks.replica[self._d, replica.row]
            row.service, row.station, row.mine, row.others = event.service, event.station, 0, 0
        replica.wanted, replica.up, replica.serves = event.wanted, event.up, event.serves

    def _forget(self, replica: Replica) -> None:
        """Whose answers a site waits for, it knows until it has them."""
        if replica.mine:
            replica.wanted = 0
        else:
            self.room.drop_replica(self._d, self.replicas.pop(replica.name).row)

    def reserve_s(self, number: int, there: bool) -> float:
        """Of the time that a request has which was sent, what its work and its answer's way need.

        Args:
            there: its own way there as well.
        """
        x, asked = self.room.desks, self.room.desks.asked[self._rows[number]]
        station = x.replica[self._d, asked.replica].station
        way_s = x.system.delay_s[self.site, station] - x.back_s[self._d, station] if there else 0.0
        return float(asked.deadline_s - asked.begin_by_s + way_s)

    def validate(self) -> None:
        """Check every invariant; tests call it at teardown."""
        x, d = self.room.desks, self._d
        asked = x.asked[(x.asked["known"] == 1) & (x.asked["desk"] == d)]
        sent = np.bincount(asked["replica"][asked["replica"] >= 0], minlength=x.replica.shape[1])
        rows = [replica.row for replica in self.replicas.values()]
        assert rows == x.order[d, : x.desk[d].replicas].tolist(), "who is known has no row"
        assert (x.replica["mine"][d][rows] == sent[rows]).all(), (
            "a replica's requests are not those sent there"
        )
        assert (x.replica["others"][d][rows] >= 0).all()
        assert x.desk[d].undecided == (asked["replica"] < 0).sum()
        open_now = np.bincount(asked["service"], minlength=self.arrived.size)
        assert (self.arrived == open_now + x.ended[d].sum(axis=0)).all(), "a request was lost"

    def report(self) -> dict[str, Any]:
        """What the controller asks for: totals of services, and the state of each replica."""
        names = self.services.names
        return {
            "policy": self.adviser.policy.name,
            "fault": self.adviser.guard.fault,
            "faults": dict(self.adviser.guard.faults),
            "cloud_delay_s": float(self._view.cloud_delay_s[0]),
            "services": {
                name: {"arrived": int(self.arrived[s]), **{o: int(n[s]) for o, n in self.ended.items()}}
                for s, name in enumerate(names)
            },
            "replicas": {
                r.name: {
                    "service": names[r.service],
                    "up": bool(r.up),
                    "wanted": bool(r.wanted),
                    "held": r.mine,
                }
                for r in self.replicas.values()
            },
        }

    def _obeyed(self, number: int, said: int) -> list[RequestCommand]:
        """What is to be done with a request, once the policy was asked where it has a say."""
        x, row = self.room.desks, self._rows[number]
        if said == flow.ASK:
            said = flow.obey(x, row, self.station(), self.now_s)
        asked = x.asked[row]
        match said:
            case flow.SEND:
                names = (name for name, replica in self.replicas.items() if replica.row == asked.replica)
                return [Send(number, next(names))]
            case flow.WAIT:
                return [Wait(number, float(asked.until_s))]
        del self._rows[number]
        match said:
            case flow.OVER:
                return []
            case flow.GIVEN_UP:
                return [Drop(number, f"{TRIES} replicas were lost with it", late=False)]
            case flow.NOBODY:
                name = self.services.names[asked.service]
                return [Drop(number, f"no replica of {name!r} is up", late=False)]
        need_s, left_s = float(self.least_s[asked.service]) + flow.way_of(x, row), asked.deadline_s
        return [Drop(number, _why(need_s, float(left_s) - self.now_s), late=True)]

    def station(self) -> int:
        """What the policy says of the head of its view."""
        self._count_anew()
        station = self.adviser.station(self._view, self.site)
        if (shadow := self.shadow) is not None:
            who, where = shadow.policy, (self._view, self.site)
            shadow.watch(partial(chosen, who, *where), station, self.now_s, partial(broken, *where))
        return station


def _why(need_s: float, left_s: float) -> str:
    return (
        f"refused: cannot end in time: takes at least {need_s:.3f} s at its nearest replica, "
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
    core.handle(RequestReturned(1.0, 0, "answered", 1.0))
