"""The gateway without sockets: streams, the decision core, and the records of what happened.

Synchronous and free of I/O; the clock is handed in. The simulator's counterpart is
`edgewise.sim.simulate`: both build the same events for the same `DispatchCore`, and records of streams
with the same columns, to which this adds `excess`.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core import grants
from edgewise.core.dispatch import events
from edgewise.core.dispatch.events import Command, Event
from edgewise.core.dispatch.policing import Buckets
from edgewise.core.dispatch.policy import DispatchPolicy
from edgewise.core.dispatch.streams import DispatchCore
from edgewise.core.guard import Guard, Strict
from edgewise.core.sojourns import Sojourns
from edgewise.core.telemetry import telemetry
from edgewise.core.world import World
from edgewise.model.work import Stream
from edgewise.runtime.apart import PolicyApart
from edgewise.runtime.gateway import demand
from edgewise.runtime.gateway.demand import Demand
from edgewise.runtime.gateway.needs import RULES, StreamRules
from edgewise.runtime.gateway.served import Served
from edgewise.runtime.gateway.tally import StreamTally
from edgewise.runtime.watch.faults import Faults

UNKNOWN = "(unknown)"  # every task that no worker implements


class Session:
    """One run of a gateway: opens and closes streams, judges answers, keeps records.

    Args:
        world: static arrays.
        policy: decides.
        seed: keys the policy's draws.
        clock: seconds since the session began.
        rules: for streams.
        process: its name, in what is said of its policies.
        pool_of: (W,) pool of each worker, -1 of one that is there for good; None: all are.
    Attributes:
        faults: of the policies that decide in this process.
        totals: queries by task and outcome.
        tally: the same and more, window by window.
        requests_qps: (W,) normalised load of requests of services, as measured; streams reserve theirs.
    """

    def __init__(
        self,
        world: World,
        policy: DispatchPolicy,
        seed: int,
        clock: Callable[[], float],
        rules: StreamRules = RULES,
        process: str = "gateway",
        pool_of: Ints | None = None,
    ) -> None:
        self.demand = Demand(world, np.full(world.workers, -1) if pool_of is None else pool_of)
        self.world, self.seed, self.clock, self.rules = world, seed, clock, rules
        self.faults = Faults(process)
        guard = self.guard("dispatch", policy)
        self.core = DispatchCore(world, policy, seed, retry_refused=rules.retry_refused, guard=guard)
        self.served: dict[int, Served] = {}
        self.totals: Counter[tuple[str, str]] = Counter()
        self.tally = StreamTally(rules.window_s)
        self._unnoted: dict[int, None] = {}  # streams that had queries since their outcome was noted
        self._buckets = Buckets(rules.burst)
        self._tasks = frozenset(world.task_names)
        self._here = [Sojourns.none() for _ in range(world.workers)]  # as seen from here
        self._before = [(here.copy(), here.copy()) for here in self._here]  # seen and told at the last sample
        self._in_flight = [0] * world.workers  # plain numbers: an array takes three times as long to count in
        self.requests_qps = np.zeros(world.workers)
        self._requested, self._others_qps = np.zeros(world.workers), np.zeros(world.workers)
        self._sampled_s = clock()
        self._closed: deque[int] = deque()

    def open_stream(self, stream: Stream, worker: int | None = None, owner: str = "") -> list[Command]:
        """Ask the core to serve a stream; its id must be new. It keeps `worker` where it still fits."""
        bucket = self._buckets.opened(_kind(stream), stream.rate_qps, self.clock())
        self.served[stream.id] = Served(stream, bucket, owner)
        commands = self._carry_out(self.core.handle(events.StreamOpened(self.clock(), stream, worker)))
        self.demand.came(self.core, stream)
        return commands

    def close_stream(self, stream_id: int, reason: str | None = None) -> list[Command]:
        """Return a stream's capacity.

        Args:
            reason: why, where its client did not ask for it.
        Raises:
            ValueError: no such stream is open.
        """
        now_s = self.clock()
        commands = self.core.handle(events.StreamClosed(now_s, stream_id))
        served = self.served[stream_id]
        served.close_s, served.reason = now_s, reason or served.reason
        self._unnoted.pop(stream_id, None)
        self._buckets.closed(_kind(served.stream), served.bucket, now_s)
        self._closed.append(stream_id)
        if len(self._closed) > self.rules.keep_closed:
            gone = self._closed.popleft()
            del self.served[gone]
            self._unnoted.pop(gone, None)
        return commands

    def outcome(self, stream_id: int) -> dict[str, Any]:
        """What became so far of a stream's queries, as the store keeps it."""
        return self.served[stream_id].outcome(self.stream_record(stream_id))

    def outcomes(self, most: int) -> dict[int, dict[str, Any]]:
        """The same of streams that had queries since it was noted; at most so many, who waits longest."""
        return {stream_id: self.outcome(stream_id) for stream_id in islice(self._unnoted, most)}

    def noted(self, stream_ids: Iterable[int]) -> None:
        """What became of these is in the store."""
        for stream_id in stream_ids:
            self._unnoted.pop(stream_id, None)

    def refuse_for_good(self, stream_id: int) -> None:
        """Close a stream whose refusal is final."""
        self.close_stream(stream_id)
        self.served[stream_id].final = True

    def decide_anew(self, stream_id: int) -> list[Command]:
        """Take an open stream off its worker, if it has one, and ask the core again."""
        self.core.handle(events.StreamClosed(self.clock(), stream_id))
        stream = self.served[stream_id].stream
        commands = self._carry_out(self.core.handle(events.StreamOpened(self.clock(), stream)))
        self.demand.left(self.core, stream)
        return commands

    def reserved_elsewhere(self, worker: int, load_qps: float) -> None:
        """A worker told what other gateways have of it."""
        self._others_qps[worker] = load_qps
        self._book(worker)

    def _book(self, worker: int) -> None:
        """Tell the core what there is at a worker beside its own streams."""
        load_qps = float(self._others_qps[worker] + self.requests_qps[worker])
        self.core.handle(events.ReservedElsewhere(self.clock(), worker, load_qps))

    def share_qps(self, stream_id: int, worker: int) -> float:
        """Load that an open stream reserves on a worker."""
        stream = self.served[stream_id].stream
        return self.core.loads.share_qps(worker, stream.rate_qps, stream.size_bytes)

    def hand(self, core: Any, decision: str, policy: Any, watches: bool = False) -> None:
        """Have a core of this process ask a policy; where it only watches, None: no longer.

        Streams and requests stay where they are, and the next window's record names the policy.

        Raises:
            PolicyError: it cannot begin, or does not fit.
        """
        guard = (
            None if policy is None else self.guard(decision, policy, watches)
        )  # a former one may still think
        (core.watch_with if watches else core.use)(policy, guard)

    def guard(self, decision: str, policy: Any, shadow: bool = False) -> Guard:
        """Who asks a policy of this process."""
        apart = isinstance(policy, PolicyApart)
        name = policy.loaded_as if apart else policy.name  # as the store and the controller call it
        return self.faults.guard(decision, name, self.budget_s(decision), shadow, apart)

    def budget_s(self, decision: str) -> float:
        """Time that a policy of this process has for an answer."""
        return float(getattr(self.rules.budgets_s, decision))

    def pools(self, wanted: Sequence[bool], up: Sequence[bool]) -> dict[str, Any]:
        """What is asked of pools of workers, and how these are, see `Demand.report`."""
        return self.demand.report(self.core, self._in_flight, self.requests_qps, wanted, up)

    @property
    def in_flight(self) -> Floats:
        """(W,) queries and requests sent to each worker and not yet answered."""
        return np.array(self._in_flight, dtype=np.float64)

    def tick(self) -> list[Command]:
        """A window began."""
        return self._carry_out(self.core.handle(events.Tick(self.clock())))

    def worker_changed(
        self, worker: int, up: bool, drains: bool = False, ready_s: float = math.inf
    ) -> list[Command]:
        """A worker was seen to go down or come up, or is to go, or will be up in `ready_s`; streams move."""
        now_s = self.clock()
        changed = events.WorkerChanged(now_s, worker, up and not drains, drains, now_s + ready_s)
        return self._carry_out(self.core.handle(changed))

    def sample(
        self,
        told: Sequence[Sojourns | None] = (),
        asked_s: float | None = None,
        down: Container[int] = (),
    ) -> None:
        """End a telemetry period: tell the core what the workers did since the last.

        Args:
            told: what each worker counted; None where it does not say, and what was seen from here counts.
            asked_s: when they were asked, which is how old it is; now where nobody was.
            down: workers that are; nothing is measured of them.
        """
        now_s = self.clock()
        ended_s = now_s if asked_s is None else asked_s
        period_s = max(ended_s - self._sampled_s, 1e-9)
        self._sampled_s = ended_s
        done = [self._since(w, each) for w, each in enumerate(told or [None] * len(self._here))]
        done = [Sojourns.none() if w in down else each for w, each in enumerate(done)]
        self.core.handle(events.Measured(now_s, telemetry(ended_s, period_s, *_columns(done))))
        self._measure_requests(period_s)

    def _since(self, worker: int, told: Sojourns | None) -> Sojourns:
        """What a worker did since the last sample."""
        here, (seen, before) = self._here[worker], self._before[worker]
        here.queue = self._in_flight[worker]
        self._before[worker] = here.copy(), told or before
        return here.since(seen) if told is None else told.since(before)

    def _measure_requests(self, period_s: float) -> None:
        """Average the load of requests, and book it where it changed."""
        before = self.requests_qps
        self.requests_qps = grants.averaged_qps(before, self._requested / period_s, period_s)
        self._requested[:] = 0.0
        for worker in np.flatnonzero(self.requests_qps != before):
            self._book(int(worker))

    def request_sent(self, worker: int, size_bytes: float) -> None:
        """A request of a service went to a worker, which serves streams, too."""
        self._in_flight[worker] += 1
        self._requested[worker] += self.core.loads.share_qps(worker, 1.0, float(size_bytes))

    def came_back(self, worker: int, there_s: float | None) -> None:
        """A query or request was so long with its worker; None where it was not answered."""
        self._in_flight[worker] -= 1
        if there_s is not None:
            self._here[worker].note(there_s)

    def bound_to(self, stream_id: int) -> int | None:
        """The worker a stream is bound to; None when refused, closed or unknown."""
        return self.core.bindings.get(stream_id)

    def query_sent(self, worker: int) -> None:
        """A query went to a worker."""
        self._in_flight[worker] += 1

    def query_done(
        self, stream_id: int, worker: int, sent_s: float, there_s: float | None, back_s: float = 0.0
    ) -> None:
        """A query came back, or is known to be lost; judged against the stream's deadline.

        Args:
            there_s: how long it was with its worker; None where it was not answered.
            back_s: way that the answer has yet to go.
        """
        delay_s = self.clock() - sent_s + back_s
        self.came_back(worker, there_s)
        served = self.served.get(stream_id)
        if served is None:
            return  # its stream was closed long ago
        in_time = there_s is not None and delay_s <= served.stream.deadline_s
        self.demand.judged(worker, in_time)
        self._count(served, "ok" if in_time else "failed", sent_s)
        if there_s is not None:
            task = self._known(served.stream.task)
            self.tally.answered(sent_s, task, served.stream.application, delay_s)
            served.answered += 1
            served.delay_sum_s += delay_s
            served.delay_max_s = max(served.delay_max_s, delay_s)

    def query_rejected(self, stream_id: int) -> None:
        """A query of a refused stream came."""
        self._count(self.served[stream_id], "rejected", self.clock())

    def query_wait_s(self, stream_id: int) -> float:
        """Whether a query is within its stream's rate: 0, else the time until one will be; counted then."""
        served = self.served[stream_id]
        wait_s = served.bucket.take(self.clock())
        if wait_s > 0.0:
            self._count(served, "excess")
        return wait_s

    def query_unserved(self, stream_id: int) -> None:
        """A query that was within its rate found no worker; its client may send it again."""
        if stream_id in self.served:
            self.served[stream_id].bucket.give_back()

    def worked(self, process: str, told: tuple[float, float] | None) -> None:
        """A worker said when it began and how long it has worked since, or does not say."""
        if told is not None:
            self.tally.worked(self.clock(), process, *told)

    def travelled(self, site: int, cluster: int, there_bytes: int, back_bytes: int) -> None:
        """A message went to a cluster, and its answer came back."""
        world = self.world
        names = world.site_names[site], world.cluster_names[cluster]
        self.tally.sent(self.clock(), *names, there_bytes, back_bytes)

    def stream_records(self) -> list[dict[str, Any]]:
        """Rows of the streams table; open streams end now."""
        return [self.stream_record(stream_id) for stream_id in self.served]

    def stream_record(self, stream_id: int) -> dict[str, Any]:
        """Row of one stream.

        Raises:
            KeyError: no such stream was opened.
        """
        now_s, policy = self.clock(), self.core.policy.name
        return {"seed": self.seed, "policy": policy} | self.served[stream_id].row(self.world, now_s)

    def opened(self, stream_id: int) -> None:
        """A stream was opened by its client, and is bound or not."""
        task = self._known(self.served[stream_id].stream.task)
        self.tally.opened(self.clock(), task, self.bound_to(stream_id) is not None)

    def _count(self, served: Served, outcome: str, sent_s: float | None = None) -> None:
        task = self._known(served.stream.task)
        served.counts[outcome] += 1
        self.totals[task, outcome] += 1
        self._unnoted[served.stream.id] = None
        if sent_s is not None:
            self.tally.query(sent_s, task, outcome)

    def _known(self, task: str) -> str:
        return task if task in self._tasks else UNKNOWN

    def _carry_out(self, commands: list[Command]) -> list[Command]:
        for command in commands:
            served = self.served[command.stream_id]
            if isinstance(command, events.Bind):
                served.worker, served.reason = command.worker, None
            elif isinstance(command, events.Refuse):
                served.worker, served.reason = None, command.reason
        return commands


