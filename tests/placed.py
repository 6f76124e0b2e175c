"""The pipelines of a live system, driven step by step: the part of its controller that keeps them.

Five nodes: cam reaches hub over east (8 Mbit/s) and over west (5 Mbit/s), cloud lies behind hub. Memory lets
only one task stay at cam, so two flows must cross.
"""

import asyncio
import time

from edgewise.core.place.core import PlaceCore
from edgewise.model.parsing import parse_scenario
from edgewise.model.pipelines import Pipeline
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.runtime.controller.live_plane import LivePlane
from edgewise.runtime.controller.pipelines import LivePipelines
from edgewise.runtime.controller.plan import DATABASE, prepare
from edgewise.runtime.pipelines.live import LivePipeline
from edgewise.runtime.store import Store
from edgewise.runtime.testbeds.spaces import Spaces
from waiting import becomes

HANG_S = 60.0
NAMES = ("cam", "east", "west", "hub", "cloud")
SPEED, MEMORY = (1e9, 2e9, 2e9, 20e9, 40e9), (1.5e9, 1e8, 1e8, 3e9, 3e9)
NODES = tuple(zip(NAMES, SPEED, MEMORY, strict=True))
LINKS = (("cam", "east", 8e6), ("cam", "west", 5e6), ("east", "hub", 8e6), ("west", "hub", 5e6),
         ("hub", "cloud", 20e6))  # fmt: skip
CODE = """
def grab(input): return True, input[:40_000]
def faces(input): return True, input[:20_000]
def plates(input): return True, input[:10_000]
def merge(input): return True, [len(part) for part in input]
def broken(input): return len(input)
job = [grab, faces, plates, merge]
"""


def scenario(nodes=NODES, links=LINKS, **more):
    """Nodes with name, speed and memory; links with both ends and a rate. Published rules of reservations."""
    gear = [
        {"name": name, "speed_ops": speed, "resources": {"memory_bytes": memory}}
        for name, speed, memory in nodes
    ]
    cables = [
        {"between": [one, other], "bandwidth_bps": bps, "shared": "both"} if isinstance(bps, float)
        else {"between": [one, other], "over": bps}
        for one, other, bps in links
    ]  # fmt: skip
    tasks = [{"name": "only", "memory_bytes": 1, "work_ops": 1e7, "output_bytes": 1}]
    one = {"name": "one", "source": nodes[0][0], "input_bytes": 1, "length_s": 1, "tasks": tasks}
    data = {
        "name": "town", "duration_s": 60, "clusters": [{"name": "town", "tier": 0, "nodes": gear}],
        "links": [*cables, *more.pop("cables", ())],
        "reservations": {"capped": False, "kept": 0, "cores": "none"}, "pipelines": [one],
    }  # fmt: skip
    return parse_scenario(data | more, "town")


def watch(folder, **functions):
    """grab → faces and plates → merge."""
    (folder / "job.py").write_text(CODE)
    (folder / "frame").write_bytes(bytes(60_000))
    tasks = (
        Task("grab", 1e7, 1e9),
        Task("faces", 1e9, 1e9),
        Task("plates", 1e9, 1e9),
        Task("merge", 1e6, 1e9),
    )
    edges = (Edge("grab", "faces", 40_000), Edge("grab", "plates", 40_000),
             Edge("faces", "merge", 20_000), Edge("plates", "merge", 10_000))  # fmt: skip
    pipeline = Pipeline("watch", TaskGraph("watch", tasks, edges), "cam", 60_000, duration_s=1e6)
    code = {task.name: task.name for task in tasks} | functions
    return LivePipeline(pipeline, str(folder / "job.py"), code, (str(folder / "frame"),))


class Placed:
    """The pipelines of a system in a folder; `with` ends them, and removes its namespaces.

    Args:
        fresh: whether it is prepared; else what a former one left goes on.
    """

    def __init__(self, folder, made=None, policy="otfa", on_namespaces=False, fresh=True):
        self.folder, self.on_namespaces = folder, on_namespaces
        if fresh:
            store = prepare(folder, made or scenario(), given={"place": policy}, on_namespaces=on_namespaces)
            store.close()
        self.kept = LivePipelines(LivePlane(Store(folder / DATABASE)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kept.close()
        self.kept.store.close()
        if self.on_namespaces:
            Spaces(self.folder).remove()

    @property
    def core(self) -> PlaceCore:
        """Of placement."""
        return self.kept.core

    @property
    def bed(self):
        """What it runs on."""
        return self.kept.processes.backend

    def submit(self, live):
        """Its number."""
        return self.kept.book.submit(f"{live.pipeline.name}", live).id

    def until(self, reached):
        """Steps until `reached()`, and until what was commanded is done; fails when that takes for ever."""

        async def stepped():
            if reached():
                return True
            return await self.kept.step(time.time())

        async def carried_out():
            if not self.kept.busy:
                return True
            return await self.kept.step(time.time())

        async def steps():
            await becomes(stepped, lambda: [each.row() for each in self.kept.book.listed()], HANG_S)
            await becomes(carried_out, "its commands have no end", HANG_S)  # the loop ends with this call

        asyncio.run(steps())

    def running(self, number, frames=0.0):
        """Steps until a pipeline runs and has done some frames, from now."""
        was = self.kept.book.get(number).frames
        self.until(
            lambda: self.state(number) == "running" and self.kept.book.get(number).frames > was + frames
        )

    def state(self, number):
        """Waiting, running …"""
        return self.kept.book.get(number).state

    def end(self, number):
        """End a pipeline, and wait for it."""
        self.kept.book.cancel(number)
        self.until(lambda: self.state(number) == "cancelled")

    def rates(self, number, seconds=3.0):
        """What it does, from now on."""
        self.kept.seen.forget(number)
        began_s = time.monotonic()
        self.until(lambda: time.monotonic() - began_s >= seconds and self.kept.rates(number) is not None)
        return self.kept.seen.rates(self.core)[number]

    def set_link(self, one, other, up):
        """Cut or mend a link, and have that decided about."""
        before = set(self.kept.down)
        self.kept.store.change_link((one, other), up)
        self.until(lambda: self.kept.down != before)
        self.until(lambda: not self.core.due)
