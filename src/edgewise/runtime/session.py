"""The gateway without sockets: streams, the decision core, and the records of what happened.

Synchronous and free of I/O; the clock is handed in. The simulator's counterpart is
`edgewise.sim.simulate`: both build the same events for the same `DispatchCore`, and the same
record columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgewise.core.dispatch import DispatchCore
from edgewise.core.events import (
    Bind,
    Command,
    Measured,
    Refuse,
    StreamClosed,
    StreamOpened,
    Telemetry,
    Tick,
    WorkerChanged,
)
from edgewise.core.policy import DispatchPolicy
from edgewise.core.world import World
from edgewise.model.work import Stream


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
    delays_s: list[float] = field(default_factory=list)


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
    ) -> None:
        self.world, self.seed, self.clock, self.window_s = world, seed, clock, window_s
        self.core = DispatchCore(world, policy, seed, retry_refused=retry_refused)
        self.served: dict[int, Served] = {}
        self.windows: list[WindowCount] = []
        self._sojourn_s: list[list[float]] = [[] for _ in range(world.workers)]
        self._in_flight = np.zeros(world.workers)
        self._sampled_s = clock()

    def open_stream(self, stream: Stream) -> list[Command]:
        """Ask the core to serve a stream; its id must be new."""
        self.served[stream.id] = Served(stream)
        window = self._window(self.clock())
        window.opened += 1
        return self._carry_out(self.core.handle(StreamOpened(self.clock(), stream)), window)

    def close_stream(self, stream_id: int) -> list[Command]:
        """Return a stream's capacity.

        Raises:
            ValueError: no such stream is open.
        """
        now_s = self.clock()
        commands = self.core.handle(StreamClosed(now_s, stream_id))
        self.served[stream_id].close_s = now_s
        return commands

    def tick(self) -> list[Command]:
        """A window began."""
        commands = self.core.handle(Tick(self.clock()))
        return self._carry_out(commands, self._window(self.clock()))

    def worker_changed(self, worker: int, up: bool) -> list[Command]:
        """A worker was seen to go down or come up; its streams move."""
        commands = self.core.handle(WorkerChanged(self.clock(), worker, up))
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
        self.core.handle(Measured(now_s, telemetry))

    def worker_of(self, stream_id: int) -> int | None:
        """The worker a stream is bound to, None when it was refused.

        Raises:
            KeyError: no such stream is open.
        """
        if stream_id not in self.served or self.served[stream_id].close_s is not None:
            raise KeyError(stream_id)
        return self.core.bindings.get(stream_id)

    def query_sent(self, worker: int) -> None:
        """A query went to a worker."""
        self._in_flight[worker] += 1

    def query_done(self, stream_id: int, worker: int, sent_s: float, answered: bool) -> None:
        """A query came back, or is known to be lost; judged against the stream's deadline."""
        delay_s = self.clock() - sent_s
        self._in_flight[worker] -= 1
        served, window = self.served[stream_id], self._window(sent_s)
        in_time = answered and delay_s <= served.stream.deadline_s
        served.ok += in_time
        served.failed += not in_time
        window.ok += in_time
        window.failed += not in_time
        if answered:
            served.delays_s.append(delay_s)
            self._sojourn_s[worker].append(delay_s)

    def query_rejected(self, stream_id: int) -> None:
        """A query of a refused stream came."""
        self.served[stream_id].rejected += 1
        self._window(self.clock()).rejected += 1

    def stream_records(self) -> list[dict[str, Any]]:
        """Rows of the streams table; open streams end now."""
        return [self._stream_row(served) for served in self.served.values()]

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
        delays = served.delays_s
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
            "delay_mean_s": sum(delays) / len(delays) if delays else None,
            "delay_max_s": max(delays) if delays else None,
        }
