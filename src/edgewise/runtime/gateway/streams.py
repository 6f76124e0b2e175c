"""The streams of a gateway: opened by themselves or by the headers of a query, kept, closed when unused.

    POST   /v1/streams          open a stream: its needs as JSON → worker and lease, or 409, why, and whether
                                that is final
    GET    /v1/streams[/{id}]   what was opened and what became of it
    PUT    /v1/streams/{id}     renew its lease
    DELETE /v1/streams/{id}     close it

Nobody need say goodbye: a stream that is not used for the time of its lease is closed. Use is a query that
may be sent; a stream opened by itself can be renewed, too.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from edgewise.core.dispatch.views import REASONS, Violation
from edgewise.errors import ProtocolError
from edgewise.runtime import clock, http
from edgewise.runtime.gateway import needs
from edgewise.runtime.gateway.forwarding import Patience, Upstream, explain, where_is
from edgewise.runtime.gateway.granting import Granting
from edgewise.runtime.gateway.needs import Book, Key, known_as
from edgewise.runtime.gateway.session import Session
from edgewise.runtime.protocol.bodies import ClosedStream, Needs, OpenedStream, RenewedStream, read
from edgewise.runtime.protocol.messages import STREAM
from edgewise.runtime.protocol.shown_bodies import StreamShown


def _is_of_another(owner: str, client: str) -> bool:
    """Whether a stream is another client's alone."""
    return owner.startswith("@") and client != http.OPERATOR


log = logging.getLogger("edgewise.gateway")
MOST_CLOSED = 200  # for want of use, in one pass: each is written down


