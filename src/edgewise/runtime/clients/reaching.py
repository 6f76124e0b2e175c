"""Connections to the processes of a live system, and how their clients keep what was accepted.

Accepted is a stream whose opening was answered 201: it is in the store, and its number stays valid until
it is closed, whatever dies. A query is accepted with its stream; it is not stored. A client sends it
again, under the same number, when it got no answer (the connection broke) or one that says so:

    502  its worker was lost, and no other could take it
    503  draining, or no worker of its stream is up

Inference changes nothing, so a query that ran twice is no harm. Any other answer is final.
"""

import asyncio
import os
from contextlib import suppress
from pathlib import Path

from edgewise.errors import RunError
from edgewise.runtime import clock, http
from edgewise.runtime.store import DATABASE, Process, Store, tls_files

LISTENING = "0A"  # in /proc/net/tcp


def client_to(process: Process, store: Store, token: str | None) -> http.Client:
    """A client of a worker or gateway; a gateway's certificate must be the one in the system's folder."""
    if process.taken:
        return http.Client.of_url(process.url)
    tls, folder = process.settings.get("tls"), store.file.parent
    return http.Client.of_url(process.url, token, http.tls_to(tls_files(folder, tls)[0]) if tls else None)


def fronts(store: Store) -> list[Process]:
    """Gateways as their clients reach them: one for all processes of a port."""
    return [r.process.front for r in store.processes("gateway") if r.process.share[0] == 0]


def operator(store: Store) -> http.Client:
    """A client of the controller that may do everything.

    Raises:
        RunError: the system was never started, or somebody else listens in its place to hear the token.
    """
    about = store.get("controller")
    if about is None:
        raise not_started(store.file.parent)
    port = about["port"]
    if strangers := listeners(port) - {os.geteuid()}:
        whose = ", ".join(map(str, sorted(strangers)))
        raise RunError(f"port {port}, of the controller: is taken by user {whose}; nothing was sent there")
    return http.Client.of_url(f"http://{http.LOCALHOST}:{port}", store.secret("operator"))


def listeners(port: int) -> set[int]:
    """Users who listen at a TCP port of this machine; none where the system does not say."""
    found = set[int]()
    with suppress(OSError):
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, local, _, state, _, _, _, user, *_ = line.split()
            if state == LISTENING and local.endswith(f":{port:04X}"):
                found.add(int(user))
    return found


def store_of(folder: Path) -> Store:
    """The store of a system that somebody started.

    Raises:
        RunError: there is none, or it is not ours.
    """
    if not (folder / DATABASE).is_file():
        raise not_started(folder)
    return Store.readable(folder / DATABASE)


def not_started(folder: Path) -> RunError:
    """Nothing is known of a live system there."""
    return RunError(f"state {folder}: no live system was started there; use edgewise up, or --state")


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
    until_s = clock.monotonic_s() + patience_s
    opening = method == "POST" and path == "/v1/streams"
    refusal: http.Response | None = None  # says more than that time is over
    while True:
        left_s = until_s - clock.monotonic_s()
        try:
            answer = await client.request(method, path, headers, body, max(left_s, 0.001), not opening)
            if answer.status not in AGAIN or clock.monotonic_s() > until_s:
                return answer
            refusal = answer
        except TimeoutError:
            if refusal is None or opening:
                raise
            return refusal
        except ConnectionError as error:
            refused = str(error).startswith("cannot reach")
            if clock.monotonic_s() > until_s or (opening and not refused):
                raise
        await asyncio.sleep(PAUSE_S)
