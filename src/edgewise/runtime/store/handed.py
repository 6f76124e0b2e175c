"""The store of a gateway that is on another machine than the controller: a copy, and what it has to hand in.

    controller's store ── who decides, where workers are, tokens ─────▶ the gateway's copy
                       ◀── streams, what became of queries, faults ─── and what it has to hand in

The gateway reads and writes its copy as it would the store itself, and goes on as long as the controller is
away. What it wrote is handed in in order, once more where an answer was lost; the controller's store takes
each row once. A controller whose store begins anew is given the open streams again. A gateway that begins
anew gets its streams back from the controller.
"""

import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from edgewise.runtime.store.database import StorePart
from edgewise.runtime.store.faults import Fault, FaultTable
from edgewise.runtime.store.processes import Running, from_fields
from edgewise.runtime.store.records import ALONE, RecordTable, Request, Window
from edgewise.runtime.store.steady import SteadyStore
from edgewise.runtime.store.store import POLICIES, SHADOWS, Store

AT_ONCE, MOST_WAITING = 500, 100_000  # rows that are handed in together; of which older ones are dropped
LIVES = 8  # of a gateway, whose rows are told apart
READ = ("began_s", "token", "secret of parts", "secret of operator", POLICIES, SHADOWS)  # by gateways
LIFE, TAKEN, ADOPTED = "life", "taken in", "adopted"  # settings
STREAM = "id, gateway, needs, key, opened_s, closed_s, worker, outcome, owner"
KINDS: Mapping[str, Callable[..., Any]] = {"request": Request, "window": Window, "fault": Fault}


class HandedTable(StorePart):
    """What is to be handed in, oldest first; of two entries of one key the latter is."""

    SCHEMA = """
CREATE TABLE IF NOT EXISTS handed (
    number INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, key TEXT, row TEXT, UNIQUE (kind, key)
);
"""

    def put(self, kind: str, rows: Iterable[Sequence[Any]], key: Callable[[Any], str | None]) -> None:
        """Hand rows in."""
        written = [(kind, key(row), json.dumps(row)) for row in rows]
        self.db.run_for_each("INSERT OR REPLACE INTO handed (kind, key, row) VALUES (?, ?, ?)", written)

    def put_streams(self, numbers: Iterable[int]) -> None:
        """Hand streams in, as they are by then."""
        rows = [(str(number),) for number in numbers]
        self.db.run_for_each("INSERT OR REPLACE INTO handed (kind, key) VALUES ('stream', ?)", rows)

    def waiting(self) -> list[list[Any]]:
        """The next rows: number, kind, and the row."""
        self.db.run(
            "DELETE FROM handed WHERE kind != 'stream' AND number <= (SELECT MAX(number) FROM handed) - ?",
            (MOST_WAITING,),
        )
        found = self.db.rows("SELECT number, kind, key, row FROM handed ORDER BY number LIMIT ?", (AT_ONCE,))
        return [
            [number, kind, self._stream(int(key)) if kind == "stream" else json.loads(row)]
            for number, kind, key, row in found
        ]

    def done(self, numbers: Sequence[int], streams: Sequence[int]) -> None:
        """These were handed in; closed ones of these streams are the controller's to know."""
        with self.db.at_once():
            self.db.run_for_each("DELETE FROM handed WHERE number = ?", [(each,) for each in numbers])
            self.db.run_for_each(
                "DELETE FROM stream WHERE id = ?1 AND closed_s IS NOT NULL AND"
                " NOT EXISTS (SELECT 1 FROM handed WHERE kind = 'stream' AND key = CAST(?1 AS TEXT))",
                [(each,) for each in streams],
            )

    def _stream(self, number: int) -> list[Any] | None:
        found = self.db.rows(f"SELECT {STREAM} FROM stream WHERE id = ?", (number,))
        return list(found[0]) if found else None


class HandedRecords(RecordTable):
    """Records of which streams are kept here, too; all is handed in."""

    def __init__(self, db: Store, handed: HandedTable) -> None:
        super().__init__(db)
        self._handed = handed

    def open_stream(
        self,
        gateway: str,
        needs: dict[str, Any],
        key: Sequence[str | None] | None,
        owner: str = "",
        share: tuple[int, int] = ALONE,
    ) -> int:
        """See `RecordTable`."""
        with self.db.at_once():
            number = super().open_stream(gateway, needs, key, owner, share)
            self._handed.put_streams([number])
        return number

    def _close(self, stream_id: int, worker: str | None, outcome: dict[str, Any]) -> None:
        with self.db.at_once():
            super()._close(stream_id, worker, outcome)
            self._handed.put_streams([stream_id])

    def bind(self, workers: Mapping[int, str | None]) -> None:
        """See `RecordTable`."""
        with self.db.at_once():
            super().bind(workers)
            self._handed.put_streams(workers)

    def note_outcomes(self, outcomes: Mapping[int, dict[str, Any]]) -> None:
        """See `RecordTable`."""
        with self.db.at_once():
            super().note_outcomes(outcomes)
            self._handed.put_streams(outcomes)

    def note_requests(self, rows: Sequence[Request]) -> None:
        """See `RecordTable`."""
        self._handed.put("request", rows, lambda row: None)

    def note_answers(self, rows: Iterable[tuple[str, int, int]]) -> None:
        """See `RecordTable`."""
        self._handed.put("answer", rows, lambda row: None)

    def note_windows(self, rows: Sequence[Window]) -> None:
        """See `RecordTable`."""
        self._handed.put("window", rows, lambda row: f"{row.start_s} {row.gateway} {row.life}")


