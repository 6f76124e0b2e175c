"""Backends: what the controller asks of one (`edgewise.testing.check_backend` checks it); this machine.

Processes on this machine run each in its own session, optionally pinned to cores.
A process is forked by a nursery (`runtime.controller.nursery`) when there is one, which takes milliseconds,
and started with the interpreter otherwise, which takes seconds. It lives on when its starter dies.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from edgewise.errors import RunError
from edgewise.runtime import private
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


class LocalBackend:
    """Starts processes here.

    Args:
        folder: state of the system; logs go to `folder/logs/NAME.log`.
        fork: starts a process and returns its id; OSError when it cannot. None starts interpreters.
    """

    def __init__(self, folder: Path, fork: Callable[[Process], int] | None = None) -> None:
        self.folder, self._fork = folder.absolute(), fork
        self._ends: dict[str, int] = {}  # of handles: what becomes readable when the process has ended

    def start(self, process: Process) -> str:
        """See `Backend`; the handle is "pid:start", start in clock ticks since boot."""
        number = None
        if self._fork is not None:
            with contextlib.suppress(OSError):  # the nursery is gone
                number = self._fork(process)
        if number is None:
            number = self._spawn(process)
        return handle_of(number)

    def alive(self, handle: str) -> bool:
        """See `Backend`; the controller asks of each process fifty times a second, and /proc is slow."""
        number, end = int(handle.split(":")[0]), self._ends.get(handle)
        if end is not None and not _readable(end):
            return True
        with contextlib.suppress(ChildProcessError):  # reap it where it is ours
            os.waitpid(number, os.WNOHANG)
        if end is None and hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):  # it has ended, or this system has no such thing
                self._ends[handle] = os.pidfd_open(number)
        alive = alive_handle(
            handle
        )  # and what was opened is of this start, not of another one with its number
        if not alive and (end := self._ends.pop(handle, None)) is not None:
            os.close(end)
        return alive

    def stop(self, handle: str, force: bool = False) -> None:
        """See `Backend`."""
        if self.alive(handle):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(handle.split(":")[0]), signal.SIGKILL if force else signal.SIGTERM)

    def _spawn(self, process: Process) -> int:
        command = [sys.executable, "-m", "edgewise.runtime.process", str(self.folder)]
        try:
            with private.open_file(log_file(self.folder, process.name), "ab") as log:
                child = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
                )
            assert child.stdin is not None
            with child.stdin as stdin:  # everybody may read a command line
                stdin.write(json.dumps(asdict(process)).encode())
        except OSError as error:
            raise RunError(f"{process.name}: cannot be started: {error}") from error
        child.returncode = 0  # `alive` reaps it; Popen must not warn
        return child.pid


def _readable(file: int) -> bool:
    ready = select.poll()
    ready.register(file, select.POLLIN)
    return bool(ready.poll(0))


def handle_of(number: int) -> str:
    """The handle of a process of this machine."""
    return f"{number}:{_begun(number)}"


def alive_handle(handle: str) -> bool:
    """Whether the process of a handle lives; another one with its number does not count."""
    number, begun = handle.split(":")
    return begun != "None" and _begun(int(number)) == begun


def log_file(folder: Path, name: str) -> Path:
    """Where a process writes its log."""
    (folder / "logs").mkdir(exist_ok=True, mode=0o700)
    return folder / "logs" / f"{name}.log"


def place_file(folder: Path, port: int) -> Path:
    """What the process of a port holds locked while it lives."""
    (folder / "places").mkdir(exist_ok=True, mode=0o700)
    return folder / "places" / str(port)


def holders(folder: Path) -> dict[int, int]:
    """Port and process id of everything that holds a place, whether its start was written down or not."""
    found = dict[int, int]()
    for place in (folder / "places").glob("*"):
        with contextlib.suppress(OSError, ValueError):  # it ended
            number = int(place.read_text())
            if any(_is(each, place) for each in Path(f"/proc/{number}/fd").iterdir()):
                found[int(place.name)] = number
    return found


def _is(opened: Path, file: Path) -> bool:
    """Whether what a process has open is a file; it may be closed by now."""
    with contextlib.suppress(OSError):
        return opened.samefile(file)
    return False


def _begun(number: int) -> str | None:
    """When a process began, None when there is none or it has ended (a zombie)."""
    try:
        with open(f"/proc/{number}/stat") as file:  # of each process, fifty times a second
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):  # anything else does not mean that it has ended
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]
