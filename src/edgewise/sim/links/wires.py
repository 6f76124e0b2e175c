"""The links of one run, which all kinds of work share; and how work that waits for its messages goes on.

Queries of streams are sent whatever becomes of them, so links may pass on all that they sent. Who sends one
message when another has come (a *rider*: requests, tensors) goes on alone up to where a message of its own
could be there at the soonest; when no rider can go further, links pass on up to the soonest of these moments,
and what came is handed over. So nothing is sent into the past, and times are those of one list of events.
Forbidden here: any idea of what a message is for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from edgewise.arrays import Floats, Ints, records
from edgewise.core.world import link_arrays
from edgewise.model.topology import Topology
from edgewise.model.ways import levels, routes_of
from edgewise.sim.direct import Direct
from edgewise.sim.links import advance as links, riders
from edgewise.sim.links.net import FIFO, LOOKED, PS, new_net, with_room

SHARING = {"fifo": FIFO, "ps": PS}
RIDERS = 2  # lists of messages that are there: two of streams, then one of each rider
SINKS = RIDERS + 2
LOOKS = 600  # moments in a run at which it is noted what links have carried
Came = Callable[[Any, float, bool], None]


class Carrier(Protocol):
    """Streams on the links."""

    def serve(self, until_s: float) -> None:
        """Send, pass on and serve all up to then."""

    def take_rates(self) -> None:
        """Links have other rates now."""

    def given(self) -> tuple[Any, ...]:
        """What serves them, compiled, works on."""


class Waits(Protocol):
    """Who goes on alone only up to where something may happen that it has to know."""

    def run(self, to_s: float) -> None:
        """Let its own events happen that come before a time and before `next_s`."""

    def next_s(self) -> float:
        """Nothing that it waits for happens before; infinite: nothing ever, unless something changes."""


class Rider(Waits, Protocol):
    """Who sends a message when another has come, and waits for those."""

    def take(self) -> None:
        """Messages may be there."""

    def look_again(self) -> None:
        """Links have other rates now."""


class Wire:
    """A rider whose messages may be anything.

    Args:
        run: see `Rider`.
        came: is told what came, when, and whether it was dropped on the way.
    """

    def __init__(self, wires: Wires, run: Callable[[float], None], came: Came) -> None:
        self.wires, self.run, self._came = wires, run, came
        self._on = wires.add(self)
        self._sent: dict[int, Any] = {}
        self._number = 0

    def send(self, route: int, at_s: float, bits: float, what: Any, there_s: float = 0.0) -> None:
        """Send a message.

        Args:
            what: it is, for whoever gets it.
            there_s: delay on the way, beside transmission.
        """
        while not riders.send(self._now(), self._number, route, at_s, there_s, bits):
            self.wires.grow()
        self._sent[self._number] = what
        self._number = (self._number + 1) % 2**31

    def next_s(self) -> float:
        """See `Rider`."""
        return riders.next_s(self._now()) if self._sent else math.inf

    def take(self) -> None:
        """See `Rider`."""
        found = riders.take_there(self._now())
        for number, at_s, lost in zip(*(column.tolist() for column in found), strict=True):
            self._came(self._sent.pop(number), at_s, bool(lost))

    def look_again(self) -> None:
        """See `Rider`."""
        riders.look_again(self._now())

    def _now(self) -> riders.OnWire:
        self._on = self.wires.renewed(self._on)
        return self._on


class Wires:
    """The links of a run.

    Args:
        sharing: "fifo" or "ps".
        topology: whose links they are.
        end_s: until then it is noted what they carry.
    Attributes:
        sharing: as given.
        names: (L,) of links.
        net: they, and what is on them.
        routes: over them; sites first.
        there: levels of links that payloads pass before workers serve.
        both: whether some link is one for both directions; then these are all levels.
        streams: who sends queries over them, if anybody.
        waits: riders, and whoever waits for what streams do.
        now_s: (1,) all that happens before has happened.
    """

    def __init__(self, sharing: str, topology: Topology, end_s: float = 0.0) -> None:
        routes = self.routes = routes_of(topology)
        self.sharing, self.names, self.now_s = sharing, routes.names, np.zeros(1)
        clusters = tuple(cluster.name for cluster in topology.clusters)
        bps: Floats = np.zeros((0, len(clusters)))
        if topology.sites:
            uplink = np.array([site.uplink_bps for site in topology.sites])
            bps = np.minimum(uplink[:, None], link_arrays(topology, clusters)[2])
        self._sites, self._clusters = bps.shape
        level, loop = levels(len(routes.names), routes.link)
        self.both = bool(2 * routes.back.sum() < routes.back.size)
        self.there = int(level[~routes.back | self.both].max(initial=-1)) + 1
        if not self.both:
            level[routes.back] += self.there  # ways back come behind all ways there
        private_bps = np.full(len(routes.link), np.inf)
        private_bps[: 2 * bps.size] = np.tile(bps.ravel(), 2)
        looks_s = np.linspace(end_s, 0.0, LOOKS, endpoint=False)[::-1].tolist() if end_s else []
        self.net = new_net(routes, private_bps, (level, loop), SHARING[sharing], SINKS, looks_s)
        self._riders, self._direct = list[Rider](), Direct()
        self.waits: list[Waits] = []
        self.streams: Carrier | None = None

    # who uses them

    def wire(self, run: Callable[[float], None], came: Came) -> Wire:
        """An end for a rider, see `Wire`."""
        return Wire(self, run, came)

    def add(self, rider: Rider) -> riders.OnWire:
        """One more rider; its messages, of which there are none."""
        assert len(self._riders) < SINKS - RIDERS, "there are lists for requests and for tensors"
        self._riders.append(rider)
        self.waits.append(rider)
        return riders.on_wire(self.net, RIDERS + len(self._riders) - 1, self.now_s)

    def renewed(self, on: riders.OnWire) -> riders.OnWire:
        """A rider's messages on the net as it is."""
        if on.net is self.net:
            return on
        soon = records((self.net.messages.size,), riders.SOON)
        soon[: on.soon.size] = on.soon
        return on._replace(net=self.net, soon=soon)

    def way(self, site: int, cluster: int, back: bool = False) -> int:
        """The route from a site to a cluster, or back."""
        return int((site + back * self._sites) * self._clusters + cluster)

    def links_of(self, route: int) -> Ints:
        """Numbers of the links of a route, in order."""
        row = self.routes.link[route]
        found: Ints = row[row >= 0]
        return found

    # what happens

    def advance(self, to_s: float) -> None:
        """Let riders go on up to `to_s`; links pass on what they need for it."""
        while True:
            for each in self.waits:
                each.run(to_s)
            next_s = min([each.next_s() for each in self.waits], default=math.inf)
            if next_s >= to_s:
                return
            self.pass_on(math.nextafter(max(next_s, float(self.now_s[0])), math.inf))

    def bring_up(self, to_s: float) -> None:
        """Let everything happen before `to_s`."""
        self.advance(to_s)
        if self.now_s[0] < to_s:
            self.pass_on(to_s)

    def streams_beside(self, rider: Rider) -> Carrier | None:
        """Streams, if nobody else than they and this rider has links, so that it may let them go on."""
        return self.streams if self._riders == [rider] else None

    def pass_on(self, until_s: float) -> None:
        """Let streams send and links pass on before `until_s`; what came is told."""
        self.now_s[0] = until_s
        if self.streams is None:
            links.pass_until(self.net, until_s)
        else:
            self.streams.serve(until_s)
        for k, rider in enumerate(self._riders):
            if self.net.many[self.net.sinks + RIDERS + k]:
                rider.take()

    def reserve(
        self, link: int, now_s: float, reserved_bps: float, capacity_bps: float | None = None
    ) -> None:
        """From `now_s` on so much of a link is reserved for other work; None: its capacity stays."""
        self.bring_up(now_s)
        if capacity_bps is None:
            capacity_bps = float(self.net.links.capacity_bps[link])
        links.reserve(self.net, link, now_s, reserved_bps, capacity_bps)
        if self.streams is not None:
            self.streams.take_rates()
        for rider in self._riders:
            rider.look_again()

    def links_now(self, now_s: float) -> Floats:
        """(2, L) bit/s that are left of each link, and bits that it has still to send."""
        found: Floats = self._direct(links.links_now, self.net.links, now_s)
        return found

    def records(self) -> Mapping[str, Any]:
        """What each link carried from one moment to the next: columns of `edgewise.report.use.LINKS`."""
        count = self.net.free[LOOKED]
        if not count:
            return {}
        times, seen = np.array([0.0, *self.net.looks_s[:count]]), self.net.seen[:count]
        sent_bits, dropped = np.diff(seen[:, :2], axis=0, prepend=0.0).transpose(1, 0, 2)
        return {
            "link": list(self.names) * int(count),
            "start_s": np.repeat(times[:-1], len(self.names)),
            "end_s": np.repeat(times[1:], len(self.names)),
            "capacity_bps": seen[:, 2].ravel(),
            "reserved_bps": seen[:, 3].ravel(),
            "sent_bits": sent_bits.ravel(),
            "dropped": dropped.ravel().astype(np.int64),
        }

    def grow(self) -> None:
        """Make room for twice as many messages."""
        self.net = with_room(self.net, self.net.messages.size)
