"""What it costs that a policy decides in a process of its own, per decision: wall and CPU time of both.

The same policy of streams is asked in this process, in the thread that limits policies that ship, and in a
process apart, in turn.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.decisions import world_of
from edgewise import policies
from edgewise.core.dispatch.streams import DispatchCore
from edgewise.core.dispatch.views import Items
from edgewise.core.guard import Guard, at_once
from edgewise.core.keyed import Key
from edgewise.model.work import Stream
from edgewise.runtime import apart
from edgewise.runtime.watch.faults import Limited

OWN = """
from edgewise import policies
class Own(type(policies.load("dispatch", "closest"))): pass
"""
WORKERS = (10, 1000)


def cpu_s(pid: int | None) -> float:
    """CPU time of this process, and of another one."""
    own_s = time.process_time()
    if pid is None:
        return own_s
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return own_s + (int(user) + int(system)) / 100.0


def run(rounds: int, decisions: int) -> dict[str, Any]:
    """A row for each size and way, which take turns."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "own.py"
        file.write_text(OWN)
        return {"rows": [row for size in WORKERS for row in _rows(size, f"{file}:Own", rounds, decisions)]}


def _rows(size: int, name: str, rounds: int, decisions: int) -> Iterator[dict[str, Any]]:
    there, here = apart.load("dispatch", name, 60.0), policies.load("dispatch", name)
    assert isinstance(there, apart.PolicyApart)
    ways = {
        "in process": Way(here, Guard(at_once), None, size),
        "in a thread, as one that ships": Way(here, Guard(Limited(60.0)), None, size),
        "in a process of its own": Way(there, Guard(at_once), there.pid, size),
    }
    timed = {way: list[tuple[float, float]]() for way in ways}
    for _ in range(rounds):
        for way, asked in ways.items():
            timed[way].append(asked.measured(decisions))
    for way, asked in ways.items():
        assert not asked.guard.faults
        wall_s, cpu_s = map(list, zip(*timed[way], strict=True))
        yield {"workers": size, "way": way, "wall_s": wall_s, "cpu_s": cpu_s}


class Way:
    """A policy that is asked again and again about one stream.

    Args:
        pid: of the process that it decides in, if not here.
        size: how many workers there are.
    """

    def __init__(self, policy: Any, guard: Guard, pid: int | None, size: int) -> None:
        self.guard, self._policy, self._pid = guard, policy, pid
        world = world_of(size)
        policy.reset(world, Key(0))
        item = Stream(0, 0, "", world.task_names[0], 0.0, 60.0, 0.01, 100.0, 60.0, 0.0)
        self._view = DispatchCore(world, policies.load("dispatch", "closest"), 0).view()
        self._items = Items.of(world, (item,))
        self.measured(20)

    def measured(self, decisions: int) -> tuple[float, float]:
        """Wall and CPU time of a decision, s."""
        began_s, began_cpu_s = time.perf_counter(), cpu_s(self._pid)
        for _ in range(decisions):
            self.guard.ask(lambda: self._policy.decide(self._view, self._items), lambda: None)
        wall_s, used_s = time.perf_counter() - began_s, cpu_s(self._pid) - began_cpu_s
        return wall_s / decisions, used_s / decisions
