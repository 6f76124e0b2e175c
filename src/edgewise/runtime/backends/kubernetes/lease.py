"""Who is the controller of a system: whoever holds its Lease. Others wait; a paused one is no longer.

A Lease is held for some seconds from the moment at which its holder asked for it, on the holder's own clock.
After that it asks the API server for nothing but the Lease again, and names the version that it saw: who was
paused, and followed by another, is refused. Others take a Lease whose version has not changed for as long.
"""

import atexit
import logging
import os
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NoReturn

import httpx2
from lightkube import ApiError, Client
from lightkube.models.coordination_v1 import LeaseSpec
from lightkube.models.meta_v1 import ObjectMeta, OwnerReference
from lightkube.resources.coordination_v1 import Lease

from edgewise.runtime import clock
from edgewise.runtime.backends.kubernetes.backend import GONE, THERE
from edgewise.runtime.backends.kubernetes.calls import CALLS
from edgewise.runtime.backends.system import SUPERSEDED

HELD_S, RENEW_S = 15.0, 2.0  # for how long it is held; between two looks at it
BEGIN_S = 120.0  # by a controller that is yet to begin
READS = ("GET", "HEAD")
BROKEN = 500  # and above: the API server cannot answer, whatever it is asked

log = logging.getLogger("edgewise.kubernetes")


class Leading:
    """The Lease of one system, as one of its controllers sees it.

    Args:
        client: of the namespace.
        owner: a reference to the Deployment whose system it is, of which the Lease has the name.
        who: this controller; one that starts again goes on as the same.
    """

    def __init__(self, client: Client, owner: Mapping[str, Any], who: str) -> None:
        self._client, self._owner, self._who = client, owner, who
        self._seen: tuple[str | None, float] = None, 0.0  # the version, and since when it is the same
        self._until_s = 0.0
        self._over = threading.Event()

    def wait(self, waiting: Callable[[], None] = lambda: None) -> None:
        """Return once this controller leads, for long enough to begin; whoever waits outlives the API server.

        Args:
            waiting: called once where another one leads.
        Raises:
            ApiError: it may not be asked for.
        """
        said = False
        while not self._begins():
            if not said:
                waiting()
            said = True
            self._over.wait(RENEW_S)

    def _begins(self) -> bool:
        try:
            return self.take(BEGIN_S)
        except (ApiError, httpx2.TransportError) as error:
            if isinstance(error, ApiError) and (error.status.code or 0) < BROKEN:
                raise
            log.warning("lease not taken", extra={"why": str(error)[:200]})
            return False

    def keep(self) -> None:
        """Hold it from now on, in a thread; from then on nothing is written without it.

        Where another controller leads, this one ends.
        """
        if not self.take():
            self._superseded()
        CALLS.guard = self.check
        threading.Thread(target=self._keep, name="lease", daemon=True).start()

    def release(self) -> None:
        """Let the next one lead at once."""
        self._over.set()
        if (found := self._read()) is not None and found.spec.holderIdentity == self._who:
            found.spec.holderIdentity = ""
            self._client.replace(found)

    def check(self, request: httpx2.Request) -> None:
        """Before each question to the API server.

        Raises:
            ConnectionError: it would change something, and the Lease is not held.
        """
        reads = request.method in READS or "/leases/" in request.url.path
        if not reads and clock.monotonic_s() >= self._until_s:
            raise ConnectionError("the lease is over; nothing is changed until it is held again")

    def take(self, held_s: float = HELD_S) -> bool:
        """Take or renew the Lease where that may be; whether it is held now.

        Raises:
            ApiError: it cannot be asked for.
        """
        asked_s = clock.monotonic_s()
        found = self._read()
        try:
            if found is None:
                self._client.create(Lease(metadata=self._meta(), spec=self._spec(held_s, None)))
            elif self._may_take(found):
                found.spec = self._spec(held_s, found.spec)
                self._client.replace(found)
            else:
                return False
        except ApiError as error:
            if error.status.code != THERE:
                raise
            return False
        self._until_s = asked_s + held_s
        return True

    def _may_take(self, found: Any) -> bool:
        """Whether it is ours, nobody's, or has not been renewed for as long as it is held."""
        version, now_s = found.metadata.resourceVersion, clock.monotonic_s()
        if version != self._seen[0]:
            self._seen = version, now_s
        held_s = float(found.spec.leaseDurationSeconds or 0.0)
        return found.spec.holderIdentity in (self._who, "", None) or now_s - self._seen[1] > held_s

    def _read(self) -> Any:
        try:
            return self._client.get(Lease, self._owner["name"])
        except ApiError as error:
            if error.status.code == GONE:
                return None
            raise

    def _meta(self) -> ObjectMeta:
        return ObjectMeta(
            name=self._owner["name"], namespace=self._client.namespace,
            ownerReferences=[OwnerReference(**self._owner)],
        )  # fmt: skip

    def _spec(self, held_s: float, before: LeaseSpec | None) -> LeaseSpec:
        now = datetime.fromtimestamp(clock.unix_s(), UTC)
        now = now.replace(microsecond=max(now.microsecond, 1))  # without a fraction it is refused
        same = before is not None and before.holderIdentity == self._who
        changes = (before.leaseTransitions or 0) if before is not None else 0
        return LeaseSpec(
            holderIdentity=self._who, leaseDurationSeconds=round(held_s), renewTime=now,
            acquireTime=before.acquireTime if same and before is not None else now,
            leaseTransitions=changes + (before is not None and not same),
        )  # fmt: skip

    def _keep(self) -> None:
        while not self._over.wait(RENEW_S):
            try:
                held = self.take()
            except Exception as error:  # the API server is away: nothing can be changed, by nobody
                log.warning("lease not renewed", extra={"why": str(error)[:200]})
                continue
            if not held and not self._over.is_set():
                self._superseded()

    def _superseded(self) -> NoReturn:
        log.error("superseded", extra={"why": f"another controller than {self._who} leads"})
        os._exit(SUPERSEDED)  # that one knows what runs; nothing else is to be asked for


def release_at_the_end(leading: Leading) -> None:
    """Have the next one lead at once when this process ends, as before it has a controller that does so."""

    def release() -> None:
        with suppress(Exception):  # whatever a connection can do: others wait for longer
            leading.release()

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    atexit.register(release)
    signal.signal(signal.SIGTERM, end)
