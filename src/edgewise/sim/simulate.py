"""From a scenario to records: the simulator drives the decision core from its own clock.

Global events (telemetry, windows, failures) run in time order in Python; streams that open and
close between two of them go to `DispatchCore.play` at once, and queries run in compiled kernels
(`sim.streams.queues`). Everything a policy learns goes through the core, as in the gateway.
"""

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.dispatch.events import (
    Bind,
    Command,
    Event,
    Release,
    ReservedElsewhere,
    Tick,
    WorkerChanged,
)
from edgewise.core.dispatch.policy import CLOSE, OPEN, Batch, ChoosingPolicy, DispatchPolicy
from edgewise.core.dispatch.state import way_arrays
from edgewise.core.dispatch.streams import DispatchCore
from edgewise.core.dispatch.views import Bound, DispatchView, Items, Rows
from edgewise.core.world import Links, World
from edgewise.kernels.compiled import plain
from edgewise.model.grammar.scenario import TelemetrySpec
from edgewise.model.scenario import Scenario
from edgewise.model.topology import Change, NodeChange
from edgewise.model.work import Stream
from edgewise.sim.changes import Changes, DeathHeard, WorkerStarted, is_death
from edgewise.sim.links.wires import Wires
from edgewise.sim.requests.sites import RequestSites
from edgewise.sim.streams import periods, tables
from edgewise.sim.streams.carrying import Private, Shared
from edgewise.sim.streams.periods import (
    CHANGED,
    CLOSED,
    COUNTED,
    COUNTED_TO,
    COUNTS,
    HEARD_OF,
    NEWS,
    SAMPLE,
    TICK,
    measure,
    measured_for,
    new_periods,
)
from edgewise.sim.streams.state import ENDED, FAILED, REJECTED, Streams, Workers
from edgewise.sim.streams.tables import Outcome, Said
from edgewise.sim.streams.telemetry import backlog_s
from edgewise.workloads.generate import generate_streams

next_period = plain(periods.next_period)


@dataclass(frozen=True, slots=True)
class RunInputs:
    """What a run needs of a scenario once its world and streams are there."""

    duration_s: float
    window_s: float
    telemetry: TelemetrySpec
    retry_refused: bool = False
    decision_delay_s: float = 0.0
    timeline: tuple[Change, ...] = ()
    sharing: str = "none"


