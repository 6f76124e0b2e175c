"""The decision core for streams: events in, commands out.

Forbidden here: I/O, clocks, global randomness, async. The simulator and the gateway both
drive this class, so what was simulated is what runs.

A stream is in one of three states:

    unknown ──StreamOpened──▶ bound ──StreamClosed──▶ unknown
                 │              │ its worker goes down: decided anew
                 └────────────▶ refused ──StreamClosed──▶ unknown
                                 (or, with `retry_refused`, decided anew at each Tick)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatchmethod
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from edgewise.core.events import (
    Bind,
    Command,
    Event,
    Measured,
    Refuse,
    Release,
    StreamClosed,
    StreamOpened,
    Tick,
    WorkerChanged,
)
from edgewise.core.feasibility import TOLERANCE, assess, share_qps
from edgewise.core.keyed import Key
from edgewise.core.policy import DispatchPolicy, ScorePolicy
from edgewise.core.views import REASONS, Candidates, Decisions, DispatchView, Item, Items, Violation
from edgewise.core.world import Floats, World

Scalar = TypeVar("Scalar", bound=np.generic)


class LeastImpedanceFallback(ScorePolicy):
    """Decides when the policy cannot: least 2(d + 2σ) + D_v, which needs no measurement."""

    name = "fallback"

    def score(self, view: Candidates, item: Item) -> Floats:
        """Impedance."""
        return view.impedance_s


class DispatchCore:
    """Binds streams to workers through a policy and keeps the load ledger.

    Args:
        world: static arrays.
        policy: decides; reset here.
        seed: keys the policy's randomness and tie-breaking.
        retry_refused: decide refused streams anew at every Tick.
        fallback: decides when the policy raises, exceeds its budget, binds what is not
            feasible, or the view is older than the policy's `max_age_s`.
        timer, budget_s: measure a decision with `timer` and, when one took longer than
            `budget_s`, use the fallback until the next Tick. Off when None.

    Attributes:
        bindings: stream id → worker index.
        refused: stream id → reason.
        faults: what made the fallback decide, and how often.
    """

    def __init__(
        self,
        world: World,
        policy: DispatchPolicy,
        seed: int = 0,
        *,
        retry_refused: bool = False,
        fallback: DispatchPolicy | None = None,
        timer: Callable[[], float] | None = None,
        budget_s: float | None = None,
    ) -> None:
        self.world = world
        self.now_s = 0.0
        self.seed = seed
        self.bindings: dict[int, int] = {}
        self.refused: dict[int, str] = {}
        self.faults: dict[str, int] = {}
        self._items: dict[int, Item] = {}
        self._retry = retry_refused
        default: DispatchPolicy = LeastImpedanceFallback()
        self._fallback = fallback or default
        self._timer, self._budget_s = timer, budget_s
        self._suspended = False
        workers = world.workers
        self._load_qps = np.zeros(workers)
        self._streams = np.zeros(workers, dtype=np.int64)
        self._up = np.ones(workers, dtype=np.bool_)
        self._measured = (np.zeros(workers),) * 4
        self._measured_s = -np.inf
        self.use(policy)

    def use(self, policy: DispatchPolicy) -> None:
        """Switch the policy; bindings stay."""
        self.policy = policy
        policy.reset(self.world, Key(self.seed))
        self._fallback.reset(self.world, Key(self.seed))
        self._suspended = False

    def view(self) -> DispatchView:
        """What the policy may see now. Ledger arrays are copies: a view never changes later."""
        queue, throughput, mean, p95 = self._measured
        return DispatchView(
            world=self.world,
            now_s=self.now_s,
            seed=self.seed,
            load_qps=_frozen(self._load_qps),
            streams=_frozen(self._streams),
            up=_frozen(self._up),
            queue=_frozen(queue),
            throughput_qps=_frozen(throughput),
            delay_mean_s=_frozen(mean),
            delay_p95_s=_frozen(p95),
            measured_s=self._measured_s,
        )

    def handle(self, event: Event) -> list[Command]:
        """Apply one event and return what is to be done.

        Raises:
            ValueError: the event lies in the past, or names an unknown stream or worker.
        """
        if event.time_s < self.now_s:
            raise ValueError(f"event at {event.time_s} s lies before {self.now_s} s: time must not go back")
        self.now_s = event.time_s
        return self._on(event)

    @singledispatchmethod
    def _on(self, event: Event) -> list[Command]:
        raise ValueError(f"unknown event {event!r}")

    @_on.register
    def _opened(self, event: StreamOpened) -> list[Command]:
        stream = event.stream
        if stream.id in self._items:
            raise ValueError(f"stream {stream.id} is open already")
        (item,) = Items.of(self.world, [stream])
        self._items[stream.id] = item
        return self._place(item)

    @_on.register
    def _closed(self, event: StreamClosed) -> list[Command]:
        if event.stream_id not in self._items:
            raise ValueError(f"stream {event.stream_id} is not open")
        commands = self._unbind(event.stream_id)
        self.refused.pop(event.stream_id, None)
        del self._items[event.stream_id]
        return commands

    @_on.register
    def _ticked(self, event: Tick) -> list[Command]:
        self._suspended = False
        try:
            self.policy.tick(self.view())
        except Exception as error:  # a policy is foreign code: whatever it raises must not stop dispatch
            self._fault(f"tick raised {type(error).__name__}")
            self._suspended = True
        if not self._retry:
            return []
        waiting = [self._items[stream_id] for stream_id in self.refused]
        return [c for item in waiting for c in self._place(item) if isinstance(c, Bind)]

    @_on.register
    def _worker_changed(self, event: WorkerChanged) -> list[Command]:
        self._up[event.worker] = event.up
        if event.up:
            return []
        lost = [stream for stream, worker in self.bindings.items() if worker == event.worker]
        commands = [c for stream in lost for c in self._unbind(stream)]
        for stream in lost:
            commands += self._place(self._items[stream])
        return commands

    @_on.register
    def _measured_event(self, event: Measured) -> list[Command]:
        t = event.telemetry
        self._measured = (t.queue, t.throughput_qps, t.delay_mean_s, t.delay_p95_s)
        self._measured_s = t.measured_s
        return []

    def _place(self, item: Item) -> list[Command]:
        view = self.view()
        decisions = self._decide(view, Items((item,)))
        worker = int(decisions.worker[0])
        if worker < 0:
            reason = Violation(int(decisions.reason[0])) if decisions.reason.size else Violation.POLICY
            self.refused[item.id] = REASONS[reason or Violation.POLICY]
            return [Refuse(item.id, self.refused[item.id])]
        self.refused.pop(item.id, None)
        self.bindings[item.id] = worker
        self._load_qps[worker] += share_qps(self.world, item)[worker]
        self._streams[worker] += 1
        return [Bind(item.id, worker)]

    def _unbind(self, stream_id: int) -> list[Command]:
        worker = self.bindings.pop(stream_id, None)
        if worker is None:
            return []
        self._streams[worker] -= 1
        self._load_qps[worker] -= share_qps(self.world, self._items[stream_id])[worker]
        if self._streams[worker] == 0:
            self._load_qps[worker] = 0.0  # an idle worker forgets rounding errors
        return [Release(stream_id, worker)]

    def _decide(self, view: DispatchView, items: Items) -> Decisions:
        why = self._why_not(view)
        if why is None:
            started = self._timer() if self._timer else 0.0
            try:
                decisions = self.policy.decide(view, items)
                why = _broken(view, items, decisions)
            except Exception as error:  # see _ticked
                why = f"raised {type(error).__name__}"
            if self._timer and self._budget_s is not None and self._timer() - started > self._budget_s:
                self._fault("over budget")
                self._suspended = True
            if why is None:
                return decisions
        self._fault(why)
        return self._fallback.decide(view, items)

    def _why_not(self, view: DispatchView) -> str | None:
        if self._suspended:
            return "suspended until the next tick"
        max_age_s = getattr(self.policy, "max_age_s", None)
        return "stale view" if max_age_s is not None and view.age_s > max_age_s else None

    def _fault(self, why: str) -> None:
        self.faults[why] = self.faults.get(why, 0) + 1

    def validate(self) -> None:
        """Check every invariant of the ledger; tests call it at teardown."""
        load = np.zeros_like(self._load_qps)
        streams = np.zeros_like(self._streams)
        for stream_id, worker in self.bindings.items():
            item = self._items[stream_id]
            load[worker] += share_qps(self.world, item)[worker]
            streams[worker] += 1
            assert self.world.task[worker] == item.task, "bound to a worker of another task"
            assert self.world.accuracy[worker] >= item.min_accuracy, "bound below its accuracy"
            assert self._up[worker], "bound to a worker that is down"
        assert np.allclose(load, self._load_qps), "load differs from the sum of the bindings"
        assert (streams == self._streams).all(), "stream count differs from the bindings"
        assert (load <= self.world.capacity_qps * (1 + 2 * TOLERANCE)).all(), "a worker is over capacity"
        assert not self.bindings.keys() & self.refused.keys(), "a stream is both bound and refused"
        assert self.bindings.keys() | self.refused.keys() == self._items.keys(), "a stream was lost"


def _broken(view: DispatchView, items: Items, decisions: Decisions) -> str | None:
    """What a policy's answer breaks, or None."""
    if decisions.worker.shape != (len(items),):
        return "wrong shape"
    for item, worker in zip(items, decisions.worker, strict=True):
        violation = assess(view, item).violation
        if worker >= view.world.workers or (worker >= 0 and violation[worker] != Violation.NONE):
            return "bound what is not feasible"
        if worker < -1:
            return "worker below -1"
    return None


def _frozen(array: NDArray[Scalar]) -> NDArray[Scalar]:
    copy = array.copy()
    copy.setflags(write=False)
    return copy
