"""The worker's queue: bounded, by priority, then first come first served or as asked for, run in batches.

A query may leave the queue in four ways: it is run; its deadline passes first (504, not run);
a query of higher priority needs its place in a full queue (429); its client hangs up.
"""

import asyncio
import heapq
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from edgewise.errors import ProtocolError
from edgewise.runtime import clock
from edgewise.runtime.http.messages import Later
from edgewise.runtime.protocol.messages import InferRequest, InferResponse
from edgewise.runtime.watch.metrics import WorkerMetrics
from edgewise.runtime.watch.tracing import OFF, Tracing
from edgewise.runtime.worker.onnx_model import batch_key

QUICK_S = 3e-4  # a run this short costs less than handing it to a thread and back
LONG_S = 2e-3  # a run counts as at most this in the mean: one that the machine interrupts does not outweigh
WEIGHT = 0.05  # of the last run in the mean
TURN_S = 1e-3  # quick runs go on for this long before others have their turn
EXPIRED = "deadline passed while waiting; not run"
SMALL_BYTES = 16 * 2**10  # what was quick with small tensors need not be with large ones
Answers = list[InferResponse | ProtocolError]
Run = Callable[[Sequence[InferRequest]], Answers]


@dataclass(slots=True, eq=False)
class _Waiting:
    request: InferRequest
    expires_s: float
    queued_s: float
    rows: int
    small: bool
    key: tuple[object, ...] | None
    answer: Later[InferResponse]
    span: Any


_Entry = tuple[int, float, int, _Waiting]  # -priority, order, arrival: the heap's order


class Line:
    """One server behind several batchers: it runs one batch at a time, of the queue whose head goes first.

    Attributes:
        members: the batchers.
        busy: whether a batch runs.
        busy_s: how long batches ran so far.
        soon: whether the queues are looked at in the next turn of the event loop.
        arrivals: queries so far.
        thread: where batches run that are not quick.
    """

    def __init__(self) -> None:
        self.members: list[Batcher] = []
        self.busy, self.busy_s, self.soon, self.arrivals = False, 0.0, False, 0
        self._turn: asyncio.Handle | None = None  # when the queues are looked at next
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="onnx")

    @property
    def queued(self) -> int:
        """Queries of all members that wait or run."""
        return sum([member.queued for member in self.members])

    def look(self) -> None:
        """See to it that what waits is run when it is due; while a batch runs, it is not."""
        if self._turn is not None:
            self._turn.cancel()
        self._turn, self.soon = None, False
        if self.busy or not (left_s := [member.left_s() for member in self.members if member.waits]):
            return
        loop, least_s = asyncio.get_running_loop(), min(left_s)
        self.soon = least_s <= 0.0
        self._turn = loop.call_soon(self._go) if self.soon else loop.call_later(least_s, self._go)

    def _go(self) -> None:
        """Run what is due."""
        until_s = clock.monotonic_s() + TURN_S
        while not self.busy and clock.monotonic_s() < until_s:
            due = [member for member in self.members if member.waits and member.left_s() <= 0.0]
            if not due:
                break
            min(due, key=lambda member: member.head).run_next()
        self.look()  # in any case: whoever got an answer may have asked again, and set another turn


