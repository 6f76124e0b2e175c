"""Requests of services, event by event: a core at each site decides, as live.

A site knows its own requests exactly, and of replicas and others' requests what it was last told, once in a
period and with a lag. A replica that is to go serves until every site has heard of it. What is lost with a
node its site sends elsewhere. An outcome is written when work ends. Draws are those of the engine of slots,
and so are links, unless all work of a run shares them. Forbidden here: rules about scheduling.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from edgewise.arrays import Floats, Records
from edgewise.core.dispatch.requests import DeskRoom, RequestCore
from edgewise.core.grants import averaged_qps
from edgewise.core.guard import Decided, Guard
from edgewise.core.orchestrate import RequestPolicy, Requests
from edgewise.errors import PolicyError
from edgewise.model.services import Services
from edgewise.policies.registry import runs_live
from edgewise.policies.requests.rules import KernelDispatch, by_rule
from edgewise.sim.direct import Direct
from edgewise.sim.images import NO_OUTAGES, Images, Outages
from edgewise.sim.links import riders
from edgewise.sim.links.wires import Carrier, Wires
from edgewise.sim.requests import loop
from edgewise.sim.requests.news import News, do_now
from edgewise.sim.requests.notes import Note, take_notes
from edgewise.sim.requests.orchestrated import OrchestratedReplicas
from edgewise.sim.requests.queues import ReplicaQueues
from edgewise.sim.requests.riding import ride
from edgewise.sim.requests.state import GATHERED, HEARD, RequestRun, Stop, new_run
from edgewise.sim.slots import replica_state as k
from edgewise.sim.streams.guests import NO_VISITS, Guests, Visits


class Beside(NamedTuple):
    """What is there beside requests.

    Attributes:
        images: see `ReplicaQueues`.
        wires: links that others use too; None: as in the engine of slots.
        guests: see `ReplicaQueues`.
    """

    images: Images | Outages = NO_OUTAGES
    wires: Wires | None = None
    guests: Guests | None = None


ALONE = Beside()


def compiled(policy: Any) -> Floats | None:
    """The memory of a policy that is `by_rule` and nothing else."""
    asked = "decide" not in vars(policy) and getattr(type(policy), "decide", None) is KernelDispatch.decide
    return policy.memory if asked and policy.rule is by_rule else None


class RequestSites(OrchestratedReplicas):
    """One run.

    Args:
        services: see `ReplicaQueues`.
        requests: what arrives; the first of its worlds.
        make: makes the policy of a site.
        seed: of delays, service times and policies.
        frames: how long news are gathered and what is counted, in frames.
        news: of other sites' requests and of replicas.
        beside: what is there, if it is not alone.
        guard: asks the policies of all sites.
        notes: places for what sites are told and say until it is read, as it goes on; 0: nobody reads it.
    Attributes:
        cores: of each site.
        guard: asks the policies of all sites.
        tally: (F, COLUMNS) counts and bytes of each frame.
        queues: replicas and nodes as they are.
        log: what sites were told and said, if it is noted.
        going: names of replicas that are to go.
        pooled: names of streams' workers that no command of orchestration to services is about.
        stirred: how often something may have changed that `seen` tells.
        load_qps: (B, W) of requests at streams' workers, as gateways have measured it.
        ride: lets it go on together with streams, as the kernel of that name.
        calm_s: only news happen before, which nobody will know any more; -inf: something happens.
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
        beside: Beside = ALONE,
        notes: int = 0,
        guard: Guard | None = None,
    ) -> None:
        images, wires, guests = beside
        self.services, self.system, self.news = services, services.system, news
        self.frame_s = self.system.frame_slots * self.system.slot_s
        made = [make() for _ in range(self.system.sites)]
        if not runs_live(type(made[0])):
            raise PolicyError(
                f"policy {made[0].name!r} needs to know the requests of all sites; use `gateways: one`"
            )
        rows = k.request_rows(self.system, requests)[0]
        room = DeskRoom(services, np.arange(self.system.sites), seed, rows.size)
        self.guard = guard or Guard()
        self.cores = [
            RequestCore(services, b, policy, seed, self.guard, room) for b, policy in enumerate(made)
        ]
        memory = [compiled(core.adviser.policy) for core in self.cores]
        times = {
            "seed": seed & 0xFFFFFFFFFFFFFFFF, "period_s": news.period_s, "lag_s": news.lag_s,
            "requests": int(requests.count[0]), "rule": all(each is not None for each in memory),
        }  # fmt: skip
        known = memory[0] if memory[0] is not None else np.zeros(1)
        worker = np.zeros((0, 0)) if guests is None else guests.real
        run = new_run(services, room.desks, rows, frames, times, known, notes, worker)
        self.tally, self._wires, self.log = run.tally, wires, list[Note]()
        self.queues = ReplicaQueues(services, run, room, images, guests)
        self.guests = guests
        if guests is not None:
            guests.ended, guests.looked, guests.look_s = self.queues.left, self._looked, news.period_s
            if wires is None:  # else it is a rider's
                guests.run = self.run
        self.ride = self._ride
        self._on = None if wires is None else wires.add(self)
        if wires is not None:
            run.route[:] = [
                [[wires.way(b, cluster, back) for cluster in services.clusters] for b in range(len(made))]
                for back in (False, True)
            ]
        self.going, self.stirred, self._direct = set[str](), 0, Direct()
        self._arrived = 0  # so many requests had come when it was looked at
        self._changed_s, self.calm_s, self._asleep_s = 0.0, -math.inf, -math.inf  # see `calm_until_s`
        self._was_restless, self._reached_s = True, -math.inf  # up to there all has happened
        self._looks: list[tuple[float, Floats]] = []  # since it fell asleep
        self.pooled = {each.name for each in services.workers if not each.of_cloud}
        self._counted = np.zeros((2, self.system.services), dtype=np.int64)  # at the last frame
        self.load_qps = np.zeros_like(run.sent_qps)
        self.tell()
        do_now(self.queues.run, GATHERED, 0)

    @property
    def rows(self) -> Records:
        """(R,) `REQUEST`, what became of each."""
        return self.queues.run.request

    def decided(self) -> Decided:
        """How often the policies of all sites were to decide, also in compiled code."""
        asked = self.guard.decided(self.cores[0].adviser.policy)
        return replace(asked, questions=asked.questions + int(self.queues.clock["ruled"]))

    @property
    def end_s(self) -> float:
        """Of its last frame."""
        return len(self.tally) * self.frame_s

    @property
    def now_s(self) -> float:
        """Everything before it has happened."""
        return self.queues.now_s

    def advance(self, to_s: float) -> None:
        """Let everything happen before `to_s`."""
        if self._wires is not None:
            self._wires.advance(to_s)
        elif self.guests is not None:
            self.guests.advance(to_s)
        else:
            self.run(to_s)
        self.queues.clock["now_s"] = to_s

    # links

    def run(self, to_s: float) -> None:
        """See `Rider`: up to there or the end, or to where a message may come or a request leave a worker."""
        given_s = to_s
        if self._wires is not None or self.guests is not None:
            to_s = min(to_s, self.end_s)
        limit_s = to_s if self.guests is None else min(to_s, self.guests.next_s())
        if limit_s <= self.calm_s:
            self._asleep_s = limit_s
            return
        if limit_s <= self._reached_s and self.next_s() >= given_s:
            return
        self._wake()
        self.stir(partial(self._go_on, to_s))

    def stir(self, go: Callable[[], float]) -> None:
        """Something may happen: `go` lets it, and says up to when."""
        self.stirred += 1
        came = self.guests.came if self.guests is not None else 0
        limit_s = go()
        if self.guests is not None:
            self._was_restless |= self.guests.came > came
            limit_s = min(limit_s, self.guests.next_s())
        self._reached_s = limit_s
        self.calm_s = self.calm_until_s(limit_s)

    def _go_on(self, to_s: float) -> float:
        while (stop := self._loop(to_s)) != Stop.THERE:
            self.answer(stop)
        self._read_notes()
        return to_s

    def _loop(self, to_s: float) -> int:
        limit_s = to_s if self.guests is None else min(to_s, self.guests.next_s())
        run, on = self.queues.run, self._wire
        alone = limit_s == to_s or self._streams is None
        if on is not None and alone and not on.many[0] and self.queues.clock["calm_s"] >= limit_s:
            return Stop.THERE  # no message is on its way, and nothing else happens
        if self._streams is not None:
            return self.ride(to_s)
        return int(self._direct(loop.go_on, run, on, limit_s))

    def _ride(self, to_s: float) -> int:
        run, on, visits, streams = self.given()
        return int(self._direct(ride, run, on, visits, to_s, streams))

    @property
    def _visits(self) -> Visits:
        return NO_VISITS if self.guests is None else self.guests.visits

    @property
    def rides(self) -> bool:
        """Whether one compiled loop lets it go on together with streams."""
        return self._streams is not None

    @property
    def calm(self) -> bool:
        """Whether nothing happens now but news."""
        return self.calm_s > -math.inf

    def wake(self) -> None:
        """All has happened up to where it was let go on, from where on something may."""
        self._wake()
        self.calm_s = -math.inf

    def given(self) -> tuple[RequestRun, riders.OnWire | None, Visits, tuple[Any, ...]]:
        """What that loop is given of it, and of streams."""
        assert self._streams is not None, "who rides has streams beside it"
        return self.queues.run, self._wire, self._visits, self._streams.given()

    @property
    def _streams(self) -> Carrier | None:
        """Streams, if only they have the same links and workers."""
        return None if self._wires is None else self._wires.streams_beside(self)

    def next_s(self) -> float:
        """See `Rider`."""
        return math.inf if self.calm_s > -math.inf else float(self.queues.clock["next_s"])

    # while nothing happens

    def calm_until_s(self, now_s: float) -> float:
        """Only news happen before, which say what all sites know but for queues of streams' workers.

        Nobody sees whether these are told, so it is done when something happens; -inf: something does.
        """
        run, restless = self.queues.run, self._restless()
        if restless or self._was_restless:  # what happened in between, sites have yet to hear
            self._changed_s = now_s
        self._was_restless, clock = restless, self.queues.clock
        if restless or now_s < self._changed_s + self.news.lag_s + 3 * self.news.period_s:
            return -math.inf
        come = clock["arrived"] < clock["requests"]
        return float(run.request["arrival_s"][clock["arrived"]]) if come else math.inf

    def _restless(self) -> bool:
        """Whether there is more than news, or a replica may start."""
        run, clock = self.queues.run, self.queues.clock
        arrived, self._arrived = self._arrived, int(clock["arrived"])
        if arrived != self._arrived or (self.guests is not None and self.guests.busy):
            return True
        if self._on is not None and self._on.many[0]:
            return True
        if run.notes.size or self.going or clock["waiting"]:
            return True
        kinds, servers = run.events["kind"][: clock["events"]], run.alive[: clock["servers"]]
        news = (kinds == GATHERED) | (kinds == HEARD)
        starts = (run.server["wanted"][servers] != 0) & (run.server["up"][servers] == 0)
        return not (news.all() and not starts.any())

    def _wake(self) -> None:
        """Let happen what was left out in the calm."""
        looks, self._looks, to_s = self._looks, [], self._asleep_s
        if to_s > -math.inf:
            self.calm_s = self._asleep_s = -math.inf
            now_s = self.now_s
            for at_s, queue in looks:
                self._go_asleep(at_s)
                self.queues.look(queue)
            self._go_asleep(to_s)
            self.queues.clock["now_s"] = now_s

    def _go_asleep(self, to_s: float) -> None:
        while (stop := loop.go_on(self.queues.run, self._wire, to_s)) != Stop.THERE:
            self._answer(stop)

    def _change(self) -> None:
        """Somebody changes replicas or nodes."""
        self._wake()
        self.calm_s = self._reached_s = -math.inf
        self._was_restless = True
        self.stirred += 1
        if self.guests is not None:
            self.guests.look_s = min(self.guests.look_s, self.news.after(self.now_s))

    def take(self) -> None:
        """See `Rider`; the loop takes what is there."""
        self._reached_s = -math.inf

    def look_again(self) -> None:
        """See `Rider`."""
        self._reached_s = -math.inf
        if (on := self._wire) is not None:
            riders.look_again(on)

    @property
    def _wire(self) -> riders.OnWire | None:
        if self._wires is not None and self._on is not None:
            self._on = self._wires.renewed(self._on)
        return self._on

    # where Python has a say

    def answer(self, stop: int) -> None:
        """Do what the loop has stopped for."""
        self._read_notes()
        self._answer(stop)
        self._settle()

    def _answer(self, stop: int) -> None:
        clock = self.queues.clock
        if stop == Stop.ROOM:
            self.queues.make_room(int(clock["lacks"]))
        elif stop == Stop.LINKS:
            assert self._wires is not None, "who sends messages has links"
            self._wires.grow()
        elif stop == Stop.DECIDE:
            self._decide(int(clock["head"]))
        elif stop == Stop.HEAR:
            self._hear(int(clock["told"]))
        elif stop == Stop.WORKER:
            self.queues.share(int(clock["head"]))

    def _looked(self, at_s: float, queue: Floats) -> float:
        """How many were at (W,) streams' workers when news are gathered; when that is next."""
        if self.calm_s >= at_s:
            self._looks.append((at_s, queue))
        else:
            self.queues.look(queue)
        # What is gathered earlier in a calm, nobody knows any more at its end.
        soonest_s = max(at_s, self.calm_s - self.news.lag_s - 3 * self.news.period_s)
        return self.news.after(soonest_s) if at_s < self.end_s else math.inf

    def _read_notes(self) -> None:
        if self.queues.run.notes.size:
            self.log += take_notes(self.queues)

    def _decide(self, i: int) -> None:
        run = self.queues.run
        core = self.cores[run.request[i].site]
        core.now_s = self.now_s
        loop.obey(run, self._wire, i, core.station())

    # what gateways count

    @property
    def counts(self) -> bool:
        """Whether gateways count what they send to streams' workers, when they hear telemetry."""
        return self.guests is not None

    def count(self, now_s: float) -> None:
        """Gateways measure the load of requests at streams' workers: that much less is left to these."""
        if self.guests is None or now_s >= self.end_s:
            return
        self.advance(now_s)
        if self.calm_s > -math.inf and not self.load_qps.any():
            return  # in a calm nothing is sent
        sent_qps, period_s = self.queues.run.sent_qps, self.news.period_s
        self.load_qps[:] = averaged_qps(self.load_qps, sent_qps / period_s, period_s)
        sent_qps[:] = 0.0
        self.guests.measured(now_s, self.load_qps)