def _kind(stream: Stream) -> tuple[int, str]:
    """What counts as the same client coming again: all have one token, and names are for the asking."""
    return stream.site, stream.task


def _columns(counts: Sequence[Sojourns]) -> tuple[Floats, Ints, Floats, Ints]:
    """Queue, answered, sum_s and bins of W workers."""
    return (
        np.array([each.queue for each in counts], dtype=np.float64),
        np.array([each.answered for each in counts], dtype=np.int64),
        np.array([each.sum_s for each in counts], dtype=np.float64),
        np.array([each.bins for each in counts], dtype=np.int64),
    )


def rehearse(policy: DispatchPolicy, world: World) -> None:
    """Have every kind of event handled once, on a world of its own: it is compiled before it counts.

    Raises:
        PolicyError: the policy raises, or binds what is not feasible.
    """
    core = DispatchCore(world, policy, 0, guard=Strict(policy.name))
    served = Stream(0, 0, "", world.task_names[0], 0.0, math.inf, 1e-9, 1.0, 1e6, 0.0)
    refused = replace(served, id=1, rate_qps=1e12)
    script: tuple[Event, ...] = (
        events.Measured(0.0, telemetry(0.0, 1.0, *_columns([Sojourns.none()] * world.workers))),
        *(events.StreamOpened(0.0, stream) for stream in (served, refused)), events.Tick(0.0),
        events.ReservedElsewhere(0.0, 0, 0.0),
        *(events.WorkerChanged(0.0, worker, up) for up in (False, True) for worker in range(world.workers)),
        *(events.WorkerChanged(0.0, 0, up, drains=not up) for up in (False, True)),
    )  # fmt: skip
    for event in script:
        core.handle(event)
    demand.rehearse(core, served)
    grants.rehearse(core, refused.id)
    for stream in (served, refused):
        core.handle(events.StreamClosed(0.0, stream.id))
    core.loads.share_qps(0, 1.0, 1.0)  # of requests, and of what gateways reserve
