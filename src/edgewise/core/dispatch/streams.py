"""The decision core for streams: events in, commands out.

Forbidden here: I/O, clocks, global randomness, async. The simulator and the gateway both
drive this class, so what was simulated is what runs.

A stream is in one of three states:

    unknown ──StreamOpened──▶ bound ──StreamClosed──▶ unknown
                 │              │ its worker goes down: decided anew
                 │              │ its worker is to go: decided anew, and stays where nobody else has room
                 └────────────▶ refused ──StreamClosed──▶ unknown
                                 (or decided anew: when a worker comes up, and at each Tick where it
                                  stays, or with `retry_refused`; the more important first)

Whoever stays at a worker that is to go asks again at every Tick. Refusals that a worker which is about to
start will change are not final.
"""

from collections.abc import Hashable, Set
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgewise.arrays import Ints
from edgewise.core import hooks
from edgewise.core.dispatch import events, state
from edgewise.core.dispatch.books import Books, check_ledger
from edgewise.core.dispatch.loads import LoadLedger
from edgewise.core.dispatch.policy import (
    OPEN,
    Batch,
    DispatchPolicy,
    LeastImpedanceFallback,
    best_of,
    broken,
    compiled,
    play,
    score_of,
)  # fmt: skip
from edgewise.core.dispatch.views import (
    CODES,
    REASONS,
    Bound,
    Decisions,
    DispatchView,
    Item,
    Items,
    Rows,
    Violation,
)  # fmt: skip
from edgewise.core.grant_rules import NOBODY
from edgewise.core.guard import Guard, Shadow, begin
from edgewise.core.keyed import Key
from edgewise.core.world import World


