"""Runs one job and writes down how it ended; outlives the controller. Standard library only: it starts fast.

    python -I -S job_runner.py FOLDER SETTINGS         settings: JSON, see `job_processes`

The name FOLDER/started can be taken once, by a link that fails when it exists: whoever takes it may start
the command, every later runner ends at once. The file holds "pid:begun" of the command and is locked as
long as its runner lives. FOLDER/ended appears, whole, when the command has ended, also on a full disk: it has
its room from the start, or waits for it.
"""

import fcntl
import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

STARTED, ENDED = "started", "ended"
LAST_BYTES = 32  # of the file with the exit status
AGAIN_S = 0.2  # while there is no room for it
NOT_STARTED = 127  # exit status of a command that cannot be executed, as in a shell


def main(folder: Path, settings: dict[str, Any]) -> None:
    """Start the command unless it was started before, wait for it, write its exit status."""
    place = take(folder)
    if place is None:
        return
    fresh = folder / f"{ENDED}.{os.getpid()}"
    last = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # whoever ends the job signals the command
    with suppress(OSError):
        os.pwrite(last, bytes(LAST_BYTES), 0)  # room, for there may be none when it ends
    child = os.fork()
    if child == 0:
        _be(place, settings)
    _, status = os.waitpid(child, 0)
    said = json.dumps({"code": os.waitstatus_to_exitcode(status)}).ljust(LAST_BYTES).encode()
    while not _written(last, said, fresh, folder / ENDED):
        time.sleep(AGAIN_S)


def _written(last: int, said: bytes, fresh: Path, ended: Path) -> bool:
    """Whether an exit status is written down; False where the disk has no room for it."""
    try:
        if os.pwrite(last, said, 0) == len(said):
            fresh.rename(ended)
            return True
    except FileNotFoundError:  # the job's folder is gone: nobody asks
        return True
    except OSError:
        pass
    return False


def take(folder: Path) -> int | None:
    """Take the name `started`; None when somebody has.

    Returns:
        descriptor of the locked file.
    """
    fresh = folder / f"{STARTED}.{os.getpid()}"
    place = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    fcntl.flock(place, fcntl.LOCK_EX)
    try:
        os.link(fresh, folder / STARTED)
    except FileExistsError:
        os.close(place)
        return None
    finally:
        os.unlink(fresh)
    return place


def _be(place: int, settings: dict[str, Any]) -> None:
    """Become the command, with what it may use limited; never returns."""
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        _limit(settings)
        begun = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
        os.write(place, f"{os.getpid()}:{begun}".encode())
        os.execvpe(settings["command"][0], settings["command"], os.environ | settings["environment"])
    except BaseException as error:
        print(f"{settings['command'][0]}: cannot be started: {error}", file=sys.stderr, flush=True)
    os._exit(NOT_STARTED)


def _limit(settings: dict[str, Any]) -> None:
    """Own control group, lowest priority, idle class, some processors: each as far as it is allowed."""

    def join() -> None:
        if settings["group"]:
            Path(settings["group"], "cgroup.procs").write_text(str(os.getpid()))

    for limit in (
        join,
        lambda: os.nice(19),
        lambda: os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0)),
        lambda: os.sched_setaffinity(0, settings["processors"]),
    ):
        try:
            limit()
        except (OSError, AttributeError) as error:
            print(f"edgewise: a limit was not set: {error}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
