"""One query of a stream on its way through a gateway: within its rate, to its stream's worker, and judged."""

from collections.abc import Sequence
from typing import Protocol

from edgewise.core.dispatch.request_rules import goes_again
from edgewise.core.dispatch.views import REASONS, Violation
from edgewise.errors import ProtocolError
from edgewise.runtime import http
from edgewise.runtime.gateway.forwarding import LONGEST_S, LOST, Destination, LiveQuery, Upstream
from edgewise.runtime.gateway.session import Session
from edgewise.runtime.gateway.streams import LiveStreams
from edgewise.runtime.protocol.messages import PRIORITY, STREAM, remaining_s
from edgewise.runtime.watch.metrics import GatewayMetrics


class Front(Protocol):
    """The gateway that has it.

    Attributes:
        session, streams, upstreams, metrics: see `Gateway`.
    """

    session: Session
    streams: LiveStreams
    metrics: GatewayMetrics

    @property
    def upstreams(self) -> Sequence[Upstream]:
        """The workers."""

    def worker_changed(self, worker: int, up: bool) -> None:
        """A worker was seen to go down or come up."""


class StreamWork:
    """One query of a stream on its way."""

    __slots__ = ("_gateway", "_request", "_sent_s", "_session", "_stream_id", "_task", "_worker")

    def __init__(self, gateway: Front, request: http.HttpRequest, task: str) -> None:
        self._gateway, self._session, self._request, self._task = gateway, gateway.session, request, task
        self._stream_id = self._worker = -1
        self._sent_s = 0.0

    async def choose(self, query: LiveQuery) -> Destination | http.Response:
        """Its stream's worker.

        Raises:
            ProtocolError: there is no such stream, or its needs are wrong.
        """
        session, world = self._session, self._session.world
        if self._worker < 0:
            left_s = remaining_s(self._request.headers)
            self._stream_id = await self._gateway.streams.of(
                self._request, self._task, min(left_s, LONGEST_S)
            )
            if (refused := self._begin(query, left_s)) is not None:
                return refused
        worker = session.bound_to(self._stream_id)
        if worker is None:
            return self._reject()
        session.query_sent(worker)
        self._worker = worker
        site = session.served[self._stream_id].stream.site
        names = world.worker_names[worker], world.variant_names[worker]
        return Destination(self._gateway.upstreams[worker], *names, site, int(world.cluster[worker]))

    def lost(self, tried: int, left_s: float) -> bool:
        """Who had it is lost: its stream moves, where there is another worker, and it may go there."""
        self._gateway.worker_changed(self._worker, False)
        bound = self._session.bound_to(self._stream_id)
        return goes_again(tried, left_s, self._worker, -1 if bound is None else bound)

    def returned(
        self, answer: http.Response | None, there_s: float | None, back_s: float, lost: bool
    ) -> None:
        """It came back: judge it, unless it goes elsewhere.

        Args:
            answer: None when nobody waits for it any more.
            there_s: how long it was there; None where it was not answered.
            back_s: way that the answer has yet to go.
            lost: who had it is, and it goes elsewhere.
        """
        session, worker = self._session, self._worker
        if lost:
            session.came_back(worker, None)
            return
        if answer is not None and answer.status in LOST:
            session.query_unserved(self._stream_id)
        session.query_done(self._stream_id, worker, self._sent_s, there_s, back_s)
        self._gateway.metrics.delays[worker].observe(session.clock() - self._sent_s)

    def ended(self, answer: http.Response | None) -> None:
        """It was judged when it came back."""

    def _begin(self, query: LiveQuery, left_s: float) -> http.Response | None:
        """Why it is not sent, if so."""
        session, streams, task, stream_id = self._session, self._gateway.streams, self._task, self._stream_id
        stream = session.served[stream_id].stream
        if stream.task != task:
            raise ProtocolError(f"{STREAM}: stream {stream_id} needs {stream.task!r}, not {task!r}")
        query.stream_id = stream_id
        query.size_bytes = stream.size_bytes
        if stream.source:  # it stays, and its queries ask again
            streams.renew(stream_id)
        if session.bound_to(stream_id) is None:
            return self._reject()
        if (wait_s := session.query_wait_s(stream_id)) > 0.0:
            why = f"stream {stream_id} sends more than the {stream.rate_qps:g}/s that it declared"
            return http.failure(429, why, stream=stream_id, retry_after_s=wait_s)
        streams.renew(stream_id)
        query.expires_s = query.received_s + min(stream.deadline_s, left_s)
        if stream.priority:
            query.headers[PRIORITY] = str(stream.priority)
        self._sent_s = session.clock()
        return None

    def _reject(self) -> http.Response:
        stream_id = self._stream_id
        self._session.query_rejected(stream_id)
        status = 503 if self._session.served[stream_id].reason == REASONS[Violation.DOWN] else 409
        reason = self._gateway.streams.why(stream_id)
        return http.failure(status, f"refused: {reason}", stream=stream_id, reason=reason)
