"""From a scenario to records: the simulator drives the decision core from its own clock.

Global events (streams opening and closing, telemetry, windows) run in time order in Python and
go through the same `DispatchCore` that the gateway uses; queries run in compiled kernels
(`sim.streams`), one telemetry period at a time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgewise.core.dispatch import DispatchCore
from edgewise.core.events import (
    Bind,
    Command,
    Event,
    Measured,
    Refuse,
    StreamClosed,
    StreamOpened,
    Telemetry,
    Tick,
)
from edgewise.core.policy import DispatchPolicy
from edgewise.core.world import World
from edgewise.model.scenario import Scenario
from edgewise.model.work import Stream
from edgewise.sim import streams as kernels
from edgewise.sim.streams import Floats, Ints
from edgewise.workloads.generate import generate_streams

# At equal times: capacity returns first, then news arrives, then windows begin, then clients come.
CLOSED, SAMPLE, MEASURED, TICK, OPENED = range(5)


@dataclass(slots=True)
class Outcome:
    """What one run left behind.

    Attributes:
        streams, windows: columns of the two record tables.
        commands: (time, command) in order, the whole conversation with the core.
        core: the decision core as it stood at the end.
    """

    streams: dict[str, list[Any]]
    windows: dict[str, list[Any]]
    commands: list[tuple[float, Command]]
    core: DispatchCore


@dataclass(slots=True)
class _Counts:
    """Streams opened, bound and refused in each window, and the policy in force."""

    opened: Ints
    bound: Ints
    refused: Ints
    active: list[str] = field(default_factory=list)


class Simulation:
    """One run of one scenario under one policy with one seed.

    Args:
        scenario: what to simulate.
        policy: decides; it is reset here.
        seed: keys arrivals, noise and ties.
        streams: replaces the scenario's generated streams (a recorded trace); ids must be
            0 … n-1 in order.
    """

    def __init__(
        self, scenario: Scenario, policy: DispatchPolicy, seed: int, streams: Sequence[Stream] | None = None
    ) -> None:
        self.scenario, self.seed = scenario, seed
        self.world = World.build(scenario.catalog, scenario.topology)
        self.core = DispatchCore(self.world, policy, seed, retry_refused=scenario.retry_refused)
        self.trace = list(generate_streams(scenario, seed) if streams is None else streams)
        self.commands: list[tuple[float, Command]] = []
        self._key = np.uint64(seed & 0xFFFFFFFFFFFFFFFF)
        windows = max(int(np.ceil(scenario.duration_s / scenario.window_s)), 1)
        self._tally = kernels.Tally(scenario.window_s, *(np.zeros(windows, dtype=np.int64) for _ in range(3)))
        opened, bound, refused = (np.zeros(windows, dtype=np.int64) for _ in range(3))
        self._counts = _Counts(opened, bound, refused)
        self._streams = _stream_arrays(self.trace)
        self._workers = _worker_arrays(self.world)
        world = self.world
        self._network = kernels.Network(
            world.delay_s, world.deviation_s, world.access_delay_s, world.uplink_bps
        )
        self._heaps = np.zeros((world.workers, 16), dtype=np.int64)
        self._sizes = np.zeros(world.workers, dtype=np.int64)
        self._queue: list[tuple[float, int, int, Event | None]] = []

    def run(self) -> Outcome:
        """Run to the end of the scenario, then serve what is under way."""
        self._schedule()
        while self._queue:
            time_s, kind, _, event = heapq.heappop(self._queue)
            if kind == SAMPLE:
                self._sample(time_s)
            else:
                assert event is not None
                self._handle(event)
        self._advance(np.inf)
        self.core.validate()
        return Outcome(self._stream_records(), self._window_records(), self.commands, self.core)

    def _schedule(self) -> None:
        duration_s, scenario = self.scenario.duration_s, self.scenario
        for i, stream in enumerate(self.trace):
            self._push(stream.open_s, OPENED, i, StreamOpened(stream.open_s, stream))
            self._push(stream.close_s, CLOSED, i, StreamClosed(stream.close_s, stream.id))
        for k in range(self._tally.ok.size):
            self._push(k * scenario.window_s, TICK, k, Tick(k * scenario.window_s))
        for k in range(1, int(duration_s / scenario.telemetry_period_s) + 1):
            self._push(k * scenario.telemetry_period_s, SAMPLE, k, None)

    def _push(self, time_s: float, kind: int, order: int, event: Event | None) -> None:
        heapq.heappush(self._queue, (time_s, kind, order, event))

    def _handle(self, event: Event) -> None:
        window = min(int(event.time_s / self.scenario.window_s), self._tally.ok.size - 1)
        commands = self.core.handle(event)
        if isinstance(event, Tick):
            self._counts.active.append(str(getattr(self.core.policy, "active", self.core.policy.name)))
        if isinstance(event, StreamOpened):
            self._counts.opened[window] += 1
        for command in commands:
            self.commands.append((event.time_s, command))
            if isinstance(command, Bind):
                self._counts.bound[window] += 1
                self._bind(command, event.time_s)
            elif isinstance(command, Refuse):
                self._counts.refused[window] += 1

    def _bind(self, command: Bind, now_s: float) -> None:
        i, w, s = command.stream_id, command.worker, self._streams
        s.worker[i] = w
        if not kernels.reject_until(s, i, now_s, self._key, self._tally):
            return  # it ends before its next query
        kernels.send(s, i, self._network, int(self.world.cluster[w]), self._key)
        if self._sizes[w] == self._heaps.shape[1]:
            self._heaps = np.concatenate([self._heaps, np.zeros_like(self._heaps)], axis=1)
        self._sizes[w] = kernels.push(self._heaps[w], int(self._sizes[w]), i, s.next_arrival_s)

    def _advance(self, until_s: float) -> None:
        kernels.advance_all(
            until_s, self._heaps, self._sizes, self._streams, self._workers, self._network, self._key,
            self._tally,
        )  # fmt: skip

    def _sample(self, now_s: float) -> None:
        """End a telemetry period: serve up to now, then send the figures with their lag."""
        self._advance(now_s)
        telemetry = measure(self._workers, now_s, self.scenario.telemetry_period_s)
        arrival_s = now_s + self.scenario.telemetry_lag_s
        self._push(arrival_s, MEASURED, 0, Measured(arrival_s, telemetry))

    def _stream_records(self) -> dict[str, list[Any]]:
        world, s, policy = self.world, self._streams, self.core.policy.name
        for i in np.flatnonzero(s.worker < 0):
            kernels.reject_until(s, int(i), np.inf, self._key, self._tally)
        served = s.ok + s.failed
        bound = [int(w) if w >= 0 else None for w in s.worker]
        reasons = {c.stream_id: c.reason for _, c in self.commands if isinstance(c, Refuse)}
        n = len(self.trace)
        columns: dict[str, list[Any]] = {"seed": [self.seed] * n, "policy": [policy] * n}
        columns["stream"] = [t.id for t in self.trace]
        columns["site"] = [world.site_names[t.site] for t in self.trace]
        for name in ("application", "task", "open_s", "close_s", "rate_qps", "size_bytes", "deadline_s",
                     "min_accuracy"):  # fmt: skip
            columns[name] = [getattr(t, name) for t in self.trace]
        columns["worker"] = [None if w is None else world.worker_names[w] for w in bound]
        columns["variant"] = [None if w is None else world.variant_names[w] for w in bound]
        columns["cluster"] = [None if w is None else world.cluster_names[world.cluster[w]] for w in bound]
        columns["reason"] = [
            None if w is not None else reasons.get(t.id) for t, w in zip(self.trace, bound, strict=True)
        ]
        columns["queries"] = (served + s.rejected).tolist()
        for name in ("ok", "failed", "rejected"):
            columns[name] = getattr(s, name).tolist()
        mean = s.delay_sum_s / np.maximum(served, 1)
        columns["delay_mean_s"] = [m if k else None for m, k in zip(mean.tolist(), served, strict=True)]
        columns["delay_max_s"] = [
            m if k else None for m, k in zip(s.delay_max_s.tolist(), served, strict=True)
        ]
        return columns

    def _window_records(self) -> dict[str, list[Any]]:
        t, n = self._tally, self._tally.ok.size
        start = [k * self.scenario.window_s for k in range(n)]
        return {
            "seed": [self.seed] * n,
            "policy": [self.core.policy.name] * n,
            "window": list(range(n)),
            "start_s": start,
            "end_s": [min(x + self.scenario.window_s, self.scenario.duration_s) for x in start],
            "active": self._counts.active,
            "streams_opened": self._counts.opened.tolist(),
            "streams_bound": self._counts.bound.tolist(),
            "streams_refused": self._counts.refused.tolist(),
            "queries": (t.ok + t.failed + t.rejected).tolist(),
            "ok": t.ok.tolist(),
            "failed": t.failed.tolist(),
            "rejected": t.rejected.tolist(),
        }


def simulate(
    scenario: Scenario,
    policy: Callable[[], DispatchPolicy],
    seeds: Sequence[int],
    progress: Callable[[], None] = lambda: None,
) -> list[Outcome]:
    """Run a scenario once for each seed, each with a new policy.

    Args:
        policy: makes the policy of one run.
        progress: called after each run.
    Returns:
        One outcome for each seed, in order.
    """
    outcomes = []
    for seed in seeds:
        outcomes.append(Simulation(scenario, policy(), seed).run())
        progress()
    return outcomes


def measure(workers: kernels.Workers, now_s: float, period_s: float) -> Telemetry:
    """What workers report at the end of a telemetry period; starts the next one."""
    answered = np.maximum(workers.answered, 1)
    cumulative = np.cumsum(workers.histogram, axis=1)
    p95_bin = (cumulative < 0.95 * workers.answered[:, None]).sum(axis=1)
    p95 = kernels.SHORTEST_S * 10.0 ** (p95_bin / kernels.BINS_PER_DECADE)
    telemetry = Telemetry(
        measured_s=now_s,
        queue=workers.waiting.astype(np.float64),
        throughput_qps=workers.answered / period_s,
        delay_mean_s=workers.delay_sum_s / answered,
        delay_p95_s=np.where(workers.answered > 0, p95, 0.0),
    )
    workers.answered[:] = 0
    workers.delay_sum_s[:] = 0.0
    workers.histogram[:] = 0
    return telemetry


def _stream_arrays(trace: Sequence[Stream]) -> kernels.Streams:
    def floats(name: str) -> Floats:
        return np.array([getattr(s, name) for s in trace], dtype=np.float64)

    n = len(trace)
    counts = [np.zeros(n, dtype=np.int64) for _ in range(3)]
    return kernels.Streams(
        id=np.array([s.id for s in trace], dtype=np.int64),
        site=np.array([s.site for s in trace], dtype=np.int64),
        worker=np.full(n, -1, dtype=np.int64),
        open_s=floats("open_s"),
        close_s=floats("close_s"),
        rate_qps=floats("rate_qps"),
        size_bytes=floats("size_bytes"),
        deadline_s=floats("deadline_s"),
        poisson=np.array([s.arrivals == "poisson" for s in trace], dtype=np.int64),
        next_number=np.zeros(n, dtype=np.int64),
        next_sent_s=floats("open_s"),
        next_arrival_s=np.zeros(n),
        ok=counts[0],
        failed=counts[1],
        rejected=counts[2],
        delay_sum_s=np.zeros(n),
        delay_max_s=np.zeros(n),
    )


def _worker_arrays(world: World) -> kernels.Workers:
    count = world.workers
    most = int(world.servers.max(initial=1))
    return kernels.Workers(
        cluster=world.cluster,
        fixed_s=world.fixed_s,
        per_byte_s=world.per_byte_s,
        batch_slope=world.batch_slope,
        deviation=world.deviation,
        max_batch=world.max_batch,
        servers=world.servers,
        free_s=np.zeros((count, most)),
        answered=np.zeros(count, dtype=np.int64),
        delay_sum_s=np.zeros(count),
        histogram=np.zeros((count, kernels.DELAY_BINS), dtype=np.int64),
        waiting=np.zeros(count, dtype=np.int64),
        batches=np.zeros(count, dtype=np.int64),
    )
