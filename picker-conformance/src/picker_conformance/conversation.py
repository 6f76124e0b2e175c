"""The data plane's side of one HTTP request: messages out, answers in, each within a time limit.

A conversation sends what Envoy's external processing filter sends in the body mode it is in, and keeps
whatever the picker answers. It judges nothing; cases do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import grpc
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from envoy.service.ext_proc.v3.external_processor_pb2_grpc import ExternalProcessorStub

from picker_conformance.answer import Answer, Side
from picker_conformance.messages import (
    BUFFERED,
    FULL_DUPLEX,
    LB,
    NONE,
    SERVED,
    STREAMED,
    SUBSET,
    SUBSET_HINT,
    Request,
    header_map,
    metadata,
)

# How long a picker that may answer now, or later, is given to do it now.
PAUSE_S = 0.2


class Silence(Exception):
    """The picker neither answered nor closed the stream in the time it was given."""


class Closed(Exception):
    """The picker closed the stream; `code` is None where it did so cleanly."""

    def __init__(self, code: grpc.StatusCode | None, detail: str = "") -> None:
        super().__init__(f"closed the stream {code.name if code else 'without an error'} {detail}".strip())
        self.code = code


class Conversation:
    """One stream of the external processing service.

    Args:
        channel: to the picker.
        mode: how bodies travel, in both directions.
        patience_s: most that one answer may take.
    """

    def __init__(self, channel: grpc.aio.Channel, mode: int = FULL_DUPLEX, patience_s: float = 5.0) -> None:
        self.answer = Answer(mode)
        self.closed: Closed | None = None
        self._call = ExternalProcessorStub(channel).Process()
        self._mode, self._patience_s = mode, patience_s
        self._metadata: dict[str, dict[str, Any]] = {}
        self._first, self._heard = True, 0
        self._news = asyncio.Event()
        self._reader = asyncio.ensure_future(self._read())

    async def __aenter__(self) -> Conversation:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.leave()
        await asyncio.gather(self._reader, return_exceptions=True)

    def leave(self) -> None:
        """Break off, as when the HTTP client has gone."""
        self._call.cancel()
        self._reader.cancel()

    async def _read(self) -> None:
        """Take each answer when it comes: what it may say depends on what was sent before."""
        with suppress(grpc.aio.AioRpcError):
            while (message := await self._call.read()) is not grpc.aio.EOF:
                self.answer.take(message)
                self._news.set()
        code = await self._call.code()
        detail = await self._call.details() or ""
        self.closed = Closed(None if code is grpc.StatusCode.OK else code, detail[:200])
        self._news.set()

    # saying and hearing

    async def say(self, message: pb.ProcessingRequest) -> None:
        """Send one message; with the metadata of the request, which Envoy adds to every message.

        After the picker has closed the stream cleanly nothing is sent, as a data plane then goes on
        without it.

        Raises:
            Closed: the picker has closed the stream with an error.
            Silence: it does not take the message.
        """
        if self.closed is not None and self.closed.code is None:
            return
        if self._metadata:
            message.metadata_context.CopyFrom(metadata(self._metadata))
        if self._first:
            self._first = False
            message.protocol_config.request_body_mode = self._mode
            message.protocol_config.response_body_mode = self._mode
        try:
            async with asyncio.timeout(self._patience_s):
                await self._call.write(message)
        except TimeoutError:
            raise Silence("did not take a message") from None
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and not self._call.done():
                raise
            await self._reader
            if self.closed is not None and self.closed.code is not None:
                raise self.closed from None

    async def hear(self) -> None:
        """Wait for one answer more than were heard before.

        Raises:
            Closed: the picker has closed the stream.
            Silence: it says nothing in time.
        """
        heard = self._heard
        await self.hear_until(lambda a: len(a.order) > heard)
        self._heard = heard + 1

    async def hear_until(self, done: Callable[[Answer], object], may_close: bool = False) -> None:
        """Hear answers until `done(answer)` or an immediate response.

        Args:
            may_close: the picker may close the stream cleanly in place of an answer.

        Raises:
            Closed: the picker has closed the stream.
            Silence: it says nothing for as long as an answer may take.
        """
        while not done(self.answer) and self.answer.status is None:
            if self.closed is not None:
                if may_close and self.closed.code is None:
                    return
                raise self.closed
            await self._change(self._patience_s)
        self._heard = len(self.answer.order)

    async def pause(self, done: Callable[[Answer], object] = lambda _: False) -> None:
        """Give the picker a moment to answer before the next message, which it may as well wait for."""
        with suppress(TimeoutError, Silence, Closed):
            async with asyncio.timeout(PAUSE_S):
                await self.hear_until(done)

    async def _change(self, within_s: float) -> None:
        self._news.clear()
        try:
            async with asyncio.timeout(within_s):
                await self._news.wait()
        except TimeoutError:
            raise Silence(f"no answer within {within_s:g} s") from None

    async def half_close(self) -> None:
        """Say that no further message comes, and wait for the picker to end the stream.

        Raises:
            Silence: it leaves the stream open.
        """
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await self._call.done_writing()
        try:
            await asyncio.wait_for(asyncio.shield(self._reader), self._patience_s)
        except TimeoutError:
            raise Silence(f"left the stream open for {self._patience_s:g} s after its end") from None

    # what a data plane sends

    async def send_headers(self, request: Request) -> None:
        """The request's headers, with the subset hint where there is one."""
        if request.subset is not None:
            self._metadata[SUBSET_HINT] = {SUBSET: request.subset}
        headers = request.header_map()
        self.answer.request.headers = {each.key: [each.raw_value.decode()] for each in headers.headers}
        self.answer.request.all_sent = request.body is None
        await self.say(
            pb.ProcessingRequest(
                request_headers=pb.HttpHeaders(headers=headers, end_of_stream=request.body is None)
            )
        )

    async def send_body(self, chunks: Sequence[bytes], ends: bool = True) -> None:
        """The request's body in pieces; the last says that nothing follows unless trailers do.

        Nothing more of it is sent once the picker has answered in place of a server.
        """
        for number, chunk in enumerate(chunks):
            if self.answer.status is not None:
                return
            last = ends and number == len(chunks) - 1
            self._sending(self.answer.request, chunk, last)
            await self.say(pb.ProcessingRequest(request_body=pb.HttpBody(body=chunk, end_of_stream=last)))

    async def send_trailers(self) -> None:
        """The request's trailers, which end its body."""
        self.answer.request.by_trailers = True
        trailers = pb.HttpTrailers(trailers=header_map({"x-sum": "1"}))
        await self.say(pb.ProcessingRequest(request_trailers=trailers))

    async def send_response_headers(
        self, served: str | None, ends: bool = False, headers: Mapping[str, str] | None = None
    ) -> None:
        """The response's headers, and which endpoint served it."""
        if served is not None:
            self._metadata[LB] = {SERVED: served}
        usual = {":status": "200", "content-type": "application/json", **(headers or {})}
        self.answer.response.all_sent = ends
        said = pb.HttpHeaders(headers=header_map(usual), end_of_stream=ends)
        await self.say(pb.ProcessingRequest(response_headers=said))

    async def send_response_body(self, chunk: bytes, ends: bool) -> None:
        """A piece of the response's body."""
        self._sending(self.answer.response, chunk, ends)
        await self.say(pb.ProcessingRequest(response_body=pb.HttpBody(body=chunk, end_of_stream=ends)))

    async def send_response_trailers(self) -> None:
        """The response's trailers, which end its body."""
        self.answer.response.by_trailers = True
        trailers = pb.HttpTrailers(trailers=header_map({"x-sum": "1"}))
        await self.say(pb.ProcessingRequest(response_trailers=trailers))

    def _sending(self, side: Side, chunk: bytes, ends: bool) -> None:
        if self._mode != FULL_DUPLEX:
            side.sent.append(chunk)
        side.all_sent = ends

    async def ask(
        self, request: Request, chunks: Sequence[bytes] | None = None, whole: bool = False
    ) -> Answer:
        """A request in the mode of this conversation, up to its decision.

        With `whole`, up to the end of its body too: only cases about bodies ask for it, so that a picker
        that loses bodies fails those and no others. In the modes that wait (headers only, buffered,
        streamed) the body follows the answer to the headers, as with Envoy; in full duplex nothing waits.
        """
        await self.send_headers(request)
        if request.body is None:
            await self.hear_until(lambda a: "request_headers" in a.order)
            return self.answer
        pieces = [request.body] if chunks is None else list(chunks)
        if self._mode == FULL_DUPLEX:
            await self.send_body(pieces)
            await self.hear_until(lambda a: a.endpoints and (a.request.ended or not whole))
            return self.answer
        await self.hear()
        if self._mode != NONE and self.answer.status is None:
            for number, piece in enumerate(pieces if self._mode == STREAMED else [request.body]):
                await self.send_body([piece], ends=self._mode == BUFFERED or number == len(pieces) - 1)
                await self.hear()
        return self.answer
