"""A machine of which only the store and the files are real: processes, jobs and tasks are played.

What runs there outlives the controller that started it, but for tasks of pipelines, which end with it. The
controller can be made to die before any change of the disk; from then on it does nothing more.
"""

from collections import Counter
from dataclasses import dataclass
from types import SimpleNamespace

from alone import Alone
from edgewise.core.place import ReroutePipeline, StopPipeline
from edgewise.runtime.backends.contract import Answering
from edgewise.runtime.backends.jobs import JobStage, SeenStage

TURN_S = 0.25


class Death(BaseException):
    """The controller is killed."""


@dataclass
class Running:
    """A process: whose, at which port, and whether it lives."""

    name: str
    port: int
    alive: bool = True


class PlayedMachine:
    """What runs.

    Attributes:
        before: the change before which the controller dies; 0: none.
        processes: by handle; runs: of jobs, as [seconds left, since when or None, exit status or None].
        begun: how often each run was started, and each pipeline while it ran already.
    """

    def __init__(self):
        self.now_s, self.changes, self.before, self.dead = 1_000_000.0, 0, 0, False
        self.processes, self.runs, self.begun, self.tasks = {}, {}, Counter(), {}

    def changing(self, what, file):
        """In place of `disk.changing`."""
        self.acting()
        self.changes += 1
        if self.changes == self.before:
            self.dead = True
            raise Death(f"before it could {what} {file.name}")

    def acting(self):
        """A controller does something."""
        if self.dead:
            raise Death

    def living(self):
        return sorted(handle for handle, each in self.processes.items() if each.alive)

    def holders(self):
        """Port and handle of each process, as they hold their places."""
        return {self.processes[handle].port: handle for handle in self.living()}

    def let_go(self):
        """The controller is dead: its tasks have ended, another one may act."""
        self.dead, self.before = False, 0
        self.tasks.clear()


class PlayedBackend(Alone):
    """Processes; who is started at a port ends whoever was there, as each takes its place."""

    def __init__(self, machine):
        self.machine = machine

    def start(self, process):
        machine = self.machine
        machine.acting()
        for each in machine.processes.values():
            each.alive &= each.port != process.port
        handle = f"{len(machine.processes) + 1}:1"
        machine.processes[handle] = Running(process.name, process.port)
        return handle

    def alive(self, handle):
        self.machine.acting()
        return handle in self.machine.processes and self.machine.processes[handle].alive

    def stop(self, handle, force=False):
        if self.alive(handle):
            self.machine.processes[handle].alive = False

    def look(self, process, handle):
        return Answering(process.url, self.alive(handle))

    def jobs(self, book):
        return PlayedRuns(self.machine)


class PlayedRuns:
    """Runs of jobs; see `JobBackend`. A run takes its name once, and goes on whoever looks."""

    def __init__(self, machine):
        self._machine = machine

    def keep(self, wish):
        return wish

    def take_in(self):
        """Nobody keeps jobs but the book."""

    def start(self, job):
        machine = self._machine
        machine.acting()
        if job.run not in machine.runs:
            machine.begun[job.run] += 1
            machine.runs[job.run] = [job.duration_s - job.saved_s, machine.now_s, None]
        return job.run

    def look(self, run):
        self._machine.acting()
        if (found := self._machine.runs.get(run)) is None:
            return SeenStage(JobStage.ABSENT)
        if found == "never":
            return SeenStage(JobStage.FORBIDDEN)
        left_s, since_s, code = found
        if code is None and since_s is not None and self._machine.now_s - since_s >= left_s:
            code = found[2] = 0
        return SeenStage(JobStage.RUNNING) if code is None else SeenStage(JobStage.ENDED, code)

    def alive(self, run):
        return self.look(run).stage is JobStage.RUNNING

    def stop(self, run, force=False):
        self._machine.acting()
        if self.alive(run):
            self._machine.runs[run][2] = -9 if force else -15

    def suspend(self, run):
        self._machine.acting()
        left_s, since_s, _ = self._machine.runs[run]
        if since_s is not None:
            self._machine.runs[run][:2] = left_s - (self._machine.now_s - since_s), None

    def resume(self, run):
        self._machine.acting()
        if self._machine.runs[run][1] is None:
            self._machine.runs[run][1] = self._machine.now_s

    def forbid(self, run):
        self._machine.acting()
        return self._machine.runs.setdefault(run, "never") == "never"

    def running(self):
        return [run for run in self._machine.runs if self.alive(run)]

    def clear(self, run):
        """Nothing is kept beside it."""

    def remove(self, number):
        for run in [run for run in self._machine.runs if run.split(".")[0] == str(number)]:
            del self._machine.runs[run]

    def written(self, job, most):
        return 4, b"ran\n"

    def last_line(self, number):
        return ""


class PlayedPipelines:
    """Tasks of pipelines, a frame a second; see `PipelineTasks`."""

    def __init__(self, machine, backend, tasks=None):
        self._machine, self.backend, self.running = machine, backend, {}

    def pace(self, rates_fps):
        """All do the same."""

    def carry_out(self, commands, known):
        self._machine.acting()
        for command in commands:
            if isinstance(command, ReroutePipeline):
                self.running[command.placement.pipeline.id].placed = command.placement
            elif not isinstance(command, StopPipeline):
                self._begin(command.placement, known[command.placement.pipeline.id])

    def _begin(self, placed, live):
        number, machine, since_s = placed.pipeline.id, self._machine, self._machine.now_s
        machine.begun["pipeline", number] += number in machine.tasks
        machine.tasks[number] = placed.node.tolist()

        class Task:
            culprit, died, said = False, False, None

            @property
            def latest(self):
                return {"at_s": machine.now_s, "frames": machine.now_s - since_s}

        order = live.pipeline.graph.order()
        self.running[number] = SimpleNamespace(
            live=live, placed=placed, processes=dict.fromkeys(order, Task())
        )

    def stop(self, number):
        self._machine.acting()
        self.running.pop(number, None)
        self._machine.tasks.pop(number, None)