class DispatchCore:
    """Binds streams to workers through a policy and keeps the load ledger.

    Args:
        world: static arrays.
        policy: decides; reset here.
        seed: keys the policy's randomness and tie-breaking.
        retry_refused: decide refused streams anew at every Tick.
        fallback: decides when the policy raises, binds what is not feasible, the view is older than the
            policy's `max_age_s`, or there is no answer in time: then until the next Tick.
        guard: asks the policy, and counts what the fallback decided.

    Attributes:
        bindings: stream id → worker index.
        refused: stream id → reason.
        stays: streams of sources, which ask again at every Tick while they are refused.
        draining: workers that are to go, and may have streams until then.
        books: of open streams; compiled code that works on the arrays of `loads` keeps them, too.
        loads: the ledger, and links.
        shadow: watches what is decided one by one, if there is one.
    """

    def __init__(
        self,
        world: World,
        policy: DispatchPolicy,
        seed: int = 0,
        *,
        retry_refused: bool = False,
        fallback: DispatchPolicy | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.world, self.seed, self.now_s = world, seed, 0.0
        self.books = Books()
        self.bindings, self.refused = self.books.bindings, self.books.refused
        self._retry, self.stays, self.draining = retry_refused, set[int](), set[int]()
        self.guard, self._suspended = guard or Guard(), False
        self.shadow: Shadow[Decisions] | None = None
        default: DispatchPolicy = LeastImpedanceFallback()
        self._fallback = fallback or default
        self.loads = LoadLedger(world, seed)
        self.use(policy)

    def use(self, policy: DispatchPolicy, guard: Guard | None = None) -> None:
        """Switch the policy, and who asks it unless that is None; bindings stay.

        Raises:
            PolicyError: it cannot begin; the former one stays.
        """
        self.policy, self._suspended = begin(policy, *self.given), False
        self._score, self._ages = score_of(policy), policy if isinstance(policy, hooks.Ages) else None
        self._coded: tuple[Any, Any] = (None, None)  # a score, and what it was compiled to
        self._listens = {hook: hook(self.policy) for hook in hooks.SHOWN}
        self.guard = guard or self.guard
        self._fallback.reset(self.world, Key(self.seed))

    def watch_with(self, policy: DispatchPolicy | None, guard: Guard | None = None) -> None:
        """Ask a second policy the same from now on, and compare; None: no longer.

        Raises:
            PolicyError: it cannot begin; all is as before then.
        """
        self.shadow = (
            None if policy is None else Shadow(begin(policy, *self.given), guard or Guard(), self._worker_of)
        )

    @property
    def given(self) -> tuple[World, Key]:
        """What policies begin with."""
        return self.world, Key(self.seed)

    def _worker_of(self, decisions: Decisions) -> dict[Hashable, str]:
        worker, _ = _first(decisions)
        return {"stream": self.world.worker_names[worker]} if worker >= 0 else {}

    @property
    def faults(self) -> dict[str, int]:
        """What made the fallback decide, and how often."""
        return self.guard.faults

    def view(self, with_bound: bool = False) -> DispatchView:
        """What the policy may see now. Ledger arrays are copies: a view never changes later.

        Args:
            with_bound: list the bound streams too, as `tick` gets them.
        """
        bound = self.books.bound() if with_bound else None
        return self.loads.view(self.now_s, bound)

    def final(self, stream_id: int) -> bool:
        """Whether a stream is refused, and nobody will decide it anew."""
        why = self.refused.get(stream_id)
        again = self._retry or stream_id in self.stays
        return why is not None and bool(state.is_final(CODES[why], again))

    def handle(self, event: events.Event) -> list[events.Command]:
        """Apply one event and return what is to be done.

        Raises:
            ValueError: the event lies in the past, or names an unknown stream or worker.
        """
        self._reach(event.time_s)
        match event:
            case events.StreamOpened():
                item = Items.of(self.world, (event.stream,)).rows[0]
                if event.stream.source:
                    self.stays.add(item.id)
                self._open(item, event.worker)
                return [self.books.answer(item.id)]
            case events.StreamClosed():
                return self._close(event.stream_id)
            case events.Tick():
                return self._ticked()
            case events.WorkerChanged():
                return self._worker_changed(event)
            case events.ReservedElsewhere():
                state.reserve_elsewhere(self.loads.state, event.worker, event.load_qps)
                return []
            case events.LinkChanged():
                return self._link_changed(event)
            case events.Measured():
                self.loads.measured(event)
                self._show(hooks.observe_of)
                return []
        raise ValueError(f"unknown event {event!r}")

    def play(self, batch: Batch, rows: Rows, worker: Ints, reason: NDArray[np.int8]) -> None:
        """Apply many openings and closings; the same as handling them one by one, but compiled.

        Args:
            batch: events in order of time; their rows are streams.
            rows: the streams' needs.
            worker, reason: (N,) of all rows: where each is or was bound last (-1 nowhere) and why
                it was refused (0 when it was not); brought up to date.
        Raises:
            ValueError: as `handle`.
        """
        start, count = 0, batch.row.size
        while start < count:
            rest = Batch(batch.time_s[start:], batch.kind[start:], batch.row[start:])
            self._reach(float(rest.time_s[0]))
            score = self.compiled_score(float(rest.time_s[-1]))
            if score is not None:
                played = play(score, self.loads.state, self.loads.weights, rest, rows, worker, reason)
                self.now_s = float(rest.time_s[played - 1]) if played else self.now_s
                self.books.note(rest, played, rows, worker, reason)
                opened = rest.row[:played][rest.kind[:played] == OPEN]
                self.guard.questions += int(np.count_nonzero(reason[opened] == 0))
                start += played
            # Where compiled code stops (a score raised, or is NaN), plain Python decides and says why.
            if start < count:
                i, item = int(batch.row[start]), rows.item(int(batch.row[start]))
                self._reach(float(batch.time_s[start]))
                if batch.kind[start] == OPEN:
                    worker[i], reason[i] = self._open(item)
                else:
                    self._close(item.id)
                start += 1

    def compiled_score(self, until_s: float) -> Any | None:
        """What may decide in its place in compiled code up to a time; None: it is to be asked each time."""
        if self._why_not(until_s) is not None:
            return None
        if self._coded[0] is not self._score:
            self._coded = self._score, compiled(self._score)
        return self._coded[1]

    @property
    def heeds(self) -> bool:
        """Whether somebody is to be shown measurements as they come, or does not decide on old ones."""
        shown = self._listens[hooks.observe_of] is not None or self.shadow is not None
        return shown or (self._ages is not None and self._ages.max_age_s is not None)

    def adopt(self, view: DispatchView, bound: Bound) -> None:
        """Take over, at time 0, the streams and measurements of a view (for a twin).

        Args:
            bound: the streams get ids 0 … N-1 in this order.
        """
        self.loads.adopt(view, bound)
        for i, (worker, opened_s) in enumerate(zip(bound.worker.tolist(), bound.opened_s, strict=True)):
            item = bound.items.item(i)._replace(id=i)
            self.books.open(item, float(opened_s) - view.now_s)
            self.bindings[i] = worker

    def _reach(self, time_s: float) -> None:
        if time_s < self.now_s:
            raise ValueError(f"event at {time_s} s lies before {self.now_s} s: time must not go back")
        self.now_s = time_s

    def _ticked(self) -> list[events.Command]:
        self._suspended = False
        self._show(hooks.tick_of, with_bound=True)
        self._score = score_of(self.policy)
        return self._try_refused(everyone=self._retry) + self._leave(self.draining)

    def _try_refused(self, everyone: bool = True) -> list[events.Command]:
        """Decide refused streams anew, or those that stay; nothing is said of those that stay refused."""
        asking = [stream for stream in self.refused if everyone or stream in self.stays]
        asking.sort(key=lambda stream: -self.books.item(stream).priority)
        again = [c for stream_id in asking for c in self._again(stream_id)]
        return [command for command in again if isinstance(command, events.Bind)]

    def _worker_changed(self, event: events.WorkerChanged) -> list[events.Command]:
        worker = event.worker
        self.loads.change_worker(event)
        self.draining.discard(worker)
        if event.up:
            return self._try_refused()
        if event.drains:
            self.draining.add(worker)
            return self._leave({worker})
        return self._move([stream for stream, at in self.bindings.items() if at == worker])

    def _leave(self, workers: Set[int]) -> list[events.Command]:
        """Move streams of workers that are to go, one by one; whoever finds no room elsewhere stays."""
        commands: list[events.Command] = []
        for stream in [stream for stream, worker in self.bindings.items() if worker in workers]:
            item, former = self.books.item(stream), self.bindings[stream]
            self.loads.release(item, former)
            if self._place(item)[0] >= 0:
                commands += [events.Release(stream, former), self.books.answer(stream)]
            else:
                del self.refused[stream]
                self.loads.bind(item, former)
        return commands

    def _link_changed(self, event: events.LinkChanged) -> list[events.Command]:
        if self.loads.change_link(event):
            return []
        lost = [
            stream
            for stream, worker in self.bindings.items()
            if self.world.cluster[worker] == event.cluster and self.books.item(stream).site == event.site
        ]
        return self._move(lost)

    def _show(self, hook: hooks.Shown, with_bound: bool = False) -> None:
        """Show the policy the view, where it has the hook; the fallback decides when that fails."""
        if (listen := self._listens[hook]) is not None:
            view = self.view(with_bound)
            self._suspended |= not self.guard.tell(lambda: listen(view))
        if (shadow := self.shadow) is not None and (heed := hook(shadow.policy)) is not None:
            seen = self.view(with_bound)
            shadow.guard.tell(lambda: heed(seen))

    def _open(self, item: Item, kept: int | None = None) -> tuple[int, int]:
        """Take a new stream in and decide it, unless it keeps its worker: (worker, 0) or (-1, reason)."""
        self.books.open(item, self.now_s)
        if kept is not None:
            self.loads.weigh(item)
            if self.loads.weights.feasible[kept]:
                return self._bind(item, kept)
        return self._place(item)

    def _close(self, stream_id: int) -> list[events.Command]:
        commands = self._unbind(stream_id)
        self.books.forget(stream_id)
        self.stays.discard(stream_id)
        return commands

    def _again(self, stream_id: int) -> list[events.Command]:
        self._place(self.books.item(stream_id))
        return [self.books.answer(stream_id)]

    def _move(self, streams: list[int]) -> list[events.Command]:
        """Take streams off where they are, all of them first, and decide each anew."""
        commands = [c for stream in streams for c in self._unbind(stream)]
        return commands + [c for stream in streams for c in self._again(stream)]

    def _place(self, item: Item) -> tuple[int, int]:
        why = self._why_not(self.now_s)
        if why is not None:
            self.guard.blame(why)
        view = None if self.shadow is None else self.view()
        worker, reason = self._asked(item) if why is None else self._instead(item)
        if self.shadow is not None and view is not None:
            policy, seen, items = self.shadow.policy, view, Items((item,))
            decided, check = Decisions(np.array([worker])), partial(broken, seen, items)
            self.shadow.watch(lambda: policy.decide(seen, items), decided, self.now_s, check)
        if worker < 0:
            self.refused[item.id] = REASONS[Violation(reason) or Violation.POLICY]
            return -1, reason or int(Violation.POLICY)
        return self._bind(item, worker)

    def _asked(self, item: Item) -> tuple[int, int]:
        """The policy's decision, or the fallback's in its place."""
        score, guard, loads = self._score, self.guard, self.loads
        if score is None:
            view, items = self.view(), Items((item,))
            decisions = guard.ask(
                lambda: self.policy.decide(view, items),
                lambda: self._fallback.decide(view, items),
                partial(broken, view, items),
            )
            found = _first(decisions)
        elif reason := loads.weigh(item):
            return NOBODY, reason
        else:
            seed, violation, seen = loads.state.seed, loads.weights.violation, loads.candidates(self.now_s)
            found = guard.ask(
                lambda: (best_of(score, seen, item, seed, violation), 0), lambda: self._instead(item)
            )
        self._suspended |= guard.late
        return found

    def _instead(self, item: Item) -> tuple[int, int]:
        """The fallback's decision."""
        return _first(self._fallback.decide(self.view(), Items((item,))))

    def _why_not(self, now_s: float) -> str | None:
        """Why the policy is not asked at a time, if anything speaks against it."""
        if self._suspended:
            return "suspended until the next tick"
        max_age_s = self._ages.max_age_s if self._ages is not None else None
        stale = max_age_s is not None and now_s - self.loads.state.measured_s > max_age_s
        return "stale view" if stale else None

    def _bind(self, item: Item, worker: int) -> tuple[int, int]:
        self.refused.pop(item.id, None)
        self.bindings[item.id] = worker
        self.loads.bind(item, worker)
        return worker, int(Violation.NONE)

    def _unbind(self, stream_id: int) -> list[events.Command]:
        worker = self.bindings.pop(stream_id, None)
        if worker is None:
            return []
        item = self.books.item(stream_id)
        self.loads.release(item, worker)
        return [events.Release(stream_id, worker)]

    def validate(self) -> None:
        """Check every invariant of the ledger; tests call it at teardown."""
        bound = {stream: (self.books.item(stream), worker) for stream, worker in self.bindings.items()}
        check_ledger(self.world, self.loads.state, bound, self.draining)
        self.books.check()


def _first(decisions: Decisions) -> tuple[int, int]:
    """Worker, or -1, and the reason of a refusal, or 0."""
    return int(decisions.worker[0]), int(decisions.reason[0]) if decisions.reason.size else 0
