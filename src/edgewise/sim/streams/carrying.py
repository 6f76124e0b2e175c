"""How queries get to workers and back: each with the whole bandwidth, or over links that they share.

Both hold the truth about streams and workers, and both are asked the same by the simulation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgewise.arrays import Floats, Ints, records
from edgewise.core.dispatch.state import Ways
from edgewise.sim.direct import Direct
from edgewise.sim.links.wires import Wires
from edgewise.sim.streams import leaving, lines, queues, shared, shared_leaving, tables
from edgewise.sim.streams.guests import Guests, join
from edgewise.sim.streams.state import FAILED, STREAM, Streams, Tally, Workers
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
        self.direct = Direct()
        self._owner: dict[int, int] = {}  # whose queries those of a row are, which a stream has left behind
        self._free: list[int] = []  # rows of nobody

    def admit(self, guests: Guests) -> None:
        """See `guests.Host`."""
        self.guests = guests

    def more_rows(self, count: int) -> range:
        """See `guests.Host`."""
        size = len(self.truth)
        self._grow(count)
        return range(size, size + count)

    def join(self, row: int, worker: int, at_s: float, work_s: float, begin_by_s: float) -> None:
        """See `guests.Host`."""
        while not join(row, worker, at_s, work_s, begin_by_s, self.truth, self.workers):
            self.workers = tables.with_more_room(self.workers)

    def leave(self, row: int, worker: int) -> None:
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
        leaving.withdraw(i, worker, self.truth, self.workers, self.tally)
        leaving.detach(i, worker, self.truth, self.workers)
        self.drop(i, now_s, FAILED)

    def move(self, i: int, worker: int, now_s: float) -> None:
        """Stream `i` sends no more to a worker; what it has sent is served there. All before is served."""
        row = self._row()
        if self._leave_behind(i, row, worker, now_s):
            self._owner[row] = i
        else:
            self._free.append(row)
        self.drop(i, now_s, FAILED)

    def _leave_behind(self, i: int, row: int, worker: int, now_s: float) -> bool:
        return leaving.leave_behind(i, row, worker, now_s, self.truth, self.workers, self.key)

    def _row(self) -> int:
        """A row of nobody."""
        if not self._free:
            self._free = list(self.more_rows(max(len(self.truth) // 8, 16)))[::-1]
        return self._free.pop()

    def _grow(self, rows: int) -> None:
        self.truth = np.concatenate([self.truth, records((rows,), STREAM)]).view(np.recarray)

    def fail(self, worker: int, now_s: float) -> None:
        """A worker dies: what it holds is lost, and what comes."""
        self._make_room(int(self.workers.each.held[worker]))
        leaving.fail_worker(worker, now_s, self.truth, self.workers, self.tally)

    def revive(self, worker: int, now_s: float) -> None:
        """A worker is back, and idle. What came before is lost."""
        self.workers.each.dead[worker], self.workers.servers.free_s[worker] = 0, now_s

    def idle(self, worker: int, now_s: float) -> bool:
        """Whether a worker has nothing to do, and nothing is on its way there. All before is served."""
        w = self.workers.each[worker]
        free_s = self.workers.servers.free_s[worker, : w.servers]
        return bool(w.attached == 0 and w.held == 0 and (free_s <= now_s).all())

    def _make_room(self, lost: int) -> None:
        if int(self.workers.many[0]) + lost > len(self.workers.lost):
            self.workers = tables.with_more_lost(self.workers, lost)

    def lost_with(self, worker: int, now_s: float) -> list[tuple[int, Any]]:
        """What a worker, which gateways now know to be dead, has lost: streams and LOST, as they were sent.

        It is no longer put down. What they have sent, and is on its way there, is lost, too. All before is
        served.
        """
        while self.workers.each.dead[worker] and not self._give_up(worker, now_s):
            self.workers = tables.with_more_lost(self.workers)
        many = int(self.workers.many[0])
        all_ = self.workers.lost[:many].copy()
        mine = all_.worker == worker
        rest = all_[~mine]
        self.workers.lost[: len(rest)], self.workers.many[0] = rest, len(rest)
        found = all_[mine]
        found = found[np.argsort(found.sent_s, kind="stable")]
        return [(self._owner.get(int(h.stream), int(h.stream)), h) for h in found]

    def _give_up(self, worker: int, now_s: float) -> bool:
        return leaving.give_up(worker, now_s, *self._given)

    def lose(self, lost: Any) -> None:
        """A query that was lost goes nowhere else."""
        queues.lose(self.truth[lost.stream], lost.sent_s, FAILED, self.tally)

    def send_again(self, i: int, lost: Any, worker: int, now_s: float) -> None:
        """A query of stream `i` that was lost is sent to where its stream is bound, and sends to now."""
        row = self._row()
        self._owner[row] = i
        leaving.send_again(i, lost, row, now_s, self.truth)
        self._attach_again(i, row, worker)

    def _attach_again(self, i: int, row: int, worker: int) -> None:
        if self.workers.each.attached[worker] == self.workers.members.shape[1]:
            self.workers = tables.with_more_room(self.workers)
        leaving.attach_again(i, row, worker, self.truth, self.workers, self.ways, self.key)

    def drop(self, i: int, until_s: float, outcome: int) -> None:
        """Count what stream `i` sends before `until_s` and nobody carries."""
        queues.drop_until(self.truth, i, until_s, outcome, self.key, self.tally)

    def set_way(self, site: int, cluster: int, now_s: float, bandwidth_bps: float | None) -> None:
        """Figures of a way have changed in `ways`, perhaps its bandwidth."""

    def resend(self, site: int, cluster: int, now_s: float) -> None:
        """What leaves from `now_s` on goes by the new figures of a way."""
        leaving.resend(site, cluster, now_s, self.truth, self.workers, self.ways, self.key)

    def advance(self, until_s: float) -> None:
        """Serve all that starts before `until_s`; whoever shares the workers goes on as far."""
        if self.guests is not None:
            self.guests.advance(until_s)
        self.serve(until_s)

    @property
    def _given(self) -> tuple[Streams, Workers, Ways, np.uint64, Tally]:
        """What kernels work on."""
        return self.truth, self.workers, self.ways, self.key, self.tally

    def serve(self, until_s: float) -> None:
        """Serve all that starts before `until_s`, beside what others have at workers."""
        while not self.direct(queues.advance_all, until_s, *self._given):
            self.workers = tables.with_more_lost(self.workers)
        if self.guests is not None:
            self.guests.settle(until_s)

    def finish(self) -> None:
        """Serve all that is under way; what was lost is, and what streams left behind counts as theirs."""
        self.advance(np.inf)
        self._count_all()

    def _count_all(self) -> None:
        for lost in self.workers.lost[: int(self.workers.many[0])]:
            self.lose(lost)
        self.workers.many[0] = 0
        for row, i in self._owner.items():
            one, rest = self.truth[i], self.truth[row]
            for name in ("ok", "failed", "rejected", "answered", "delay_sum_s"):
                one[name] += rest[name]
            one.delay_max_s = max(one.delay_max_s, rest.delay_max_s)
        self._free += self._owner
        self._owner.clear()

    def waiting(self, now_s: float) -> Floats:
        """(W,) queries waiting or in service."""
        found: Floats = self.direct(waiting_at, now_s, self.truth, self.workers)
        return found

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
        self.carried = self._nothing_sent()
        self._nobody = -1  # a row of no stream, whose what was given up is

    def _nothing_sent(self) -> lines.OnLinks:
        count = len(self.truth)
        line, sender = records((len(self.workers.each),), lines.LINE), records((count,), lines.SENDER)
        line.first = line.last = sender.worker = -1
        stand = lines.AtWorkers(
            line, records((0,), lines.IN_A_LINE), np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.uint32),
            np.full(line.size, -np.inf),
        )  # fmt: skip
        nobody, none, due = (np.zeros(many, dtype=np.int64) for many in (count, 1, count + 1))
        return lines.OnLinks(
            self.wires.net, lines.Senders(sender, nobody, np.zeros(count), none, due, np.full(1, np.inf)),
            lines.with_room(stand, self.wires.net.messages.size), np.zeros(1),
            self.wires.there, self.wires.both and bool((self.truth.answer_bytes > 0.0).any()),
        )  # fmt: skip

    def admit(self, guests: Guests) -> None:
        """See `guests.Host`."""
        super().admit(guests)
        self.wires.waits.append(guests)

    def join(self, row: int, worker: int, at_s: float, work_s: float, begin_by_s: float) -> None:
        """See `guests.Host`."""
        what = row, worker, at_s, work_s, begin_by_s, self.truth
        while not shared_leaving.join(*what, self._on_links()):
            self.wires.grow()

    def leave(self, row: int, worker: int) -> None:
        """See `guests.Host`."""
        shared_leaving.leave(row, worker, self.truth, self._on_links(), self.tally)

    def _on_links(self) -> lines.OnLinks:
        """With the net as it is: others grow it too."""
        x, net = self.carried, self.wires.net
        if x.net is not net:
            self.carried = x._replace(net=net, lines=lines.with_room(x.lines, net.messages.size))
        return self.carried

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
        given = streams, now_s, worker, self.truth, self.carried.senders, self.key, self.tally
        self.direct(shared.attach, *given)

    def detach(self, i: int, worker: int, now_s: float) -> None:
        """See `Private`; what is on a link uses it to the end, and is lost then."""
        shared_leaving.detach(i, worker, self.truth, self._on_links(), self.workers, self.tally)
        leaving.withdraw(i, worker, self.truth, self.workers, self.tally)
        self.drop(i, now_s, FAILED)

    def idle(self, worker: int, now_s: float) -> bool:
        """See `Private`."""
        carried = self._on_links()
        messages = carried.net.messages
        under_way = messages[(messages["number"] >= 0) & (messages["sink"] == shared.COME)]
        sender = carried.senders.each[under_way["who"]]
        coming = (sender["worker"] == worker) & (sender["epoch"] == under_way["epoch"])
        line = carried.lines.each[worker]
        return super().idle(worker, now_s) and line.first < 0 and not coming.any()

    def _leave_behind(self, i: int, row: int, worker: int, now_s: float) -> bool:
        return shared_leaving.leave_behind(i, row, self.truth, self._on_links())

    def _grow(self, rows: int) -> None:
        super()._grow(rows)
        self.carried = self.carried._replace(senders=lines.with_rows(self.carried.senders, rows))

    def fail(self, worker: int, now_s: float) -> None:
        """See `Private`."""
        carried = self._on_links()
        self._make_room(int(self.workers.each.held[worker] + carried.lines.many[0]))
        shared_leaving.fail(worker, self.truth, carried, self.workers, self.tally)
        super().fail(worker, now_s)

    def _give_up(self, worker: int, now_s: float) -> bool:
        if self._nobody < 0:
            self._nobody = self._row()
            self.truth.size_bytes[self._nobody] = self.carried.senders.each.epoch[self._nobody] = -1
        given = self.truth, self._on_links(), self.workers, self.tally
        return shared_leaving.give_up(worker, self._nobody, *given)

    def _attach_again(self, i: int, row: int, worker: int) -> None:
        given = self.workers, self.ways, self.key
        while not shared_leaving.attach_again(i, row, worker, self.truth, self._on_links(), *given):
            self.wires.grow()

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
        while not self.direct(shared.serve_until, until_s, *self.given()):
            self.wires.grow()
        if self.guests is not None:
            self.guests.settle(until_s)

    def given(self) -> tuple[Streams, lines.OnLinks, Workers, Ways, np.uint64, Tally]:
        """What `serve_until` works on, with room for all messages there are to be lost."""
        self._make_room(len(self.wires.net.messages))
        return self.truth, self._on_links(), self.workers, self.ways, self.key, self.tally

    def finish(self) -> None:
        """See `Private`; what links that carry nothing still hold is lost."""
        self.advance(np.inf)
        shared.lose_rest(self.truth, self._on_links(), self.tally)
        self._count_all()

    def waiting(self, now_s: float) -> Floats:
        """See `Private`."""
        found: Floats = self.direct(lines.waiting, now_s, self.carried.lines, self.workers)
        return found
