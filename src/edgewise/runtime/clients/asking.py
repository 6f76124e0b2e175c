"""How a client keeps what was accepted: the rule, and a client that follows it.

Accepted is a stream whose opening was answered 201: it is in the store, and its number stays valid until
it is closed, whatever dies. A query is accepted with its stream; it is not stored. A client sends it
again, under the same number, when it got no answer (the connection broke) or one that says so:

    502  its worker was lost, and no other could take it
    503  draining, or no worker of its stream is up

Inference changes nothing, so a query that ran twice is no harm. Any other answer is final.
"""

from __future__ import annotations

import asyncio
import time

from edgewise.runtime import http

AGAIN = (502, 503)
PAUSE_S = 0.02


async def ask(
    client: http.Client,
    method: str,
    path: str,
    headers: dict[str, str] | None = None,
    body: bytes = b"",
    *,
    patience_s: float = 10.0,
) -> http.Response:
    """Send a request, again and again where the rule allows it, for `patience_s`.

    Opening a stream is not repeated once it was sent: the answer that was lost may have opened it.

    Raises:
        ConnectionError, TimeoutError: there was no answer in all that time.
    """
    until_s = time.monotonic() + patience_s
    opening = method == "POST" and path == "/v1/streams"
    while True:
        left_s = until_s - time.monotonic()
        try:
            answer = await client.request(method, path, headers, body, max(left_s, 0.001), not opening)
            if answer.status not in AGAIN or time.monotonic() > until_s:
                return answer
        except ConnectionError as error:
            refused = str(error).startswith("cannot reach")
            if time.monotonic() > until_s or (opening and not refused):
                raise
        await asyncio.sleep(PAUSE_S)
