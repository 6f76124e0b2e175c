"""One query of a split model on its way through the sub-models, on the workers that it was given."""

import asyncio
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from edgewise.errors import ProtocolError
from edgewise.runtime import clock, http
from edgewise.runtime.gateway.forwarding import Upstream
from edgewise.runtime.protocol.messages import (
    AGE,
    PRIORITY,
    REMAINING,
    TRACE,
    InferRequest,
    InferResponse,
    decode_response,
    encode_request,
    encode_response,
    remaining_s,
)
from edgewise.runtime.protocol.tensors import Array
from edgewise.runtime.worker.pieces import Cut, Part

PASSED = (PRIORITY, *TRACE)


class WorkerLost(Exception):
    """The worker of this number was lost while it had a query or a part of one."""


class _PieceRefused(Exception):
    """A worker's answer, which is not 200."""


class Sender(Protocol):
    """Who sends a query to the workers of its variant.

    Attributes:
        cut: the network.
    """

    cut: Cut

    def ask(self, server: int, part: Part) -> Upstream:
        """A sub-model at a worker."""

    def ended(self, left: dict[str, int], *tasks: str) -> None:
        """Tasks ended; `left`: where those run that have not."""


class QueryRun:
    """One query on its way through the sub-models.

    Attributes:
        sent_bytes: tensors that went to another worker than the one they came from.
    """

    def __init__(
        self,
        group: Sender,
        asked: InferRequest,
        left: dict[str, int],
        headers: Mapping[str, str],
        began_s: float,
        timeout_s: float,
    ) -> None:
        self._group, self._asked, self._servers, self._left = group, asked, left.copy(), left
        self._passed = {name: headers[name] for name in PASSED if name in headers}
        self._began_s, self._expires_s = began_s, began_s + remaining_s(headers)
        self._until_s = began_s + timeout_s
        self._parts = [part for part in group.cut.parts if part.name]
        loop = asyncio.get_running_loop()
        self._known: dict[str, asyncio.Future[Array]] = {
            name: loop.create_future() for part in self._parts for name in part.outputs
        }
        self._came_from = {name: left[part.task] for part in self._parts for name in part.outputs}
        for name, array in asked.inputs.items():
            self._known[name] = loop.create_future()
            self._known[name].set_result(array)
        self.sent_bytes = 0

    async def answer(self) -> http.Response:
        """Every sub-model as soon as its tensors are known; the network's answer, or the first refusal."""
        parts = [asyncio.ensure_future(self._carry_out(part)) for part in self._parts]
        try:
            await asyncio.gather(*parts)
        except _PieceRefused as refused:
            answer: http.Response = refused.args[0]
            return answer
        finally:
            for part in parts:
                part.cancel()
        asked, cut = self._asked, self._group.cut
        outputs = {name: self._known[name].result() for name in asked.outputs or cut.outputs}
        response = InferResponse(cut.graph.name, outputs, asked.id)
        headers, body = encode_response(response, asked.binary, asked.binary_outputs)
        return http.Response(200, body, headers)

    def lose(self, server: int) -> None:
        """A worker is down: what is to be done there and was not sent yet cannot be."""
        for part in self._parts:
            if self._servers[part.task] == server and part.task in self._left:
                for name in [name for name in part.inputs if not self._known[name].done()]:
                    self._known[name].set_exception(WorkerLost(server))
                    self._known[name].exception()  # one part waits for it at most, or none any more

    async def _carry_out(self, part: Part) -> None:
        here = self._servers[part.task]
        feeds = {name: await self._known[name] for name in part.inputs}
        now_s = clock.monotonic_s()
        if now_s >= self._expires_s:
            raise _PieceRefused(http.failure(504, f"deadline passed before {part.task}"))
        request = InferRequest(feeds, part.outputs, parameters=self._asked.parameters)
        headers, body = encode_request(request)
        headers |= self._passed | {AGE: f"{now_s - self._began_s:.6f}"}
        if self._expires_s < np.inf:
            headers[REMAINING] = f"{self._expires_s - now_s:.6f}"
        try:
            answer = await self._group.ask(here, part).infer(headers, body, max(self._until_s - now_s, 0.001))
        except ConnectionError as error:
            raise WorkerLost(here) from error
        if answer.status == 503:  # it is draining
            raise WorkerLost(here)
        if answer.status != 200:
            raise _PieceRefused(answer)
        try:
            found = decode_response(answer.headers, answer.body).outputs
        except ProtocolError as error:
            raise ProtocolError(f"{part.task}: the worker's answer: {error}", status=502) from error
        self._group.ended(self._left, part.task)
        self.sent_bytes += sum(a.nbytes for n, a in feeds.items() if self._came_from.get(n, here) != here)
        for name in [name for name in part.outputs if not self._known[name].done()]:
            self._known[name].set_result(found[name])
