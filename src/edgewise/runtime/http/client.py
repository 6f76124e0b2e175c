"""The HTTP/1.1 client: a pool of keep-alive connections to one server."""

import asyncio
import ssl
from typing import cast
from urllib.parse import urlsplit

import httptools

from edgewise.errors import ProtocolError
from edgewise.runtime import clock
from edgewise.runtime.http.messages import (
    MAX_BODY_BYTES,
    Later,
    Response,
    hang_up,
    header_name,
    use_large_buffers,
    write_request,
)
from edgewise.runtime.http.security import bearer

MAX_IDLE = 256
MAX_HEADER_BYTES = 64 * 2**10


class GivenUp(ConnectionError):
    """Whoever uses the client gave its server up."""


class _Call(asyncio.Protocol):
    """One connection with at most one request under way; httptools calls the on_… methods."""

    def __init__(self) -> None:
        self.answer: Later[Response] | None = None
        self._response: Response | None = None
        self.transport: asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = self._until_s = self._timeout_s = 0.0  # the timer's time, and the present answer's
        self.heard = self.used = False
        self.alive = True

    def send(self, data: list[bytes], until_s: float, timeout_s: float) -> Later[Response]:
        """Write a request; the future holds its answer, or an error from `until_s` on, monotonic."""
        self.answer, self._response = Later(), None
        self.heard = False
        self._until_s, self._timeout_s = until_s, timeout_s
        if self._timer is None or until_s < self._timer_s:
            self._set_timer()
        for piece in data:
            self.transport.write(piece)
        return self.answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        use_large_buffers(transport)

    def data_received(self, data: bytes) -> None:
        if self.answer is None or self.answer.done():
            self.transport.close()  # nobody asked
            return
        self.heard = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.alive = False
            if self._response is None:
                return self.fail(ConnectionError(f"not HTTP: {error}"))
        self._deliver()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.heard and getattr(self, "_until_eof", False):
            self.on_message_complete()
            self._deliver()
        self.fail(ConnectionError("connection lost"))
        if self._timer is not None:
            self._timer.cancel()

    def on_message_begin(self) -> None:
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._size = self._head = 0
        self._until_eof = False
        self.alive = self._response is None  # after a second answer, the next would be taken for another's

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head += len(name) + len(value)
        if self._head > MAX_HEADER_BYTES:
            raise ProtocolError(f"headers: more than {MAX_HEADER_BYTES} bytes")
        self._headers[header_name(name)] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        stated = "content-length" in self._headers or "transfer-encoding" in self._headers
        self._until_eof = not stated and self._parser.get_status_code() not in (204, 304)
        self.alive = self.alive and not self._until_eof and self._parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        if self._size > MAX_BODY_BYTES:
            raise ProtocolError(f"body: more than {MAX_BODY_BYTES} bytes")
        self._body.append(body)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if self._response is None and status >= 200:  # 100 and 103 come before the answer
            body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
            self._response = Response(status, body, self._headers)

    def _deliver(self) -> None:
        """Hand over a complete answer; only now, as whoever waits for it may send again from here."""
        if self._response is not None and self.answer and not self.answer.done():
            self.answer.set_result(self._response)

    def fail(self, error: Exception) -> None:
        """Let whoever waits for the answer hear an error instead."""
        if self.answer and not self.answer.done():
            self.answer.set_exception(error)

    def _set_timer(self) -> None:
        """One timer sees to many answers: it is set anew when it comes, or for an answer due before it."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s, left_s = self._until_s, max(self._until_s - clock.monotonic_s(), 0.0)
        self._timer = asyncio.get_running_loop().call_later(left_s, self._time_came)

    def _time_came(self) -> None:
        self._timer = None
        if self.answer is None or self.answer.done():
            return
        if clock.monotonic_s() < self._until_s:
            self._set_timer()
        else:
            self.fail(TimeoutError(f"no answer within {self._timeout_s:.3g} s"))


class Client:
    """Keep-alive connections to one server, as many as there are requests at once.

    Args:
        host, port: the server.
        tls: context for https.
        prefix: path before every request's path, "" or "/…".
        headers: sent with every request.
    """

    def __init__(
        self,
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        prefix: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        self.host, self.port, self.prefix = host, port, prefix
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._tls, self._fixed = tls, headers or {}
        self._idle: list[_Call] = []
        self.busy: set[_Call] = set()
        self.connecting: set[asyncio.Timeout] = set()
        self._closed = False

    @classmethod
    def of_url(cls, url: str, token: str | None = None, tls: ssl.SSLContext | None = None) -> "Client":
        """A client of an address such as "https://host:8000/prefix".

        Args:
            url: base address.
            token: sent as `Authorization: Bearer`.
            tls: context for https; the system's authorities by default.
        Raises:
            ValueError: not such an address.
        """
        wrong = ValueError(f"url: {url!r} is not http://host:port or https://host:port, in ASCII")
        try:
            parts = urlsplit(url)
            write_request("GET", parts.path or "/", str(parts.port), {}, b"")
        except ValueError:
            raise wrong from None
        odd = parts.query or parts.fragment or not url.isascii() or "@" in parts.netloc  # names and passwords
        if parts.scheme not in ("http", "https") or not parts.hostname or odd:
            raise wrong
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        context = (tls or ssl.create_default_context()) if secure else None
        return cls(parts.hostname, port, context, parts.path.rstrip("/"), bearer(token))

    @property
    def url(self) -> str:
        """Base address."""
        return f"{'https' if self._tls else 'http'}://{self._address}{self.prefix}"

    async def request(
        self, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b"",
        timeout_s: float = 30.0, repeat: bool = True,
    ) -> Response:  # fmt: skip
        """Send one request and wait for its answer.

        A kept connection that the server closed in the meantime is replaced by a new one. Whether it was
        closed before the request came or after cannot be told, so the request may be heard twice.

        Args:
            timeout_s: for all of it, connections included.
            repeat: False for what must not be: it gets a new connection, and is sent once.
        Raises:
            ConnectionError: the server cannot be reached, hung up, or does not speak HTTP.
            TimeoutError: no answer within `timeout_s`.
        """
        until_s = clock.monotonic_s() + timeout_s
        more = self._fixed | (headers or {})
        data = write_request(method, self.prefix + path, self._address, more, body)
        call = (self._take() if repeat else None) or await self._connect(timeout_s)
        while True:
            self.busy.add(call)
            try:
                response = await call.send(data, until_s, timeout_s)
                break
            except BaseException as error:
                hang_up(call.transport)
                lost = isinstance(error, ConnectionError) and not isinstance(error, GivenUp)
                if not (lost and call.used and not call.heard):
                    raise
            finally:
                self.busy.discard(call)
            call = await self._connect(until_s - clock.monotonic_s())
        self._give(call)
        return response

    def abort(self) -> None:
        """Give the server up: every request under way fails with a ConnectionError, now."""
        for limit in self.connecting:
            if not limit.expired():  # else its task is about to hear so
                limit.reschedule(0.0)
        self.connecting.clear()
        for call in self._idle:
            hang_up(call.transport)
        self._idle.clear()
        for call in list(self.busy):  # whoever waits goes on from here, and may ask others
            call.fail(GivenUp(f"{self._address} was given up"))

    def close(self) -> None:
        """Close idle connections now, the others after their answers."""
        self._closed = True
        for call in self._idle:
            call.transport.close()
        self._idle.clear()

    def _give(self, call: _Call) -> None:
        call.used = True
        if call.alive and not self._closed and len(self._idle) < MAX_IDLE:
            self._idle.append(call)
        else:
            call.transport.close()

    def _take(self) -> _Call | None:
        while self._idle:
            call = self._idle.pop()
            if not call.transport.is_closing():
                return call
        return None

    async def _connect(self, timeout_s: float) -> _Call:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0)  # from here on in a task, which the time-out asks for
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                self.connecting.add(limit)
                _, call = await loop.create_connection(_Call, self.host, self.port, ssl=self._tls)
        except TimeoutError:
            if limit not in self.connecting:
                raise GivenUp(f"{self._address} was given up") from None
            # Says nothing of the server: a query may have had a millisecond left.
            raise TimeoutError(f"cannot reach {self._address} within {max(timeout_s, 0.0):.3g} s") from None
        except ConnectionRefusedError as error:
            raise ConnectionRefusedError(f"cannot reach {self._address}: {error}") from error
        except (OSError, ssl.SSLError, ValueError) as error:  # the last: no name of a machine
            raise ConnectionError(f"cannot reach {self._address}: {error}") from error
        finally:
            self.connecting.discard(limit)
        return call
