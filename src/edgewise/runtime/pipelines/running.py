"""A pipeline that runs: its tasks as their lines of JSON show them, its place and its ports."""

import contextlib
import json
import threading
from dataclasses import dataclass
from typing import Any

from edgewise.core.place import Placement
from edgewise.errors import RunError
from edgewise.runtime.backends.tasks import TaskBackend, TaskReached
from edgewise.runtime.pipelines.live import LivePipeline
from edgewise.runtime.pipelines.task import LOST

SOURCE = "source"  # in names of flows: the process that sends frames


class StartedTask:
    """One process of `edgewise.runtime.pipelines.task`, as its lines of JSON show it.

    Args:
        handle: of its start.
        label: for messages.
    Attributes:
        latest: its newest report, however old; empty before the first.
        died: it ended without a word, as what is killed does.
    """

    def __init__(self, handle: str, label: str) -> None:
        self.handle, self.label = handle, label
        self._reached: TaskReached | None = None
        self.latest: dict[str, float] = {}
        self._error: str | None = None
        self.died = False
        self._ready = threading.Event()

    def reach(self, backend: TaskBackend) -> str:
        """Wait until it can be told what it is to do; the address that it has.

        Raises:
            RunError: it has ended before.
        """
        try:
            reached = backend.reach(self.handle)
        except RunError as error:
            self.died, self._error = True, str(error)
            raise RunError(f"{self.label}: {error}") from error
        self._reached = reached
        threading.Thread(target=self._read, args=(reached,), daemon=True).start()
        return reached.address

    def tell(self, line: str) -> None:
        """A line for it."""
        assert self._reached is not None, "it was not reached"
        with contextlib.suppress(OSError, ValueError):  # it has ended; `said` says why
            self._reached.told.write(line.encode() + b"\n")
            self._reached.told.flush()

    def wait_ready(self, timeout_s: float) -> None:
        """Until it listens.

        Raises:
            RunError: it failed, or takes too long.
        """
        if not self._ready.wait(timeout_s):
            raise RunError(f"{self.label}: did not start within {timeout_s:g} s; load less at import")
        self.check()

    @property
    def culprit(self) -> bool:
        """Whether it failed by itself, not because a neighbour did."""
        return self._error is not None and not self._error.startswith(LOST)

    @property
    def said(self) -> str | None:
        """Which task it is and why it has ended; None while it has not."""
        return None if self._error is None else f"{self.label}: {self._error}"

    def hang_up(self) -> None:
        """Nothing more is said to it, which has ended."""
        if self._reached is not None:
            self._reached.hang_up()

    def check(self) -> None:
        """Raise RunError when it has failed."""
        if self.said is not None:
            raise RunError(self.said)

    def _read(self, reached: TaskReached) -> None:
        with contextlib.suppress(OSError, ValueError):  # cut off, or hung up
            for line in reached.said:
                self._note(line)
        if self._error is None:
            self.died = True
            self._error = reached.ended()
        self._ready.set()

    def _note(self, line: bytes) -> None:
        said: dict[str, Any] = {}
        with contextlib.suppress(ValueError):  # it was cut off in the middle of it
            said = json.loads(line)
        if "error" in said:
            self._error = said["error"]
        elif "at_s" in said:
            self.latest = said
        if said:
            self._ready.set()


@dataclass(slots=True)
class RunningPipeline:
    """A pipeline and its processes by task; that of the source has no name, for a task may be called so.

    Attributes:
        works: all of its processes were told to go, and take rates from then on.
    """

    live: LivePipeline
    placed: Placement
    ports: list[int]
    processes: dict[str, StartedTask]
    works: bool = False

    def edge(self, e: int) -> str:
        """Name of an edge, "tail->head"."""
        order, pipeline = self.live.pipeline.graph.order(), self.placed.pipeline
        return f"{SOURCE if pipeline.tail[e] < 0 else order[pipeline.tail[e]]}->{order[pipeline.head[e]]}"
