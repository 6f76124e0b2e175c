"""Requests, responses, and how they are written down. No sockets here."""

import asyncio
import contextlib
import ipaddress
import json
import math
import re
import socket
import struct
import types
import zlib
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from http import HTTPStatus
from typing import Any, TypeVar, cast
from urllib.parse import quote, unquote

import msgspec

from edgewise.errors import ProtocolError
from edgewise.runtime import clock
from edgewise.runtime.protocol.bodies import Error

LOCALHOST = "127.0.0.1"
QUERIES = "/v2/models/"  # below it nearly all requests are
MAX_BODY_BYTES = 64 * 2**20
BODIES_BYTES = 256e6
LARGE_BYTES = 64 * 2**10
SOCKET_BUFFER_BYTES = 2**20
PHRASES = {status.value: status.phrase for status in HTTPStatus}
_UNSAFE = re.compile(r"[^\t\x20-\x7e\xa0-\xff]+")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@dataclass(slots=True)
class HttpRequest:
    """An HTTP request.

    Attributes:
        method: upper-case; a HEAD request reaches handlers as GET.
        path: as sent, without the query string, still percent-encoded.
        headers: names lower-case; a header given twice is joined with ", ".
        received_s: `runtime.clock.monotonic_s` when its first byte came.
        client: who asks: its address, or `@` and the name that its token has.
    """

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    received_s: float = field(default_factory=lambda: clock.monotonic_s())
    client: str = ""

    @property
    def parts(self) -> list[str]:
        """Decoded segments of the path: "/v2/models/a%20b" is ["v2", "models", "a b"]."""
        parts = self.path.strip("/").split("/")
        return [unquote(part) for part in parts] if "%" in self.path else parts


@dataclass(slots=True)
class Response:
    """An HTTP answer, sent after a while that holds nothing but its connection."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    after_s: float = 0.0


async def in_time(response: Response) -> Response:
    """An answer, once its time has come."""
    await clock.sleep(response.after_s)
    return replace(response, after_s=0.0)


Handler = Callable[[HttpRequest], Awaitable[Response]]


def as_json(value: Any, status: int = 200) -> Response:
    """An answer with a JSON body: of plain values, or of a type that says its fields."""
    text = json.dumps(value, default=msgspec.to_builtins)
    return Response(status, text.encode(), {"content-type": "application/json"})


def failure(status: int, message: str, **more: Any) -> Response:
    """An error as the protocol wants it: {"error": message}; 429 and 503 say when to retry.

    Args:
        more: fields beside the message; `retry_after_s`, where it is known, is written as a header, too.
    """
    response = as_json(Error(message, **more), status)
    if status in (429, 503):
        response.headers["retry-after"] = str(max(math.ceil(more.get("retry_after_s", 1.0)), 1))
    return response


def not_allowed(message: str, *methods: str) -> Response:
    """405, with the methods that are allowed."""
    response = failure(405, message)
    response.headers["allow"] = ", ".join(methods)
    return response


def write_response(response: Response, alive: bool, head_only: bool = False) -> list[bytes]:
    """The bytes of an answer in one or two pieces; `alive` False announces that the connection closes."""
    status, length = response.status, len(response.body)
    first = f"HTTP/1.1 {status} {PHRASES.get(status, 'Status')}\r\ncontent-length: {length}"
    head = _head(first if alive else f"{first}\r\nconnection: close", response.headers)
    return [head] if head_only else _pieces(head, response.body)


def write_request(method: str, target: str, host: str, headers: dict[str, str], body: bytes) -> list[bytes]:
    """The bytes of a request in one or two pieces.

    Raises:
        ValueError: the method, target or a header name could end its line.
    """
    first = f"{_request_line(method, target)}\r\nhost: {host}\r\ncontent-length: {len(body)}"
    _check_names(tuple(headers))
    return _pieces(_head(first, headers), body)


@lru_cache(1024)
def _request_line(method: str, target: str) -> str:
    if not _NAME.fullmatch(method) or not target.isascii() or _UNSAFE.search(target) or " " in target:
        raise ValueError(f"{method!r} {target!r}: not a method and a percent-encoded path")
    return f"{method} {target} HTTP/1.1"


@lru_cache(1024)
def _check_names(names: tuple[str, ...]) -> None:
    for text in names:
        if not _NAME.fullmatch(text):
            raise ValueError(f"header name {text!r}: not allowed")


@lru_cache(256)
def header_name(name: bytes) -> str:
    """A header's name as text, in lower case; nearly all requests have the same few."""
    return name.decode("latin-1").lower()


