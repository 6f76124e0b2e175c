"""What changes below streams in a run: nodes and links fail and come back, workers come and go.

The truth changes at once; gateways hear of it after the lag of telemetry.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewise.arrays import Bools, Ints
from edgewise.core.dispatch.events import LinkChanged, WorkerChanged
from edgewise.core.dispatch.request_rules import goes_again
from edgewise.core.dispatch.state import STREAMS, Ways, way_arrays
from edgewise.core.dispatch.streams import DispatchCore
from edgewise.core.world import Links, World
from edgewise.model.topology import LinkChange, NodeChange
from edgewise.model.work import Stream
from edgewise.sim.streams.carrying import Private
from edgewise.sim.streams.periods import CHANGED, NEWS
from edgewise.sim.streams.state import FAILED
from edgewise.sim.streams.telemetry import count_all_answers


@dataclass(frozen=True, slots=True)
class WorkerStarted:
    """It starts since its node is back, and answers from now on, unless that has failed again."""

    worker: int
    at_s: float


@dataclass(frozen=True, slots=True)
class DeathHeard:
    """Gateways have heard that this worker is dead, and of all else that they hear at that time."""

    worker: int


def is_death(event: WorkerChanged) -> bool:
    """Whether gateways hear of a worker that it lost what it had."""
    return not (event.up or event.drains or event.ready_s < np.inf)


class Changes(ABC):
    """A run of streams, as far as the world below them changes; see `Simulation`, which is one."""

    scenario: Any
    world: World
    trace: Sequence[Stream]
    carrier: Private
    cores: list[DispatchCore]
    ways: Ways
    bound: Ints
    pooled: Bools
    _alive: Bools
    _links: Links
    _outages: Mapping[int, Sequence[float]]
    _starting: dict[int, float]

    @abstractmethod
    def _push(self, time_s: float, kind: int, what: Any) -> None:
        """Something is to happen then."""

    @abstractmethod
    def _attach(self, streams: Ints, now_s: Any) -> None:
        """Begin to send (K,) bound streams to their workers at (K,) times."""

    def _change_node(self, change: NodeChange) -> None:
        now_s = change.at_s
        for w in np.flatnonzero(self.world.node == self.world.node_names.index(change.node)).tolist():
            self._starting.pop(w, None)
            if self._alive[w] == change.up or (change.up and self.pooled[w]):
                continue
            if not change.up:
                self._alive[w] = False
                self.carrier.fail(w, now_s)
                self._count_anew(w, now_s)
                self.tell_of(w, now_s, up=False)
            elif (start_s := float(self.world.start_s[w])) > 0.0:
                self._starting[w] = now_s + start_s
                self._push(now_s + start_s, CHANGED, WorkerStarted(w, now_s + start_s))
            else:
                self.begin_worker(w, now_s)

    def _started(self, what: WorkerStarted) -> None:
        if self._starting.get(what.worker) == what.at_s:
            del self._starting[what.worker]
            self.begin_worker(what.worker, what.at_s)

    def _revive(self, w: int, now_s: float) -> None:
        """A worker is there from now on, and idle."""
        self._alive[w] = True
        later = (t for t in self._outages.get(w, ()) if t > now_s)
        self._dies_at(w, min(later, default=np.inf))
        self.carrier.revive(w, now_s)

    # workers that come and go

    def tell_of(self, w: int, now_s: float, up: bool, drains: bool = False, ready_s: float = np.inf) -> None:
        """Gateways hear of a worker after the lag, see `WorkerChanged`."""
        news_s = now_s + self.scenario.telemetry.lag_s
        self._push(news_s, NEWS, WorkerChanged(news_s, w, up, drains, ready_s))

    def begin_worker(self, w: int, now_s: float) -> None:
        """A worker that was not there answers from now on."""
        self._revive(w, now_s)
        self.tell_of(w, now_s, up=True)

    def end_worker(self, w: int, now_s: float) -> None:
        """A worker is there no more; it holds nothing."""
        self._alive[w] = False
        self.carrier.workers.each.dead[w] = 1

    def holds(self, w: int, now_s: float) -> bool:
        """Whether a worker has streams, or queries of some; all before is served."""
        bound = any(core.loads.state.whole[STREAMS, w] for core in self.cores)
        return bound or not self.carrier.idle(w, now_s)

    def _dies_at(self, w: int, down_s: float) -> None:
        each = self.carrier.workers.each
        each.down_s[w], each.news_s[w] = down_s, down_s + self.scenario.telemetry.lag_s

    def _send_again(self, w: int, now_s: float) -> None:
        """Gateways have heard that a worker is dead, and send what it lost elsewhere."""
        self.carrier.advance(now_s)
        for i, lost in self.carrier.lost_with(w, now_s):
            stream = self.trace[i]
            bound = int(self.bound[i]) if now_s < stream.close_s else -1
            left_s = float(lost.sent_s) + stream.deadline_s - now_s
            reached = self.ways.delay_s[stream.site, self.world.cluster[bound]] < np.inf
            if goes_again(int(lost.lost), left_s, w, bound) and reached:
                self.carrier.send_again(i, lost, bound, now_s)
            else:
                self.carrier.lose(lost)

    def _count_anew(self, w: int, now_s: float) -> None:
        """What a worker that dies has counted since it told last dies with it."""
        count_all_answers(now_s, self.carrier.workers)
        self.carrier.workers.each.answered[w], self.carrier.workers.each.delay_sum_s[w] = 0, 0.0
        self.carrier.workers.histogram[w] = 0

    def _change_link(self, change: LinkChange) -> None:
        world, links = self.world, self._links
        site, cluster = world.site_names.index(change.site), world.cluster_names.index(change.cluster)
        was_up = links.delay_s[site, cluster] < np.inf
        delay_s = np.inf if change.up is False else change.delay_s
        if change.up and delay_s is None:
            delay_s = float(world.delay_s[site, cluster])
        figures = (delay_s, change.deviation_s, change.bandwidth_bps)
        for array, figure in zip(links, figures, strict=True):
            if figure is not None:
                array[site, cluster] = figure
        self.ways[:] = way_arrays(world, links)
        now_s, news_s = change.at_s, change.at_s + self.scenario.telemetry.lag_s
        self.carrier.set_way(site, cluster, now_s, change.bandwidth_bps)
        bound = np.flatnonzero((self.bound >= 0) & (self.carrier.truth.site[: len(self.trace)] == site))
        affected = bound[world.cluster[self.bound[bound]] == cluster]
        if was_up and links.delay_s[site, cluster] == np.inf:
            for i in affected.tolist():
                self.carrier.detach(i, int(self.bound[i]), now_s)
        elif was_up:
            self.carrier.resend(site, cluster, now_s)
        else:
            self._reattach(affected, now_s)
        self._push(news_s, NEWS, LinkChanged(news_s, site, cluster, *figures))

    def _reattach(self, streams: Ints, now_s: float) -> None:
        """Streams whose worker came back before the core moved them."""
        for i in streams:
            self.carrier.drop(int(i), now_s, FAILED)
        self._attach(streams, np.full(streams.size, now_s))
