"""Keeps a gateway's copy of the store and its controller in line, over HTTP; see `store.handed`."""

import json
import logging
import threading
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import quote, urlsplit

from edgewise.errors import RunError
from edgewise.runtime import clock, disk
from edgewise.runtime.store import DATABASE, SCENARIO, StoreError
from edgewise.runtime.store.handed import CopiedStore

TURN_S, ASK_S = 0.25, 10.0  # between two looks at what the controller wants; for an answer
OVERLAP_S = 60.0  # clocks of nodes differ by less
OK, SAME = 200, 304

log = logging.getLogger("edgewise.handing")


class Handing:
    """Hands in and takes over, again and again; whoever is away is asked again.

    Args:
        url: where the controller answers parts of the system.
        token: that shows one of them.
        gateway: whose copy it is.
        folder: of the copy.
    """

    def __init__(self, url: str, token: str, gateway: str, folder: Path) -> None:
        self._where, self._token, self._gateway, self._folder = urlsplit(url), token, gateway, folder
        self._store = CopiedStore(folder / DATABASE)
        self._connection: HTTPConnection | None = None
        self._first, self._seen, self._since_s = True, "", 0.0
        self._away, self._over = False, threading.Event()
        self._thread = threading.Thread()

    def begin(self, patience_s: float) -> None:
        """Have a copy; one that an earlier life of this pod left is good enough while the controller is away.

        Raises:
            RunError: there is none, and the controller does not answer in time.
        """
        until_s = clock.monotonic_s() + patience_s
        known = bool(self._store.processes("gateway")) and (self._folder / SCENARIO).is_file()
        self._first = not known
        while not self.step() and not known:
            if clock.monotonic_s() > until_s:
                raise RunError(f"{self._gateway}: the controller at {self._where.geturl()} does not answer")
            self._over.wait(2 * TURN_S)

    def keep(self) -> None:
        """Go on in a thread until `close`."""
        self._store.close()  # a connection is of the thread that made it
        self._thread = threading.Thread(target=self._keep, name="handing", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hand in what there is, if that can be done now, and no more."""
        self._over.set()
        self._thread.join(ASK_S)

    def _keep(self) -> None:
        self._store = CopiedStore(self._folder / DATABASE)
        while not self._over.wait(TURN_S):
            self.step()
        self.step()
        self._store.close()

    def step(self) -> bool:
        """Hand in what waits and take over what is wanted; whether both could be done."""
        try:
            while self._hand_in():
                pass
            self._take_over()
        except (OSError, HTTPException, ValueError, StoreError) as error:
            self.disconnect()
            if not self._away:
                log.warning("the controller is away", extra={"why": str(error)[:200]})
            self._away = True
            return False
        if self._away:
            log.warning("the controller is back")
        self._away = False
        return True

    def _hand_in(self) -> bool:
        """Hand in some rows; whether there may be more."""
        if not (rows := self._store.handed.waiting()):
            return False
        self._ask("POST", f"?life={self._store.life()}", json.dumps(rows).encode())
        streams = [row[0] for _, kind, row in rows if kind == "stream" and row is not None]
        self._store.handed.done([number for number, *_ in rows], streams)
        return True

    def _take_over(self) -> None:
        asked_s = clock.unix_s()
        found = self._ask("GET", f"?since={self._since_s!r}")
        if found is None:
            return
        said = json.loads(found)
        text = (self._folder / SCENARIO).read_text() if (self._folder / SCENARIO).is_file() else None
        if said["scenario"] != text:
            disk.write_whole(self._folder / SCENARIO, said["scenario"])
        self._store.take(said, self._first)
        self._first, self._since_s = False, asked_s - OVERLAP_S

    def _ask(self, method: str, rest: str, body: bytes | None = None) -> bytes | None:
        """What is answered; None where nothing has changed since.

        Raises:
            OSError, HTTPException: nothing is, or that it cannot be done.
        """
        if self._connection is None:
            host, port = str(self._where.hostname), self._where.port
            self._connection = HTTPConnection(host, port, timeout=ASK_S)
        headers = {"Authorization": f"Bearer {self._token}", "If-None-Match": self._seen}
        path = f"/gateways/{quote(self._gateway, safe='')}{rest}"
        self._connection.request(method, path, body, headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status == SAME:
            return None
        if answer.status != OK:
            raise OSError(f"{answer.status} {answer.reason}")
        if method == "GET":
            self._seen = answer.headers.get("ETag", "")
        return content

    def disconnect(self) -> None:
        """Close the connection; the next step opens another one."""
        if self._connection is not None:
            with suppress(OSError):
                self._connection.close()
        self._connection, self._seen = None, ""
