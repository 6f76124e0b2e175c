"""The gateway without sockets: streams, the decision core, and the records of what happened.

Synchronous and free of I/O; the clock is handed in. The simulator's counterpart is
`edgewise.sim.simulate`: both build the same events for the same `DispatchCore`, and the same
record columns.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgewise.core.dispatch import DispatchCore
from edgewise.core.events import (
    Bind,
    Command,
    Event,
    Measured,
    Refuse,
    ReservedElsewhere,
    StreamClosed,
    StreamOpened,
    Telemetry,
    Tick,
    WorkerChanged,
)
from edgewise.core.feasibility import share_of
from edgewise.core.policy import DispatchPolicy
from edgewise.core.world import World
from edgewise.model.work import Stream
from edgewise.runtime.shadow import Shadow


@dataclass(slots=True)
class Served:
    """What became of one stream's queries."""

    stream: Stream
    close_s: float | None = None
    worker: int | None = None
    reason: str | None = None
    ok: int = 0
    failed: int = 0
    rejected: int = 0
    answered: int = 0
    delay_sum_s: float = 0.0
    delay_max_s: float = 0.0


@dataclass(slots=True)
class WindowCount:
    """Counters of one window."""

    active: str
    opened: int = 0
    bound: int = 0
    refused: int = 0
    ok: int = 0
    failed: int = 0
    rejected: int = 0


