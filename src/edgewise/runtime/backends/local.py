"""The backend of this machine.

A process is forked by a nursery (`runtime.controller.nursery`) when there is one, which takes milliseconds,
and started with the interpreter otherwise, which takes seconds. It may be pinned to cores.
"""

import contextlib
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from edgewise.errors import RunError
from edgewise.runtime.backends.contract import Answering, NodeSeen
from edgewise.runtime.backends.taken import TAKEN, TakenServers
from edgewise.runtime.process.machine import Program, ThisMachine, handle_of
from edgewise.runtime.process.places import log_file
from edgewise.runtime.store import Process, Store
from edgewise.runtime.store.jobs import JobTable


class LocalBackend:
    """Starts workers and gateways here.

    Args:
        folder: state of the system; logs go to `folder/logs/NAME.log`.
        fork: starts a process and returns its id; OSError when it cannot. None starts interpreters.
    """

    def __init__(self, folder: Path, fork: Callable[[Process], int] | None = None) -> None:
        self.folder, self._fork, self._machine = folder.absolute(), fork, ThisMachine()
        self._taken = TakenServers()

    def start(self, process: Process) -> str:
        """See `Backend`."""
        if process.taken:
            return self._taken.start(process)
        if self._fork is not None:
            with contextlib.suppress(OSError):  # the nursery is gone
                return handle_of(self._fork(process))
        command = (sys.executable, "-m", "edgewise.runtime.process.entry", str(self.folder))
        said = json.dumps(asdict(process)).encode()
        try:
            return self._machine.start(Program(command, log_file(self.folder, process.name), said))
        except OSError as error:
            raise RunError(f"{process.name}: cannot be started: {error}") from error

    def alive(self, handle: str) -> bool:
        """See `Backend`."""
        if handle.startswith(TAKEN):
            return self._taken.alive(handle)
        return self._machine.alive(handle)

    def stop(self, handle: str, force: bool = False) -> None:
        """See `Backend`."""
        if handle.startswith(TAKEN):
            return self._taken.stop(handle)
        self._machine.stop(handle, force)

    def look(self, process: Process, handle: str) -> Answering:
        """See `ServingBackend`: it answers at the port that it was given; whether it is ready, it says."""
        if handle.startswith(TAKEN):
            return self._taken.look(process, handle)
        return Answering(process.url, None if self.alive(handle) else False)

    def nodes(self) -> Mapping[str, NodeSeen]:
        """See `ServingBackend`: nodes of this machine are the system's alone."""
        return {}

    def jobs(self, book: JobTable) -> None:
        """See `ServingBackend`: they are processes of their own, whatever forks workers."""

    def tasks(self) -> None:
        """See `ServingBackend`: they are processes of the controller."""

    @property
    def stays(self) -> bool:
        """See `ServingBackend`: a machine's system ends when it is told to."""
        return False

    def keep(self, store: Store) -> None:
        """See `ServingBackend`: it is in the folder."""

    def leave(self, store: Store) -> None:
        """See `ServingBackend`."""

    def counted(self) -> tuple[()]:
        """See `ServingBackend`."""
        return ()
