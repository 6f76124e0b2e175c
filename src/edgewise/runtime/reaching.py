"""Connections from this machine to the processes of a live system, with the token that each wants to see."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from edgewise.errors import RunError
from edgewise.runtime import http
from edgewise.runtime.controller.plan import DATABASE
from edgewise.runtime.controller.rolling import tls_files
from edgewise.runtime.store import Process, Store

LISTENING = "0A"  # in /proc/net/tcp


def client_to(process: Process, store: Store, token: str | None) -> http.Client:
    """A client of a worker or gateway; a gateway's certificate must be the one in the system's folder."""
    tls, folder = process.settings.get("tls"), store.file.parent
    return http.Client.of_url(process.url, token, http.tls_to(tls_files(folder, tls)[0]) if tls else None)


def operator(store: Store) -> http.Client:
    """A client of the controller that may do everything.

    Raises:
        RunError: the system was never started, or somebody else listens in its place to hear the token.
    """
    about = store.get("controller")
    if about is None:
        raise RunError(
            f"state {store.file.parent}: no live system was started there; use edgewise up, or --state"
        )
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
        raise RunError(f"state {folder}: no live system was started there; use edgewise up, or --state")
    return Store.readable(folder / DATABASE)