def _head(first: str, headers: dict[str, str]) -> bytes:
    values = "".join(headers.values())
    if not (values.isascii() and values.isprintable()):  # a value that could end its line is percent-encoded
        headers = {
            name: _UNSAFE.sub(lambda found: quote(found[0], safe=""), value)
            for name, value in headers.items()
        }
    lines = [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join((first, *lines, "\r\n")).encode("latin-1")


def use_large_buffers(transport: asyncio.BaseTransport) -> None:
    """Let a whole picture pass between kernel and process at once."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family != getattr(socket, "AF_UNIX", None):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_BYTES)


def address_of(peer: object) -> str:
    """Whose address that is: of version 6 the network, as whoever has one has all of its addresses."""
    try:
        address = ipaddress.ip_address(str(peer).partition("%")[0])
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))


def hang_up(transport: asyncio.Transport) -> None:
    """End a connection by a reset: after a mere FIN the other side would think that its answer is wanted."""
    sock = transport.get_extra_info("socket")
    if sock is not None and not transport.is_closing():
        with contextlib.suppress(OSError):  # some systems have none for a connection that was reset already
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def _pieces(head: bytes, body: bytes) -> list[bytes]:
    """Head and body; small ones joined, large ones not copied."""
    return [head + body] if len(body) < LARGE_BYTES else [head, body]


WINDOWS = {"gzip": 31, "deflate": 15}  # zlib's words for the two formats
LEAST_BYTES = 1024  # smaller answers gain nothing
LEVEL = 1  # tensors shrink little, and whoever waits wants the answer


@dataclass(frozen=True, slots=True)
class Limits:
    """What a client may use up.

    Attributes:
        body_bytes: largest body (413).
        bodies_bytes: of all connections together, from their first byte until they are answered (503).
        header_bytes: URL and headers together (431).
        connections: at once; one more is answered 503.
        pipelined: requests that may wait on one connection before reading stops.
        request_s: time for a whole request to arrive (408), and for an answer to be read.
        silent_s: time without a byte in the middle of a request (408).
        idle_s: time between requests.
    """

    body_bytes: int = MAX_BODY_BYTES
    bodies_bytes: float = BODIES_BYTES
    header_bytes: int = 32 * 2**10
    connections: int = 4096
    pipelined: int = 32
    request_s: float = 30.0
    silent_s: float = 10.0
    idle_s: float = 75.0


LIMITS = Limits()


class Bodies:
    """The bodies that a server holds, from their first byte until they are answered.

    Args:
        most_bytes: of all together.
    """

    def __init__(self, most_bytes: float) -> None:
        self.most_bytes, self.held_bytes = most_bytes, 0

    def take(self, size: int) -> None:
        """Hold so much more.

        Raises:
            ProtocolError: there is no room; status 503.
        """
        self.held_bytes += size
        if self.held_bytes > self.most_bytes:
            self.held_bytes -= size
            raise ProtocolError(f"bodies: {self.held_bytes} bytes of others are under way", status=503)

    def give_back(self, size: int) -> None:
        """Hold so much less."""
        self.held_bytes -= size


def coded(handler: Handler, most_bytes: int, bodies: Bodies) -> Handler:
    """The handler, with bodies decoded before it and encoded after it.

    Args:
        most_bytes: of a decoded body.
        bodies: hold what bodies are larger decoded.
    """

    async def convert(request: HttpRequest) -> Response:
        more_bytes = 0
        try:
            body = await decoded(request, most_bytes)
            bodies.take(more := max(len(body) - len(request.body), 0))
            more_bytes, request.body = more, body
        except ProtocolError as error:
            answer = failure(error.status, str(error))
            if error.status == 415:
                answer.headers["accept-encoding"] = ", ".join(WINDOWS)
            return answer
        request.headers.pop("content-encoding", None)
        try:
            answer = await handler(request)
        finally:
            bodies.give_back(more_bytes)
        return await encoded(answer, request.headers.get("accept-encoding", ""))

    def handle(request: HttpRequest) -> Awaitable[Response]:
        headers = request.headers
        plain = "content-encoding" not in headers and "accept-encoding" not in headers
        return handler(request) if plain else convert(request)

    return handle


async def decoded(request: HttpRequest, most_bytes: int) -> bytes:
    """A request's body as it was before it was compressed; a large one in a thread.

    Raises:
        ProtocolError: 415 for another coding, 400 for what cannot be read, 413 for too much.
    """
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding in ("identity", ""):
        return request.body
    if coding not in WINDOWS:
        raise ProtocolError(f"content-encoding: {coding[:80]!r} is not {' or '.join(WINDOWS)}", status=415)
    return await asyncio.to_thread(_inflate, request.body, coding, most_bytes)


def _inflate(body: bytes, coding: str, most_bytes: int) -> bytes:
    """Never makes more than `most_bytes` and one: a small body may stand for a huge one."""
    reader = zlib.decompressobj(WINDOWS[coding])
    try:
        found = reader.decompress(body, most_bytes + 1)
    except zlib.error as error:
        raise ProtocolError(f"body: is no {coding}: {error}") from None
    if len(found) > most_bytes:
        raise ProtocolError(f"body: more than {most_bytes} bytes when decompressed", status=413)
    if not reader.eof or reader.unused_data:
        raise ProtocolError(f"body: its {coding} is cut short, or more follows it")
    return found


async def encoded(answer: Response, accepted: str) -> Response:
    """The answer, compressed where its client takes that and it is worth it; a large one in a thread."""
    coding = _chosen(accepted)
    if coding is None or len(answer.body) < LEAST_BYTES or "content-encoding" in answer.headers:
        return answer
    large = len(answer.body) > LARGE_BYTES
    answer.body = (
        await asyncio.to_thread(_deflate, answer.body, coding) if large else _deflate(answer.body, coding)
    )
    answer.headers |= {"content-encoding": coding, "vary": "accept-encoding"}
    return answer


def _chosen(accepted: str) -> str | None:
    for part in accepted.lower().split(","):
        name, _, weight = part.replace(" ", "").partition(";q=")
        if name in WINDOWS and (not weight or weight.strip("0.")):
            return name
    return None


def _deflate(body: bytes, coding: str) -> bytes:
    writer = zlib.compressobj(LEVEL, wbits=WINDOWS[coding])
    return writer.compress(body) + writer.flush()


T = TypeVar("T")


class Later(asyncio.Future[T]):
    """A future that may call one function at the moment it is done, not in a later turn of the event loop.

    A server's connection that runs a coroutine up to here goes on by that function. A task would cost as much
    as reading a request, and a turn of the loop between any two steps. Elsewhere it is a future as any other.

    Attributes:
        then: called once when done or cancelled; None does nothing.
    """

    then: Callable[[], None] | None = None

    def set_result(self, result: T) -> None:
        """Mark as done, and go on."""
        super().set_result(result)
        self._go_on()

    def set_exception(self, exception: type[BaseException] | BaseException) -> None:
        """Mark as failed, and go on."""
        super().set_exception(exception)
        self._go_on()

    def cancel(self, msg: Any | None = None) -> bool:
        """Mark as cancelled, and go on; False when it was done already."""
        cancelled = super().cancel(msg)
        if cancelled:
            self._go_on()
        return cancelled

    def _go_on(self) -> None:
        then, self.then = self.then, None
        if then is not None:
            then()


@types.coroutine
def rest_of(coming: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, None, T]:
    """What is left of a coroutine that has come to where it waits for something."""
    while True:
        try:
            yield waits_for
        except BaseException as error:  # its task was cancelled
            try:
                waits_for = coming.throw(error)
            except StopIteration as done:
                return cast(T, done.value)
        else:
            return cast(T, (yield from coming))
