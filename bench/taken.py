"""What the processes of a live system take of processors, and how long they wait for them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from edgewise.profiling.quiet import Watch
from edgewise.runtime.store import DATABASE, Store
from edgewise.runtime.watch.starving import look


class Taken:
    """What processes take of processors while this is entered, by kind, and how long they wait for them.

    Args:
        state: folder of the system, whose nursery is a child of this process.
    Attributes:
        cores: by kind, [cores that it took, cores that it waited for, turns on a processor a second].
        others: cores that all else on the machine took meanwhile.
    """

    def __init__(self, state: Path) -> None:
        self._state, self._over, self.cores = state, threading.Event(), dict[str, list[float]]()
        self.others = 0.0
        self._looking = threading.Thread(target=self._look, daemon=True)
        self._first: dict[int, tuple[float, ...]] = {}
        self._last: dict[int, tuple[str, tuple[float, ...]]] = {}

    def __enter__(self) -> Taken:
        self._first = {number: used for number, (_, used) in self._seen().items()}
        self._began_s, self._all = time.monotonic(), Watch()
        self._looking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._looking.join()
        took_s, beside = time.monotonic() - self._began_s, self._all.cores()
        for number, (kind, used) in self._last.items():
            of = self.cores.get(kind, [0.0] * len(used))
            before = self._first.get(number, (0.0,) * len(used))
            self.cores[kind] = [
                so_far + (end - begin) / took_s for so_far, begin, end in zip(of, before, used, strict=True)
            ]
        parts = sum(
            ran for kind, (ran, *_) in self.cores.items() if kind != "clients"
        )  # which run in this process
        self.others = max(0.0, beside - parts)

    def _look(self) -> None:
        while not self._over.wait(1.0):  # who ends in between has what it took until then
            self._last |= self._seen()

    def _seen(self) -> dict[int, tuple[str, tuple[float, ...]]]:
        """Kind, seconds on a processor and without one, and turns, of all that descends from this process."""
        store = Store(self._state / DATABASE)
        kinds = {int(r.handle.split(":")[0]): r.process.kind for r in store.processes() if r.handle}
        kinds[int(str(store.get("controller_handle")).split(":")[0])] = "controller"
        store.close()
        mine, found = {os.getpid()}, {os.getpid(): "clients"}
        parents = {number: parent for number, parent in _parents()}
        while fresh := {n for n, parent in parents.items() if parent in mine} - mine:
            mine |= fresh
        for number in mine - {os.getpid()}:
            found[number] = kinds.get(number) or _program(number)
        return {
            n: (kind, (used.ran_s, used.waited_s, used.turns))
            for n, kind in found.items()
            if (used := look([n])).ran_s
        }


def _parents() -> Iterator[tuple[int, int]]:
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            yield int(file.parent.name), int(file.read_text().rpartition(")")[2].split()[1])


def _program(number: int) -> str:
    with suppress(OSError):
        command = Path(f"/proc/{number}/cmdline").read_bytes().decode(errors="replace")
        for word, kind in (("pipelines.task", "task"), ("nursery", "nursery"), ("-S", "job")):
            if word in command:
                return kind
    return "other"
