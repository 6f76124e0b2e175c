"""One client's connection to the HTTP/1.1 server: its requests are answered one after another, in order."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Coroutine
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any, cast

import httptools

from edgewise.errors import ProtocolError
from edgewise.runtime import clock
from edgewise.runtime.http.messages import (
    Bodies,
    Handler,
    HttpRequest,
    Later,
    Limits,
    Response,
    address_of,
    failure,
    header_name,
    in_time,
    rest_of,
    use_large_buffers,
    write_response,
)

log = logging.getLogger("edgewise.http")


@dataclass(slots=True)
class OfServer:
    """What the connections of one server share.

    Attributes:
        at_once: see `serve`.
        bodies: those that are held.
        open: connections, as they come and go.
    """

    handler: Handler
    limits: Limits
    at_once: bool
    bodies: Bodies
    open: "set[ClientConnection]" = field(default_factory=set)


class ClientConnection(asyncio.Protocol):
    """One client connection: httptools calls the on_… methods, asyncio the others.

    Requests are handled one at a time; those that came in the meantime wait in `_waiting`.

    Attributes:
        transport: to the client.
    """

    def __init__(self, shared: OfServer) -> None:
        self._shared = shared
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[tuple[HttpRequest | Response, bool, bool]] = deque()
        self.transport: asyncio.Transport
        self._owed: asyncio.Task[None] | Later[Any] | None = None  # what the answer waits for
        self._refused = False  # nothing more is read
        self._blocked = False  # the client does not read its answers
        self._ending = False  # close once nothing is owed
        self._since_s = self._heard_s = clock.monotonic_s()  # the current state began; a byte came
        self._heard = False  # since the last sweep
        self._held_bytes = self._owed_bytes = 0  # of bodies: all, and of the request that is answered now
        self._reading = False  # a request has begun and is not complete
        self.on_message_begin()
        self._reading = False

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a client in, unless too many are there."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        use_large_buffers(transport)
        self._client = address_of((transport.get_extra_info("peername") or ("",))[0])
        self._shared.open.add(self)
        if len(self._shared.open) > self._shared.limits.connections:
            self._refuse(failure(503, "too many connections"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget what is owed: nobody waits for it."""
        self._shared.open.discard(self)
        self._waiting.clear()
        self._release(self._held_bytes)
        if isinstance(self._owed, asyncio.Task):  # nobody waits for the answer
            asyncio.get_running_loop().call_soon(self._owed.cancel)  # after the first step of a task made now
        elif self._owed:
            self._owed.cancel()

    def eof_received(self) -> bool:
        """Whether to go on writing to a client that says no more."""
        self._ending = True
        secure = self.transport.get_extra_info("sslcontext") is not None  # with TLS it is the end
        return self.busy and not secure  # half-closed: the answers are still wanted

    def pause_writing(self) -> None:
        """The client does not read its answers."""
        self._blocked, self._since_s = True, clock.monotonic_s()

    def resume_writing(self) -> None:
        """It reads again."""
        self._blocked, self._since_s = False, clock.monotonic_s()
        self._next()

    def data_received(self, data: bytes) -> None:
        """Read on."""
        self._heard = True
        in_head = self._reading and not self._head_done
        while data and not self._refused:
            try:
                self._parser.feed_data(data)
                if in_head and not self._head_done:  # one header without end reaches no callback
                    self._count_head(len(data))
                break
            except ProtocolError as error:
                return self._refuse(failure(error.status, str(error)))
            except httptools.HttpParserUpgrade as upgrade:
                data = self._without_upgrade() + data[upgrade.args[0] :]
            except httptools.HttpParserError as error:
                cause = error.__context__
                if isinstance(cause, ProtocolError):
                    return self._refuse(failure(cause.status, str(cause)))
                return self._refuse(failure(400, f"not HTTP: {error}"))
        self._next()

    # httptools' side

    def on_message_begin(self) -> None:
        """A request begins."""
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._head_bytes = self._body_bytes = 0
        self._head_done, self._reading, self._since_s = False, True, clock.monotonic_s()

    def on_url(self, url: bytes) -> None:
        """A piece of its target."""
        self._count_head(len(url))
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, or a trailer."""
        self._head_bytes += len(name) + len(value) + 4  # judged when they are complete
        if self._head_done:
            return self._count_head(0)  # trailers may not change what was checked
        key, text, headers = header_name(name), value.decode("latin-1"), self._headers
        headers[key] = f"{headers[key]}, {text}" if key in headers else text

    def on_headers_complete(self) -> None:
        """Refuse what its head alone forbids."""
        self._count_head(0)
        self._head_done = True
        self._method = self._parser.get_method().decode("latin-1")
        self._alive = self._parser.should_keep_alive()
        if self._method == "CONNECT":
            raise ProtocolError("CONNECT: this is no proxy", status=405)
        length, most = self._headers.get("content-length", "0"), self._shared.limits.body_bytes
        if len(length) > 18 or int(length) > most:
            raise ProtocolError(f"body: more than {most} bytes", status=413)
        expect = self._headers.get("expect")
        if expect is not None and expect.lower() != "100-continue":
            raise ProtocolError(f"expect: {expect!r} is not supported", status=417)
        if expect is not None and self._owed is None and not self._waiting:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """A piece of its body."""
        self._body_bytes += len(body)
        if self._body_bytes > self._shared.limits.body_bytes:
            raise ProtocolError(f"body: more than {self._shared.limits.body_bytes} bytes", status=413)
        self._shared.bodies.take(len(body))
        self._held_bytes += len(body)
        self._body.append(body)

    def on_message_complete(self) -> None:
        """It is complete, and waits for its turn."""
        if self._refused or (self._parser.should_upgrade() and self._has_body):
            return
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        path = self._url.split(b"?", 1)[0].decode("latin-1")
        if path.startswith("http"):  # absolute form, as proxies send it
            path = "/" + path.partition("://")[2].partition("/")[2]
        head_only = self._method == "HEAD"
        self._body, self._reading = [], False
        method = "GET" if head_only else self._method
        request = HttpRequest(method, path, self._headers, body, self._since_s, self._client)
        self._waiting.append((request, self._alive, head_only))
        if len(self._waiting) > self._shared.limits.pipelined:
            self.transport.pause_reading()

    @property
    def _has_body(self) -> bool:
        return "transfer-encoding" in self._headers or self._headers.get("content-length", "0") != "0"

    def _without_upgrade(self) -> bytes:
        """Go on with HTTP/1.1, as we offer nothing else; where there is a body, its head is read again."""
        self._parser = httptools.HttpRequestParser(self)
        if not self._has_body:
            return b""
        lines = [f"{self._method} {self._url.decode('latin-1')} HTTP/1.1"]
        lines += [
            f"{k}: {v}" for k, v in self._headers.items() if k not in ("upgrade", "connection", "expect")
        ]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self._shared.limits.header_bytes:
            raise ProtocolError(f"headers: more than {self._shared.limits.header_bytes} bytes", status=431)

    # answering

    def _refuse(self, answer: Response) -> None:
        """Answer what cannot be read, after those before it, and hear no more."""
        if self._reading:
            self._release(sum(map(len, self._body)))
        self._refused, self._body = True, []
        self._waiting.append((answer, False, False))
        self._next()

    def _next(self) -> None:
        """Answer what waits: one now, and the next when other connections had their turn."""
        if self._waiting and self._owed is None and not self._blocked:
            work, alive, head_only = self._waiting.popleft()
            if isinstance(work, Response):
                self._send(work, alive, head_only)
            else:
                self._owed_bytes = len(work.body)
                self._begin(_call(self._shared.handler, work), alive, head_only)
            if self._waiting and self._owed is None:
                asyncio.get_running_loop().call_soon(self._next)
        if len(self._waiting) <= self._shared.limits.pipelined // 2 and not self.transport.is_closing():
            self.transport.resume_reading()

    def _begin(self, coming: Coroutine[Any, Any, Response], alive: bool, head_only: bool) -> None:
        context = copy_context()
        if self._shared.at_once:
            self._go_on(coming, context, alive, head_only)
        else:
            self._hand_over(coming, context, alive, head_only)

    def _go_on(
        self, coming: Coroutine[Any, Any, Response], context: Context, alive: bool, head_only: bool
    ) -> None:
        """Run a handler up to where it waits; for anything but a `Later`, a task does the rest."""
        self._owed = None
        try:
            waits_for = context.run(coming.send, None)
        except StopIteration as done:
            return self._send(done.value, alive, head_only)
        except asyncio.CancelledError:  # the client hung up, or what it waited for was given up
            return self.transport.close()
        if not isinstance(waits_for, Later):
            return self._hand_over(rest_of(coming, waits_for), context, alive, head_only)

        def resume() -> None:
            try:
                self._go_on(coming, context, alive, head_only)
                if self._waiting and self._owed is None:
                    self._next()
            except Exception:  # whoever gave the answer has others to give
                log.exception("an answer could not be sent")
                self.transport.abort()

        self._owed, waits_for.then = waits_for, resume

    def _hand_over(
        self, coming: Coroutine[Any, Any, Response], context: Context, alive: bool, head_only: bool
    ) -> None:
        answering = self._answer(coming, alive, head_only)
        self._owed = asyncio.get_running_loop().create_task(answering, context=context)

    async def _answer(self, coming: Awaitable[Response], alive: bool, head_only: bool) -> None:
        try:
            response = await coming
        except asyncio.CancelledError:
            self.transport.close()
            raise
        finally:
            self._owed = None
        self._send(response, alive, head_only)
        if self._waiting:
            self._next()

    def _release(self, size: int) -> None:
        """Hold so much less of bodies."""
        self._held_bytes -= size
        self._shared.bodies.give_back(size)

    def _send(self, response: Response, alive: bool, head_only: bool) -> None:
        if self.transport.is_closing():
            return
        self._release(self._owed_bytes)
        self._owed_bytes = 0
        if response.after_s > 0.0:
            return self._hand_over(in_time(response), copy_context(), alive, head_only)
        alive = alive and not (self._ending and not self._waiting)
        for piece in write_response(response, alive, head_only):
            self.transport.write(piece)
        self._since_s = clock.monotonic_s()
        if alive:
            return
        self._waiting.clear()
        if self._refused and self.transport.can_write_eof():
            self.transport.write_eof()  # a client still sending must be able to read why it was refused
            asyncio.get_running_loop().call_later(1.0, self.transport.close)
        else:
            self.transport.close()

    # bounds in time

    def expire(self, now_s: float) -> None:
        """Give up on a client that is too slow, or has been idle for too long."""
        waited_s, limits = now_s - self._since_s, self._shared.limits
        if self._heard or len(self._waiting) > limits.pipelined // 2:  # in this case nothing is read
            self._heard, self._heard_s = False, now_s
        silent_s = now_s - self._heard_s
        stuck = self._blocked or (self._refused and not self.busy)
        if stuck and waited_s > limits.request_s:
            self.transport.abort()
        elif self._reading and waited_s > limits.request_s and not self._refused:
            self._refuse(failure(408, f"the request did not arrive within {limits.request_s:g} s"))
        elif self._reading and silent_s > limits.silent_s and not self._refused:
            self._refuse(failure(408, f"no byte of the request came for {limits.silent_s:g} s"))
        elif not (self._reading or self._owed or self._waiting) and waited_s > limits.idle_s:
            self.transport.close()

    def finish(self) -> None:
        """Close at once when idle, after the answers otherwise."""
        self._ending = True
        if not self.busy:
            self.transport.close()

    @property
    def busy(self) -> bool:
        """Whether an answer is owed."""
        return self._owed is not None or bool(self._waiting)


async def _call(handler: Handler, request: HttpRequest) -> Response:
    try:
        return await handler(request)
    except ProtocolError as error:
        return failure(error.status, str(error))
    except Exception:  # one bad request must not take the server down
        log.exception("%s %s", request.method, request.path)
        return failure(500, "internal error; see the server's log")
