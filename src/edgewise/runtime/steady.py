"""The store of a process that must go on when its file is full, read-only or damaged.

What cannot be read is as it was known last. What a process did and cannot write down is kept in memory, and
written when that works again. Only what must not be promised without being kept, a new stream, fails.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from edgewise.runtime.faults import Fault
from edgewise.runtime.sqlite import StoreError
from edgewise.runtime.store import Running, Store

log = logging.getLogger("edgewise.store")
TRY_S = 1.0
T = TypeVar("T")


class SteadyStore(Store):
    """See the module.

    Attributes:
        trouble: what is wrong with the file, "" while nothing is.
    """

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self.trouble = ""
        self._owed: dict[tuple[str, Any], Callable[[], None]] = {}
        self._rows: list[Running] = []
        self._settings: dict[str, Any] = {}
        self._tried_s = 0.0
        self._damaged = False

    def settle(self) -> None:
        """Write what is owed; while there is trouble, try that every second."""
        if not (self._owed or self.trouble) or time.monotonic() - self._tried_s < TRY_S:
            return
        self._tried_s = time.monotonic()
        try:
            super().put("settled_s", time.time())
            while self._owed:
                key = next(iter(self._owed))
                self._owed[key]()
                del self._owed[key]
        except StoreError as error:
            self._note(error)
            return
        if self.trouble and not self._damaged:
            self.trouble = ""
            log.warning("the store works again")

    def get(self, name: str, default: Any = None) -> Any:
        """See `Store.get`."""
        if ("put", name) not in self._owed:
            self._settings[name] = self.read_or(partial(super().get, name), self._settings.get(name))
        found = self._settings.get(name)
        return default if found is None else found

    def put(self, name: str, value: Any) -> None:
        """See `Store.put`."""
        self._settings[name] = value
        self._do(("put", name), lambda: super(SteadyStore, self).put(name, value))

    def processes(self, kind: str | None = None) -> list[Running]:
        """See `Store.processes`."""
        rows = self.read_or(super().processes, self._rows)
        done = {r.process.name: r for r in self._rows if ("started", r.process.name) in self._owed}
        self._rows = [  # with what is not written down yet
            row
            if (known := done.get(row.process.name)) is None
            else replace(row, handle=known.handle, failures=known.failures, started_s=known.started_s)
            for row in rows
        ]
        return [row for row in self._rows if kind in (None, row.process.kind)]

    def started(self, name: str, handle: str | None, failures: int) -> None:
        """See `Store.started`."""
        self._rows = [
            replace(row, handle=handle, failures=failures, started_s=time.time() if handle else row.started_s)
            if row.process.name == name
            else row
            for row in self._rows
        ]
        self._do(("started", name), lambda: super(SteadyStore, self).started(name, handle, failures))

    def streams_open(self) -> int:
        """See `Store.streams_open`; 0 where that cannot be read."""
        return self.read_or(super().streams_open, 0)

    def close_stream(self, stream_id: int, worker: str | None, outcome: dict[str, Any]) -> None:
        """See `Store.close_stream`."""
        self._do(
            ("close", stream_id),
            lambda: super(SteadyStore, self).close_stream(stream_id, worker, outcome),
        )

    def retired(self) -> list[tuple[str, int, float | None]]:
        """See `Store.retired`; none where that cannot be read."""
        return self.read_or(super().retired, [])

    def faults(self, since_s: float = 0.0) -> list[Fault]:
        """See `FaultStore.faults`; none where that cannot be read."""
        return self.read_or(partial(super().faults, since_s), [])

    def note_faults(self, rows: Sequence[Fault]) -> None:
        """See `FaultStore.note_faults`; what cannot be written is counted in `/metrics` alone."""
        self.read_or(partial(super().note_faults, rows), None)

    def read_or(self, read: Callable[[], T], otherwise: T) -> T:
        """What can be read, by whomever, else something."""
        try:
            return read()
        except StoreError as error:
            self._note(error)
            return otherwise

    def _do(self, key: tuple[str, Any], write: Callable[[], None]) -> None:
        """Write now, or later."""
        if not self._owed and not self.trouble:
            try:
                return write()
            except StoreError as error:
                self._note(error)
        self._owed[key] = write

    def _note(self, error: StoreError) -> None:
        if not self.trouble:
            log.error("the store is out of order, what runs goes on", extra={"why": str(error)})
        self._damaged |= error.damaged
        if error.damaged or not self.trouble:
            self.trouble = str(error)
