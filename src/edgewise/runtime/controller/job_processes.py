"""Processes of jobs on this machine: started once, watched through files, suspended, ended.

Each job has a folder with `output`, `started` and `ended`; `job_runner` says what they mean. Nothing is
known here but what lies in those files and in /proc, so whoever comes later knows as much.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from edgewise.errors import RunError
from edgewise.runtime import private
from edgewise.runtime.backends.local import alive_handle
from edgewise.runtime.controller import job_groups, job_runner
from edgewise.runtime.controller.job_book import Job
from edgewise.runtime.controller.job_runner import ENDED, STARTED
from edgewise.runtime.logs import end_of

NEVER = "never"  # content of `started` where a job must not start any more


class JobStage(Enum):
    """Where the command of a job stands."""

    ABSENT = "nobody has taken it"
    DIED = "its runner died before it took it"
    RUNNING = "it runs, or is about to"
    ENDED = "its exit status is known"
    VANISHED = "it has ended, nobody knows how"
    FORBIDDEN = "it must not start any more"


class SeenStage(NamedTuple):
    """Stage, and exit status where it is known: below 0 the signal that ended it."""

    stage: JobStage
    code: int | None = None


class JobProcesses:
    """Jobs of the live system in `folder`; a `run` names one attempt at a job, as `Job.run`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute() / "jobs"  # runners begin elsewhere
        self._runners: dict[str, subprocess.Popen[bytes]] = {}

    def output(self, number: int) -> Path:
        """What a job has written, both streams."""
        return self.folder / str(number) / "output"

    def last_line(self, number: int) -> str:
        """The last thing that a job, or its runner, has said; "" where nothing was."""
        lines = end_of(self.output(number), 4096)[1].decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def remove(self, number: int) -> None:
        """Remove the files of a job that has ended, of all its attempts."""
        for place in (self.folder / str(number), *self.folder.glob(f"{number}.*")):
            shutil.rmtree(place, ignore_errors=True)

    def start(self, job: Job) -> None:
        """Start a runner, which starts the command if nobody ever did; may be called again.

        Raises:
            RunError: the job's folder is gone, or no process can be started.
        """
        if job.run in self._runners and self._runners[job.run].poll() is None:
            return
        place = self.folder / job.run
        for made in (self.folder, place, self.output(job.id).parent):
            made.mkdir(exist_ok=True, mode=0o700)
        cores = math.ceil(job.wish.cores)
        settings = {
            "command": job.wish.command,
            "environment": {"EDGEWISE_JOB": str(job.id), "OMP_NUM_THREADS": str(cores)},
            "processors": processors(cores, job.id),
            "group": str(job_groups.make(place, job.wish.cores, job.wish.memory_bytes) or ""),
        }
        command = [sys.executable, "-I", "-S", job_runner.__file__, str(place), json.dumps(settings)]
        try:
            with private.open_file(self.output(job.id), "ab") as output:
                self._runners[job.run] = subprocess.Popen(
                    command, cwd=job.wish.folder, stdin=subprocess.DEVNULL, stdout=output,
                    stderr=subprocess.STDOUT, start_new_session=True,
                )  # fmt: skip
        except (OSError, ValueError) as error:  # the latter: a text that no path can have
            raise RunError(f"job {job.id}: cannot be started in {job.wish.folder}: {error}") from error

    def look(self, run: str) -> SeenStage:
        """Where the command of a job stands."""
        runner = self._runners.get(run)
        died = runner is not None and runner.poll() is not None
        if died:
            del self._runners[run]
        place = self.folder / run
        if (ended := _ended(place)) is not None:
            return ended
        try:
            started = (place / STARTED).open()
        except FileNotFoundError:
            return SeenStage(JobStage.DIED if died else JobStage.ABSENT)
        with started:
            if started.read() == NEVER:
                return SeenStage(JobStage.FORBIDDEN)
            try:
                fcntl.flock(started, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return SeenStage(JobStage.RUNNING)
        # its runner has ended: in order, or killed, and then the command may go on alone
        vanished = SeenStage(JobStage.RUNNING if self._handle(run) else JobStage.VANISHED)
        return _ended(place) or vanished

    def forbid(self, run: str) -> bool:
        """Take the only start away; False when a runner has it."""
        place = self.folder / run
        for made in (self.folder, place):
            made.mkdir(exist_ok=True, mode=0o700)
        fresh = place / f"{NEVER}.{os.getpid()}"
        private.write_file(fresh, NEVER)
        with contextlib.suppress(FileExistsError):
            os.link(fresh, place / STARTED)
        fresh.unlink()
        return (place / STARTED).read_text() == NEVER

    def suspend(self, run: str) -> None:
        """Stop a job's processes where they are."""
        if not self._write(run, "cgroup.freeze", "1"):
            self.tell(run, signal.SIGSTOP)

    def resume(self, run: str) -> None:
        """Let them go on."""
        self._write(run, "cgroup.freeze", "0")
        self.tell(run, signal.SIGCONT)

    def kill(self, run: str) -> None:
        """End a job's processes at once."""
        self._write(run, "cgroup.kill", "1")
        self.tell(run, signal.SIGKILL)

    def tell(self, run: str, what: signal.Signals) -> None:
        """Signal the command and what it started, unless it went into a session of its own."""
        handle = self._handle(run)
        if handle is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(int(handle.split(":")[0]), what)

    def clear(self, run: str) -> None:
        """Remove what only a running job needs; what its command left running in its group is killed."""
        runner = self._runners.pop(run, None)
        if runner is not None:
            if not (self.folder / run / ENDED).exists():
                runner.kill()  # it has nothing to write down any more
            runner.wait()
        group = job_groups.of(self.folder / run)
        if group is not None:
            job_groups.remove(group)

    def _write(self, run: str, name: str, text: str) -> bool:
        group = job_groups.of(self.folder / run)
        return group is not None and job_groups.write(group, name, text)

    def _handle(self, run: str) -> str | None:
        """Of the command, if it lives."""
        with contextlib.suppress(OSError):
            handle = (self.folder / run / STARTED).read_text()
            return handle if ":" in handle and alive_handle(handle) else None
        return None


def _ended(place: Path) -> SeenStage | None:
    with contextlib.suppress(FileNotFoundError):
        return SeenStage(JobStage.ENDED, json.loads((place / ENDED).read_text())["code"])
    return None


def processors(cores: int, number: int) -> list[int]:
    """Processors of this machine that a job may use: as many as it has cores, in turn."""
    mine = sorted(os.sched_getaffinity(0))
    return [mine[(number + k) % len(mine)] for k in range(min(cores, len(mine)))]
