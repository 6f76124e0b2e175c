"""The records of a live system in its store: what came, what became of it, who held what.

Gateways write what they serve, the controller who holds what; jobs and pipelines have books of their own.
What is over is written within a fraction of a second, and kept whatever dies. Rows are bounded by number
(`controller.upkeep`): `oldest_s` says since when a table is whole. A run folder is made of them when somebody
asks (`edgewise.run.live`).
"""

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from edgewise.core.holders import Held
from edgewise.runtime import clock
from edgewise.runtime.store.database import StorePart


class Request(NamedTuple):
    """A request of a service, or a query of a split model, that is over.

    Attributes:
        at_s: when it came, Unix time.
        site: of its gateway.
        service: what it asked for.
        deadline_s: time that it had.
        size_bytes: payload.
        station: node, or the cloud's cluster, that it was sent to last; None: it was not.
        end_s: when it was over, Unix time; None of a row that an earlier version wrote.
        outcome: "in_time", "late" or "dropped"; "" of a row that an earlier version wrote.
    """

    at_s: float
    site: str
    service: str
    deadline_s: float
    size_bytes: float
    station: str | None
    end_s: float | None
    outcome: str


class Window(NamedTuple):
    """What a gateway did with streams in a window, and saw of workers and ways, so far.

    Attributes:
        start_s: of the window, Unix time.
        gateway: which.
        life: when its process began, Unix time: a later one of this name counts anew.
        policy: in force at the end.
        counts: by task, how many of each of `COUNTS`.
        delays: by task and application, of each cell of delays how many answers.
        worked: of workers, replicas and servers: whose process, when it began, Unix time, and how long it had
            worked until it was looked at last before the window, and last in it.
        sent: by site and cluster, bytes of messages there, and of their answers.
    """

    start_s: float
    gateway: str
    life: float
    policy: str
    counts: dict[str, list[int]]
    delays: dict[str, dict[str, dict[str, int]]]
    worked: Sequence[tuple[str, float, float, float]]
    sent: Mapping[str, Mapping[str, tuple[int, int]]]


COUNTS = ("streams_opened", "streams_bound", "streams_refused", "ok", "failed", "rejected")
Span = tuple[float, float, Held]
HELD_NOW, TOTALS = "held now", "held in all"  # settings
_HELD, _JSON = ", ".join(Held._fields), ("counts", "delays", "worked", "sent")


@dataclass(frozen=True, slots=True)
class OpenStream:
    """A stream as it was accepted, and the worker it was bound to last.

    `key` is what a gateway finds it by when its clients state no number, `owner` the client who opened it,
    `outcome` what became of its queries so far.
    """

    id: int
    needs: dict[str, Any]
    key: tuple[str | None, ...] | None
    opened_s: float
    worker: str | None
    owner: str = ""
    outcome: dict[str, Any] = field(default_factory=dict)


ALONE = (0, 1)  # who shares its port with nobody


