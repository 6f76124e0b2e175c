"""Events that say on a user's own object what was done with it, and why; reasons are stable tokens."""

import contextlib
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from lightkube import Client, codecs

from edgewise.runtime import clock
from edgewise.runtime.backends.kubernetes.job_seen import JobSeen

MOST_LETTERS = 1000  # of a message; Kubernetes takes 1,024
MOST_SAID = 10_000  # things that are remembered to be said once


class Events:
    """Writes events about Jobs; one that cannot be written is left out.

    Args:
        ask: carries out what it is given, in turn.
    """

    def __init__(self, client: Client, ask: Callable[[Callable[[], None]], None]) -> None:
        self._client, self._ask = client, ask
        self._said: set[str] = set()

    def put(self, about: JobSeen, reason: str, message: str, bad: bool = False) -> None:
        """Write that something was done."""
        event = self._event(f"{about.name}.{uuid.uuid4().hex[:12]}", about, reason, message, bad)
        self._ask(lambda: self._send(event))

    def once(self, about: JobSeen, reason: str, message: str, bad: bool = False) -> None:
        """Write what is so of a Job; not again, whoever asks."""
        name = f"{about.name}.{reason.lower()}-{about.uid[:8]}"
        if name in self._said:
            return
        if len(self._said) >= MOST_SAID:
            self._said.clear()  # what is there already is refused by its name
        self._said.add(name)
        event = self._event(name, about, reason, message, bad)
        self._ask(lambda: self._send(event))

    def _event(self, name: str, about: JobSeen, reason: str, message: str, bad: bool) -> dict[str, Any]:
        now = datetime.fromtimestamp(clock.unix_s(), UTC).isoformat(timespec="seconds")
        space = self._client.namespace
        return {
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": space},
            "involvedObject": {
                "apiVersion": "batch/v1", "kind": "Job", "name": about.name, "namespace": space,
                "uid": about.uid,
            },
            "reason": reason, "message": message[:MOST_LETTERS], "type": "Warning" if bad else "Normal",
            "source": {"component": "edgewise"}, "reportingComponent": "edgewise",
            "firstTimestamp": now, "lastTimestamp": now, "count": 1,
        }  # fmt: skip

    def _send(self, event: dict[str, Any]) -> None:
        with contextlib.suppress(Exception):  # whatever a connection can do, and that it was said before
            self._client.create(codecs.from_dict(event))
