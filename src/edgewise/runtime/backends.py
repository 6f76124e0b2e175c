"""Backends: what a lifecycle asks of one (`edgewise.testing.check_backend` checks it); this machine.

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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Protocol, TypeVar

from edgewise.errors import RunError
from edgewise.runtime import private
from edgewise.runtime.store import Process

What = TypeVar("What", contravariant=True)
Child = subprocess.Popen[bytes]  # the streams of a program that was started here, and how it has ended


class Backend(Protocol[What]):
    """Starts, watches and ends processes of one kind. No method waits for a process.

    A handle names one start of a process. It is text, kept by its owner (in the store, or a job's folder),
    and means the same to a backend that is made later: a controller that starts again finds its processes by
    their handles.
    """

    def start(self, process: What) -> str:
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


@dataclass(frozen=True, slots=True)
class Program:
    """What this machine is to execute.

    Attributes:
        command: program and arguments.
        output: file that both of its streams are appended to; None: its standard output comes to us, its
            standard error to nobody.
        given: what its standard input holds; None: what we write there, until we end.
        folder: it begins in; None: ours.
    """

    command: tuple[str, ...]
    output: Path | None = None
    given: bytes | None = None
    folder: str | None = None


class ThisMachine:
    """Processes of this machine; the only place where the live system executes and signals any.

    The handle is "pid:start", start in clock ticks since boot.
    """

    def __init__(self) -> None:
        self._ends: dict[str, int] = {}  # of others' children: what becomes readable when they have ended
        self._children: dict[str, Child] = {}  # ours, until they were seen to have ended

    def start(self, process: Program) -> str:
        """See `Backend`.

        Raises:
            OSError: it cannot be started.
        """
        return self.execute(process)[0]

    def execute(self, program: Program) -> tuple[str, Child]:
        """Start a program; its handle, and what reads and writes its streams and knows its exit status.

        Raises:
            OSError: it cannot be started.
        """
        stdin = subprocess.DEVNULL if program.given == b"" else subprocess.PIPE
        with contextlib.ExitStack() as opened:
            output: IO[bytes] | None = None
            if program.output is not None:
                output = opened.enter_context(private.open_file(program.output, "ab"))
            child = subprocess.Popen(
                program.command, cwd=program.folder, stdin=stdin, start_new_session=True,
                stdout=subprocess.PIPE if output is None else output,
                stderr=subprocess.DEVNULL if output is None else output,
            )  # fmt: skip
        handle = handle_of(child.pid)
        self._children[handle] = child
        if program.given and child.stdin is not None:
            with child.stdin as given:  # everybody may read a command line
                given.write(program.given)
        return handle, child

    def alive(self, handle: str) -> bool:
        """See `Backend`; the controller asks of each process fifty times a second, and /proc is slow."""
        if (child := self._children.get(handle)) is not None:
            if child.poll() is None:
                return True
            self._children.pop(handle, None)
            return False
        end = self._ends.get(handle)
        if end is not None and not _readable(end):
            return True
        if end is None and hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):  # it has ended, or this system has no such thing
                self._ends[handle] = os.pidfd_open(_number(handle))
        # and what was opened is of this start, not of another one with its number
        alive = alive_handle(handle)
        if not alive and (end := self._ends.pop(handle, None)) is not None:
            os.close(end)
        return alive

    def stop(self, handle: str, force: bool = False) -> None:
        """See `Backend`."""
        if self.alive(handle):
            with contextlib.suppress(ProcessLookupError):
                os.kill(_number(handle), signal.SIGKILL if force else signal.SIGTERM)

    def wait(self, handle: str) -> None:
        """Wait for the end of a program that was started here."""
        if (child := self._children.pop(handle, None)) is not None:
            child.wait()

    def signal_session(self, handle: str, what: signal.Signals) -> None:
        """Signal a process that leads a session, and what it started there."""
        if alive_handle(handle):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(_number(handle), what)


class LocalBackend:
    """Starts workers and gateways here.

    Args:
        folder: state of the system; logs go to `folder/logs/NAME.log`.
        fork: starts a process and returns its id; OSError when it cannot. None starts interpreters.
    """

    def __init__(self, folder: Path, fork: Callable[[Process], int] | None = None) -> None:
        self.folder, self._fork, self._machine = folder.absolute(), fork, ThisMachine()

    def start(self, process: Process) -> str:
        """See `Backend`."""
        if self._fork is not None:
            with contextlib.suppress(OSError):  # the nursery is gone
                return handle_of(self._fork(process))
        command = (sys.executable, "-m", "edgewise.runtime.process", str(self.folder))
        said = json.dumps(asdict(process)).encode()
        try:
            return self._machine.start(Program(command, log_file(self.folder, process.name), said))
        except OSError as error:
            raise RunError(f"{process.name}: cannot be started: {error}") from error

    def alive(self, handle: str) -> bool:
        """See `Backend`."""
        return self._machine.alive(handle)

    def stop(self, handle: str, force: bool = False) -> None:
        """See `Backend`."""
        self._machine.stop(handle, force)


def exit_status(child: Child, within_s: float = 1.0) -> int | None:
    """How a program has ended that is about to: below 0 the signal that ended it."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return child.wait(within_s)
    return None


def _readable(file: int) -> bool:
    ready = select.poll()
    ready.register(file, select.POLLIN)
    return bool(ready.poll(0))


def _number(handle: str) -> int:
    return int(handle.split(":")[0])


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
