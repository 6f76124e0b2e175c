"""SQLite files that several processes share: what goes wrong with them in one line, and their last good copy.

A disk that is full, rights that are missing and a damaged file are the user's to mend, and become a
`StoreError`. Everything else that SQLite complains of is a bug, and stays what it is.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec

from edgewise.errors import RunError
from edgewise.runtime import clock, disk

T = TypeVar("T")
WAL_BYTES = 16 * 2**20  # what is left of the write-ahead log after a checkpoint
LEAST_PAUSE_S = 0.2
WAIT_S = 10.0  # for another program that writes, where nobody else waits for us
LOOP_WAIT_S = 1.0  # the same on an event loop, which has others to answer
COPY = ".copy"  # beside the file, of the same name
LOG, INDEX = "-wal", "-shm"  # the same, SQLite's
LOOKS, LOOK_S = 3, 0.02
LOST = (
    "state {file}: its log {log} was removed while it is in use; what runs goes on, and what it knows is "
    "written down when it ends: edgewise down, then the same edgewise up"
)
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
FORBIDDEN = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_AUTH)
HELD = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)
MESSAGES = {
    DAMAGED: "is damaged ({error}); it is left as it is, and {help}",
    FULL: "cannot be written ({error}); what it holds is safe: make room on its disk",
    FORBIDDEN: "cannot be used ({error}); what it holds is safe: check its rights, or use another --state",
    HELD: "is held by another program ({error}); what it holds is safe: end that program",
}


class StoreError(RunError):
    """A database cannot be used: what is safe, and what to do.

    Attributes:
        damaged: its file is, which does not pass by itself.
        held: by another program, which may end soon.
    """

    def __init__(self, message: str, damaged: bool = False, held: bool = False) -> None:
        super().__init__(message)
        self.damaged, self.held = damaged, held


def connect(file: Path) -> sqlite3.Connection:
    """Open a file in WAL mode, made when missing; every statement commits unless a transaction was begun.

    Raises:
        StoreError: it cannot be used.
    """
    check_log(file)
    with telling(file):
        made = disk.connect(file, timeout=WAIT_S, isolation_level=None)
        if not file.is_file() or file.stat().st_size == 0:
            made.execute("PRAGMA auto_vacuum = INCREMENTAL")  # it can shrink; a damaged one is not touched
        made.execute("PRAGMA journal_mode = WAL")
        made.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
        made.execute("PRAGMA synchronous = NORMAL")  # survives kill -9; not a power cut
    return made


class StorePart:
    """A part of a database with a subject of its own: its tables, and what is read from and written to them.

    Args:
        db: whose part it is.
    Attributes:
        SCHEMA: makes its tables where they are missing.
        ADDED: columns that an earlier version did not have, by table.
    """

    SCHEMA = ""
    ADDED: ClassVar[Mapping[str, Mapping[str, str]]] = {}

    def __init__(self, db: "Database") -> None:
        self.db = db


class Database:
    """A database in WAL mode; every statement commits unless a transaction was begun.

    Args:
        file: created when missing, in a folder that is its owner's only; so are both from now on.
    Attributes:
        TABLES: its parts, whose tables are made where they are missing.
        WAIT_S: how long a statement waits for another program that holds the file. After one that waited in
            vain, all others fail at once for as long, so that an event loop goes on to what else there is.
        exposed: whether others could read it until now.
    Raises:
        RunError: it cannot be opened, is no database, or its folder is not ours alone; so with all that reads
            and writes it (`StoreError`).
    """

    TABLES: ClassVar[tuple[type[StorePart], ...]] = ()
    WAIT_S = WAIT_S

    def __init__(self, file: Path) -> None:
        self.file = file = file.absolute()  # whoever opens it again may be elsewhere
        try:
            self.exposed = self._make_private()
        except OSError as error:
            raise RunError(f"state {file}: cannot be opened: {error}; use another --state folder") from error
        self._held: StoreError | None = None
        self._held_until_s = 0.0
        self._db = connect(file)
        with telling(file):
            self._db.executescript("".join(each.SCHEMA for each in self.TABLES))
            self._db.execute(f"PRAGMA busy_timeout = {self.WAIT_S * 1e3:.0f}")  # once it is open
        self._add_columns()

    def _add_columns(self) -> None:
        """Give the tables of an earlier version the columns that they lack."""
        for table, columns in (pair for each in self.TABLES for pair in each.ADDED.items()):
            known = {name for (name,) in self.rows("SELECT name FROM pragma_table_info(?)", (table,))}
            for name, kind in columns.items():
                if name not in known:
                    self.run(f"ALTER TABLE {table} ADD COLUMN {name} {kind}")

    def run(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Carry out a statement that changes something."""
        with self._telling():
            self._changing()
            return self._db.execute(statement, values)

    def run_for_each(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Carry out a statement once for the values of each row."""
        with self._telling():
            self._changing()
            self._db.executemany(statement, rows)

    def _changing(self) -> None:
        """What is a part of a transaction changes the file with that."""
        if not self._db.in_transaction:
            disk.changing("write", self.file)

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        """What a query finds."""
        with self._telling():
            return self._db.execute(query, values).fetchall()

    def kept(
        self, kind: type[T], rest: str, values: Sequence[Any] = (), as_json: Sequence[str] = ()
    ) -> list[T]:
        """Rows as a dataclass or named tuple that has a field for each column.

        Args:
            rest: of the query, from the table's name on.
            as_json: columns that hold JSON.
        """
        names = columns_of(kind)
        found = self.rows(f"SELECT {', '.join(names)} FROM {rest}", values)
        rows: list[Any] = [list(row) for row in found]
        for at in (names.index(name) for name in as_json):
            for row in rows:
                row[at] = None if row[at] is None else json.loads(row[at])
        if is_dataclass(kind):
            rows = [dict(zip(names, row, strict=True)) for row in rows]
        return msgspec.convert(rows, list[kind], strict=False)  # type: ignore[valid-type]

    def keep(self, table: str, rows: Sequence[Any], as_json: Sequence[str] = (), then: str = "") -> None:
        """Write rows, dataclasses or named tuples of one kind that have a field for each column.

        Args:
            as_json: columns that hold JSON.
            then: what follows the values, as where a row of the same key is there.
        """
        if not rows:
            return
        names = columns_of(type(rows[0]))
        marks = ", ".join("?" * len(names))
        written = [[getattr(row, name) for name in names] for row in rows]
        for at in (names.index(name) for name in as_json):
            for row in written:
                row[at] = json.dumps(row[at])
        self.run_for_each(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks}) {then}", written)

    def later(self, key: Hashable, write: Callable[[], None], lossy: bool = False) -> None:
        """Write what may also be written later; at once, where the store is not a steady one.

        Args:
            key: what is written; of two that are owed with one key the latter is.
            lossy: it may be lost where too much is owed.
        """
        write()

    def read_or(self, read: Callable[[], T], otherwise: T) -> T:
        """What can be read; something else only where the store is a steady one."""
        return read()

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """All that is carried out within, or none of it; within another one it is a part of that."""
        if self._db.in_transaction:
            yield
            return
        with self._telling(), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            disk.changing("write", self.file)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """As `telling`; while another program is known to hold the file, nobody waits for it anew."""
        if self._held is not None and clock.monotonic_s() < self._held_until_s:
            raise self._held
        try:
            with telling(self.file):
                yield
        except StoreError as error:
            if error.held and error is not self._held:
                self._held, self._held_until_s = error, clock.monotonic_s() + max(self.WAIT_S, LEAST_PAUSE_S)
            raise
        self._held = None

    def shrink(self) -> None:
        """Give the room back that forgotten rows had."""
        with self._telling():
            self._db.executescript("PRAGMA incremental_vacuum")  # `execute` frees one page

    def checkpoint(self) -> None:
        """Have the file hold by itself what its log does, as far as nobody reads what was there before."""
        with self._telling():
            self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _make_private(self) -> bool:
        """Before SQLite opens the file: its logs, which hold what it holds, get the rights that it has."""
        known, file = self.file.exists(), self.file
        open_folder = disk.make_folder(file.parent, file.name)
        logs = [log for end in (LOG, INDEX) if (log := beside(file, end)).exists()]
        open_files = [disk.make_file(each) for each in (file, *logs)]
        return known and (open_folder or any(open_files))


def to_read(file: Path) -> sqlite3.Connection:
    """A connection that changes nothing, not even a counter in a damaged file."""
    check_log(file)
    with telling(file):
        uri = f"{file.resolve().as_uri()}?mode=ro"
        return disk.connect(uri, uri=True, timeout=WAIT_S, isolation_level=None)


def check_log(file: Path) -> None:
    """See that whoever uses a file has its log where others find it.

    SQLite's index of the log, which all its users share, would lead a new one to what the log does not hold,
    and what that one writes would be damage to the others.

    Raises:
        StoreError: the log was removed while somebody uses it, who goes on with it.
    """
    for _ in range(LOOKS):
        if beside(file, LOG).exists() or not _in_use(beside(file, INDEX)):
            return
        time.sleep(LOOK_S)  # somebody may be about to open the file
    raise StoreError(LOST.format(file=file, log=beside(file, LOG).name), damaged=True)


def _in_use(index: Path) -> bool:
    """Whether a process of this machine holds a lock on a file; none where the system does not say."""
    with suppress(OSError):
        inode = f":{index.stat().st_ino}"
        lines = Path("/proc/locks").read_text().splitlines()
        return any(field.endswith(inode) for line in lines for field in line.split()[5:6])
    return False


def beside(file: Path, what: str) -> Path:
    """SQLite's log of a file, or the log's index."""
    return file.with_name(file.name + what)


@contextmanager
def telling(file: Path) -> Iterator[None]:
    """Say what is wrong with a file where SQLite fails."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)
        if code is None:
            raise
        message = next((words for codes, words in MESSAGES.items() if code & 0xFF in codes), None)
        if message is None:
            raise
        damaged = code & 0xFF in DAMAGED
        message = message.format(error=error, help=help_with(file) if damaged else "")
        raise StoreError(f"state {file}: {message}", damaged, code & 0xFF in HELD) from error


def help_with(file: Path) -> str:
    """What to do about a damaged file."""
    copy = copy_of(file)
    if not copy.is_file():
        return "there is no copy: use another --state folder, or move this one away to begin anew"
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(copy.stat().st_mtime))
    return f"{copy} is its last good copy, of {at}: edgewise down, then the same edgewise up with --restore"


def copy_of(file: Path) -> Path:
    """Where the last good copy of a file is."""
    return file.with_name(file.name + COPY)


def columns_of(kind: type) -> tuple[str, ...]:
    """The columns of a kind of row."""
    if is_dataclass(kind):
        return tuple(each.name for each in fields(kind))
    names: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]  # of a named tuple
    return names
