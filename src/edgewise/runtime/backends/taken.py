"""Servers that somebody else runs, as a backend has them: taken and let go, and never started nor ended.

A handle says that a server is taken, and not which: that is found anew at each look, and one that went is a
worker that is lost until another one is there. Nothing is asked of a server here, and it is shown no token.
"""

import uuid
from dataclasses import replace

from edgewise.runtime.backends.contract import Answering
from edgewise.runtime.store import Process

TAKEN = "taken/"  # before handles


class TakenServers:
    """Those that a process names by their URL; see `Backend` and `ServingBackend`."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}  # of processes, by handle
        self._gone = set[str]()  # handles

    def start(self, process: Process) -> str:
        """Take its server; the handle."""
        handle = f"{TAKEN}{uuid.uuid4().hex[:10]}"
        self._names[handle] = process.name
        return handle

    def alive(self, handle: str) -> bool:
        """Whether it is taken; one that was let go by a backend before this one is not known any more."""
        return handle not in self._gone

    def stop(self, handle: str) -> None:
        """Let it go."""
        self._gone.add(handle)
        name = self._names.pop(handle, None)
        if name is not None and name not in self._names.values():
            self.forget(name)

    def look(self, process: Process, handle: str) -> Answering:
        """Where its server is. If there is none, where nobody answers: its address may be another's now."""
        found = None
        if self.alive(handle):
            self._names[handle] = process.name
            found = self.find(process)
        return found or Answering(replace(process, address=None).url, False)

    def find(self, process: Process) -> Answering | None:
        """The server of a process now, if there is one."""
        return Answering(str(process.settings["served_by"]["url"]), None)

    def forget(self, name: str) -> None:
        """No process of this name has a server any more."""