class LiveStreams:
    """Opens, keeps and closes them.

    Args:
        session, book: of the gateway.
        patience: leases.
        granting: confirms bindings; None where workers grant nothing.
        upstreams: the workers; the gateway's own list.
        max_streams, site: see `Gateway`.
    """

    def __init__(
        self,
        session: Session,
        book: Book,
        patience: Patience,
        granting: Granting | None,
        upstreams: Sequence[Upstream],
        *,
        max_streams: int,
        site: str | None,
    ) -> None:
        self.session, self.book, self.patience, self.granting = session, book, patience, granting
        self._max_streams, self._site = max_streams, site
        self._upstreams = upstreams
        self.used_s: dict[int, float] = {}  # of every open stream
        self._by_key: dict[Key, int] = {}  # those opened by headers
        self._keys: dict[int, Key] = {}

    async def handle(self, request: http.HttpRequest, rest: list[str]) -> http.Response | None:
        """Answer a request below /v1/streams; None to what is none of those in the module.

        Raises:
            ProtocolError: there is no such stream, or its needs are wrong.
        """
        client = request.client
        match request.method, rest:
            case "POST", []:
                stated = msgspec.to_builtins(read(request.body, Needs))
                return self._opened(await self._open(stated, None, client))
            case "GET", []:
                mine = [s for s, each in self.session.served.items() if client in (each.owner, http.OPERATOR)]
                return http.as_json([StreamShown(**self.session.stream_record(each)) for each in mine])
            case "GET", [number]:
                return http.as_json(StreamShown(**self.session.stream_record(self._id(number, client))))
            case "PUT", [number]:
                stream_id = self._id(number, client)
                self.renew(stream_id)
                return http.as_json(RenewedStream(stream_id, self._lease_s(stream_id)))
            case "DELETE", [number]:
                stream_id = self._id(number, client)
                self._close(stream_id)
                return http.as_json(ClosedStream(stream_id, True))
        return None

    async def of(self, request: http.HttpRequest, task: str, left_s: float) -> int:
        """The stream a query belongs to, opened now when its headers state new needs.

        Args:
            left_s: a worker that is asked to confirm the opening is waited for no longer.
        Raises:
            ProtocolError: there is none, or its needs are wrong.
        """
        headers, client = request.headers, request.client
        stated = headers.get(STREAM)
        if stated is not None:
            return self._id(stated, client, refused=True)
        key: Key = (task, *map(headers.get, needs.HEADERS))
        stream_id = self._by_key.get(key)
        if stream_id is None:
            if not any(key[1:]):
                return self._id("", client)
            found = needs.from_headers(headers, task, len(request.body))
            stream_id = await self._open(found, key, client, left_s)
            self._tell(stream_id)
        return stream_id

    def why(self, stream_id: int) -> str:
        """Why a stream is refused; tells workers that are down from those that do not take our token."""
        served, world = self.session.served[stream_id], self.session.world
        reason = served.reason or REASONS[Violation.POLICY]
        if reason == REASONS[Violation.TASK]:
            return f"task: {served.stream.task!r}: {reason}; use {' or '.join(sorted(world.task_names))}"
        pairs = zip(world.task, self._upstreams, strict=True)
        targets = [target for task, target in pairs if world.task_names[task] == served.stream.task]
        return explain(reason, targets)

    def renew(self, stream_id: int) -> None:
        """A stream is used."""
        self.used_s[stream_id] = clock.monotonic_s()

    def close_unused(self) -> None:
        """Close streams whose lease is over."""
        now_s = clock.monotonic_s()
        over = [s for s, used_s in self.used_s.items() if now_s - used_s > self._lease_s(s)]
        for stream_id in over[:MOST_CLOSED]:
            self._close(stream_id, f"not used for the {self._lease_s(stream_id):g} s of its lease")

    def restore(self) -> int:
        """Take over the book's streams under their numbers, with new leases; returns how many."""
        session, kept = self.session, self.book.kept()
        for opened in kept:
            if opened.id in session.served:
                continue
            try:
                stream = needs.to_stream(opened.needs, opened.id, session.world, session.clock())
            except ProtocolError as error:  # the scenario changed
                log.warning("stream dropped", extra={"stream": opened.id, "why": str(error)})
                self.book.closed(opened.id, None, {"reason": str(error)})
                continue
            names = session.world.worker_names
            was = known_as(opened.worker, names) if opened.worker else None
            session.open_stream(stream, None if was is None else names.index(was), opened.owner)
            session.served[opened.id].go_on(opened.outcome)
            self._note(opened.id, opened.key)
        return len(kept)

    async def _open(
        self, stated: dict[str, Any], key: Key | None, client: str, left_s: float | None = None
    ) -> int:
        """Open a client's stream and have its worker confirm it; returns its number.

        Raises:
            ProtocolError: too many, or the needs are wrong.
        """
        core, session = self.session.core, self.session
        if len(core.bindings) + len(core.refused) >= self._max_streams:
            raise ProtocolError(f"{self._max_streams} streams are open; close some", status=429)
        if self._site is not None:
            stated = {"site": self._site, **stated}
        checked = needs.to_stream(stated, 0, session.world, session.clock())
        stream_id = await self.book.opened(stated, key, client)
        if key is not None and key in self._by_key:  # a query with the same needs did not wait as long
            self.book.closed(stream_id, None, {})
            return self._by_key[key]
        session.open_stream(replace(checked, id=stream_id), owner=client)
        self._note(stream_id, key)
        if left_s is not None:
            left_s = min(left_s, checked.deadline_s)
        if self.granting is not None:
            try:
                await asyncio.wait([self.granting.settling(stream_id)], timeout=left_s)
            except asyncio.CancelledError:  # its client hung up and does not know its number
                self._close(stream_id)
                raise
        session.opened(stream_id)
        return self._id(str(stream_id), client)  # it may have been closed in the meantime

    def _opened(self, stream_id: int) -> http.Response:
        """What became of a stream that was opened by itself."""
        where = self._tell(stream_id)
        if where is not None:
            return http.as_json(OpenedStream(stream_id, self._lease_s(stream_id), **where), 201)
        session, reason = self.session, self.why(stream_id)
        final = (session.core.final if self.granting is None else self.granting.over)(stream_id)
        if final:
            session.refuse_for_good(stream_id)
            self._written_off(stream_id)
            then = "this is final: open another one later, or with other needs"
        else:
            asks = session.rules.retry_refused or stream_id in session.core.stays
            when = f"every {session.rules.window_s:g} s and " if asks else ""
            then = f"it is kept, and decided anew {when}when a worker comes up: GET /v1/streams/{stream_id}"
        return http.failure(409, f"refused: {reason}; {then}", stream=stream_id, reason=reason, final=final)

    def _tell(self, stream_id: int) -> dict[str, str] | None:
        """Log where a new stream is; None where it was refused."""
        worker = self.session.bound_to(stream_id)
        if worker is None:
            log.info("stream refused", extra={"stream": stream_id, "reason": self.why(stream_id)})
            return None
        where = where_is(self.session.world, worker)
        log.info("stream bound", extra={"stream": stream_id, **where})
        return where

    def _note(self, stream_id: int, key: Key | None) -> None:
        self.used_s[stream_id] = clock.monotonic_s()
        if key is not None:
            self._by_key[key], self._keys[stream_id] = stream_id, key

    def _lease_s(self, stream_id: int) -> float:
        return self.patience.idle_stream_s if stream_id in self._keys else self.patience.lease_s

    def _close(self, stream_id: int, reason: str | None = None) -> None:
        self.session.close_stream(stream_id, reason)
        self._written_off(stream_id)
        if self.granting is not None:
            self.granting.settling(stream_id)  # gives its share back
        log.info("stream closed", extra={"stream": stream_id, **({"why": reason} if reason else {})})

    def _written_off(self, stream_id: int) -> None:
        """A stream is closed: no trace of it is left but its records."""
        if self.granting is not None:
            self.granting.closed(stream_id)
        row = self.session.stream_record(stream_id)
        self.book.closed(stream_id, row["worker"], self.session.outcome(stream_id))
        del self.used_s[stream_id]
        if (key := self._keys.pop(stream_id, None)) is not None:
            del self._by_key[key]

    def _id(self, text: str, client: str, refused: bool = False) -> int:
        """Number of an open stream that a client may use; with `refused`, also of one refused for good.

        A stream of a client with a name is that client's alone. Others are for whoever knows their numbers,
        which cannot be guessed: the same client may come from several addresses.

        Raises:
            ProtocolError: it names none; status 404.
        """
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1
        served = self.session.served.get(number)
        if served is not None and served.owner != client and _is_of_another(served.owner, client):
            served = None
        if served is not None and (served.close_s is None or (refused and served.final)):
            return number
        why = f": {served.reason}" if served is not None and served.reason else ""
        raise ProtocolError(
            f"{STREAM}: {text!r} is no open stream{why}; open one with POST /v1/streams", status=404
        )
