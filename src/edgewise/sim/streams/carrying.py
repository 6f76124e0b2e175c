"""How queries get to workers and back: each with the whole bandwidth, or over links that they share.

Both hold the truth about streams and workers, and both are asked the same by the simulation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgewise.arrays import Floats, Ints, records
from edgewise.core.dispatch.state import Ways
from edgewise.sim.links.wires import Wires
from edgewise.sim.streams import lines, queues, shared, tables
from edgewise.sim.streams.guests import Guests, join
from edgewise.sim.streams.queues import Streams, Tally, Workers
from edgewise.sim.streams.telemetry import waiting_at


class Private:
    """Every message has the whole bandwidth of its way.

    Args:
        truth, workers, ways: N streams, W workers and (S, C) ways; all change in place, or are replaced.
        key: of draws.
        tally: counts queries.
    """

    def __init__(self, truth: Streams, workers: Workers, ways: Ways, key: np.uint64, tally: Tally) -> None:
        self.truth, self.workers, self.ways, self.key, self.tally = truth, workers, ways, key, tally
        self.guests: Guests | None = None

    def admit(self, guests: Guests, count: int) -> None:
        """See `guests.Host`."""
        self.guests = guests
        self.truth = np.concatenate([self.truth, records((count,), queues.STREAM)]).view(np.recarray)

    def join(self, i: int, worker: int, at_s: float, work_s: float, begin_by_s: float) -> None:
        """See `guests.Host`."""
        while not join(i, worker, at_s, work_s, begin_by_s, self.truth, self.workers):
            self.workers = tables.with_more_room(self.workers)

    def leave(self, i: int, worker: int) -> None:
        """See `guests.Host`; who fails forgets all that it has."""

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
        """Stream `i` sends no more to a worker; what was not served yet is lost. All before is served."""
        queues.withdraw(i, worker, self.truth, self.workers, self.tally)
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
        """Serve all that starts before `until_s`; whoever shares the workers goes on as far."""
        if self.guests is not None:
            self.guests.advance(until_s)
        self.serve(until_s)

    def serve(self, until_s: float) -> None:
        """Serve all that starts before `until_s`, beside what others have at workers."""
        queues.advance_all(until_s, self.truth, self.workers, self.ways, self.key, self.tally)
        if self.guests is not None:
            self.guests.settle(until_s)

    def finish(self) -> None:
        """Serve all that is under way."""
        self.advance(np.inf)

    def waiting(self, now_s: float) -> Floats:
        """(W,) queries waiting or in service."""
        return waiting_at(now_s, self.truth, self.workers)

    def links_now(self, now_s: float) -> Floats | None:
        """(2, L) bit/s that are left of each link, and bits that it has still to send; None: not shared."""
        return None

    def links_used(self) -> Mapping[str, Any]:
        """Columns of `edgewise.report.use.LINKS`; none: not shared."""
        return {}


class Shared(Private):
    """Messages share the links of a run.

    Args:
        wires: the links.
        truth, workers, ways, key, tally: as for `Private`.
    """

    def __init__(
        self, wires: Wires, truth: Streams, workers: Workers, ways: Ways, key: np.uint64, tally: Tally
    ) -> None:
        super().__init__(truth, workers, ways, key, tally)
        wires.streams, self.wires = self, wires
        self._carried = self._nothing_sent()

    def _nothing_sent(self) -> lines.OnLinks:
        count = len(self.truth)
        line, sender = records((len(self.workers.each),), lines.LINE), records((count,), lines.SENDER)
        line.first = line.last = sender.worker = -1
        stand = lines.AtWorkers(
            line, records((0,), lines.IN_A_LINE), np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.uint32)
        )
        nobody, none, due = (np.zeros(many, dtype=np.int64) for many in (count, 1, count + 1))
        return lines.OnLinks(
            self.wires.net, lines.Senders(sender, nobody, np.zeros(count), none, due),
            lines.with_room(stand, self.wires.net.messages.size), np.zeros(1),
            self.wires.there, self.wires.both and bool((self.truth.answer_bytes > 0.0).any()),
        )  # fmt: skip

    def admit(self, guests: Guests, count: int) -> None:
        """See `guests.Host`."""
        super().admit(guests, count)
        self._carried = self._nothing_sent()
        self.wires.waits.append(guests)

    def join(self, i: int, worker: int, at_s: float, work_s: float, begin_by_s: float) -> None:
        """See `guests.Host`."""
        what = i, worker, at_s, work_s, begin_by_s, self.truth
        while not shared.join(*what, self._on_links()):
            self.wires.grow()

    def leave(self, i: int, worker: int) -> None:
        """See `guests.Host`."""
        shared.leave(i, worker, self.truth, self._on_links(), self.tally)

    def _on_links(self) -> lines.OnLinks:
        """With the net as it is: others grow it too."""
        x, net = self._carried, self.wires.net
        if x.net is not net:
            self._carried = x._replace(net=net, lines=lines.with_room(x.lines, net.messages.size))
        return self._carried

    def links_now(self, now_s: float) -> Floats:
        """See `Private`."""
        return self.wires.links_now(now_s)

    def take_rates(self) -> None:
        """Queries that leave from now on reckon with the rates that links have."""
        self.ways.bps[:] = self.wires.net.routes.bps[: self.ways.size].reshape(self.ways.shape)

    def links_used(self) -> Mapping[str, Any]:
        """See `Private`."""
        return self.wires.records()

    def attach(self, streams: Ints, now_s: Floats, worker: Ints) -> None:
        """See `Private`."""
        shared.attach(streams, now_s, worker, self.truth, self._carried.senders, self.key, self.tally)

    def detach(self, i: int, worker: int, now_s: float) -> None:
        """See `Private`; what is on a link uses it to the end, and is lost then."""
        shared.detach(i, worker, self.truth, self._on_links(), self.workers, self.tally)
        queues.withdraw(i, worker, self.truth, self.workers, self.tally)
        self.drop(i, now_s, queues.FAILED)

    def fail(self, worker: int, bound: Ints, now_s: float) -> None:
        """See `Private`."""
        for i in bound:
            self.detach(int(i), worker, now_s)
        super().fail(worker, bound, now_s)

    def set_way(self, site: int, cluster: int, now_s: float, bandwidth_bps: float | None) -> None:
        """See `Private`; a bandwidth is that of the way's own links."""
        net = self.wires.net
        net.routes.private_bps[: 2 * self.ways.size] = np.tile(self.ways.bps.ravel(), 2)
        ways = [self.wires.way(site, cluster, back) for back in (False, True)]
        for link in dict.fromkeys(int(self.wires.links_of(way)[0]) for way in ways):
            rates = net.links[link]
            self.wires.reserve(link, now_s, rates.reserved_bps, bandwidth_bps or rates.capacity_bps)

    def resend(self, site: int, cluster: int, now_s: float) -> None:
        """See `Private`; only what has left is on the way, so there is nothing to do."""

    def advance(self, until_s: float) -> None:
        """See `Private`; whoever shares the links goes on as far."""
        self.wires.bring_up(until_s)

    def serve(self, until_s: float) -> None:
        """Send, carry on and serve all up to then, beside what others have on the links."""
        while not shared.serve_until(until_s, *self.given()):
            self.wires.grow()
        if self.guests is not None:
            self.guests.settle(until_s)

    def given(self) -> tuple[Streams, lines.OnLinks, Workers, Ways, np.uint64, Tally]:
        """What `serve_until` works on."""
        return self.truth, self._on_links(), self.workers, self.ways, self.key, self.tally

    def finish(self) -> None:
        """See `Private`; what links that carry nothing still hold is lost."""
        self.advance(np.inf)
        shared.lose_rest(self.truth, self._on_links(), self.tally)

    def waiting(self, now_s: float) -> Floats:
        """See `Private`."""
        return lines.waiting(now_s, self._carried.lines, self.workers)
