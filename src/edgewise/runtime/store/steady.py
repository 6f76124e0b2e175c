"""The store of a process that must go on when its file is full, read-only or damaged.

What cannot be read is as it was known last. What a process did and cannot write down is kept in memory, and
written when that works again. Only what must not be promised without being kept, a new stream, fails.
"""

import logging
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from edgewise.runtime import clock
from edgewise.runtime.store.database import LOG, LOOP_WAIT_S, LOST, StoreError, beside
from edgewise.runtime.store.processes import Running
from edgewise.runtime.store.store import Store

log = logging.getLogger("edgewise.store")
TRY_S = 1.0
HELD_S = 2.0  # what others hold for less is no trouble
MOST_OWED = 100_000
T = TypeVar("T")


class SteadyStore(Store):
    """See the module.

    Args:
        wait_s: for another program that holds the file, before a write is put off.
    Attributes:
        trouble: what is wrong with the file, "" while nothing is.
    """

    def __init__(self, file: Path, wait_s: float = LOOP_WAIT_S) -> None:
        self.WAIT_S = wait_s
        super().__init__(file)
        self.trouble = ""
        self._owed: dict[Hashable, Callable[[], None]] = {}
        self._rows: list[Running] = []
        self._settings: dict[str, Any] = {}
        self._tried_s = self._held_since_s = self._looked_s = 0.0
        self._damaged = False
        self._log = self._log_now()

    def settle(self) -> None:
        """Write what is owed; while there is trouble, try that every second."""
        self._look_for_log()
        if not (self._owed or self.trouble) or clock.monotonic_s() - self._tried_s < TRY_S:
            return
        self._tried_s = clock.monotonic_s()
        try:
            self._put("settled_s", clock.unix_s())
            while self._owed:
                key = next(iter(self._owed))
                self._owed[key]()
                del self._owed[key]
        except StoreError as error:
            self.note(error)
            return
        if self.trouble and not self._damaged:
            self.trouble = ""
            log.warning("the store works again")

    def _look_for_log(self) -> None:
        """Where the log is lost to others, have the file hold what it does: it goes with who has it open."""
        if clock.monotonic_s() - self._looked_s < TRY_S or self._log_now() == self._log:
            return
        self._looked_s = clock.monotonic_s()
        self.note(StoreError(LOST.format(file=self.file, log=beside(self.file, LOG).name), damaged=True))
        with suppress(StoreError):
            self.checkpoint()

    def _log_now(self) -> int | None:
        """What tells the log from another of its name; None where there is none."""
        try:
            return beside(self.file, LOG).stat().st_ino
        except OSError:
            return None

    def close(self) -> None:
        """See `Database.close`."""
        self._looked_s = 0.0
        self._look_for_log()
        super().close()

    def get(self, name: str, default: Any = None) -> Any:
        """See `Store.get`."""
        if ("put", name) not in self._owed:
            self._settings[name] = self.read_or(partial(super().get, name), self._settings.get(name))
        found = self._settings.get(name)
        return default if found is None else found

    def put(self, name: str, value: Any) -> None:
        """See `Store.put`."""
        self._settings[name] = value
        super().put(name, value)

    def processes(self, kind: str | None = None) -> list[Running]:
        """See `Store.processes`."""
        rows = self.read_or(super().processes, self._rows)
        done = {r.process.name: r for r in self._rows if ("started", r.process.name) in self._owed}
        said = {r.handle: r for r in self._rows if ("answers at", r.handle) in self._owed}
        rows = [  # with what is not written down yet
            row
            if (known := done.get(row.process.name)) is None
            else replace(row, handle=known.handle, failures=known.failures, started_s=known.started_s)
            for row in rows
        ]
        self._rows = [_at(row, said[row.handle].process.url) if row.handle in said else row for row in rows]
        return [row for row in self._rows if kind in (None, row.process.kind)]

    def started(self, name: str, handle: str | None, failures: int) -> None:
        """See `Store.started`."""
        self._rows = [
            replace(
                row, handle=handle, failures=failures, started_s=clock.unix_s() if handle else row.started_s
            )
            if row.process.name == name
            else row
            for row in self._rows
        ]
        super().started(name, handle, failures)

    def answers_at(self, handle: str, url: str) -> None:
        """See `Store.answers_at`."""
        self._rows = [_at(row, url) if row.handle == handle else row for row in self._rows]
        super().answers_at(handle, url)

    def adopted(self) -> int:
        """How many streams came to be this process's after it began; none where all share one file."""
        return 0

    def read_or(self, read: Callable[[], T], otherwise: T) -> T:
        """What can be read, by whomever, else something."""
        try:
            return read()
        except StoreError as error:
            self.note(error)
            return otherwise

    def later(self, key: Hashable, write: Callable[[], None], lossy: bool = False) -> None:
        """See `Database.later`."""
        if lossy and len(self._owed) >= MOST_OWED:
            return
        if not self._owed and not self.trouble:
            try:
                return write()
            except StoreError as error:
                self.note(error)
        self._owed[key] = write

    def note(self, error: StoreError) -> None:
        """Something could not be read or written, by this or by another user of the file: it is said."""
        now_s = clock.monotonic_s()
        if now_s - self._held_since_s > 2.0 * HELD_S:
            self._held_since_s = now_s
        if error.held and now_s - self._held_since_s < HELD_S:
            return
        if not self.trouble:
            log.error("the store is out of order, what runs goes on", extra={"why": str(error)})
        self._damaged |= error.damaged
        if error.damaged or not self.trouble:
            self.trouble = str(error)


def _at(row: Running, url: str) -> Running:
    return replace(row, process=replace(row.process, address=url))