def stream_number(share: tuple[int, int] = ALONE) -> int:
    """A new stream's number: nobody can guess it, and every reader of JSON can hold it.

    Args:
        share: see `Process.share`; the number says which of the processes has the stream.
    """
    mine, count = share
    return secrets.randbelow((2**53 - 1) // count) * count + (mine or count)


class RecordTable(StorePart):
    """What came, what became of it, and who held what meanwhile."""

    SCHEMA = """
CREATE TABLE IF NOT EXISTS stream (
    id INTEGER PRIMARY KEY AUTOINCREMENT, gateway TEXT NOT NULL, needs TEXT NOT NULL, key TEXT,
    opened_s REAL NOT NULL, closed_s REAL, worker TEXT, outcome TEXT, owner TEXT NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS request (
    id INTEGER PRIMARY KEY, at_s REAL NOT NULL, site TEXT NOT NULL, service TEXT NOT NULL,
    deadline_s REAL NOT NULL, size_bytes REAL NOT NULL, station TEXT, end_s REAL,
    outcome TEXT NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS answer (
    service TEXT PRIMARY KEY, answers INTEGER NOT NULL, size_bytes REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS stream_window (
    id INTEGER PRIMARY KEY, start_s REAL NOT NULL, gateway TEXT NOT NULL, life REAL NOT NULL,
    policy TEXT NOT NULL, counts TEXT NOT NULL, delays TEXT NOT NULL, worked TEXT NOT NULL DEFAULT '[]',
    sent TEXT NOT NULL DEFAULT '{}', UNIQUE (start_s, gateway, life)
);
CREATE TABLE IF NOT EXISTS hold (
    id INTEGER PRIMARY KEY, start_s REAL NOT NULL, end_s REAL NOT NULL, place TEXT NOT NULL,
    owner TEXT NOT NULL, work TEXT NOT NULL, cores REAL NOT NULL, memory_bytes REAL NOT NULL,
    bps REAL NOT NULL, accelerator_memory_bytes REAL NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS open_streams ON stream (gateway) WHERE closed_s IS NULL;
"""
    ADDED: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "stream": {"owner": "TEXT NOT NULL DEFAULT ''"},
        "request": {"station": "TEXT", "end_s": "REAL", "outcome": "TEXT NOT NULL DEFAULT ''"},
        "hold": {"accelerator_memory_bytes": "REAL NOT NULL DEFAULT 0"},
        "stream_window": {"worked": "TEXT NOT NULL DEFAULT '[]'", "sent": "TEXT NOT NULL DEFAULT '{}'"},
    }

    def open_stream(
        self,
        gateway: str,
        needs: dict[str, Any],
        key: Sequence[str | None] | None,
        owner: str = "",
        share: tuple[int, int] = ALONE,
    ) -> int:
        """Keep a stream until it is closed; once this returns it survives every process.

        Args:
            share: see `stream_number`.
        Returns:
            its number, unique over all gateways.
        """
        number, stated = stream_number(share), None if key is None else json.dumps(list(key))
        self.db.run(
            "INSERT INTO stream (id, gateway, needs, key, opened_s, owner) VALUES (?, ?, ?, ?, ?, ?)",
            (number, gateway, json.dumps(needs), stated, clock.unix_s(), owner),
        )
        return number

    def close_stream(self, stream_id: int, worker: str | None, outcome: dict[str, Any]) -> None:
        """A stream ended."""
        self.db.later(("close", stream_id), lambda: self._close(stream_id, worker, outcome))

    def _close(self, stream_id: int, worker: str | None, outcome: dict[str, Any]) -> None:
        self.db.run(
            "UPDATE stream SET closed_s = ?, worker = ?, outcome = ? WHERE id = ?",
            (clock.unix_s(), worker, json.dumps(outcome), stream_id),
        )

    def note_outcomes(self, outcomes: Mapping[int, dict[str, Any]]) -> None:
        """What became so far of queries of streams; also of refused ones, which are closed."""
        with self.db.at_once():
            self.db.run_for_each(
                "UPDATE stream SET outcome = ? WHERE id = ?",
                [(json.dumps(outcome), number) for number, outcome in outcomes.items()],
            )

    def note_requests(self, rows: Sequence[Request]) -> None:
        """Keep requests of services, and queries of split models, that are over."""
        with self.db.at_once():
            self.db.keep("request", rows)

    def note_windows(self, rows: Sequence[Window]) -> None:
        """Keep windows as they are now."""
        with self.db.at_once():
            self.db.keep(
                "stream_window",
                rows,
                _JSON,
                "ON CONFLICT (start_s, gateway, life) DO UPDATE SET policy = excluded.policy,"
                " counts = excluded.counts, delays = excluded.delays, worked = excluded.worked,"
                " sent = excluded.sent",
            )

    def windows(self, since_s: float = 0.0) -> list[Window]:
        """Windows that began since then, oldest first."""
        read = "stream_window WHERE start_s >= ? ORDER BY start_s, id"
        return self.db.kept(Window, read, (since_s,), _JSON)

    def note_spans(self, ended: Sequence[Span], held: Sequence[tuple[float, Held]]) -> None:
        """Keep who held what until now, and who holds what, since when."""
        with self.db.at_once():
            self.db.run_for_each(
                f"INSERT INTO hold (start_s, end_s, {_HELD}) VALUES (?, ?{', ?' * len(Held._fields)})",
                [(start_s, end_s, *what) for start_s, end_s, what in ended],
            )
            self._keep(HELD_NOW, held)

    def note_totals(self, totals: Sequence[Held]) -> None:
        """Keep what nodes and links have in all."""
        self._keep(TOTALS, totals)

    def spans(self, since_s: float = 0.0) -> list[Span]:
        """Who held what until some time since then, in order of ends."""
        found = self.db.rows(
            f"SELECT start_s, end_s, {_HELD} FROM hold WHERE end_s > ? ORDER BY end_s", (since_s,)
        )
        return [(start_s, end_s, Held(*what)) for start_s, end_s, *what in found]

    def held(self) -> list[tuple[float, Held]]:
        """Who holds what, and since when."""
        return [(since_s, Held(*what)) for since_s, what in self._kept(HELD_NOW)]

    def totals(self) -> list[Held]:
        """What nodes and links have in all."""
        return [Held(*what) for what in self._kept(TOTALS)]

    def _keep(self, name: str, value: Any) -> None:
        self.db.run("INSERT OR REPLACE INTO setting VALUES (?, ?)", (name, json.dumps(value)))

    def _kept(self, name: str) -> list[Any]:
        found = self.db.rows("SELECT value FROM setting WHERE name = ?", (name,))
        return list(json.loads(found[0][0])) if found else []

    def oldest_s(self, table: str, column: str, most: int) -> float:
        """Since when a table that keeps the latest `most` rows is whole; 0: from the beginning."""
        count, oldest_s = self.db.rows(f"SELECT COUNT(*), MIN({column}) FROM {table}")[0]
        return float(oldest_s) if count >= most else 0.0

    def note_answers(self, rows: Iterable[tuple[str, int, int]]) -> None:
        """Add answers of services: whose, how many, and their bytes together."""
        with self.db.at_once():
            self.db.run_for_each(
                "INSERT INTO answer VALUES (?, ?, ?) ON CONFLICT (service) DO UPDATE SET"
                " answers = answers + excluded.answers, size_bytes = size_bytes + excluded.size_bytes",
                rows,
            )

    def answer_bytes(self) -> dict[str, float]:
        """Mean size of the answers of each service that gave any."""
        return dict(self.db.rows("SELECT service, size_bytes / answers FROM answer WHERE answers > 0"))

    def requests(self, since_s: float = 0.0) -> list[Request]:
        """Requests and queries that came since then and are over, oldest first."""
        return self.db.kept(Request, "request WHERE at_s >= ? ORDER BY at_s", (since_s,))

    def purge(self, table: str, most: int) -> None:
        """Forget rows of a table, as "request" or "fault", but for the latest `most`."""
        self.db.run(f"DELETE FROM {table} WHERE id <= (SELECT MAX(id) FROM {table}) - ?", (most,))

    def purge_streams(self, most: int, before_s: float, at_once: int = 5_000) -> int:
        """Forget closed streams, but for the latest `most` and what was closed since `before_s`.

        Streams of gateways that the system no longer has are closed first.

        Args:
            at_once: more are left for the next call.
        Returns:
            how many were forgotten.
        """
        gone = json.dumps({"reason": "its gateway is no longer there"})
        self.db.run(
            "UPDATE stream SET closed_s = ?, outcome = ? WHERE closed_s IS NULL AND gateway NOT IN"
            " (SELECT name FROM process WHERE wanted OR handle IS NOT NULL)",
            (clock.unix_s(), gone),
        )
        forgotten = self.db.run(
            "DELETE FROM stream WHERE id IN (SELECT id FROM stream WHERE closed_s IS NOT NULL AND"
            " (id NOT IN (SELECT id FROM stream ORDER BY opened_s DESC LIMIT ?) OR closed_s < ?)"
            " ORDER BY opened_s LIMIT ?)",
            (most, before_s, at_once),
        ).rowcount
        if forgotten:
            self.db.shrink()
        return forgotten

    def streams_open(self) -> int:
        """How many are open; 0 where that cannot be read."""
        read = "SELECT COUNT(*) FROM stream WHERE closed_s IS NULL"
        return self.db.read_or(lambda: int(self.db.rows(read)[0][0]), 0)

    def open_streams(self, gateway: str) -> list[OpenStream]:
        """The streams that a gateway accepted and nobody closed, oldest first."""
        rows = self.db.rows(
            "SELECT id, needs, key, opened_s, worker, owner, outcome FROM stream"
            " WHERE gateway = ? AND closed_s IS NULL ORDER BY opened_s",
            (gateway,),
        )
        return [
            OpenStream(
                number, json.loads(needs), tuple(json.loads(key)) if key else None, opened_s, worker, owner,
                json.loads(outcome) if outcome else {},
            )
            for number, needs, key, opened_s, worker, owner, outcome in rows
        ]  # fmt: skip

    def bind(self, workers: Mapping[int, str | None]) -> None:
        """Note which worker each of these open streams is bound to."""
        with self.db.at_once():
            self.db.run_for_each(
                "UPDATE stream SET worker = ? WHERE id = ? AND closed_s IS NULL",
                [(worker, number) for number, worker in workers.items()],
            )

    def streams(self, most: int = 10_000) -> list[dict[str, Any]]:
        """The latest streams, open and closed, oldest first; `closed_s` is None for open ones."""
        rows = self.db.rows(
            "SELECT id, gateway, needs, opened_s, closed_s, worker, outcome FROM"
            " (SELECT * FROM stream ORDER BY opened_s DESC LIMIT ?) ORDER BY opened_s",
            (most,),
        )
        return [
            {
                "stream": number, "gateway": gateway, **json.loads(needs), "opened_s": opened_s,
                "closed_s": closed_s, "worker": worker, **(json.loads(outcome) if outcome else {}),
            }
            for number, gateway, needs, opened_s, closed_s, worker, outcome in rows
        ]  # fmt: skip
