"""Processes of jobs on this machine: a backend that starts each once, and knows them by what lies in files.

Each run of a job has a folder with `output`, `started` and `ended`; `job_runner` says what they mean. Nothing
is known here but what lies in those files and in /proc, so whoever comes later knows as much.
"""

import contextlib
import fcntl
import json
import math
import os
import signal
import sys
from pathlib import Path

from edgewise.errors import RunError
from edgewise.runtime import disk
from edgewise.runtime.backends.jobs import JobStage, SeenStage
from edgewise.runtime.controller import job_runner
from edgewise.runtime.controller.job_groups import group_of, make_group, remove_group, write_control
from edgewise.runtime.controller.job_runner import ENDED, STARTED
from edgewise.runtime.process.machine import Program, ThisMachine, alive_handle
from edgewise.runtime.store.jobs import Job, Wish
from edgewise.runtime.watch.logs import end_of

NEVER = "never"  # content of `started` where a job must not start any more


class JobProcesses:
    """The backend of jobs of the live system in `folder`; a handle is a `run`, one attempt at a job."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute() / "jobs"  # runners begin elsewhere
        self._machine = ThisMachine()
        self._runners: dict[str, str] = {}  # handles of those that this controller started, by run

    def output(self, number: int) -> Path:
        """What a job has written, both streams."""
        return self.folder / str(number) / "output"

    def keep(self, wish: Wish) -> Wish:
        """See `JobBackend`: the book of jobs is all that there is."""
        return wish

    def take_in(self) -> None:
        """See `JobBackend`: nobody keeps jobs here otherwise."""

    def written(self, job: Job, most: int) -> tuple[int, bytes]:
        """See `JobBackend`."""
        return end_of(self.output(job.id), most)

    def last_line(self, number: int) -> str:
        """The last thing that a job, or its runner, has said; "" where nothing was."""
        lines = end_of(self.output(number), 4096)[1].decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def remove(self, number: int) -> None:
        """Remove the files of a job that has ended, of all its attempts."""
        for place in (self.folder / str(number), *self.folder.glob(f"{number}.*")):
            disk.remove_folder(place)

    def start(self, process: Job) -> str:
        """Start a runner, which starts the command if nobody ever did; may be called again.

        Raises:
            RunError: a folder of it is gone or cannot be made, or no process can be started.
        """
        run = process.run
        if run not in self._runners or not self._machine.alive(self._runners[run]):
            try:
                self._runners[run] = self._machine.start(self._runner(process))
            except (OSError, ValueError) as error:  # the latter: a text that no path can have
                where = f"job {process.id}: cannot be started in {process.folder}"
                raise RunError(f"{where}: {error}") from error
        return run

    def alive(self, handle: str) -> bool:
        """Whether the command of a run goes on, or is about to begin."""
        with contextlib.suppress(OSError):
            return self.look(handle).stage in (JobStage.RUNNING, JobStage.ALONE)
        return False

    def stop(self, handle: str, force: bool = False) -> None:
        """Tell a job's processes to end, also suspended ones; `force` ends them at once."""
        if force:
            self._write(handle, "cgroup.kill", "1")
            self._signal(handle, signal.SIGKILL)
        else:
            self._signal(handle, signal.SIGTERM)
            self.resume(handle)

    def _runner(self, job: Job) -> Program:
        place = self.folder / job.run
        for made in (self.folder, place, self.output(job.id).parent):
            disk.make_inside(made)
        cores = math.ceil(job.cores)
        settings = {
            "command": job.command,
            "environment": {
                "EDGEWISE_JOB": str(job.id),
                "EDGEWISE_SAVED_S": f"{job.saved_s:g}",
                "OMP_NUM_THREADS": str(cores),
            },
            "processors": processors(cores, job.id),
            "group": str(make_group(place, job.cores, job.memory_bytes) or ""),
        }
        command = (sys.executable, "-I", "-S", job_runner.__file__, str(place), json.dumps(settings))
        return Program(command, self.output(job.id), given=b"", folder=job.folder)

    def look(self, run: str) -> SeenStage:
        """Where the command of a job stands.

        Raises:
            OSError: its files cannot be read.
        """
        runner = self._runners.get(run)
        died = runner is not None and not self._machine.alive(runner)
        if died:
            del self._runners[run]
        place = self.folder / run
        if (ended := _ended(place)) is not None:
            return ended
        try:
            started = (place / STARTED).open()
        except (FileNotFoundError, NotADirectoryError):
            return SeenStage(JobStage.DIED if died else JobStage.ABSENT)
        with started:
            if started.read() == NEVER:
                return SeenStage(JobStage.FORBIDDEN)
            try:
                fcntl.flock(started, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return SeenStage(JobStage.RUNNING)
        # its runner has ended: in order, or killed, and then the command may go on alone
        vanished = SeenStage(JobStage.ALONE if self.command(run) else JobStage.VANISHED)
        return _ended(place) or vanished

    def forbid(self, run: str) -> bool:
        """Take the only start away; False when a runner has it.

        Raises:
            OSError: that cannot be written down.
        """
        place = self.folder / run
        for made in (self.folder, place):
            disk.make_inside(made)
        fresh = place / f"{NEVER}.{os.getpid()}"
        disk.write_file(fresh, NEVER)
        with contextlib.suppress(FileExistsError):
            disk.link(fresh, place / STARTED)
        disk.remove(fresh)
        return (place / STARTED).read_text() == NEVER

    def suspend(self, run: str) -> None:
        """Stop a job's processes where they are."""
        if not self._write(run, "cgroup.freeze", "1"):
            self._signal(run, signal.SIGSTOP)

    def resume(self, run: str) -> None:
        """Let them go on."""
        self._write(run, "cgroup.freeze", "0")
        self._signal(run, signal.SIGCONT)

    def _signal(self, run: str, what: signal.Signals) -> None:
        """Signal the command and what it started, unless it went into a session of its own."""
        if (handle := self.command(run)) is not None:
            self._machine.signal_session(handle, what)

    def running(self) -> list[str]:
        """Whatever runs, whether anybody wrote down that it does."""
        return [place.name for place in self.folder.glob("*") if self.alive(place.name)]

    def clear(self, run: str) -> None:
        """Remove what only a running job needs; what its command left running in its group is killed."""
        runner = self._runners.pop(run, None)
        if runner is not None:
            if not (self.folder / run / ENDED).exists():
                self._machine.stop(runner, force=True)  # it has nothing to write down any more
            self._machine.wait(runner)
        group = group_of(self.folder / run)
        if group is not None:
            remove_group(group)

    def _write(self, run: str, name: str, text: str) -> bool:
        group = group_of(self.folder / run)
        return group is not None and write_control(group, name, text)

    def runner(self, run: str) -> str | None:
        """The handle of the runner that was started here last."""
        return self._runners.get(run)

    def command(self, run: str) -> str | None:
        """The handle of the command, if it lives."""
        with contextlib.suppress(OSError):
            handle = (self.folder / run / STARTED).read_text()
            return handle if ":" in handle and alive_handle(handle) else None
        return None


def _ended(place: Path) -> SeenStage | None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return SeenStage(JobStage.ENDED, json.loads((place / ENDED).read_text())["code"])
    return None


def processors(cores: int, number: int) -> list[int]:
    """Processors of this machine that a job may use: as many as it has cores, in turn."""
    mine = sorted(os.sched_getaffinity(0))
    return [mine[(number + k) % len(mine)] for k in range(min(cores, len(mine)))]
