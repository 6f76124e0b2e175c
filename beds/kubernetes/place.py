"""The one place for a cluster on a machine: a lock of the kernel, whose file says who holds it.

The kernel gives the lock back with its process and tells whose it is (/proc/locks). What stands in the file
counts only while that process holds it: the file is never removed, and nobody can remove another's.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from beds.processes import BedError, root_folder

STARTING_S = 5.0  # most between taking the lock and saying who did
END_S = 60.0  # most that a cluster may take to end when it is asked to


def file() -> Path:
    """The file that is locked."""
    return root_folder("kubernetes").parent / "kubernetes.lock"


class Place:
    """The place, held by this process.

    Args:
        opened: the locked file.
    """

    def __init__(self, opened: IO[str]) -> None:
        self._opened = opened
        self.say({})

    def say(self, of: Mapping[str, Any]) -> None:
        """Say what is up here, beside the process and its command."""
        text = json.dumps({"pid": os.getpid(), "command": " ".join(sys.argv), **of})
        self._opened.seek(0)
        self._opened.truncate()
        self._opened.write(text)
        self._opened.flush()


@contextlib.contextmanager
def taken() -> Iterator[Place]:
    """Hold the place.

    Raises:
        BedError: another process holds it; who, where, and how it ends.
    """
    with file().open("a+") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BedError(told(holder())) from None
        yield Place(opened)


def holder() -> dict[str, Any]:
    """What the process that holds the place says of itself; empty where nobody holds it.

    Raises:
        BedError: it does not say.
    """
    until_s = time.monotonic() + STARTING_S
    while pids := _pids():
        with contextlib.suppress(OSError, ValueError):
            said: dict[str, Any] = json.loads(file().read_text())
            if said["pid"] in pids:
                return said
        if time.monotonic() > until_s:
            raise BedError(f"{file()} is locked by process {pids[0]}, which does not say what it is")
        time.sleep(0.02)
    return {}


def told(holder: Mapping[str, Any]) -> str:
    """What is up, where, and how it ends."""
    where = f"process {holder['pid']} ({holder['command']})" if holder else "a process that has just ended"
    if "kubeconfig" in holder:
        where = f"{', '.join(holder['nodes'])}, process {holder['pid']}, KUBECONFIG={holder['kubeconfig']}"
    return f"a cluster runs already on this machine: {where}; `make bed-down` ends it"


def end_holder() -> dict[str, Any]:
    """End whoever holds the place, asked first, then killed; what it has said of itself."""
    found = holder()
    for sent in (signal.SIGTERM, signal.SIGKILL) if found else ():
        with contextlib.suppress(ProcessLookupError):
            os.kill(found["pid"], sent)
        until_s = time.monotonic() + END_S
        while found["pid"] in _pids() or runs(found["pid"]):
            if time.monotonic() > until_s:
                break
            time.sleep(0.05)
        else:
            break
    return found


def runs(pid: int) -> bool:
    """Whether a process has not ended; of one that nobody has waited for, nothing is left but its number."""
    with contextlib.suppress(OSError):
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    return False


def _pids() -> list[int]:
    """Processes that the kernel says to hold the lock: one, or none."""
    try:
        inode = file().stat().st_ino
    except FileNotFoundError:
        return []
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return [int(of[4]) for of in lines if of[1] == "FLOCK" and of[5].rpartition(":")[2] == str(inode)]
