"""The worker's queue: bounded, by priority, then first come first served or by deadline, run in batches.

A query may leave the queue in four ways: it is run; its deadline passes first (504, not run);
a query of higher priority needs its place in a full queue (429); its client hangs up.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from edgewise.errors import ProtocolError
from edgewise.runtime.metrics import WorkerMetrics
from edgewise.runtime.onnx_model import batch_key
from edgewise.runtime.protocol import InferRequest, InferResponse
from edgewise.runtime.tracing import OFF, Tracing

QUICK_S = 3e-4  # a run this short costs less than handing it to a thread and back
LONG_S = 2e-3  # a run counts as at most this in the mean: one that the machine interrupts does not outweigh
WEIGHT = 0.05  # of the last run in the mean
EXPIRED = "deadline passed while waiting; not run"
SMALL_BYTES = 16 * 2**10  # what was quick with small tensors need not be with large ones
Run = Callable[[Sequence[InferRequest]], list[InferResponse | ProtocolError]]


@dataclass(slots=True, order=True)
class _Waiting:
    order: tuple[int, float, int]  # (-priority, deadline or 0, arrival): the heap's key
    request: InferRequest = field(compare=False)
    expires_s: float = field(compare=False)
    queued_s: float = field(compare=False)
    rows: int = field(compare=False)
    key: tuple[object, ...] | None = field(compare=False)
    answer: asyncio.Future[InferResponse] = field(compare=False)
    span: Any = field(compare=False)


class Batcher:
    """Runs queries one batch at a time in its own thread; quick and small ones without it.

    Args:
        run: runs a batch; called in the thread.
        metrics: told about waiting, batches and runs.
        max_queue: queries that may wait or run.
        max_batch: rows run together; 1 runs every query alone.
        batch_timeout_s: how long the first query waits for others to fill a batch.
        clock: tells how long a run takes in the thread: the thread's CPU time, where runs do nothing but
            compute. It leaves out the wait for the interpreter, which a run in place does not have.
        by_deadline: of one priority, the query that expires first is run first.
        tracing: records what a query did here: "queue", then "run".
    Attributes:
        queued: queries waiting or running.
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
        by_deadline: bool = False,
        tracing: Tracing = OFF,
    ) -> None:
        self.queued = 0
        self.draining = False
        self._run, self._metrics, self._clock, self._tracing = run, metrics, clock, tracing
        self._by_deadline = by_deadline
        self._max_queue, self._max_batch, self._timeout_s = max_queue, max_batch, batch_timeout_s
        self._fills_no_batch = max_batch == 1 or batch_timeout_s == 0.0
        self._run_s = QUICK_S  # mean of the last runs; which side it is on is yet to be seen
        self._heap: list[_Waiting] = []
        self._arrivals = 0
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="onnx")

    async def submit(self, request: InferRequest, expires_s: float, priority: int = 0) -> InferResponse:
        """Queue a query and wait for its answer.

        Args:
            request: checked against the model.
            expires_s: `time.monotonic()` after which nobody wants the answer.
            priority: larger goes first.
        Raises:
            ProtocolError: 429 queue full or displaced, 503 draining, 504 expired, 400 not runnable.
        """
        if self.draining:
            raise ProtocolError("draining", status=503)
        if not self.queued and self._fills_no_batch and self._is_quick((request,)):
            return self._run_at_once(request, expires_s)
        if self.queued >= self._max_queue:
            self._displace(priority)
        key = batch_key(request) if self._max_batch > 1 else None
        rows = len(next(iter(request.inputs.values()))) if key else self._max_batch
        answer = asyncio.get_running_loop().create_future()
        self._arrivals += 1
        order = (-priority, expires_s if self._by_deadline else 0.0, self._arrivals)
        now_s, span = time.monotonic(), self._tracing.here()
        heapq.heappush(self._heap, _Waiting(order, request, expires_s, now_s, rows, key, answer, span))
        self.queued += 1
        self._changed.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())
        try:
            return await answer  # type: ignore[no-any-return]
        finally:
            self.queued -= 1

    async def drain(self) -> None:
        """Take no more queries and finish those accepted."""
        self.draining = True
        self._changed.set()
        while self.queued:
            await asyncio.sleep(0.002)
        self._thread.shutdown()

    def _is_quick(self, requests: Sequence[InferRequest]) -> bool:
        """Whether to run them in place; handing them to the thread would cost more."""
        if self._run_s >= QUICK_S:
            return False
        arrays = (array for request in requests for array in request.inputs.values())
        return sum([array.nbytes for array in arrays]) <= SMALL_BYTES

    def _run_at_once(self, request: InferRequest, expires_s: float) -> InferResponse:
        began_s = time.monotonic()
        if began_s > expires_s:
            raise ProtocolError(EXPIRED, 504)
        (answer,) = self._timed((request,), time.perf_counter)
        self._noted(began_s, ((began_s, self._tracing.here()),))
        if isinstance(answer, ProtocolError):
            raise answer
        return answer

    def _timed(
        self, requests: Sequence[InferRequest], clock: Callable[[], float]
    ) -> list[InferResponse | ProtocolError]:
        """Run them, and remember how long that takes."""
        began_s = clock()
        try:
            return self._run(requests)
        finally:
            self._run_s += WEIGHT * (min(clock() - began_s, LONG_S) - self._run_s)

    def _noted(self, began_s: float, queries: Sequence[tuple[float, Any]]) -> None:
        """Metrics and spans of a batch that has just run; when each query was queued, and in which span."""
        ended_s = time.monotonic()
        self._metrics.ran(ended_s - began_s, [began_s - queued_s for queued_s, _ in queries])
        for queued_s, span in queries if self._tracing.on else ():
            self._tracing.past("queue", span, queued_s, began_s)
            self._tracing.past("run", span, began_s, ended_s)

    def _displace(self, priority: int) -> None:
        last = max(self._heap, default=None)
        if last is None or -last.order[0] >= priority:
            raise ProtocolError(f"queue full: {self._max_queue} queries wait or run", status=429)
        self._heap.remove(last)
        heapq.heapify(self._heap)
        _fail(last, ProtocolError("queue full: a query of higher priority took the place", status=429))

    async def _work(self) -> None:
        while self._heap:
            await self._fill()
            batch = self._take()
            if batch:
                await self._execute(batch)
        self._task = None

    async def _fill(self) -> None:
        """Wait until a batch is full, or its first query has waited long enough."""
        first = min(waiting.queued_s for waiting in self._heap)
        until = first + self._timeout_s
        while self._max_batch > 1 and not self.draining and self._heap:
            left = until - time.monotonic()
            if left <= 0 or sum(waiting.rows for waiting in self._heap) >= self._max_batch:
                return
            self._changed.clear()
            timer = asyncio.get_running_loop().call_later(left, self._changed.set)
            await self._changed.wait()
            timer.cancel()

    def _take(self) -> list[_Waiting]:
        """The next batch: the head of the queue, and those right behind it that fit with it."""
        batch: list[_Waiting] = []
        rows, now_s = 0, time.monotonic()
        while self._heap:
            head = self._heap[0]
            if head.answer.done():
                heapq.heappop(self._heap)  # its client hung up
                continue
            if now_s > head.expires_s:
                _fail(heapq.heappop(self._heap), ProtocolError(EXPIRED, 504))
                continue
            fits = head.key is not None and head.key == batch[0].key if batch else True
            if not fits or (batch and rows + head.rows > self._max_batch):
                break
            batch.append(heapq.heappop(self._heap))
            rows += head.rows
        return batch

    async def _execute(self, batch: list[_Waiting]) -> None:
        started_s = time.monotonic()
        requests = [waiting.request for waiting in batch]
        try:
            if self._is_quick(requests):
                await asyncio.sleep(0)  # others have their turn
                answers = self._timed(requests, time.perf_counter)
            else:
                loop = asyncio.get_running_loop()
                answers = await loop.run_in_executor(self._thread, self._timed, requests, self._clock)
        except Exception as error:  # a bug in `run` must not leave clients waiting
            for waiting in batch:
                _fail(waiting, error)
            return
        self._noted(started_s, [(waiting.queued_s, waiting.span) for waiting in batch])
        for waiting, answer in zip(batch, answers, strict=True):
            if isinstance(answer, ProtocolError):
                _fail(waiting, answer)
            elif not waiting.answer.done():
                waiting.answer.set_result(answer)


def _fail(waiting: _Waiting, error: Exception) -> None:
    if not waiting.answer.done():
        waiting.answer.set_exception(error)