class Simulation(Changes):
    """One run of one scenario under one policy with one seed.

    Args:
        scenario: what to simulate.
        policy: decides; it is reset here.
        seed: keys arrivals, noise and ties.
        streams: replaces the scenario's generated streams (a recorded trace); ids must be
            0 … n-1 in order.
        world: the scenario's world, when it has been built already.
        wires: links that this run shares with other work.

    Attributes:
        pooled: (W,) whether somebody else starts and ends a worker, and starts it again on a node that is
            back.
        requests_qps: (W,) load of requests of services beside streams, as gateways have measured it.
        requests: of services, at workers, too; None: there are none.
        periods: of telemetry.

    `run` goes to the end; `run_until` stops on the way, so that an environment can change the
    policy between windows.
    """

    def __init__(
        self,
        scenario: Scenario | RunInputs,
        policy: DispatchPolicy,
        seed: int,
        streams: Sequence[Stream] | None = None,
        world: World | None = None,
        wires: Wires | None = None,
    ) -> None:
        if streams is None or world is None:
            assert isinstance(scenario, Scenario), "streams and world must be given without a Scenario"
            world = world or World.build(scenario.catalog, scenario.topology, scenario.sharing)
            streams = generate_streams(scenario, seed) if streams is None else streams
        self.scenario, self.seed, self.world, self.trace = scenario, seed, world, list(streams)
        self.core = DispatchCore(world, policy, seed, retry_refused=scenario.retry_refused)
        self.cores = [self.core]
        self.core.stays.update(stream.id for stream in self.trace if stream.source)
        self.rows = Rows.of(Items.of(self.world, self.trace).rows)
        self.bound = np.full(len(self.trace), -1, dtype=np.int64)
        self.reason = np.zeros(len(self.trace), dtype=np.int8)
        self.requests_qps = np.zeros(self.world.workers)  # beside streams
        self.requests: RequestSites | None = None
        self.log: list[Said] = []
        self.active: list[str] = []
        self.tally = tables.new_tally(scenario.duration_s, scenario.window_s, self.trace)
        self._links = Links(*(array.copy() for array in self.world.links))
        self.ways = way_arrays(self.world, self._links)
        self._delay_s = self.ways.view(np.ndarray)["delay_s"]  # read sooner than an array of records
        self.last_worker = self.bound.copy()  # the worker of each stream's records
        self._counts = np.zeros((3, self._windows), dtype=np.int64)  # opened, bound, refused
        self.carrier = self._carrier(np.uint64(seed & 0xFFFFFFFFFFFFFFFF), wires)
        self._alive = self.world.at_first.copy()
        self._starting: dict[int, float] = {}  # when workers on nodes that are back will be up
        self.workers.each.dead[:] = ~self._alive
        self.pooled = np.zeros(self.world.workers, dtype=np.bool_)
        self.periods = self._periods(gateways=1)
        self._queue: list[tuple[float, int, int, Any]] = []
        self._order = itertools.count()  # of equal events
        self._events = self._openings_and_closings()
        self._played = 0
        self._schedule()

    @property
    def truth(self) -> Streams:
        """(N,) truth about the streams."""
        return self.carrier.truth[: len(self.trace)]

    def run(self) -> Outcome:
        """Run to the end of the scenario, then serve what is under way."""
        self.run_until(np.inf)
        return self.finish()

    def run_until(self, time_s: float) -> None:
        """Take every event before `time_s` (a window that begins then has not begun yet)."""
        while True:
            (next_s, kind), what = next_period(self.periods), None
            queued = bool(self._queue) and self._queue[0][:2] <= (next_s, kind)
            if queued:
                next_s, kind, _, what = self._queue[0]
            if not (next_s, kind) < (time_s, CLOSED):
                break
            if queued:
                heapq.heappop(self._queue)
            elif self.go_through_many(min(time_s, self._queue[0][0] if self._queue else np.inf)):
                continue
            self._play_until(next_s, including_closings=kind != COUNTED)
            self._take(next_s, kind, what)
        self._play_until(time_s, including_closings=False)

    def serve_until(self, time_s: float) -> None:
        """Bring the tally up to a time that `run_until` has reached."""
        self.carrier.advance(time_s)

    def start_from(self, view: DispatchView, bound: Bound) -> None:
        """Begin in the middle: the first streams are bound already, and workers have queues.

        Args:
            view: what is up, the ways, and the measured queues.
            bound: the first streams of the trace, and where they are.
        """
        self.core.adopt(view, bound)
        held = bound.worker.size
        self.bound[:held] = bound.worker
        events = self._events
        keep = (events.kind == CLOSE) | (events.row >= held)
        self._events = Batch(events.time_s[keep], events.kind[keep], events.row[keep])
        self.workers.servers.free_s[:] = backlog_s(view)[:, None]
        there = view.up | (view.streams > 0)  # a worker that is to go serves what it has
        self._alive[:], self.workers.each.dead[:] = there, ~there
        self.ways[:] = way_arrays(self.world, view.links)
        self._attach(np.arange(held), np.zeros(held))

    def finish(self) -> Outcome:
        """Serve what is under way and hand out the records."""
        self.carrier.advance(self.scenario.duration_s)
        busy_s = tables.busy_until(self.workers, self.scenario.duration_s)
        self.serve_rest()
        self.core.validate()
        streams = tables.stream_records(self.world, self.trace, self.truth, self.last_worker, self.reason)
        windows = self._stamped(
            tables.window_records(self.tally, self._counts, self.active, self.scenario.duration_s)
        )
        use = {
            "delays": tables.delay_records(self.trace, self.tally),
            "workers": tables.worker_records(self.world, busy_s, self.scenario.duration_s),
            "links": dict(self.carrier.links_used()),
        }
        return Outcome(self._stamped(streams), windows, self.core, self.log, use)

    def count_with(self, requests: RequestSites) -> None:
        """Gateways measure the load of requests at workers whenever they hear telemetry."""
        self.requests, self.periods.many[COUNTS] = requests, 1

    def measured_requests(self, now_s: float, load_qps: Floats) -> None:
        """Gateways have measured the load of their requests at workers, as (B, W)."""
        total_qps = load_qps.sum(axis=0)
        for w in np.flatnonzero(total_qps != self.requests_qps).tolist():
            self._handle(ReservedElsewhere(now_s, w, float(total_qps[w])))
        self.requests_qps = total_qps

    def serve_rest(self) -> None:
        """Serve what is under way; streams that nothing serves lose the rest of their queries."""
        self.carrier.finish()
        for i in np.flatnonzero(self.truth.state != ENDED):
            # A stream that is bound all the same is bound to what is down: sent in vain.
            outcome = FAILED if self.bound[i] >= 0 else REJECTED
            self.carrier.drop(int(i), np.inf, outcome)

    @property
    def workers(self) -> Workers:
        """Truth about the workers."""
        return self.carrier.workers

    def _carrier(self, key: np.uint64, wires: Wires | None) -> Private:
        truth = tables.stream_arrays(self.trace, self.scenario.decision_delay_s)
        given = (truth, tables.worker_arrays(self.world), self.ways, key, self.tally)
        if self.scenario.sharing == "none":
            return Private(*given)
        assert isinstance(self.scenario, Scenario), "a setting without a topology shares no links"
        own = (self.scenario.sharing, self.scenario.topology, self.scenario.duration_s)
        return Shared(wires or Wires(*own), *given)

    @property
    def _windows(self) -> int:
        return int(self.tally.queries.shape[1])

    def _openings_and_closings(self) -> Batch:
        n = len(self.trace)
        times = np.array([t.open_s for t in self.trace] + [t.close_s for t in self.trace], dtype=np.float64)
        kinds = np.repeat([OPEN, CLOSE], n)
        rows = np.tile(np.arange(n), 2)
        order = np.lexsort((rows, kinds, times))
        return Batch(times[order], kinds[order], rows[order])

    def _schedule(self) -> None:
        scenario = self.scenario
        for k in range(self._windows):
            self._push(k * scenario.window_s, TICK, Tick(k * scenario.window_s))
        for change in scenario.timeline:
            self._push(change.at_s, CHANGED, change)
        self._outages = tables.outages(self.world, scenario.timeline)
        for w, downs in self._outages.items():
            self._dies_at(w, downs[0])

    def _periods(self, gateways: int) -> periods.Periods:
        told, links = self.scenario.telemetry, self.world.link_bps.size
        return new_periods(
            told.period_s, told.lag_s, self.scenario.duration_s, self.world.workers, gateways, links
        )

    def go_through_many(self, to_s: float) -> bool:
        """Take all moments of telemetry before `to_s` at once; whether that was done."""
        return False

    def _push(self, time_s: float, kind: int, what: Any) -> None:
        heapq.heappush(self._queue, (time_s, kind, next(self._order), what))

    def _take(self, now_s: float, kind: int, what: Any) -> None:
        if kind == SAMPLE:
            self._sample(now_s)
        elif kind == COUNTED and self.requests is not None:
            self.requests.count(now_s)
            self.periods.many[COUNTED_TO] += 1
        elif kind == NEWS and what is None:
            self._hear()
            self.periods.many[HEARD_OF] += 1
        elif kind == CHANGED:
            self.carrier.advance(now_s)
            if isinstance(what, NodeChange):
                self._change_node(what)
            elif isinstance(what, WorkerStarted):
                self._started(what)
            else:
                self._change_link(what)
        elif isinstance(what, DeathHeard):
            self._send_again(what.worker, now_s)
        else:
            self._handle(what)
            if isinstance(what, WorkerChanged) and is_death(what):  # first all that is heard at this time
                self._push(now_s, NEWS, DeathHeard(what.worker))

    def _play_until(self, time_s: float, including_closings: bool) -> None:
        """Open and close streams up to `time_s`; at that very time, only close them."""
        start, events = self._played, self._events
        end = int(np.searchsorted(events.time_s, time_s, side="left"))
        if including_closings:
            while end < events.row.size and events.time_s[end] == time_s and events.kind[end] == CLOSE:
                end += 1
        if end <= start:
            return
        self._played = end
        batch = Batch(events.time_s[start:end], events.kind[start:end], events.row[start:end])
        self.core.play(batch, self.rows, self.bound, self.reason)
        worker, stream = self.bound[batch.row], self.rows.id[batch.row]
        played = (batch.time_s, batch.kind, stream, worker, self.reason[batch.row])
        self.log.append(Said(float(batch.time_s[0]), [], played))
        opened = batch.kind == OPEN
        window = np.minimum(batch.time_s[opened] / self.scenario.window_s, self._windows - 1).astype(int)
        bound = worker[opened] >= 0
        for count, chosen in zip(self._counts, (window, window[bound], window[~bound]), strict=True):
            np.add.at(count, chosen, 1)
        self._attach(batch.row[opened][bound], batch.time_s[opened][bound])

    def _handle(self, event: Event) -> None:
        """Tell every core, and carry out what they say about streams that are open already."""
        for site in range(len(self.cores)):
            self._told(site, event)
        if isinstance(event, Tick):
            self._note_active()

    def _told(self, site: int, event: Event) -> None:
        self.carry_out(event.time_s, self.cores[site].handle(event))

    def _note_active(self) -> None:
        policy = self.core.policy
        self.active.append(policy.current.name if isinstance(policy, ChoosingPolicy) else policy.name)

    def carry_out(self, now_s: float, commands: list[Command]) -> None:
        """Bind, move and refuse streams as commands say."""
        window = min(int(now_s / self.scenario.window_s), self._windows - 1)
        if commands:
            self.log.append(Said(now_s, commands))
            self.carrier.advance(now_s)  # what was served until now is no loss
        for command in commands:
            i = command.stream_id  # ids are positions
            if isinstance(command, Release):
                self.carrier.move(i, int(self.bound[i]), now_s)
            elif isinstance(command, Bind):
                self._counts[1, window] += 1
                self.bound[i] = command.worker
                self._attach(np.array([i]), np.array([now_s]))
            else:
                self._counts[2, window] += 1
                self.bound[i] = -1

    def _attach(self, streams: Ints, now_s: Floats) -> None:
        """Begin to send (K,) bound streams to their workers at (K,) times."""
        if streams.size == 0:
            return
        worker = self.bound[streams]
        self.last_worker[streams] = worker
        delay_s = self._delay_s[self.rows.site[streams], self.world.cluster[worker]]
        reached = delay_s < np.inf  # else queries are sent in vain from now on, until the core knows of it
        for i, at_s in zip(streams[~reached].tolist(), now_s[~reached].tolist(), strict=True):
            self.carrier.drop(i, at_s, REJECTED)
        self.carrier.attach(streams[reached], now_s[reached], worker[reached])

    def _sample(self, now_s: float) -> None:
        """End a telemetry period: serve up to now, and measure, of which gateways hear after the lag."""
        self.carrier.advance(now_s)
        links = self.carrier.links_now(now_s)
        seen = self.carrier.waiting(now_s), np.zeros((2, 0)) if links is None else links
        self.carrier.direct(measure, self.periods, *seen, self._declared_bps(), self.workers)

    def _declared_bps(self) -> Floats:
        """(S, L) what streams of each gateway declare of links, beside others."""
        return np.zeros((1, self.world.link_bps.size))

    def _hear(self) -> None:
        """Each gateway hears of the next period, which its news reach now."""
        for site in range(len(self.cores)):
            self._told(site, measured_for(self.periods, site))

    def _stamped(self, columns: dict[str, Any]) -> dict[str, Any]:
        n = len(next(iter(columns.values())))
        return {"seed": [self.seed] * n, "policy": [self.core.policy.name] * n, **columns}
