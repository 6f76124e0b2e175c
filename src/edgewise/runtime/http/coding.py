"""Compressed bodies: requests by `content-encoding`, answers by `accept-encoding`; gzip and deflate."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable

from edgewise.errors import ProtocolError
from edgewise.runtime.http.messages import LARGE_BYTES, Handler, HttpRequest, Response, failure

WINDOWS = {"gzip": 31, "deflate": 15}  # zlib's words for the two formats
LEAST_BYTES = 1024  # smaller answers gain nothing
LEVEL = 1  # tensors shrink little, and whoever waits wants the answer


def coded(handler: Handler, most_bytes: int) -> Handler:
    """The handler, with bodies decoded before it and encoded after it.

    Args:
        most_bytes: of a decoded body.
    """

    async def convert(request: HttpRequest) -> Response:
        try:
            request.body = await decoded(request, most_bytes)
        except ProtocolError as error:
            answer = failure(error.status, str(error))
            if error.status == 415:
                answer.headers["accept-encoding"] = ", ".join(WINDOWS)
            return answer
        request.headers.pop("content-encoding", None)
        answer = await handler(request)
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