class HandedFaults(FaultTable):
    """Faults that are handed in."""

    def __init__(self, db: Store, handed: HandedTable) -> None:
        super().__init__(db)
        self._handed = handed

    def _note(self, rows: Sequence[Fault]) -> None:
        self._handed.put("fault", rows, lambda row: None)


class CopiedStore(SteadyStore):
    """A gateway's copy, see the module.

    Attributes:
        handed: what is to be handed in.
    """

    TABLES = (*Store.TABLES, HandedTable)

    def _open_tables(self) -> None:
        self.handed = HandedTable(self)
        self.faults, self.records = HandedFaults(self, self.handed), HandedRecords(self, self.handed)

    def life(self) -> str:
        """What tells rows of this copy from those of one before it."""
        if self.get(LIFE) is None:
            self.put(LIFE, secrets.token_hex(8))
        return str(self.get(LIFE))

    def _put(self, name: str, value: Any) -> None:
        with self.at_once():
            super()._put(name, value)
            if name.startswith("moved "):  # by an operator, who asked this gateway
                self.handed.put("setting", [(name, value)], lambda row: str(row[0]))

    def take(self, said: Mapping[str, Any], first: bool) -> None:
        """Be as the controller's store is.

        Args:
            said: as `for_gateway` makes it.
            first: nothing is known here yet of where an operator moved workers.
        """
        settings = {name: value for name, value in said["settings"].items() if first or name in READ}
        with self.at_once():
            for name, value in settings.items():
                Store._put(self, name, value)
            self.run("DELETE FROM process")
            self.run("DELETE FROM address")
            for fields, handle, started_s, restarts, failures in said["processes"]:
                process = from_fields(fields)
                self.add(process)
                self.run(
                    "UPDATE process SET handle = ?, started_s = ?, restarts = ?, failures = ? WHERE name = ?",
                    (handle, started_s, restarts, failures, process.name),
                )
                if process.address is not None and handle is not None:
                    self.write_answers_at(handle, process.address)
            known = {number for (number,) in self.rows("SELECT id FROM stream")}
            fresh = [row for row in said["streams"] if row[0] not in known]
            self.run_for_each(_insert_stream("IGNORE"), fresh)
            if fresh:
                self._put(ADOPTED, self.get(ADOPTED, 0) + len(fresh))
            if self.get(TAKEN) not in (None, said[LIFE]):  # the controller's store began anew
                self.handed.put_streams(
                    number for (number,) in self.rows("SELECT id FROM stream WHERE closed_s IS NULL")
                )
            self._put(TAKEN, said[LIFE])

    def adopted(self) -> int:
        """See `SteadyStore`: from an earlier life of this gateway, or one beside it."""
        return int(self.get(ADOPTED, 0))


def for_gateway(store: Store, gateway: str, since_s: float) -> dict[str, Any]:
    """What a gateway reads of the controller's store, as JSON.

    Args:
        since_s: of its streams those that were opened since then.
    """
    if store.get(LIFE) is None:
        store.put(LIFE, secrets.token_hex(8))
    moved = f"moved {gateway}"
    streams = store.rows(
        f"SELECT {STREAM} FROM stream WHERE gateway = ? AND closed_s IS NULL AND opened_s >= ?",
        (gateway, since_s),
    )
    return {
        LIFE: store.get(LIFE),
        "settings": {name: store.get(name) for name in (*READ, moved) if store.get(name) is not None},
        "processes": [_row(running) for running in store.processes()],
        "streams": [list(row) for row in streams],
    }


def _row(running: Running) -> tuple[dict[str, Any], str | None, float, int, int]:
    return asdict(running.process), running.handle, running.started_s, running.restarts, running.failures


def take_in(store: Store, gateway: str, life: str, rows: Sequence[Sequence[Any]]) -> None:
    """Keep what a gateway hands in; what was taken in already is left out.

    Args:
        life: of its copy, in which its rows are numbered.
        rows: number, kind and content of each, as `HandedTable.waiting` has them.
    """
    with store.at_once():
        name = f"{TAKEN} {gateway}"
        lives: dict[str, int] = store.get(name, {})
        last = lives.pop(life, 0)
        fresh = [(kind, row) for number, kind, row in rows if number > last and row is not None]
        store.run_for_each(_insert_stream("REPLACE"), [row for kind, row in fresh if kind == "stream"])
        of = {kind: [make(*row) for each, row in fresh if each == kind] for kind, make in KINDS.items()}
        store.records.note_requests(of["request"])
        store.records.note_windows(of["window"])
        store.records.note_answers([tuple(row) for kind, row in fresh if kind == "answer"])
        store.faults.note(of["fault"])
        for setting, value in (row for kind, row in fresh if kind == "setting"):
            store.put(setting, value)
        lives[life] = max([last, *(number for number, *_ in rows)])
        store.put(name, dict(list(lives.items())[-LIVES:]))


def _insert_stream(otherwise: str) -> str:
    marks = ", ".join("?" * len(STREAM.split(", ")))
    return f"INSERT OR {otherwise} INTO stream ({STREAM}) VALUES ({marks})"
