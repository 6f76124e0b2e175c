"""What the controller asks of a backend; `edgewise.testing.check_backend` checks one."""

from __future__ import annotations

from typing import Protocol

from edgewise.runtime.store import Process


class Backend(Protocol):
    """Starts, watches and ends processes. No method waits for a process.

    A handle names one start of a process. It is text, kept in the store, and means the same to a
    backend that is made later: a controller that starts again finds its processes by their handles.
    """

    def start(self, process: Process) -> str:
        """Start a process and return its handle.

        Raises:
            RunError: it cannot be started; says why.
        """

    def alive(self, handle: str) -> bool:
        """Whether the process of a handle runs. One that ended never runs again."""

    def stop(self, handle: str, force: bool = False) -> None:
        """Ask the process of a handle to finish what it accepted and end; `force` ends it at once.

        A handle whose process has ended is no error.
        """
