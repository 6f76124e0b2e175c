"""The lifecycle of processes that have owners: workers and gateways, runs of jobs, tasks of pipelines.

    start ─▶ alive ─ end ─▶ told ─ its patience is over ─▶ killed ─▶ ended
               └──────────────── it ends by itself ────────────────────┘

A process is known by its handle, which its owner keeps where the next controller finds it: in the store, or
in the folder of a job. Nothing is kept here that is not found out again: who was told to end is told once
more by a controller that starts again, and then has its patience anew. What an end *means* (start it again,
begin anew elsewhere, fail) is the owner's to say.
"""

import time
from collections.abc import Container, Iterable
from typing import Generic, TypeVar

from edgewise.runtime import clock
from edgewise.runtime.backends.lifecycle import Backend

What = TypeVar("What")
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 5.0
LOOK_S = 0.002  # while a thread waits for an end


class Lifecycle(Generic[What]):
    """Starts processes through a backend, and ends them: told first, killed when that takes too long.

    Args:
        backend: starts, watches and stops processes of these owners.
        patience_s: from telling a process to end to killing it.
    """

    def __init__(self, backend: Backend[What], patience_s: float) -> None:
        self.backend, self.patience_s = backend, patience_s
        self._told_s: dict[str, float] = {}  # since when a handle has been told to end

    def start(self, what: What) -> str:
        """Start a process; returns its handle.

        Raises:
            RunError: it cannot be started.
        """
        return self.backend.start(what)

    def alive(self, handle: str) -> bool:
        """Whether a process runs."""
        return self.backend.alive(handle)

    def told(self, handle: str) -> bool:
        """Whether a process was told to end."""
        return handle in self._told_s

    def end(self, handle: str, at_once: bool = False) -> None:
        """Tell a process to end, and kill it once its patience is over; done in each pass until it has ended.

        Args:
            at_once: it is killed without patience, as by a failure of its node.
        """
        now_s = clock.monotonic_s()
        since_s = self._told_s.get(handle)
        if since_s is None:
            self.backend.stop(handle, force=at_once)
            self._told_s[handle] = now_s  # afterwards: where that failed, the next pass does it again
        elif at_once or now_s - since_s > self.patience_s:
            self.backend.stop(handle, force=True)

    def kill(self, handle: str) -> None:
        """Kill a process that should go on, so that it is started anew: nobody told it to end."""
        self.backend.stop(handle, force=True)

    def end_and_wait(self, handles: Iterable[str]) -> None:
        """End processes side by side, and return when all have ended; for threads that may wait."""
        left = list(handles)
        while left:
            for handle in left:
                self.end(handle)
            time.sleep(LOOK_S)
            for handle in left:
                if not self.alive(handle):
                    self.forget_one(handle)
            left = [handle for handle in left if self.told(handle)]

    def forget_one(self, handle: str) -> None:
        """A process has ended, and its owner has seen that."""
        self._told_s.pop(handle, None)

    def forget(self, known: Container[str | None]) -> None:
        """Forget all processes but these."""
        for handle in [handle for handle in self._told_s if handle not in known]:
            self.forget_one(handle)


def pause_s(failures: int, at_once: int = 1) -> float:
    """How long what has failed again and again is left alone before it is started anew.

    Args:
        failures: in a row.
        at_once: so many of them cost no time.
    """
    return min(FIRST_PAUSE_S * 2**failures, LONGEST_PAUSE_S) if failures > at_once else 0.0
