"""Workers that come and go, in a joint run: they start, serve streams and requests, drain and end.

`OrchestrateCore` says which. One that starts fetches its variant's image, unless its node has that, and then
takes the variant's time. Gateways hear of it with the lag: that it comes, that it is up, that it is to go;
its streams move then, where others have room, and no request is sent there any more. It ends when every
gateway has heard, it has no stream and nothing to do; who looks is telemetry, once in its period. On a node
that dies, one that drains is gone, one that starts begins anew when the node is back, and so does one that
was up.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from enum import IntEnum
from typing import Any

import numpy as np

from edgewise.arrays import Ints
from edgewise.core.dispatch.demand import Asked, ask, bound_load
from edgewise.core.dispatch.state import STREAMS
from edgewise.core.orchestrate.core import OrchestrateCore
from edgewise.core.orchestrate.events import (
    EndReplica,
    FrameBegan,
    KeepReplica,
    OrchestrateCommand,
    ReplicaGone,
    ReplicaSeen,
    RequestsCounted,
    StartReplica,
    StreamsCounted,
)
from edgewise.model.pools import Orchestrated
from edgewise.model.scenario import Scenario
from edgewise.sim.images import Images, NodeImages, Outages, Parts
from edgewise.sim.parts.part import Bystander, Rank, StartTimes
from edgewise.sim.requests.orchestrated import MOST
from edgewise.sim.requests.sites import RequestSites
from edgewise.sim.simulate import Simulation
from edgewise.sim.streams.state import ENDED


class WorkerStage(IntEnum):
    """Of a worker: not there; it starts; it is up; it is to go."""

    AWAY, STARTS, UP, DRAINS = range(4)


class WorkersPart(Bystander):
    """Workers of pools.

    Args:
        scenario: has pools.
        simulation: of its streams, before the first.
        what: decided on.
        core: decides; it is only read here.
        images: see `NodeImages`.
        sites: of requests that workers serve, too; None: there are none, and frames begin here.
    Attributes:
        stage: (W,) of each worker of the world.
        images: on nodes.
    """

    commands = (StartReplica, KeepReplica, EndReplica)

    def __init__(
        self,
        scenario: Scenario,
        simulation: Simulation,
        what: Orchestrated,
        core: OrchestrateCore,
        images: Images | Outages,
        sites: RequestSites | None,
    ) -> None:
        self._run, self._what, self.core, self._sites = simulation, what, core, sites
        self._serves = set[str]() if sites is None else {each.name for each in sites.services.workers}
        self._news = deque[tuple[float, str, bool, bool]]()  # of which gateways of requests have yet to hear
        world, system = simulation.world, what.system
        self._variants = [scenario.catalog.variant(pool.variant) for pool in scenario.topology.pools]
        self._row = {name: w for w, name in enumerate(world.worker_names)}
        rows = {name: n for n, name in enumerate(what.nodes)}
        self._node_of: Ints = np.array([rows.get(name, -1) for name in world.node_names], dtype=np.int64)
        mine = what.pool_of >= 0
        self.stage: Ints = np.where(mine & world.at_first, WorkerStage.UP, WorkerStage.AWAY).astype(np.int64)
        simulation.pooled[:] = mine
        self.images = NodeImages(images, system, self._image_came)
        for w in np.flatnonzero(mine & world.at_first).tolist():
            self.images.have(self._node(w), [self._variant(w).name])
        self._up_s = StartTimes()  # workers
        self._heard_s = dict[int, float]()  # when gateways have heard that one is to go
        self._down = set[int]()  # nodes
        self._gone = list[int]()  # workers that are away, of which nobody was told
        self._told: Ints = np.full((2, world.workers), -1, dtype=np.int64)  # stage and streams, as last told
        self._asked = Asked.of(what.pool_of)
        self._open_s = np.array([stream.open_s for stream in simulation.trace])
        self._sent = np.zeros((2, len(simulation.trace)), dtype=np.int64)  # in time, and in all, so far
        self._over = np.zeros(len(simulation.trace), dtype=np.bool_)  # all their queries are counted in that
        self._frame, self._last_s, self._looked_s = 0, -math.inf, -math.inf
        self._lag_s = scenario.telemetry.lag_s
        self._period_s, self._end_s = scenario.telemetry.period_s, scenario.duration_s

    def takes(self, command: OrchestrateCommand) -> bool:
        """Whether it is about a worker of a pool."""
        if isinstance(command, StartReplica):
            return command.service >= self._what.pools.first
        return command.replica in self._row

    def next_s(self) -> float:
        """The next frame, worker that is up, or look at those that are to go."""
        frame_s = self._frame * self._what.frame_s
        next_s = min(frame_s if frame_s < self._end_s else math.inf, self._up_s.next_s())
        news_s = self._news[0][0] if self._news else math.inf
        return min(next_s, self._last_s if self._gone else math.inf, self._look_s(), news_s)

    def _look_s(self) -> float:
        """When telemetry looks next at workers that are to go, after gateways have heard of one."""
        if not self._heard_s:
            return math.inf
        after_s = max(min(self._heard_s.values()), self._looked_s)
        periods = math.floor((after_s - self._lag_s) / self._period_s) + 1
        look_s = periods * self._period_s + self._lag_s
        return look_s if look_s > after_s else look_s + self._period_s

    def change_node(self, node: str, up: bool, now_s: float) -> None:
        """See the module."""
        n = self._what.nodes.index(node) if node in self._what.nodes else -1
        mine = [w for w in np.flatnonzero(self.stage != WorkerStage.AWAY).tolist() if self._node(w) == n]
        if up:
            self._down.discard(n)
            for w in mine:
                self._start(w, now_s)
            return
        self._down.add(n)
        self.images.lose(n, now_s)
        for w in mine:
            self._up_s.pop(w, None)
            if self.stage[w] == WorkerStage.DRAINS:
                self._leave(w)
                self._requests_know(w, now_s)
                self._gone.append(w)
            elif self.stage[w] == WorkerStage.STARTS:
                self._tell_of(w, now_s, up=False, drains=True)  # nobody knows when it comes
            else:
                self.stage[w] = WorkerStage.STARTS
                self._requests_know(w, now_s)

    def due(self, now_s: float) -> Iterable[tuple[Rank, Any]]:
        """Who is there or gone; at the beginning of a frame what was counted, and the frame."""
        self._last_s = now_s
        for w in self._up_s.up(now_s):
            self.stage[w] = WorkerStage.UP
            self._run.begin_worker(w, now_s)
            self._requests_know(w, now_s)
        while self._news and self._news[0][0] <= now_s:
            _, name, wanted, up = self._news.popleft()
            assert self._sites is not None, "who has news for gateways of requests has some"
            self._sites.tell_of(name, wanted, up)
        if self._look_s() <= now_s:
            self._look(now_s)
        for w in self._gone:
            self._told[:, w] = -1
            yield Rank.ENDED, ReplicaGone(self._run.world.worker_names[w])
        self._gone = []
        if self._frame * self._what.frame_s <= now_s < self._end_s:
            yield from self._frame_began(now_s)

    def _look(self, now_s: float) -> None:
        """Who is to go, and has nothing any more, ends."""
        self._looked_s = now_s
        self._run.serve_until(now_s)
        for w in [w for w, heard_s in self._heard_s.items() if heard_s < now_s]:
            if not self._run.holds(w, now_s) and not self._held(w):
                self._run.end_worker(w, now_s)
                self._leave(w)
                self._requests_know(w, now_s)
                self._gone.append(w)

    def _held(self, w: int) -> int:
        """Requests that are sent there and not back."""
        name = self._run.world.worker_names[w]
        return self._sites.held(name) if self._sites is not None and name in self._serves else 0

    def _frame_began(self, now_s: float) -> Iterable[tuple[Rank, Any]]:
        self._frame += 1
        self._run.serve_until(now_s)
        now = np.stack([self.stage, sum(core.loads.state.whole[STREAMS] for core in self._run.cores)])
        changed = (now != self._told).any(axis=0) & (self.stage != WorkerStage.AWAY)
        for w in np.flatnonzero(changed).tolist():
            yield Rank.NEWS, self._seen(w)
        yield Rank.NEWS, self._counted(now_s)
        if self._sites is None:
            none: Ints = np.zeros(self._what.pools.first, dtype=np.int64)
            yield Rank.NEWS, RequestsCounted(none, 0.0, np.zeros(none.size), MOST, none)
            yield Rank.TICK, FrameBegan(now_s)

    def take(self, command: OrchestrateCommand, now_s: float) -> Iterable[Any]:
        """Carry out what orchestration wants."""
        if isinstance(command, StartReplica):
            p = command.service - self._what.pools.first
            free = [self._row[name] for name in self._what.workers[p]]
            w = next(w for w in free if self.stage[w] == WorkerStage.AWAY and self._node(w) == command.node)
            self.stage[w] = WorkerStage.STARTS
            self._start(w, now_s)
        else:
            w = self._row[command.replica]
            if isinstance(command, KeepReplica):
                self.stage[w] = WorkerStage.UP
                del self._heard_s[w]
                self._tell_of(w, now_s, up=True)
            elif self.stage[w] == WorkerStage.UP:
                self.stage[w], self._heard_s[w] = WorkerStage.DRAINS, now_s + self._lag_s
                self._tell_of(w, now_s, up=False, drains=True)
            else:
                self._leave(w)
                self._tell_of(w, now_s, up=False, drains=True)  # it comes no more
                self._told[:, w] = -1
                return (ReplicaGone(command.replica),)
        return (self._seen(w),)

    def _tell_of(
        self, w: int, now_s: float, up: bool, drains: bool = False, ready_s: float = math.inf
    ) -> None:
        """Gateways hear of a worker after the lag, those of requests too."""
        self._run.tell_of(w, now_s, up, drains, ready_s)
        self._requests_know(w, now_s)

    def _requests_know(self, w: int, now_s: float) -> None:
        """A worker is as its stage says, to requests, whose gateways hear of it after the lag."""
        name, stage = self._run.world.worker_names[w], self.stage[w]
        if self._sites is not None and name in self._serves:
            wanted = bool(stage in (WorkerStage.STARTS, WorkerStage.UP))
            up = bool(stage in (WorkerStage.UP, WorkerStage.DRAINS))
            self._sites.set_worker(name, wanted, up)
            self._news.append((now_s + self._lag_s, name, wanted, up))

    def _start(self, w: int, now_s: float) -> None:
        """Fetch the image and start, where the node is there; gateways hear when it will be up."""
        if self._node(w) in self._down:
            return
        variant = self._variant(w)
        there_s = self.images.fetch(self._node(w), {variant.name: variant.image_bytes}, now_s)
        self.stage[w] = WorkerStage.STARTS
        if there_s < math.inf:
            self._starts(w, there_s, now_s)

    def _starts(self, w: int, there_s: float, now_s: float) -> None:
        self._up_s[w] = up_s = max(there_s, now_s) + self._variant(w).start_s
        self._tell_of(w, now_s, up=False, ready_s=up_s + self._lag_s)

    def _image_came(self, node: int, images: Parts, there_s: float) -> None:
        for w in np.flatnonzero(self.stage == WorkerStage.STARTS).tolist():
            if self._node(w) == node and self._variant(w).name in images and w not in self._up_s:
                self._starts(w, there_s, self._last_s)

    def _leave(self, w: int) -> None:
        """A worker is not there any more."""
        self.stage[w] = WorkerStage.AWAY
        self._up_s.pop(w, None)
        self._heard_s.pop(w, None)

    def _seen(self, w: int) -> ReplicaSeen:
        """A worker as the core is told of it now."""
        held = sum(int(core.loads.state.whole[STREAMS, w]) for core in self._run.cores)
        stage = WorkerStage(int(self.stage[w]))
        self._told[:, w] = stage, held
        up, wanted = stage in (WorkerStage.UP, WorkerStage.DRAINS), stage != WorkerStage.DRAINS
        service = self._what.pools.first + int(self._what.pool_of[w])
        name = self._run.world.worker_names[w]
        return ReplicaSeen(name, self._node(w), service, wanted, True, up, False, held)

    def _node(self, w: int) -> int:
        return int(self._node_of[self._run.world.node[w]])

    def _variant(self, w: int) -> Any:
        return self._variants[int(self._what.pool_of[w])]

    def _counted(self, now_s: float) -> StreamsCounted:
        """What gateways have counted since the last frame."""
        run, what = self._run, self._what
        self._asked.clear()
        begun_s = (self._frame - 2) * what.frame_s
        came = np.flatnonzero((self._open_s >= begun_s) & (self._open_s < now_s))
        reason = np.where(run.bound >= 0, 0, run.reason).astype(np.int8)
        for s, core in enumerate(run.cores):
            wait = np.array([i for i in core.refused if not core.final(i)], dtype=np.int64)
            at_site = came if len(run.cores) == 1 else came[run.rows.site[came] == s]
            reason[wait] = 0  # which are asked for apart
            ask(core.loads.state, run.rows, at_site, reason, True, self._asked)
            ask(core.loads.state, run.rows, wait, run.reason, False, self._asked)
        own_qps = [core.loads.own_qps for core in run.cores]
        load_qps = [*own_qps, run.requests_qps]
        load = bound_load(run.world, load_qps, what.pool_of, self._node_of, len(what.nodes))
        a = self._asked
        return StreamsCounted(load, a.asked.copy(), a.unserved.copy(), self._in_time(now_s), a.refused.copy())

    def _in_time(self, now_s: float) -> Any:
        """(P,) share of the queries that were sent, of streams that are or were bound to each pool last."""
        may = np.flatnonzero((self._open_s < now_s) & ~self._over)
        truth, pools = self._run.truth.view(np.ndarray)[may], self._what.pools.least.size
        sent = np.stack([truth["ok"], truth["ok"] + truth["failed"]])
        new, self._sent[:, may] = sent - self._sent[:, may], sent
        rest = truth["number"] - 1 - sent[1] - truth["rejected"]  # the last that was made is not sent
        self._over[may[(truth["state"] == ENDED) & (rest == 0)]] = True
        bound = self._run.bound[may]
        pool = np.where(bound >= 0, self._what.pool_of[bound], -1)
        ok, all_ = (np.bincount(pool[pool >= 0], row[pool >= 0], pools) for row in new)
        return np.where(all_ > 0, ok / np.maximum(all_, 1), 1.0)
