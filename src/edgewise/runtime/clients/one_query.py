"""One query to a gateway at some address: whether what is installed somewhere answers."""

import asyncio
import json
from typing import NamedTuple

from edgewise.errors import RunError
from edgewise.runtime import http
from edgewise.runtime.clients.reaching import ask
from edgewise.runtime.clients.traffic import zeros
from edgewise.runtime.protocol.messages import DEADLINE

WAIT_FOR_IT_S, ANSWER_WITHIN_S = 45.0, 20.0
ALL = "/v2/repository/index"


class Answered(NamedTuple):
    """A query's task, and the length of its answer."""

    task: str
    size_bytes: int


def answer_of(url: str, token: str | None = None, task: str | None = None) -> Answered:
    """What a gateway answers to a query of zeros.

    A query of a stream states its needs, and so makes a stream of its own that ends when it is idle.

    Args:
        task: or service; the first one that is ready by default.
    Raises:
        RunError: nobody answers, or the answer is a refusal.
    """
    client = http.Client.of_url(url, token)
    try:
        return asyncio.run(_answered(client, task))
    except (ConnectionError, TimeoutError, ValueError) as error:
        raise RunError(f"{url}: {error}") from error


async def _answered(client: http.Client, task: str | None) -> Answered:
    try:
        chosen = task or await _first(client)
        headers, body = await zeros(client, chosen)
        headers = {**headers, "edgewise-rate-qps": "1", DEADLINE: f"{ANSWER_WITHIN_S:g}"}
        answer = await _ok(client, f"/v2/models/{chosen}/infer", headers, body)
        return Answered(chosen, len(answer.body))
    finally:
        client.close()


async def _first(client: http.Client) -> str:
    answer = await _ok(client, ALL, {}, b'{"ready": true}')
    ready = [str(each["name"]) for each in json.loads(answer.body)]
    if not ready:
        raise ValueError("no task has a worker that is up")
    return ready[0]


async def _ok(client: http.Client, path: str, headers: dict[str, str], body: bytes) -> http.Response:
    answer = await ask(client, "POST", path, headers, body, patience_s=WAIT_FOR_IT_S)
    if answer.status != 200:
        raise ValueError(f"{path}: {answer.status}: {answer.body.decode(errors='replace')[:200]}")
    return answer
