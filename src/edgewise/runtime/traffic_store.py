"""Streams and requests in the store: which are open, and what came, for `edgewise record`."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from edgewise.runtime.faults import FaultStore
from edgewise.runtime.sqlite import telling


class Request(NamedTuple):
    """A request of a service as it came: Unix time, site of its gateway, service, time it had, payload."""

    at_s: float
    site: str
    service: str
    deadline_s: float
    size_bytes: float


@dataclass(frozen=True, slots=True)
class OpenStream:
    """A stream as it was accepted, and the worker it was bound to last.

    `key` is what a gateway finds it by when its clients state no number.
    """

    id: int
    needs: dict[str, Any]
    key: tuple[str | None, ...] | None
    opened_s: float
    worker: str | None


class TrafficStore(FaultStore):
    """The part of a store that gateways write."""

    def open_stream(self, gateway: str, needs: dict[str, Any], key: Sequence[str | None] | None) -> int:
        """Keep a stream until it is closed; once this returns it survives every process.

        Returns:
            its number, unique over all gateways.
        """
        row = self.run(
            "INSERT INTO stream (gateway, needs, key, opened_s) VALUES (?, ?, ?, ?)",
            (gateway, json.dumps(needs), None if key is None else json.dumps(list(key)), time.time()),
        )
        return int(row.lastrowid or 0)

    def close_stream(self, stream_id: int, worker: str | None, outcome: dict[str, Any]) -> None:
        """A stream ended."""
        self.run(
            "UPDATE stream SET closed_s = ?, worker = ?, outcome = ? WHERE id = ?",
            (time.time(), worker, json.dumps(outcome), stream_id),
        )

    def note_requests(self, rows: Sequence[Request]) -> None:
        """Keep requests of services that came, for `edgewise record`."""
        with self.at_once():
            self.run_for_each(
                "INSERT INTO request (at_s, site, service, deadline_s, size_bytes) VALUES (?, ?, ?, ?, ?)",
                rows,
            )

    def note_answers(self, rows: Iterable[tuple[str, int, int]]) -> None:
        """Add answers of services: whose, how many, and their bytes together."""
        with self.at_once():
            self.run_for_each(
                "INSERT INTO answer VALUES (?, ?, ?) ON CONFLICT (service) DO UPDATE SET"
                " answers = answers + excluded.answers, size_bytes = size_bytes + excluded.size_bytes",
                rows,
            )

    def answer_bytes(self) -> dict[str, float]:
        """Mean size of the answers of each service that gave any."""
        return dict(self.rows("SELECT service, size_bytes / answers FROM answer WHERE answers > 0"))

    def requests(self, since_s: float = 0.0) -> list[Request]:
        """Requests that came since then, oldest first."""
        columns = ", ".join(Request._fields)
        found = self.rows(f"SELECT {columns} FROM request WHERE at_s >= ? ORDER BY at_s", (since_s,))
        return [Request(*row) for row in found]

    def purge(self, table: str, most: int) -> None:
        """Forget rows of a table, "request" or "fault", but for the latest `most`."""
        self.run(f"DELETE FROM {table} WHERE id <= (SELECT MAX(id) FROM {table}) - ?", (most,))

    def purge_streams(self, most: int, before_s: float, at_once: int = 5_000) -> int:
        """Forget closed streams, but for the latest `most` and what was closed since `before_s`.

        Streams of gateways that the system no longer has are closed first.

        Args:
            at_once: more are left for the next call.
        Returns:
            how many were forgotten.
        """
        gone = json.dumps({"reason": "its gateway is no longer there"})
        self.run(
            "UPDATE stream SET closed_s = ?, outcome = ? WHERE closed_s IS NULL AND gateway NOT IN"
            " (SELECT name FROM process WHERE wanted OR handle IS NOT NULL)",
            (time.time(), gone),
        )
        forgotten = self.run(
            "DELETE FROM stream WHERE id IN (SELECT id FROM stream WHERE closed_s IS NOT NULL AND"
            " (id <= (SELECT MAX(id) FROM stream) - ? OR closed_s < ?) ORDER BY id LIMIT ?)",
            (most, before_s, at_once),
        ).rowcount
        if forgotten:
            with telling(self.file):
                self._db.executescript("PRAGMA incremental_vacuum")  # `execute` frees one page
        return forgotten

    def streams_open(self) -> int:
        """How many are open."""
        return int(self.rows("SELECT COUNT(*) FROM stream WHERE closed_s IS NULL")[0][0])

    def open_streams(self, gateway: str) -> list[OpenStream]:
        """The streams that a gateway accepted and nobody closed, oldest first."""
        rows = self.rows(
            "SELECT id, needs, key, opened_s, worker FROM stream"
            " WHERE gateway = ? AND closed_s IS NULL ORDER BY id",
            (gateway,),
        )
        return [
            OpenStream(number, json.loads(needs), tuple(json.loads(key)) if key else None, *rest)
            for number, needs, key, *rest in rows
        ]

    def bind(self, workers: Mapping[int, str | None]) -> None:
        """Note which worker each of these open streams is bound to."""
        with self.at_once():
            self.run_for_each(
                "UPDATE stream SET worker = ? WHERE id = ? AND closed_s IS NULL",
                [(worker, number) for number, worker in workers.items()],
            )

    def streams(self, most: int = 10_000) -> list[dict[str, Any]]:
        """The latest streams, open and closed, oldest first; `closed_s` is None for open ones."""
        rows = self.rows(
            "SELECT id, gateway, needs, opened_s, closed_s, worker, outcome FROM"
            " (SELECT * FROM stream ORDER BY id DESC LIMIT ?) ORDER BY id",
            (most,),
        )
        return [
            {
                "stream": number, "gateway": gateway, **json.loads(needs), "opened_s": opened_s,
                "closed_s": closed_s, "worker": worker, **(json.loads(outcome) if outcome else {}),
            }
            for number, gateway, needs, opened_s, closed_s, worker, outcome in rows
        ]  # fmt: skip
