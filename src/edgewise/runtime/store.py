"""What is wanted, what runs, and which streams are open: one SQLite file in WAL mode.

The controller and every gateway open the same file. What was committed survives the death of any
process, so whoever starts again reads here what it was doing.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from edgewise.errors import RunError

SCHEMA = """
CREATE TABLE IF NOT EXISTS setting (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS process (
    name TEXT PRIMARY KEY, kind TEXT NOT NULL, port INTEGER NOT NULL, cores TEXT NOT NULL,
    settings TEXT NOT NULL, wanted INTEGER NOT NULL DEFAULT 1,
    handle TEXT, started_s REAL NOT NULL DEFAULT 0, restarts INTEGER NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0, started_as TEXT
);
CREATE TABLE IF NOT EXISTS stream (
    id INTEGER PRIMARY KEY AUTOINCREMENT, gateway TEXT NOT NULL, needs TEXT NOT NULL, key TEXT,
    opened_s REAL NOT NULL, closed_s REAL, worker TEXT, outcome TEXT
);
CREATE INDEX IF NOT EXISTS open_streams ON stream (gateway) WHERE closed_s IS NULL;
"""


@dataclass(frozen=True, slots=True)
class Process:
    """A process that is wanted.

    Attributes:
        name: unique.
        kind: "worker", "replica" or "gateway".
        port: where it listens; the same after every restart.
        settings: what `edgewise.runtime.process` needs to run it; JSON values.
        cores: it may run on; all when empty.
        wanted: whether it should run.
    """

    name: str
    kind: str
    port: int
    settings: dict[str, Any] = field(default_factory=dict)
    cores: tuple[int, ...] = ()
    wanted: bool = True

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def digest(self) -> str:
        """Of everything that a running process of it would have to be started anew for."""
        text = json.dumps([self.kind, self.port, self.settings, self.cores], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Running:
    """What is known of a wanted process: `handle` is the backend's name for it, None before its start.

    `failures` counts starts in a row that did not last; `restarts` all starts but the first;
    `started_as` is the digest that it was started with.
    """

    process: Process
    handle: str | None
    started_s: float
    restarts: int
    failures: int
    started_as: str | None

    @property
    def outdated(self) -> bool:
        """Whether it runs with other settings than are wanted now."""
        return self.handle is not None and self.process.wanted and self.started_as != self.process.digest


@dataclass(frozen=True, slots=True)
class OpenStream:
    """A stream as it was accepted; `key` is what a gateway finds it by when its clients state no number."""

    id: int
    needs: dict[str, Any]
    key: tuple[str | None, ...] | None
    opened_s: float


class Database:
    """A database in WAL mode; every statement commits unless a transaction was begun.

    Args:
        file: created when missing.
        schema: makes its tables where they are missing.
    Raises:
        RunError: it cannot be opened, or is no database.
    """

    def __init__(self, file: Path, schema: str) -> None:
        self.file = file = file.absolute()  # whoever opens it again may be elsewhere
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(file, timeout=10.0, isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")  # survives kill -9; not a power cut
            self._db.executescript(schema)
        except (OSError, sqlite3.Error) as error:
            raise RunError(f"state {file}: cannot be opened: {error}; use another --state folder") from error

    def close(self) -> None:
        """Close the file."""
        self._db.close()


class Store(Database):
    """The state of one live system, see `Database`."""

    def __init__(self, file: Path) -> None:
        super().__init__(file, SCHEMA)
        with suppress(sqlite3.OperationalError):  # state of an earlier version; there already otherwise
            self._db.execute("ALTER TABLE process ADD COLUMN started_as TEXT")

    # settings

    def get(self, name: str, default: Any = None) -> Any:
        """A setting's JSON value."""
        row = self._db.execute("SELECT value FROM setting WHERE name = ?", (name,)).fetchone()
        return default if row is None else json.loads(row[0])

    def put(self, name: str, value: Any) -> None:
        """Set a setting."""
        self._db.execute("INSERT OR REPLACE INTO setting VALUES (?, ?)", (name, json.dumps(value)))

    # processes

    def want(self, processes: Sequence[Process]) -> None:
        """Make these the processes that are wanted; what is known of those that stay is kept."""
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            names = [process.name for process in processes]
            marks = ",".join("?" * len(names))
            self._db.execute(f"DELETE FROM process WHERE handle IS NULL AND name NOT IN ({marks})", names)
            self._db.execute(f"UPDATE process SET wanted = 0 WHERE name NOT IN ({marks})", names)
            for p in processes:
                self._db.execute(
                    "INSERT INTO process (name, kind, port, cores, settings, wanted)"
                    " VALUES (?, ?, ?, ?, ?, ?)"
                    " ON CONFLICT (name) DO UPDATE SET kind = excluded.kind, port = excluded.port,"
                    " cores = excluded.cores, settings = excluded.settings, wanted = excluded.wanted",
                    (p.name, p.kind, p.port, json.dumps(p.cores), json.dumps(p.settings), p.wanted),
                )

    def add(self, process: Process) -> None:
        """Want one more process."""
        self._db.execute(
            "INSERT INTO process (name, kind, port, cores, settings, wanted) VALUES (?, ?, ?, ?, ?, 1)",
            (
                process.name, process.kind, process.port, json.dumps(process.cores),
                json.dumps(process.settings),
            ),
        )  # fmt: skip

    def forget(self, name: str) -> None:
        """Forget a process that is not wanted and has ended."""
        self._db.execute("DELETE FROM process WHERE name = ? AND wanted = 0 AND handle IS NULL", (name,))

    def set_wanted(self, name: str, wanted: bool) -> None:
        """Say whether a process should run."""
        self._db.execute("UPDATE process SET wanted = ?, failures = 0 WHERE name = ?", (wanted, name))

    def processes(self, kind: str | None = None) -> list[Running]:
        """All processes, or those of a kind, in order of their names' creation."""
        rows = self._db.execute(
            "SELECT name, kind, port, settings, cores, wanted, handle, started_s, restarts, failures,"
            " started_as"
            " FROM process WHERE ?1 IS NULL OR kind = ?1 ORDER BY rowid",
            (kind,),
        )
        return [
            Running(
                Process(name, kind, port, json.loads(settings), tuple(json.loads(cores)), bool(wanted)), *rest
            )
            for name, kind, port, settings, cores, wanted, *rest in rows
        ]

    def started(self, name: str, handle: str | None, failures: int, started_as: str | None = None) -> None:
        """A process was started (`handle`, and the digest it has), or has ended (None)."""
        self._db.execute(
            "UPDATE process SET restarts = restarts + (? IS NOT NULL AND started_s > 0), failures = ?,"
            " started_s = CASE WHEN ? IS NULL THEN started_s ELSE ? END, handle = ?, started_as = ?"
            " WHERE name = ?",
            (handle, failures, handle, time.time(), handle, started_as, name),
        )

    # streams

    def open_stream(self, gateway: str, needs: dict[str, Any], key: Sequence[str | None] | None) -> int:
        """Keep a stream until it is closed; once this returns it survives every process.

        Returns:
            its number, unique over all gateways.
        """
        row = self._db.execute(
            "INSERT INTO stream (gateway, needs, key, opened_s) VALUES (?, ?, ?, ?)",
            (gateway, json.dumps(needs), None if key is None else json.dumps(list(key)), time.time()),
        )
        return int(row.lastrowid or 0)

    def close_stream(self, stream_id: int, worker: str | None, outcome: dict[str, Any]) -> None:
        """A stream ended."""
        self._db.execute(
            "UPDATE stream SET closed_s = ?, worker = ?, outcome = ? WHERE id = ?",
            (time.time(), worker, json.dumps(outcome), stream_id),
        )

    def forget_stream(self, stream_id: int) -> None:
        """A stream was never accepted."""
        self._db.execute("DELETE FROM stream WHERE id = ?", (stream_id,))

    def open_streams(self, gateway: str) -> list[OpenStream]:
        """The streams that a gateway accepted and nobody closed, oldest first."""
        rows = self._db.execute(
            "SELECT id, needs, key, opened_s FROM stream WHERE gateway = ? AND closed_s IS NULL ORDER BY id",
            (gateway,),
        )
        return [
            OpenStream(number, json.loads(needs), tuple(json.loads(key)) if key else None, opened_s)
            for number, needs, key, opened_s in rows
        ]

    def streams(self, most: int = 10_000) -> list[dict[str, Any]]:
        """The latest streams, open and closed, oldest first; `closed_s` is None for open ones."""
        rows = self._db.execute(
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


def is_text(text: str) -> bool:
    """Whether everyone can write it down; JSON may hold halves of characters, and zeros that end a path."""
    return not any(char == "\0" or "\ud800" <= char <= "\udfff" for char in text)


def as_json(process: Process) -> str:
    """A process as text, for another process to read."""
    return json.dumps(asdict(process))


def from_json(text: str) -> Process:
    """A process from its text."""
    fields = json.loads(text)
    return Process(**{**fields, "cores": tuple(fields["cores"])})
