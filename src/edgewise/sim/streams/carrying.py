"""How queries get to workers and back: each with the whole bandwidth, or over links that they share.

Both hold the truth about streams and workers, and both are asked the same by the simulation.
"""

from __future__ import annotations

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.dispatch.state import Ways
from edgewise.model.routes import levels, routes_of
from edgewise.model.topology import Topology
from edgewise.sim.links import advance as links
from edgewise.sim.links.net import FIFO, PS, Net, new_net, with_room
from edgewise.sim.streams import queues, shared, tables
from edgewise.sim.streams.queues import Streams, Tally, Workers
from edgewise.sim.streams.telemetry import waiting_at

SHARING = {"fifo": FIFO, "ps": PS}


class Private:
    """Every message has the whole bandwidth of its way.

    Args:
        truth, workers, ways: N streams, W workers and (S, C) ways; all change in place, or are replaced.
        key: of draws.
        tally: counts queries.
    """

    def __init__(self, truth: Streams, workers: Workers, ways: Ways, key: np.uint64, tally: Tally) -> None:
        self.truth, self.workers, self.ways, self.key, self.tally = truth, workers, ways, key, tally

    def attach(self, streams: Ints, now_s: Floats, worker: Ints) -> None:
        """Let (K,) streams send to workers from (K,) times on."""
        while streams.size:
            done = queues.attach(
                streams, now_s, worker, self.truth, self.workers, self.ways, self.key, self.tally
            )
            streams, now_s, worker = streams[done:], now_s[done:], worker[done:]
            if streams.size:
                self.workers = tables.with_more_room(self.workers)

    def detach(self, i: int, worker: int, now_s: float) -> None:
        """Stream `i` sends no more to a worker; what was not served yet is lost."""
        queues.detach(i, worker, self.truth, self.workers)
        self.drop(i, now_s, queues.FAILED)

    def fail(self, worker: int, bound: Ints, now_s: float) -> None:
        """A worker goes down, and what it holds of the streams that are bound to it is lost."""
        queues.fail_worker(worker, now_s, self.truth, self.workers, self.key, self.tally)

    def drop(self, i: int, until_s: float, outcome: int) -> None:
        """Count what stream `i` sends before `until_s` and nobody carries."""
        queues.drop_until(self.truth, i, until_s, outcome, self.key, self.tally)

    def set_way(self, site: int, cluster: int, now_s: float, bandwidth_bps: float | None) -> None:
        """Figures of a way have changed in `ways`, perhaps its bandwidth."""

    def resend(self, site: int, cluster: int, now_s: float) -> None:
        """What leaves from `now_s` on goes by the new figures of a way."""
        queues.resend(site, cluster, now_s, self.truth, self.workers, self.ways, self.key)

    def advance(self, until_s: float) -> None:
        """Serve all that starts before `until_s`."""
        queues.advance_all(until_s, self.truth, self.workers, self.ways, self.key, self.tally)

    def finish(self) -> None:
        """Serve all that is under way."""
        self.advance(np.inf)

    def waiting(self, now_s: float) -> Floats:
        """(W,) queries waiting or in service."""
        return waiting_at(now_s, self.truth, self.workers)

    def links_now(self, now_s: float) -> Floats | None:
        """(2, L) bit/s that are left of each link, and bits that it has still to send; None: not shared."""
        return None


class Shared(Private):
    """Messages share the links of a topology.

    Args:
        sharing: "fifo" or "ps".
        topology: its links.
        truth, workers, ways, key, tally: as for `Private`.
    Attributes:
        names: of the links.
    """

    def __init__(
        self, sharing: str, topology: Topology, truth: Streams, workers: Workers, ways: Ways, key: np.uint64,
        tally: Tally,
    ) -> None:  # fmt: skip
        super().__init__(truth, workers, ways, key, tally)
        routes, count = routes_of(topology), len(truth)
        self.names = routes.names
        level, loop = levels(len(routes.names), routes.link)
        there = int(level[::2].max(initial=-1)) + 1
        level[1::2] += there  # ways back come behind all ways there
        private_bps = np.tile(ways.bps.ravel(), 2)
        net = new_net(routes, private_bps, (level, loop), SHARING[sharing], 3, len(workers.each))
        self._carried = shared.OnLinks(
            net, np.zeros(count, dtype=np.int64), np.full(count, -1), np.zeros(count),
            np.zeros(count, dtype=np.int64), np.zeros(count), np.zeros(2, dtype=np.int64), np.zeros(1), there,
        )  # fmt: skip

    @property
    def net(self) -> Net:
        """The links, and what is on them."""
        return self._carried.net

    def reserve(
        self, link: int, now_s: float, reserved_bps: float, capacity_bps: float | None = None
    ) -> None:
        """From `now_s` on so much of a link is reserved for other work; None: its capacity stays."""
        self.advance(now_s)
        if capacity_bps is None:
            capacity_bps = float(self.net.links.capacity_bps[link])
        links.reserve(self.net, link, now_s, reserved_bps, capacity_bps)
        self.ways.bps[:] = self.net.routes.bps[: self.ways.size].reshape(self.ways.shape)

    def links_now(self, now_s: float) -> Floats:
        """See `Private`."""
        return np.stack([self.net.links.rate_bps, links.backlogs(self.net, now_s)])

    def attach(self, streams: Ints, now_s: Floats, worker: Ints) -> None:
        """See `Private`."""
        shared.attach(streams, now_s, worker, self.truth, self._carried, self.key, self.tally)

    def detach(self, i: int, worker: int, now_s: float) -> None:
        """See `Private`; what is on a link uses it to the end, and is lost then."""
        self.advance(now_s)
        shared.detach(i, self.truth, self._carried)
        self.drop(i, now_s, queues.FAILED)

    def fail(self, worker: int, bound: Ints, now_s: float) -> None:
        """See `Private`."""
        for i in bound:
            self.detach(int(i), worker, now_s)
        super().fail(worker, bound, now_s)

    def set_way(self, site: int, cluster: int, now_s: float, bandwidth_bps: float | None) -> None:
        """See `Private`; a bandwidth is that of the way's own links."""
        way, net = site * self.ways.shape[1] + cluster, self.net
        net.routes.private_bps = np.tile(self.ways.bps.ravel(), 2)
        for route in (way, way + self.ways.size):
            link = int(net.hop[route, 0])
            rates = net.links[link]
            self.reserve(link, now_s, rates.reserved_bps, bandwidth_bps or rates.capacity_bps)

    def resend(self, site: int, cluster: int, now_s: float) -> None:
        """See `Private`; only what has left is on the way, so there is nothing to do."""

    def advance(self, until_s: float) -> None:
        """See `Private`."""
        given = (self.workers, self.ways, self.key, self.tally)
        while not shared.serve_until(until_s, self.truth, self._carried, *given):
            self._carried = self._carried._replace(net=with_room(self.net, self.net.messages.size))

    def finish(self) -> None:
        """See `Private`; what links that carry nothing still hold is lost."""
        self.advance(np.inf)
        shared.lose_rest(self.truth, self._carried, self.tally)

    def waiting(self, now_s: float) -> Floats:
        """See `Private`."""
        return shared.waiting(now_s, self._carried, self.workers)
