"""Runs one job and writes down how it ended; outlives the controller. Standard library only: it starts fast.

    python -I -S job_runner.py FOLDER SETTINGS         settings: JSON, see `job_processes`

The name FOLDER/started can be taken once, by a link that fails when it exists: whoever takes it may start
the command, every later runner ends at once. The file holds "pid:begun" of the command and is locked as
long as its runner lives. FOLDER/ended appears, whole, when the command has ended.
"""

import fcntl
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

STARTED, ENDED = "started", "ended"
NOT_STARTED = 127  # exit status of a command that cannot be executed, as in a shell


def main(folder: Path, settings: dict[str, Any]) -> None:
    """Start the command unless it was started before, wait for it, write its exit status."""
    place = take(folder)
    if place is None:
        return
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # whoever ends the job signals the command
    child = os.fork()
    if child == 0:
        _be(place, settings)
    _, status = os.waitpid(child, 0)
    fresh = folder / f"{ENDED}.{os.getpid()}"
    with open(fresh, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as written:
        json.dump({"code": os.waitstatus_to_exitcode(status)}, written)
    fresh.rename(folder / ENDED)


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
