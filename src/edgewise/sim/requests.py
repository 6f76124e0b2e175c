"""Requests of services, event by event: a core at each site decides, as live.

A site knows its own requests exactly, and of replicas and others' requests what it was last told, once in a
period and with a lag. A replica that is to go serves until every site has heard of it. What is lost with a
node its site sends elsewhere. An outcome is written when work ends. Draws are those of the engine of slots,
and so are links, unless all work of a run shares them. Forbidden here: rules about scheduling; they are the
cores'.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from edgewise.arrays import Records
from edgewise.core.dispatch.events import (
    Needs,
    ReplicaChanged,
    ReplicaForgotten,
    ReplicaTold,
    RequestAgain,
    RequestArrived,
    RequestCommand,
    RequestEnded,
    RequestReturned,
    Send,
    Wait,
)
from edgewise.core.dispatch.request_rules import CLOUD
from edgewise.core.dispatch.requests import RequestCore
from edgewise.core.orchestrate import RequestPolicy, Requests
from edgewise.core.orchestrate.core import (
    ReplicaSeen,
    RequestsCounted,
)
from edgewise.errors import PolicyError
from edgewise.model.services import Services
from edgewise.sim.links.wires import Wires
from edgewise.sim.replica_queues import (
    NO_OUTAGES,
    Agenda,
    Images,
    Order,
    Outages,
    ReplicaQueues,
    ReplicaServer,
    answer,
)
from edgewise.sim.slots import replica_state as k
from edgewise.sim.slots.replica_kernels import cloud_noise_s

MOST = 10_000  # replicas that may be added in a frame: no limit


class News(NamedTuple):
    """How often sites are told of replicas and what these have, and how late it arrives."""

    period_s: float
    lag_s: float = 0.0


class Told(NamedTuple):
    """A replica when news were gathered, how many requests it had, and whether its node was up."""

    replica: ReplicaChanged
    queued: int
    started: bool


class RequestSites:
    """One run.

    Args:
        services: see `ReplicaQueues`.
        requests: what arrives; the first of its worlds.
        make: makes the policy of a site.
        seed: of delays, service times and policies.
        frames: how long news are gathered and what is counted, in frames.
        news: of other sites' requests and of replicas.
        images: see `ReplicaQueues`.
        wires: links that others use too; None: as in the engine of slots.
    Attributes:
        cores: of each site.
        tally: (F, COLUMNS) counts and bytes of each frame.
        queues: replicas and nodes as they are.
    Raises:
        PolicyError: a site cannot decide by it, or it does not fit the services.
    """

    def __init__(
        self,
        services: Services,
        requests: Requests,
        make: Callable[[], RequestPolicy],
        seed: int,
        frames: int,
        news: News,
        images: Images | Outages = NO_OUTAGES,
        wires: Wires | None = None,
    ) -> None:
        self.services, self.system, self.news = services, services.system, news
        self._seed = np.uint64(seed & 0xFFFFFFFFFFFFFFFF)
        self.frame_s = self.system.frame_slots * self.system.slot_s
        made = [make() for _ in range(self.system.sites)]
        if not getattr(made[0], "live", True):
            raise PolicyError(
                f"policy {made[0].name!r} needs to know the requests of all sites; use `gateways: one`"
            )
        self.cores = [RequestCore(services, b, policy, seed) for b, policy in enumerate(made)]
        rows = k.request_rows(self.system, requests)[0]
        self._asked: list[Any] = [k.RequestRow(*row) for row in rows.tolist()]
        self.tally = np.zeros((frames, k.COLUMNS))
        self._agenda = Agenda()
        self.queues = ReplicaQueues(services, self._asked, self._seed, self._agenda, self._left, images)
        self._up_free_s, self._lan_free_s = 0.0, np.zeros(self.system.sites)
        self._wire = None if wires is None else wires.wire(self._go_on, self._came)
        self._counted = np.zeros(self.system.services, dtype=np.int64)  # arrivals, at the last frame
        for i, arrival_s in enumerate(rows.arrival_s[: int(requests.count[0])].tolist()):
            self._agenda.push(arrival_s, Order.ARRIVED, self._arrived, i)
        self._hear(self._told())
        self._gather(0)

    @property
    def rows(self) -> Records:
        """(R,) `REQUEST`, what became of each."""
        return k.records_of(self._asked)

    @property
    def now_s(self) -> float:
        """Everything before it has happened."""
        return self._agenda.now_s

    def next_s(self) -> float:
        """When something happens next; infinite: never."""
        return self._agenda.next_s()

    def advance(self, to_s: float) -> None:
        """Let everything happen before `to_s`."""
        if self._wire is not None:
            self._wire.wires.advance(to_s)
        self._agenda.advance(to_s)

    def _go_on(self, to_s: float) -> None:
        """Up to there or the end, or to where a message may come."""
        assert self._wire is not None, "who waits for messages has links"
        to_s = min(to_s, len(self.tally) * self.frame_s)
        while self.next_s() < min(to_s, self._wire.next_s()):
            self._agenda.step()

    # requests

    def _arrived(self, i: int) -> None:
        row = self._asked[i]
        row.state = k.AT_SITE
        self._count(k.ARRIVED)
        needs = Needs(row.service_s, row.cpu_cores, row.memory_bytes)
        what = row.service, row.deadline_s, row.payload_bytes, needs
        self._obey(i, self.cores[row.site].handle(RequestArrived(self.now_s, i, *what)))

    def _again(self, i: int) -> None:
        self._asked[i].state = k.AT_SITE
        self._obey(i, self.cores[self._asked[i].site].handle(RequestAgain(self.now_s, i)))

    def _obey(self, i: int, commands: list[RequestCommand]) -> None:
        (command,) = commands
        if isinstance(command, Send):
            self._send(i, self.queues.replicas[command.replica])
        elif isinstance(command, Wait):
            self._agenda.push(self.now_s + self.system.slot_s, Order.AGAIN, self._again, i)
        else:
            self._dropped(i)
            self.cores[self._asked[i].site].handle(RequestEnded(self.now_s, i, "dropped"))

    def _send(self, i: int, server: ReplicaServer) -> None:
        """The queue of the link, then the delay, as in the engine of slots; or over links of all work."""
        row, station, now_s = self._asked[i], server.station, self.now_s
        b, bits = row.site, 8.0 * row.payload_bytes
        delay_s = float(self.system.delay_s[b, station]) - self.queues.back_s(b, station)
        if station == CLOUD:
            noise_s = cloud_noise_s(self.system.wan_deviation_s, self._seed, int(now_s / self.system.slot_s))
            delay_s = max(0.0, delay_s + noise_s)
        own = station != CLOUD and self.system.site_of[station - 1] == b
        self._count(k.LOCAL_BYTES if own else k.FORWARDED_BYTES, row.payload_bytes)
        row.state, row.station, self.queues.at[i] = k.SENT, station, server
        if self._wire is not None:
            route = self._wire.wires.way(b, self.services.clusters[station])
            there, lost = (self.queues.reach, i), (self._left, i, "dropped")
            self._wire.send(route, now_s, bits, (Order.REACHED, there, lost), delay_s)
            return
        if station == CLOUD:
            sent_s = self._up_free_s = max(now_s, self._up_free_s) + bits / self.system.wan_bps
        else:
            sent_s = self._lan_free_s[b] = max(now_s, self._lan_free_s[b]) + bits / self.system.lan_bps
        self._agenda.push(sent_s + delay_s, Order.REACHED, self.queues.reach, i)

    def _came(self, what: Any, at_s: float, lost: bool) -> None:
        """A message is there, or was dropped by a link on its way."""
        order, *then = what
        self._agenda.push(max(at_s, self.now_s), order, *then[lost])

    def _left(self, i: int, how: str) -> None:
        """A request leaves its replica; its site hears of it after the way back."""
        row, server = self._asked[i], self.queues.at[i]
        took_s = self.now_s - row.ready_s if how == "ended" else 0.0
        at_s, back_s = self.now_s, self.queues.back_s(row.site, server.station)
        if how == "ended":
            bits = 8.0 * float(self.services.answer_bytes[row.service])
            if self._wire is not None and bits > 0.0:
                row.state, row.end_s = k.SENT, np.nan  # until the answer is there
                route = self._wire.wires.way(row.site, self.services.clusters[server.station], back=True)
                then = [(self._answered, i, how, took_s, server.queued) for how in ("ended", "dropped")]
                self._wire.send(route, self.now_s, bits, (Order.RETURNED, *then), back_s)
                return
            at_s += self.queues.answer_s(row.service, server.station)
            self._count(k.DONE_IN_TIME if row.state == k.IN_TIME else k.DONE_LATE)
        elif how == "dropped":
            self._dropped(i)
        else:
            row.state = k.SENT
        self._agenda.push(at_s + back_s, Order.RETURNED, self._returned, i, how, took_s, server.queued)

    def _answered(self, i: int, how: str, took_s: float, queued: int) -> None:
        """An answer came over links that are shared, or was dropped by one of them."""
        if how == "dropped":
            self._dropped(i)
        else:
            answer(self._asked[i], self.now_s)
            self._count(k.DONE_IN_TIME if self._asked[i].state == k.IN_TIME else k.DONE_LATE)
        self._returned(i, how, took_s, queued)

    def _returned(self, i: int, how: str, took_s: float, queued: int) -> None:
        core, server, answered = self.cores[self._asked[i].site], self.queues.at[i], how == "ended"
        core.handle(RequestReturned(self.now_s, i, answered, took_s, how == "lost"))
        if answered:
            core.handle(ReplicaTold(self.now_s, server.name, queued))
        if how == "lost":
            self._again(i)
        else:
            core.handle(RequestEnded(self.now_s, i, None if answered else "dropped"))
        self._settle(server)

    def _dropped(self, i: int) -> None:
        self._asked[i].state, self._asked[i].end_s = k.DROPPED, self.now_s
        self._count(k.LOST)

    def _count(self, column: int, number: float = 1.0) -> None:
        self.tally[min(int(self.now_s / self.frame_s), len(self.tally) - 1), column] += number

    # news

    def _told(self) -> list[Told]:
        down = self.queues.down
        return [
            Told(
                ReplicaChanged(self.now_s, r.name, r.service, r.station, r.wanted, r.up, r.serves),
                r.queued,
                r.station not in down,
            )
            for r in self.queues.replicas.values()
        ]

    def _gather(self, number: int) -> None:
        self._agenda.push(self.now_s + self.news.lag_s, Order.NEWS, self._hear, self._told())
        if self.now_s < len(self.tally) * self.frame_s:
            self._agenda.push((number + 1) * self.news.period_s, Order.NEWS, self._gather, number + 1)

    def _hear(self, told: list[Told]) -> None:
        """News reach every site, and the controller."""
        self._broken = {each.replica.name for each in told if not each.started}
        for core in self.cores:
            for replica, queued, _ in told:
                old = core.replicas.get(replica.name)
                if old is None or (old.wanted, old.up) != (replica.wanted, replica.up):
                    core.handle(replica._replace(time_s=self.now_s))
                core.handle(ReplicaTold(self.now_s, replica.name, queued))
            for name in core.replicas.keys() - {each.replica.name for each in told}:
                if core.replicas[name].mine == 0:
                    core.handle(ReplicaForgotten(self.now_s, name))
        for server in list(self.queues.replicas.values()):
            self._settle(server)

    # replicas

    def seen(self) -> dict[str, ReplicaSeen]:
        """Replicas as gateways report them to the controller, by name."""
        return {server.name: self._seen(server) for server in self.queues.replicas.values()}

    def counted(self) -> RequestsCounted:
        """What gateways counted since they were asked before."""
        arrived = np.sum([core.arrived for core in self.cores], axis=0)
        delay_s = float(np.mean([core.view().cloud_delay_s[0] for core in self.cores]))
        found = RequestsCounted(arrived - self._counted, delay_s, self.services.service_s, MOST)
        self._counted = arrived
        return found

    def _seen(self, server: ReplicaServer) -> ReplicaSeen:
        """As gateways report it."""
        sees = [core.replicas[server.name] for core in self.cores if server.name in core.replicas]
        up, held = any(each.up for each in sees), sum(each.mine for each in sees)
        started = server.name not in self._broken
        where = server.name, server.station - 1, server.service
        return ReplicaSeen(*where, server.wanted, started, up and started, False, held, server.serves)

    def add_replica(self, node: int, service: int) -> str:
        """Pull the layers that lack, start a replica, and give its name."""
        before = self.queues.image_bytes
        name = self.queues.add(node, service)
        self._count(k.IMAGE_BYTES, self.queues.image_bytes - before)
        return name

    def keep_replica(self, name: str) -> None:
        """One that was to go stays."""
        self.queues.replicas[name].wanted = True

    def remove_replica(self, name: str) -> None:
        """It gets no more requests of who has heard of it, and goes when all have and none is left there."""
        self.queues.replicas[name].wanted = False
        self._settle(self.queues.replicas[name])

    def fail_node(self, node: int) -> None:
        """Replicas there break; what they had, its sites send elsewhere."""
        self.queues.fail_node(node)

    def repair_node(self, node: int) -> None:
        """Its replicas start again."""
        self.queues.repair_node(node)

    def _settle(self, server: ReplicaServer) -> None:
        if server.wanted or server.name not in self.queues.replicas:
            return
        seen = [core.replicas.get(server.name) for core in self.cores]
        if not any(each is not None and (each.wanted or each.mine > 0) for each in seen):
            self.queues.forget(server)
