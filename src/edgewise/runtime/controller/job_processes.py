"""Processes of jobs on this machine: started once, watched through files, suspended, ended.

Each job has a folder with `output`, `started` and `ended`; `job_runner` says what they mean. Nothing is
known here but what lies in those files and in /proc, so whoever comes later knows as much.

A job's control group (version 2) has limits that hold for all of its processes, a freezer and a kill. It is
made where its limits hold: in the nearest group, from this process's own upwards, that passes the processor
controller on and may be written; otherwise in the own one, to freeze and kill. Groups pass nothing on while
processes are in them, so a job's group mostly lies beside that of its controller.
"""

import contextlib
import fcntl
import hashlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from edgewise.errors import RunError
from edgewise.runtime import clock, private
from edgewise.runtime.backends import alive_handle
from edgewise.runtime.controller import job_runner
from edgewise.runtime.controller.books import Job
from edgewise.runtime.controller.job_runner import ENDED, STARTED
from edgewise.runtime.logs import end_of

NOTE = "group"  # file in a job's folder with the path of its group
PERIOD_US = 100_000
LONGEST_REMOVAL_S = 0.2


def make_group(place: Path, cores: float, memory_bytes: float) -> Path | None:
    """The group of the job whose folder is `place`, with its limits; None where none may be made."""
    group = group_of(place) or _parent() / f"edgewise-job-{place.name}-{_digest(place)}"
    try:
        group.mkdir(exist_ok=True)
    except OSError:
        return None
    private.write_file(place / NOTE, str(group))
    write_control(group, "cpu.max", f"{int(cores * PERIOD_US)} {PERIOD_US}")
    write_control(group, "cpu.idle", "1")
    if memory_bytes:
        write_control(group, "memory.max", str(int(memory_bytes)))
        write_control(group, "memory.swap.max", "0")
        write_control(group, "memory.oom.group", "1")
    return group


def group_of(place: Path) -> Path | None:
    """The group that `make` made for a job's folder."""
    with contextlib.suppress(OSError):
        return Path((place / NOTE).read_text())
    return None


def remove_group(group: Path) -> None:
    """Kill what is left in a group and remove it, unless it takes too long."""
    write_control(group, "cgroup.kill", "1")
    until_s = clock.monotonic_s() + LONGEST_REMOVAL_S
    while group.is_dir() and clock.monotonic_s() < until_s:
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.002)


def write_control(group: Path, name: str, text: str) -> bool:
    """Whether a control file was there and took the text."""
    try:
        if not (group / name).exists():
            return False
        (group / name).write_text(text)
    except OSError:
        return False
    return True


def _parent() -> Path:
    """Where groups are made."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    mount = Path(next((fields[1] for fields in mounts if fields[2] == "cgroup2"), "/sys/fs/cgroup"))
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    own = mount / next((line[3:] for line in lines if line[:3] == "0::"), "/").strip("/")
    for controller in ("+cpu", "+memory"):
        write_control(own, "cgroup.subtree_control", controller)  # the root of all groups alone takes it
    for group in (own, *own.parents):
        if mount in (group, *group.parents) and "cpu" in _passed_on(group) and _may_hold_groups(group):
            return group
    return own


def _passed_on(group: Path) -> set[str]:
    with contextlib.suppress(OSError):
        return set((group / "cgroup.subtree_control").read_text().split())
    return set()


def _may_hold_groups(group: Path) -> bool:
    return os.access(group, os.W_OK) and os.access(group / "cgroup.procs", os.W_OK)


def _digest(place: Path) -> str:
    """The same for a job's folder whoever asks, so that a group that nobody noted is found again."""
    return hashlib.sha256(str(place.resolve()).encode()).hexdigest()[:8]


NEVER = "never"  # content of `started` where a job must not start any more


class JobStage(Enum):
    """Where the command of a job stands."""

    ABSENT = "nobody has taken it"
    DIED = "its runner died before it took it"
    RUNNING = "it runs, or is about to"
    ALONE = "it runs, and its runner was killed: nobody would know how it ends"
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
            RunError: a folder of it is gone or cannot be made, or no process can be started.
        """
        if job.run in self._runners and self._runners[job.run].poll() is None:
            return
        try:
            self._runners[job.run] = self._runner(job)
        except (OSError, ValueError) as error:  # the latter: a text that no path can have
            raise RunError(f"job {job.id}: cannot be started in {job.folder}: {error}") from error

    def _runner(self, job: Job) -> subprocess.Popen[bytes]:
        place = self.folder / job.run
        for made in (self.folder, place, self.output(job.id).parent):
            made.mkdir(exist_ok=True, mode=0o700)
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
        command = [sys.executable, "-I", "-S", job_runner.__file__, str(place), json.dumps(settings)]
        with private.open_file(self.output(job.id), "ab") as output:
            return subprocess.Popen(
                command, cwd=job.folder, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def look(self, run: str) -> SeenStage:
        """Where the command of a job stands.

        Raises:
            OSError: its files cannot be read.
        """
        runner = self._runners.get(run)
        died = runner is not None and runner.poll() is not None
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
        vanished = SeenStage(JobStage.ALONE if self._handle(run) else JobStage.VANISHED)
        return _ended(place) or vanished

    def forbid(self, run: str) -> bool:
        """Take the only start away; False when a runner has it.

        Raises:
            OSError: that cannot be written down.
        """
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

    def running(self) -> list[str]:
        """Whatever runs, whether anybody wrote down that it does."""
        found = []
        for place in self.folder.glob("*"):
            with contextlib.suppress(OSError):
                if self.look(place.name).stage in (JobStage.RUNNING, JobStage.ALONE):
                    found.append(place.name)
        return found

    def clear(self, run: str) -> None:
        """Remove what only a running job needs; what its command left running in its group is killed."""
        runner = self._runners.pop(run, None)
        if runner is not None:
            if not (self.folder / run / ENDED).exists():
                runner.kill()  # it has nothing to write down any more
            runner.wait()
        group = group_of(self.folder / run)
        if group is not None:
            remove_group(group)

    def _write(self, run: str, name: str, text: str) -> bool:
        group = group_of(self.folder / run)
        return group is not None and write_control(group, name, text)

    def _handle(self, run: str) -> str | None:
        """Of the command, if it lives."""
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
