"""Tasks of pipelines as processes of this machine, on the nodes of a test bed."""

import contextlib
import sys
from collections.abc import Callable

from edgewise.errors import RunError
from edgewise.runtime.backends.tasks import TaskReached, WantedTask
from edgewise.runtime.process.machine import Child, Program, ThisMachine, exit_status
from edgewise.runtime.testbeds import Testbed

PATIENCE_S = 0.5


class BedTasks:
    """See `TaskBackend`.

    Args:
        bed: where tasks are started now; it may be another one later, of the same nodes.
    """

    patience_s = PATIENCE_S

    def __init__(self, bed: Callable[[], Testbed]) -> None:
        self._bed, self._machine = bed, ThisMachine()
        self._fresh: dict[str, TaskReached] = {}  # nobody has spoken with them yet

    def start(self, task: WantedTask) -> str:
        """See `Backend`.

        Raises:
            OSError: this machine starts no process now.
        """
        bed = self._bed()
        node = bed.network.names.index(task.node)
        command = bed.command(node, [sys.executable, "-m", "edgewise.runtime.pipelines.task"])
        handle, child = self._machine.execute(Program(tuple(command)))
        self._fresh[handle] = _reached(bed.address(node), child)
        return handle

    def alive(self, handle: str) -> bool:
        """See `Backend`."""
        alive = self._machine.alive(handle)
        if not alive:
            self._fresh.pop(handle, None)
        return alive

    def stop(self, handle: str, force: bool = False) -> None:
        """See `Backend`."""
        self._machine.stop(handle, force)

    def reach(self, handle: str) -> TaskReached:
        """See `TaskBackend`: its streams are there at once."""
        if (found := self._fresh.pop(handle, None)) is None:
            raise RunError("ended before it was told anything")
        return found

    def path(self, file: str) -> str:
        """See `TaskBackend`: it is here."""
        return file


def _reached(address: str, child: Child) -> TaskReached:
    said, told = child.stdout, child.stdin
    assert said is not None and told is not None

    def hang_up() -> None:
        with contextlib.suppress(OSError):
            told.close()

    return TaskReached(address, said, told, lambda: f"ended with status {exit_status(child)}", hang_up)
