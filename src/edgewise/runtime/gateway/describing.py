"""What a gateway says of its tasks and services: metadata, readiness, and what clients of Triton ask for."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from edgewise.runtime import http
from edgewise.runtime.gateway.forwarding import Upstream
from edgewise.runtime.protocol import triton
from edgewise.runtime.protocol.bodies import Ready, Statistics

ALL = (["v2", "models", "stats"], ["v2", "repository", "index"])


async def describe(
    request: http.HttpRequest, task: str, what: list[str], targets: Sequence[Upstream], draining: bool
) -> http.Response | None:
    """Answer GET /v2/models/{task}, …/ready, …/config and …/stats of a task from who serves it; else None."""
    if request.method != "GET" or what not in ([], ["ready"], ["config"], ["stats"]):
        return None
    up = [target for target in targets if target.up]
    match what:
        case ["ready"]:
            ready = bool(up) and not draining
            return http.as_json(Ready(ready, task), 200 if ready else 503)
        case ["stats"]:
            return http.as_json(Statistics([await _stats(task, up)]))
    for target in up:
        found = await _config(target) if what else await target.about()
        if found is not None:
            return http.as_json({**found, "name": task})
    return http.failure(503, f"no worker of the task {task!r} answers")


async def describe_all(
    request: http.HttpRequest, tasks: Mapping[str, Sequence[Upstream]], draining: bool
) -> http.Response | None:
    """Answer about all tasks: GET /v2/models/stats, POST /v2/repository/index; None for other paths."""
    if request.method == "GET" and request.parts == ALL[0] and "stats" not in tasks:
        every = (_stats(task, [each for each in targets if each.up]) for task, targets in tasks.items())
        return http.as_json(Statistics(await asyncio.gather(*every)))
    if request.method == "POST" and request.parts == ALL[1]:
        down = "draining" if draining else "no worker is up"
        ready = {task: not draining and any(each.up for each in found) for task, found in tasks.items()}
        models = {task: "" if yes else down for task, yes in ready.items()}
        return http.as_json(triton.index(request.body, models))
    return None


async def _stats(task: str, up: Sequence[Upstream]) -> dict[str, Any]:
    """Of all workers of a task; those that keep no statistics count nothing."""
    servers = {(each.client.url, each.model): each for each in up}
    answers = await asyncio.gather(*(each.about("/stats") for each in servers.values()))
    entries = [found["model_stats"][0] for found in answers if found and found.get("model_stats")]
    return triton.together(task, entries)


async def _config(target: Upstream) -> dict[str, Any] | None:
    """As its server has it, or made from its metadata."""
    found = await target.about("/config")
    if found is None and (metadata := await target.about()) is not None:
        found = triton.model_config(metadata)
    return found
