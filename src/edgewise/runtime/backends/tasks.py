"""What pipelines ask of who runs their tasks: a lifecycle, and a way to speak with each task."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Protocol

from edgewise.runtime.backends.lifecycle import Backend


@dataclass(frozen=True, slots=True)
class WantedTask:
    """A task's process that is to be started.

    Attributes:
        name: no two that run share one.
        node: name of the node that it was placed on.
        memory_bytes: that it holds there.
        files: of this machine, that it reads.
    """

    name: str
    node: str
    memory_bytes: float
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TaskReached:
    """A task that listens to what it is told.

    Attributes:
        address: IP address that it has; its neighbours reach it there.
        said: its lines of JSON, until it ends.
        told: takes lines for it.
        ended: how it has ended, in words.
        hang_up: nothing more is told.
    """

    address: str
    said: IO[bytes]
    told: IO[bytes]
    ended: Callable[[], str]
    hang_up: Callable[[], None]


class TaskBackend(Backend[WantedTask], Protocol):
    """Runs tasks of pipelines; each ends with whoever started it."""

    patience_s: float
    """From telling a task to end to killing it."""

    def reach(self, handle: str) -> TaskReached:
        """Wait until a task listens; once for each start.

        Raises:
            RunError: it has ended before, or does not come to it.
        """

    def path(self, file: str) -> str:
        """Where a task that was started with a file finds it."""