class Session:
    """One run of a gateway: opens and closes streams, judges answers, keeps records.

    Args:
        world: static arrays.
        policy: decides.
        seed: keys the policy's draws.
        clock: seconds since the session began.
        window_s: length of a window.
        retry_refused: decide refused streams anew at each window.
        keep_closed: closed streams whose records are kept; older ones are forgotten.
    """

    def __init__(
        self,
        world: World,
        policy: DispatchPolicy,
        seed: int,
        clock: Callable[[], float],
        *,
        window_s: float = 25.0,
        retry_refused: bool = False,
        keep_closed: int = 100_000,
    ) -> None:
        self.world, self.seed, self.clock, self.window_s = world, seed, clock, window_s
        self.core = DispatchCore(world, policy, seed, retry_refused=retry_refused)
        self.served: dict[int, Served] = {}
        self.windows: list[WindowCount] = []
        self._sojourn_s: list[list[float]] = [[] for _ in range(world.workers)]
        self._in_flight = np.zeros(world.workers)
        self._sampled_s = clock()
        self.keep_closed = keep_closed
        self.shadow: Shadow | None = None
        self._closed: deque[int] = deque()

    def open_stream(self, stream: Stream, worker: int | None = None) -> list[Command]:
        """Ask the core to serve a stream; its id must be new. It keeps `worker` where it still fits."""
        self.served[stream.id] = Served(stream)
        window = self._window(self.clock())
        window.opened += 1
        return self._carry_out(self._tell(StreamOpened(self.clock(), stream, worker)), window)

    def close_stream(self, stream_id: int) -> list[Command]:
        """Return a stream's capacity.

        Raises:
            ValueError: no such stream is open.
        """
        now_s = self.clock()
        commands = self._tell(StreamClosed(now_s, stream_id))
        self.served[stream_id].close_s = now_s
        self._closed.append(stream_id)
        if len(self._closed) > self.keep_closed:
            del self.served[self._closed.popleft()]
        return commands

    def retry_stream(self, stream_id: int) -> list[Command]:
        """Ask the core anew about a stream that it refused.

        Raises:
            KeyError: no such stream is open.
        """
        return [] if self.worker_of(stream_id) is not None else self.decide_anew(stream_id)

    def decide_anew(self, stream_id: int) -> list[Command]:
        """Take an open stream off its worker, if it has one, and ask the core again."""
        self._tell(StreamClosed(self.clock(), stream_id))
        opened = StreamOpened(self.clock(), self.served[stream_id].stream)
        return self._carry_out(self._tell(opened), self._window(self.clock()))

    def reserved_elsewhere(self, worker: int, load_qps: float) -> None:
        """A worker told what it has granted to other gateways."""
        self._tell(ReservedElsewhere(self.clock(), worker, load_qps))

    def share_qps(self, stream_id: int, worker: int) -> float:
        """Load that an open stream reserves on a worker."""
        stream = self.served[stream_id].stream
        return float(share_of(self.world.tables, worker, stream.rate_qps, stream.size_bytes))

    def watch_with(self, policy: DispatchPolicy | None) -> None:
        """Let a second policy see the same events from now on; its commands are never carried out."""
        self.shadow = None
        if policy is not None:
            opened = [s.stream for s in self.served.values() if s.close_s is None]
            self.shadow = Shadow(self.world, policy, self.seed, self.clock(), opened, self.core.view().up)

    def use(self, policy: DispatchPolicy) -> None:
        """Switch the policy; bindings stay, and the next window's record names it."""
        self.core.use(policy)

    @property
    def in_flight(self) -> NDArray[np.float64]:
        """(W,) queries sent to each worker and not yet answered."""
        return self._in_flight.copy()

    def tick(self) -> list[Command]:
        """A window began."""
        commands = self._tell(Tick(self.clock()))
        return self._carry_out(commands, self._window(self.clock()))

    def worker_changed(self, worker: int, up: bool) -> list[Command]:
        """A worker was seen to go down or come up; its streams move."""
        commands = self._tell(WorkerChanged(self.clock(), worker, up))
        return self._carry_out(commands, self._window(self.clock()))

    def sample(self) -> None:
        """End a telemetry period: tell the core what the workers did since the last."""
        now_s = self.clock()
        period_s = max(now_s - self._sampled_s, 1e-9)
        lists = self._sojourn_s
        telemetry = Telemetry(
            measured_s=now_s,
            queue=self._in_flight.copy(),
            throughput_qps=np.array([len(x) / period_s for x in lists]),
            delay_mean_s=np.array([float(np.mean(x)) if x else 0.0 for x in lists]),
            delay_p95_s=np.array([float(np.quantile(x, 0.95)) if x else 0.0 for x in lists]),
        )
        self._sojourn_s = [[] for _ in lists]
        self._sampled_s = now_s
        self._tell(Measured(now_s, telemetry))

    def worker_of(self, stream_id: int) -> int | None:
        """The worker a stream is bound to, None when it was refused.

        Raises:
            KeyError: no such stream is open.
        """
        if stream_id not in self.served or self.served[stream_id].close_s is not None:
            raise KeyError(stream_id)
        return self.core.bindings.get(stream_id)

    def bound_to(self, stream_id: int) -> int | None:
        """The worker a stream is bound to; None when refused, closed or unknown."""
        return self.core.bindings.get(stream_id)

    def is_closed(self, stream_id: int) -> bool:
        """Whether a stream is closed, or was never opened."""
        served = self.served.get(stream_id)
        return served is None or served.close_s is not None

    def query_sent(self, worker: int) -> None:
        """A query went to a worker."""
        self._in_flight[worker] += 1

    def query_lost(self, worker: int) -> None:
        """A query did not reach its worker; it goes elsewhere."""
        self._in_flight[worker] -= 1

    def query_done(
        self, stream_id: int, worker: int, sent_s: float, answered: bool, back_s: float = 0.0
    ) -> None:
        """A query came back, or is known to be lost; judged against the stream's deadline.

        Args:
            back_s: way that the answer has yet to go.
        """
        delay_s = self.clock() - sent_s + back_s
        self._in_flight[worker] -= 1
        served, window = self.served.get(stream_id), self._window(sent_s)
        if served is None:
            return  # its stream was closed long ago
        in_time = answered and delay_s <= served.stream.deadline_s
        served.ok += in_time
        served.failed += not in_time
        window.ok += in_time
        window.failed += not in_time
        if answered:
            served.answered += 1
            served.delay_sum_s += delay_s
            served.delay_max_s = max(served.delay_max_s, delay_s)
            self._sojourn_s[worker].append(delay_s)

    def query_rejected(self, stream_id: int) -> None:
        """A query of a refused stream came."""
        self.served[stream_id].rejected += 1
        self._window(self.clock()).rejected += 1

    def stream_records(self) -> list[dict[str, Any]]:
        """Rows of the streams table; open streams end now."""
        return [self._stream_row(served) for served in self.served.values()]

    def stream_record(self, stream_id: int) -> dict[str, Any]:
        """Row of one stream.

        Raises:
            KeyError: no such stream was opened.
        """
        return self._stream_row(self.served[stream_id])

    def window_records(self) -> list[dict[str, Any]]:
        """Rows of the windows table."""
        rows = []
        for k, count in enumerate(self.windows):
            rows.append(
                {
                    "seed": self.seed,
                    "policy": self.core.policy.name,
                    "window": k,
                    "start_s": k * self.window_s,
                    "end_s": (k + 1) * self.window_s,
                    "active": count.active,
                    "streams_opened": count.opened,
                    "streams_bound": count.bound,
                    "streams_refused": count.refused,
                    "queries": count.ok + count.failed + count.rejected,
                    "ok": count.ok,
                    "failed": count.failed,
                    "rejected": count.rejected,
                }
            )
        return rows

    def _tell(self, event: Event) -> list[Command]:
        commands = self.core.handle(event)
        if self.shadow is not None:
            self.shadow.handle(event, self.core.bindings)
        return commands

    def _window(self, at_s: float) -> WindowCount:
        k = int(at_s / self.window_s)
        while len(self.windows) <= k:
            policy = self.core.policy
            self.windows.append(WindowCount(str(getattr(policy, "active", policy.name))))
        return self.windows[k]

    def _carry_out(self, commands: list[Command], window: WindowCount) -> list[Command]:
        for command in commands:
            served = self.served[command.stream_id]
            if isinstance(command, Bind):
                served.worker, served.reason = command.worker, None
                window.bound += 1
            elif isinstance(command, Refuse):
                served.worker, served.reason = None, command.reason
                window.refused += 1
        return commands

    def _stream_row(self, served: Served) -> dict[str, Any]:
        world, stream, w = self.world, served.stream, served.worker
        return {
            "seed": self.seed,
            "policy": self.core.policy.name,
            "stream": stream.id,
            "site": world.site_names[stream.site],
            "application": stream.application,
            "task": stream.task,
            "open_s": stream.open_s,
            "close_s": self.clock() if served.close_s is None else served.close_s,
            "rate_qps": stream.rate_qps,
            "size_bytes": stream.size_bytes,
            "deadline_s": stream.deadline_s,
            "min_accuracy": stream.min_accuracy,
            "worker": world.worker_names[w] if w is not None else None,
            "variant": world.variant_names[w] if w is not None else None,
            "cluster": world.cluster_names[world.cluster[w]] if w is not None else None,
            "reason": served.reason,
            "queries": served.ok + served.failed + served.rejected,
            "ok": served.ok,
            "failed": served.failed,
            "rejected": served.rejected,
            "delay_mean_s": served.delay_sum_s / served.answered if served.answered else None,
            "delay_max_s": served.delay_max_s if served.answered else None,
        }


def rehearse(world: World, policy: DispatchPolicy) -> None:
    """Let a policy decide and choose once, on a world of its own, so that it is compiled before it counts."""
    core = DispatchCore(world, policy, 0)
    stream = Stream(0, 0, "", world.task_names[0], 0.0, math.inf, 1e-9, 1.0, 1e6, 0.0)
    core.handle(StreamOpened(0.0, stream))
    core.handle(Tick(0.0))
