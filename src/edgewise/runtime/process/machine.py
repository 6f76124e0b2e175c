"""Processes of this machine: the one seam through which the live system executes programs and signals them.

Each runs in its own session, and lives on when its starter dies.
"""

import contextlib
import os
import select
import signal
import subprocess
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from edgewise.runtime import disk

Child = subprocess.Popen[bytes]  # the streams of a program that was started here, and how it has ended


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
        weakref.finalize(self, _close, self._ends).atexit = False

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
                output = opened.enter_context(disk.open_file(program.output, "ab"))
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


def exit_status(child: Child, within_s: float = 1.0) -> int | None:
    """How a program has ended that is about to: below 0 the signal that ended it."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return child.wait(within_s)
    return None


def _close(ends: Mapping[str, int]) -> None:
    for end in ends.values():
        os.close(end)


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


def _begun(number: int) -> str | None:
    """When a process began, None when there is none or it has ended (a zombie)."""
    try:
        with open(f"/proc/{number}/stat") as file:  # of each process, fifty times a second
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):  # anything else does not mean that it has ended
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]
