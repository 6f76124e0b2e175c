"""A small HTTP/1.1 server and client on asyncio and httptools: the only place with sockets.

Frameworks cost more per request than a whole dispatch decision, so the hot path has none.
Bodies are bounded; bad input is answered, never raised.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httptools

from edgewise.errors import ProtocolError

LOCALHOST = "127.0.0.1"
MAX_BODY_BYTES = 64 * 2**20
PHRASES = {200: "OK", 201: "Created", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed",
           409: "Conflict", 413: "Content Too Large", 429: "Too Many Requests",
           500: "Internal Server Error", 502: "Bad Gateway", 503: "Service Unavailable",
           504: "Gateway Timeout"}  # fmt: skip
log = logging.getLogger("edgewise.http")


@dataclass(slots=True)
class Request:
    """An HTTP request; header names are lower-case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Response:
    """An HTTP answer."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


Handler = Callable[[Request], Awaitable[Response]]


def as_json(value: Any, status: int = 200) -> Response:
    """An answer with a JSON body."""
    return Response(status, json.dumps(value).encode(), {"content-type": "application/json"})


def failure(status: int, message: str, **more: Any) -> Response:
    """An error as the protocol wants it: {"error": message}."""
    response = as_json({"error": message, **more}, status)
    if status == 429:
        response.headers["retry-after"] = "1"
    return response


class _Parser:
    """Collects one message after another from httptools' callbacks."""

    def __init__(self, max_body_bytes: int) -> None:
        self.max_body_bytes = max_body_bytes
        self.url = b""
        self.headers: dict[str, str] = {}
        self.body: list[bytes] = []
        self.size = 0
        self.done: deque[tuple[bytes, dict[str, str], bytes]] = deque()

    def on_message_begin(self) -> None:
        self.url, self.headers, self.body, self.size = b"", {}, [], 0

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self.size += len(body)
        if self.size > self.max_body_bytes:
            raise ProtocolError(f"body: more than {self.max_body_bytes} bytes", status=413)
        self.body.append(body)

    def on_message_complete(self) -> None:
        self.done.append((self.url, self.headers, b"".join(self.body)))


class _Connection(asyncio.Protocol):
    """One client connection; requests are answered one after another, in order."""

    def __init__(self, handler: Handler, max_body_bytes: int) -> None:
        self._handler = handler
        self._parsed = _Parser(max_body_bytes)
        self._parser = httptools.HttpRequestParser(self._parsed)
        self._waiting: asyncio.Queue[tuple[Request, bool] | Response | None] = asyncio.Queue()
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._task = asyncio.get_running_loop().create_task(self._answer())

    def connection_lost(self, exc: Exception | None) -> None:
        self._waiting.put_nowait(None)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            cause = error.__context__
            status = cause.status if isinstance(cause, ProtocolError) else 400
            text = str(cause) if isinstance(cause, ProtocolError) else f"not HTTP: {error}"
            self._waiting.put_nowait(failure(status, text))
            return
        except ProtocolError as error:
            self._waiting.put_nowait(failure(error.status, str(error)))
            return
        method, alive = self._parser.get_method(), self._parser.should_keep_alive()
        while self._parsed.done:
            url, headers, body = self._parsed.done.popleft()
            request = Request(method.decode(), url.decode("latin-1").split("?")[0], headers, body)
            self._waiting.put_nowait((request, alive))

    async def _answer(self) -> None:
        assert self._transport is not None
        while (work := await self._waiting.get()) is not None:
            if isinstance(work, Response):
                response, alive = work, False
            else:
                response, alive = await _call(self._handler, work[0]), work[1]
            if self._transport.is_closing():
                return
            self._transport.write(_serialise(response, alive))
            if not alive:
                self._transport.close()
                return


async def _call(handler: Handler, request: Request) -> Response:
    try:
        return await handler(request)
    except ProtocolError as error:
        return failure(error.status, str(error))
    except Exception:  # one bad request must not take the server down
        log.exception("%s %s", request.method, request.path)
        return failure(500, "internal error; see the server's log")


def _serialise(response: Response, alive: bool) -> bytes:
    phrase = PHRASES.get(response.status, "Status")
    lines = [f"HTTP/1.1 {response.status} {phrase}", f"content-length: {len(response.body)}"]
    lines += [f"{name}: {value}" for name, value in response.headers.items()]
    if not alive:
        lines.append("connection: close")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + response.body


class Server:
    """A running server.

    Attributes:
        host, port: where it listens.
    """

    def __init__(self, server: asyncio.Server, host: str, port: int) -> None:
        self._server, self.host, self.port = server, host, port

    @property
    def url(self) -> str:
        """Base address."""
        return f"http://{self.host}:{self.port}"

    async def close(self) -> None:
        """Stop listening."""
        self._server.close()
        await asyncio.sleep(0)


async def serve(
    handler: Handler, host: str = LOCALHOST, port: int = 0, max_body_bytes: int = MAX_BODY_BYTES
) -> Server:
    """Listen and answer with `handler`; port 0 takes a free one."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(handler, max_body_bytes), host, port)
    return Server(server, host, server.sockets[0].getsockname()[1])


class _Call(asyncio.Protocol):
    """One client-side connection with at most one request under way."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[Response] | None = None
        self.transport: asyncio.Transport | None = None
        self._begin()

    def _begin(self) -> None:
        self._parsed = _Parser(MAX_BODY_BYTES)
        self._parser = httptools.HttpResponseParser(self._parsed)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"not HTTP: {error}"))
            return
        if self._parsed.done and self.answer and not self.answer.done():
            _, headers, body = self._parsed.done.popleft()
            status = self._parser.get_status_code()
            self._begin()
            self.answer.set_result(Response(status, body, headers))

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(ConnectionError("connection lost"))

    def _fail(self, error: Exception) -> None:
        if self.answer and not self.answer.done():
            self.answer.set_exception(error)


class Client:
    """Keep-alive connections to one server, as many as there are requests at once."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self._idle: list[_Call] = []

    async def request(
        self, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b"",
        timeout_s: float = 30.0,
    ) -> Response:  # fmt: skip
        """Send one request and wait for its answer.

        Raises:
            ConnectionError: the server cannot be reached or hung up.
            TimeoutError: no answer within `timeout_s`.
        """
        call = self._take() or await self._connect()
        assert call.transport is not None
        call.answer = asyncio.get_running_loop().create_future()
        lines = [
            f"{method} {path} HTTP/1.1",
            f"host: {self.host}:{self.port}",
            f"content-length: {len(body)}",
        ]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        call.transport.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
        try:
            async with asyncio.timeout(timeout_s):
                response = await call.answer
        except BaseException:
            call.transport.close()
            raise
        if response.headers.get("connection", "").lower() == "close":
            call.transport.close()
        else:
            self._idle.append(call)
        return response

    def close(self) -> None:
        """Close idle connections."""
        for call in self._idle:
            if call.transport:
                call.transport.close()
        self._idle.clear()

    def _take(self) -> _Call | None:
        while self._idle:
            call = self._idle.pop()
            if call.transport and not call.transport.is_closing():
                return call
        return None

    async def _connect(self) -> _Call:
        try:
            _, call = await asyncio.get_running_loop().create_connection(_Call, self.host, self.port)
        except OSError as error:
            raise ConnectionError(f"cannot reach {self.host}:{self.port}: {error}") from error
        return call
