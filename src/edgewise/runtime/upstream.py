"""The workers behind a gateway, seen from it: where they are, and whether they answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from edgewise.runtime import http


class Upstream:
    """A worker: any server of the Open Inference Protocol.

    Args:
        client: connections to it.
        model: name of its model in its own URLs.
    Attributes:
        up: whether it is thought to answer.
    """

    def __init__(self, client: http.Client, model: str) -> None:
        self.client, self.model = client, model
        self.up = True
        self._misses = 0
        self._path = f"/v2/models/{quote(model, safe='')}"
        self.infer_path = f"{self._path}/infer"

    async def metadata(self, timeout_s: float = 5.0) -> dict[str, Any] | None:
        """Its model's metadata, None when it gives none."""
        try:
            answer = await self.client.request("GET", self._path, timeout_s=timeout_s)
            found = json.loads(answer.body) if answer.status == 200 else None
        except (ConnectionError, TimeoutError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    async def check(self, timeout_s: float, failures: int) -> bool:
        """Ask whether its model is ready; `failures` misses in a row, or a refused connection, mean down.

        Returns:
            whether it is up now.
        """
        try:
            answer = await self.client.request("GET", f"{self._path}/ready", timeout_s=timeout_s)
            ready = answer.status == 200
            self._misses = 0 if ready else failures
        except ConnectionError:
            self._misses = failures
        except TimeoutError:
            self._misses += 1
        return self._misses < failures


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