class Batcher:
    """Runs queries one batch at a time: quick and small ones in place, the others in its own thread.

    Queries that come in the same turn of the event loop are queued before any is run. A batch can so be
    made of them without a wait, and their answers go out together.

    Args:
        run: runs a batch; called in the thread.
        metrics: told about waiting, batches and runs.
        max_queue: queries that may wait or run.
        max_batch: rows run together; 1 runs every query alone.
        batch_timeout_s: how long a query waits for others to fill a batch; at most half of its time.
        clock: tells how long a run takes in the thread: the thread's CPU time, where runs do nothing but
            compute. It leaves out the wait for the interpreter, which a run in place does not have.
        line: shared with other batchers that have the same server; None: a server of its own.
        tracing: records what a query did here: "queue", then "run".
    Attributes:
        draining: whether no more queries are taken.
    """

    def __init__(
        self,
        run: Run,
        metrics: WorkerMetrics,
        *,
        max_queue: int = 64,
        max_batch: int = 1,
        batch_timeout_s: float = 0.0,
        clock: Callable[[], float] = time.perf_counter,
        line: Line | None = None,
        tracing: Tracing = OFF,
    ) -> None:
        self.draining = False
        self._run, self._metrics, self._clock, self._tracing = run, metrics, clock, tracing
        self._line = Line() if line is None else line
        self._line.members.append(self)
        self._max_queue, self._max_batch, self._timeout_s = max_queue, max_batch, batch_timeout_s
        self._run_s = QUICK_S  # mean of the last runs; which side it is on is yet to be seen
        self._heap: list[_Entry] = []
        self._running = 0

    @property
    def queued(self) -> int:
        """Queries waiting or running."""
        return len(self._heap) + self._running

    @property
    def busy_s(self) -> float:
        """How long its server has worked, for all that share it."""
        return self._line.busy_s

    @property
    def waits(self) -> bool:
        """Whether a query waits."""
        return bool(self._heap)

    @property
    def head(self) -> tuple[int, float, int]:
        """Place in the line of the first that waits; there is one."""
        return self._heap[0][:3]

    async def submit(
        self, request: InferRequest, expires_s: float, priority: int = 0, order: float = 0.0
    ) -> InferResponse:
        """Queue a query and wait for its answer.

        Args:
            request: checked against the model.
            expires_s: `runtime.clock.monotonic_s` after which nobody wants the answer.
            priority: larger goes first.
            order: of one priority, smaller goes first; of one order, whoever came first.
        Raises:
            ProtocolError: 429 queue full or displaced, 503 draining, 504 expired, 400 not runnable.
        """
        if self.draining:
            raise ProtocolError("draining", status=503)
        last = self._displace(priority) if self.queued >= self._max_queue else None
        key = batch_key(request) if self._max_batch > 1 else None
        rows = len(next(iter(request.inputs.values()))) if key else self._max_batch
        answer: Later[InferResponse] = Later()
        small = sum([array.nbytes for array in request.inputs.values()]) <= SMALL_BYTES
        now_s, span = clock.monotonic_s(), self._tracing.here()
        waiting = _Waiting(request, expires_s, now_s, rows, small, key, answer, span)
        self._line.arrivals += 1
        entry = (-priority, order, self._line.arrivals, waiting)
        heapq.heappush(self._heap, entry)
        if last is not None:  # only now: whoever hears it may ask again from here
            _fail(last, ProtocolError("queue full: a query of higher priority took the place", status=429))
        if not self._line.soon:
            self._line.look()
        try:
            return await answer
        except asyncio.CancelledError:  # its client hung up
            if entry in self._heap:
                self._remove(entry)
            raise

    async def drain(self) -> None:
        """Take no more queries and finish those accepted."""
        self.draining = True
        self._line.look()
        while self._line.queued:
            await asyncio.sleep(0.002)
        self._line.thread.shutdown()

    def left_s(self) -> float:
        """Time until the queue is due: a batch is full, or a query has waited long enough.

        That is `batch_timeout_s`, or half of the time that it had: the other half is for its run.
        """
        if self._timeout_s == 0.0 or self.draining or self._max_batch == 1:
            return 0.0
        if sum([waiting.rows for *_, waiting in self._heap]) >= self._max_batch:
            return 0.0
        limit_s = 2.0 * self._timeout_s
        due_s = [w.queued_s + 0.5 * min(limit_s, w.expires_s - w.queued_s) for *_, w in self._heap]
        return min(due_s) - clock.monotonic_s()

    def run_next(self) -> None:
        """Run the next batch, in place or in the thread."""
        batch = self._take()
        # One that is quick costs less here than handing it to the thread.
        quick = self._run_s < QUICK_S and all([waiting.small for waiting in batch])
        if batch and not quick:
            self._hand_over(batch)
        elif batch:
            began_s = self._begin(batch)
            self._finish(batch, began_s, partial(self._timed, batch, time.perf_counter))

    def _hand_over(self, batch: list[_Waiting]) -> None:
        """Run a batch in the thread."""

        def ended(done: asyncio.Future[Answers]) -> None:
            self._finish(batch, began_s, done.result)
            self._line.look()

        began_s, loop = self._begin(batch), asyncio.get_running_loop()
        loop.run_in_executor(self._line.thread, self._timed, batch, self._clock).add_done_callback(ended)

    def _begin(self, batch: Sequence[_Waiting]) -> float:
        """Take the server; when."""
        self._running, self._line.busy = len(batch), True
        return clock.monotonic_s()

    def _timed(self, batch: Sequence[_Waiting], clock: Callable[[], float]) -> Answers:
        """Run it, and remember how long that takes."""
        began_s = clock()
        try:
            return self._run([waiting.request for waiting in batch])
        finally:
            self._run_s += WEIGHT * (min(clock() - began_s, LONG_S) - self._run_s)

    def _finish(self, batch: Sequence[_Waiting], began_s: float, result: Callable[[], Answers]) -> None:
        """Tell the askers; metrics and spans."""
        try:
            answers = result()
        except Exception as error:  # a bug in `run` must not leave clients waiting
            self._running, self._line.busy = 0, False
            for waiting in batch:
                _fail(waiting, error)
            return
        self._running, self._line.busy = 0, False
        ended_s = clock.monotonic_s()
        self._line.busy_s += ended_s - began_s
        self._metrics.ran(ended_s - began_s, [began_s - waiting.queued_s for waiting in batch])
        for waiting in batch if self._tracing.on else ():
            self._tracing.past("queue", waiting.span, waiting.queued_s, began_s)
            self._tracing.past("run", waiting.span, began_s, ended_s)
        for waiting, answer in zip(batch, answers, strict=True):
            if isinstance(answer, ProtocolError):
                _fail(waiting, answer)
            elif not waiting.answer.done():
                waiting.answer.set_result(answer)

    def _displace(self, priority: int) -> _Waiting:
        """Take the last query out of a full queue, where its priority is lower."""
        last = max(self._heap, default=None)
        if last is None or -last[0] >= priority:
            raise ProtocolError(f"queue full: {self._max_queue} queries wait or run", status=429)
        self._remove(last)
        return last[-1]

    def _remove(self, entry: _Entry) -> None:
        self._heap.remove(entry)
        heapq.heapify(self._heap)

    def _take(self) -> list[_Waiting]:
        """The next batch: the head of the queue, and those right behind it that fit with it."""
        batch: list[_Waiting] = []
        rows, now_s = 0, clock.monotonic_s()
        while self._heap:
            head = self._heap[0][-1]
            if now_s > head.expires_s:
                heapq.heappop(self._heap)
                _fail(head, ProtocolError(EXPIRED, 504))
                continue
            fits = not batch or (head.key is not None and head.key == batch[0].key)
            if not fits or (batch and rows + head.rows > self._max_batch):
                break
            heapq.heappop(self._heap)
            batch.append(head)
            rows += head.rows
        return batch


def _fail(waiting: _Waiting, error: Exception) -> None:
    if not waiting.answer.done():
        waiting.answer.set_exception(error)
