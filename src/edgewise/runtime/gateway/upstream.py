"""The workers behind a gateway, seen from it: where they are, and whether they answer."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from edgewise.core.views import REASONS, Violation
from edgewise.errors import ProtocolError
from edgewise.runtime import http
from edgewise.runtime.protocol.headers import QUEUED
from edgewise.runtime.protocol.messages import (
    JSON_LENGTH,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

log = logging.getLogger("edgewise.upstream")
REFUSALS = (401, 403)  # what a server answers to a token that is not its own
REFUSES = "refuses our token"


class Upstream:
    """A worker: any server of the Open Inference Protocol.

    Args:
        client: connections to it.
        model: name of its model in its own URLs.
    Attributes:
        up: whether it is thought to answer.
        silent: its last health check had no answer at all, and nobody refused the connection either: what
            is under way there may never be answered.
        refuses: whether it answers, and does not take our token.
        queued: queries that wait or run there, as it last said; None when it does not.
    """

    def __init__(self, client: http.Client, model: str) -> None:
        self.client, self.model = client, model
        self.up, self.silent, self.refuses = True, False, False
        self.queued: int | None = None
        self._misses = 0
        self._path = f"/v2/models/{quote(model, safe='')}"
        self._binary: bool | None = None  # not yet known

    async def infer(self, headers: dict[str, str], body: bytes, timeout_s: float) -> http.Response:
        """Send a query; where the server takes no binary tensors, they are rewritten as JSON.

        Raises:
            ConnectionError: the worker is lost.
            TimeoutError: no answer within `timeout_s`.
            ProtocolError: the tensors cannot be rewritten.
        """
        until_s = time.monotonic() + timeout_s
        if self._binary is None:
            self._binary = await self._takes_binary(timeout_s)
            timeout_s = max(until_s - time.monotonic(), 0.0)
        path = f"{self._path}/infer"
        if self._binary or JSON_LENGTH not in headers:
            return await self._request("POST", path, timeout_s, headers, body)
        asked = decode_request(headers, body)
        plain = replace(asked, binary=False, binary_outputs=dict.fromkeys(asked.binary_outputs, False))
        more, text = encode_request(plain, json_inputs=plain.inputs)
        kept = {name: value for name, value in headers.items() if name != JSON_LENGTH}
        answer = await self._request("POST", path, timeout_s, kept | more, text)
        if answer.status == 200:
            try:
                found = decode_response(answer.headers, answer.body)
            except ProtocolError as error:
                raise ProtocolError(f"the worker's answer: {error}", status=502) from error
            more, body = encode_response(found, asked.binary, asked.binary_outputs)
            answer = http.Response(200, body, more)
        return answer

    def moved(self, client: http.Client, model: str) -> Upstream:
        """The worker at another address, or with another name of its model."""
        return Upstream(client, model)

    async def _takes_binary(self, timeout_s: float) -> bool:
        """Whether the server lists the extension; one that lists none at all is believed to."""
        answer = await self._request("GET", "/v2", timeout_s)
        try:
            extensions = json.loads(answer.body).get("extensions")
        except (ValueError, AttributeError):
            return True
        return not isinstance(extensions, list) or "binary_tensor_data" in extensions

    async def about(self, what: str = "", timeout_s: float = 5.0) -> dict[str, Any] | None:
        """Its model's metadata, "/config" or "/stats" (see `triton`); None when it gives none."""
        try:
            answer = await self._request("GET", self._path + what, timeout_s)
            found = json.loads(answer.body) if answer.status == 200 else None
        except (ConnectionError, TimeoutError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def heard(self, answer: http.Response) -> None:
        """Note what an answer says of the queue."""
        text = answer.headers.get(QUEUED, "")
        self.queued = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None

    async def check(self, timeout_s: float, failures: int) -> bool:
        """Ask whether its model is ready; `failures` misses in a row, or a refused connection, mean down.

        Returns:
            whether it is up now.
        """
        try:
            answer = await self._request("GET", f"{self._path}/ready", timeout_s)
            ready = answer.status == 200
            self.heard(answer)
            self._misses, self.silent = 0 if ready else failures, False
        except ConnectionError as error:
            self._misses, self.silent = failures, not isinstance(error, ConnectionRefusedError)
        except TimeoutError:
            self._misses, self.silent = self._misses + 1, True
        return self._misses < failures

    async def _request(
        self,
        method: str,
        path: str,
        timeout_s: float,
        headers: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> http.Response:
        """As its client's; a worker that does not take our token is as good as lost, and is told apart."""
        answer = await self.client.request(method, path, headers, body, timeout_s)
        refuses = answer.status in REFUSALS
        if refuses and not self.refuses:
            log.warning("worker refuses our token", extra={"url": self.client.url, "status": answer.status})
        self.refuses = refuses
        if refuses:
            raise ConnectionRefusedError(REFUSES)
        return answer


def explain(reason: str, targets: Sequence[Upstream]) -> str:
    """Why a stream is refused, with the workers that are up and do not take our token."""
    refusing = ", ".join(target.client.url for target in targets if target.refuses)
    return f"{reason}; {REFUSES}: {refusing}" if refusing and reason == REASONS[Violation.DOWN] else reason


async def watch(
    upstreams: list[Upstream],
    changed: Callable[[int, bool], None],
    *,
    period_s: float = 1.0,
    timeout_s: float = 1.0,
    failures: int = 2,
) -> None:
    """Check every worker each period, until cancelled; `changed(worker, up)` when one goes or comes."""

    async def check(worker: int, upstream: Upstream) -> None:
        up = await upstream.check(timeout_s, failures)
        if upstreams[worker] is upstream and up != upstream.up:
            changed(worker, up)

    while True:
        await asyncio.gather(*(check(w, upstream) for w, upstream in enumerate(upstreams)))
        await asyncio.sleep(period_s)
