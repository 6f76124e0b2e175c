"""Pipelines, live: placed on the plane's ledger beside all other work, and run here as processes.

What is decided is decided by `core.place.core.PlaceCore`; here are the clock, the store and the processes. A
pipeline without code is run by stand-ins, which take the time and send the bytes that it says; their senders
pace themselves to the rates that flows have in the plan. Links as such are not emulated: that requests and
pipelines slow each other down there is seen in simulation, and by `edgewise run` on shaped namespaces.

Processes are started and ended in a thread, and so is the policy asked: both may take seconds. Their standard
input is the controller's, so they end with it; its successor starts pipelines where they were.
"""

import asyncio
import logging
import time
from typing import get_args

import numpy as np

from edgewise import policies
from edgewise.core.place import (
    MovePipeline,
    PipelineEnded,
    PipelineSubmitted,
    PlaceCommand,
    PlacementDue,
    PlacementPolicy,
    ReroutePipeline,
    StartPipeline,
    StopPipeline,
    arrays_of,
    nodes_of,
)
from edgewise.core.place.core import PlaceCore
from edgewise.errors import RunError
from edgewise.model.pipelines import Network, Pipeline, network_of
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.runtime.controller.books import RUNNING, KeptPipeline, PipelineBook
from edgewise.runtime.controller.live_plane import LiveDecision, LivePlane
from edgewise.runtime.pipelines.live import LivePipeline, PipelineProcesses
from edgewise.runtime.testbeds import LocalTestbed

log = logging.getLogger("edgewise.pipelines")
POLICY = "otfa"


class LivePipelines(LiveDecision):
    """Keeps the pipelines of a live system.

    Args:
        plane: knows what other work leaves.
    """

    def __init__(self, plane: LivePlane) -> None:
        super().__init__(plane, "place")
        self.book, self.core = PipelineBook(plane.store.file), None
        plane.carry_out |= dict.fromkeys(get_args(PlaceCommand), self._obey)
        self._processes: PipelineProcesses | None = None
        self._commands: list[PlaceCommand] = []  # to be carried out
        self._still: set[int] = set()  # frames meet a node that is down
        self._carrying: asyncio.Task[None] | None = None
        self._changes = -1  # of the ledger, when it was decided last
        self._looked_s: dict[int, tuple[float, float]] = {}  # time and frames of each that runs, as counted
        for kept in self.book.open():
            self.book.waits(kept.id)  # its processes ended with their controller

    def check(self, live: LivePipeline) -> None:
        """See that a pipeline can be placed here.

        Raises:
            ScenarioError: its source is no node.
            ValueError: its graph cannot be read.
        """
        arrays_of(live.pipeline, 0, network_of(self.plane.scenario))

    async def step(self, now_s: float) -> None:
        """One pass: tell the core what came and went, have it decide, and carry its commands out."""
        if not self.plane.has_pipelines:
            return self.close()
        core = self._core_of(network_of(self.plane.scenario))
        self.watch()
        self.plane.listen(now_s)
        changed = self._tell(core, {each.id: each for each in self.book.open()}, now_s)
        waits = len(core.running) < len(core.pipelines)
        if changed or (waits and self.plane.ledger.changes != self._changes):
            self._changes = self.plane.ledger.changes
            decided = await asyncio.to_thread(core.question(now_s))  # all else goes on meanwhile
            if self.core is core:
                self.plane.tell(PlacementDue(now_s, decided), now_s)
        self._halt(core)
        if self._carrying is not None and self._carrying.done():
            self._carrying.result()
            self._carrying = None
        if self._commands and self._carrying is None:
            self._carrying = asyncio.create_task(self._carry_all_out(core))

    def close(self) -> None:
        """End all processes; what is not over waits for the next controller, or for a scenario."""
        self.plane.cores.pop("place", None)
        for number in list(self._processes.running if self._processes else ()):
            self._stop(number)
            self.book.waits(number)
        self.core, self._commands = None, []

    # the core

    def _core_of(self, network: Network) -> PlaceCore:
        """The core in the plane; another one where the network is another."""
        if self.core is not None and not _same(self.core.network, network):
            self.close()
        name = self.store.policy("place") or POLICY
        if self.core is None:
            for each in [each for each in self.plane.ledger.reservations if each.decision == "place"]:
                self.plane.ledger.release(each.owner)
            self.core = PlaceCore(network, policies.load("place", POLICY), ledger=self.plane.ledger)
            self.begin_with(name)
            self._processes, self._watching = PipelineProcesses(LocalTestbed(network)), ""
        elif name != self.name:
            self.use(name)
        core: PlaceCore = self.core
        self.plane.cores["place"] = core
        return core

    def _tell(self, core: PlaceCore, kept: dict[int, KeptPipeline], now_s: float) -> bool:
        """Tell the core which pipelines came and ended; whether any did."""
        for each in list(kept.values()):
            if each.state == RUNNING:
                self._count(each, now_s)
            if how := self._end_of(each.id):
                self.book.end(each.id, *how)
                del kept[each.id]
        gone, fresh = core.pipelines.keys() - kept.keys(), kept.keys() - core.pipelines.keys()
        for number in gone:
            self.plane.tell(PipelineEnded(number), now_s)
            self._commands.append(StopPipeline(number))
        for number in sorted(fresh):
            arrays = arrays_of(kept[number].live.pipeline, number, core.network)
            self.plane.tell(PipelineSubmitted(arrays), now_s)
        return bool(gone or fresh)

    def _halt(self, core: PlaceCore) -> None:
        """Pipelines whose frames meet a dead node stand still until it is back, or the core moves them."""
        down = {n for n, name in enumerate(core.network.names) if name in self.store.nodes_down()}
        self._still &= core.running.keys()
        for number, placed in core.running.items():
            broken = not down.isdisjoint(nodes_of(core.network, placed).tolist())
            if broken and number not in self._still:
                self._still.add(number)
                self.book.waits(number)
                self._commands.append(StopPipeline(number))
            elif number in self._still and not broken:
                self._still.remove(number)
                self._commands.append(StartPipeline(placed))

    def _end_of(self, number: int) -> tuple[str, str] | None:
        """How a pipeline has ended, if it has."""
        kept = self.book.get(number)
        assert kept is not None and self._processes is not None
        if kept.cancel:
            return "cancelled", "as was asked for"
        if kept.over:
            return "done", f"{kept.frames:.0f} frames"
        running = self._processes.running.get(number)
        try:
            for process in running.processes.values() if running else ():
                if process.culprit:
                    process.check()
        except RunError as error:
            return "failed", str(error)
        return None

    def _count(self, kept: KeptPipeline, now_s: float) -> None:
        """Note how far a pipeline is: frames that its last tasks finished."""
        assert self._processes is not None
        running = self._processes.running.get(kept.id)
        if running is None or kept.id not in self._looked_s:
            return
        order, pipeline = running.live.pipeline.graph.order(), running.placed.pipeline
        last = [name for i, name in enumerate(order) if i not in pipeline.tail]
        frames = min(running.processes[name].latest.get("frames", 0.0) for name in last)
        since_s, before = self._looked_s[kept.id]
        self._looked_s[kept.id] = now_s, max(frames, before)
        self.book.went_on(kept.id, max(frames - before, 0.0), now_s - since_s)

    # its commands

    def _obey(self, command: PlaceCommand, now_s: float) -> None:
        """Note a command; `step` carries it out, for it takes seconds."""
        if isinstance(command, StopPipeline):
            self.book.waits(command.pipeline)
            self._looked_s.pop(command.pipeline, None)
        self._commands.append(command)

    async def _carry_all_out(self, core: PlaceCore) -> None:
        """One command after the other, also those that come meanwhile."""
        while self._commands and self.core is core:
            known = {each.id: each.live for each in self.book.open()}
            await self._carry_out(self._commands.pop(0), known)

    async def _carry_out(self, command: PlaceCommand, known: dict[int, LivePipeline]) -> None:
        """Start, move, pace or end processes."""
        processes, core = self._processes, self.core
        assert core is not None and processes is not None
        startable = known.keys() - self._still
        match command:
            case StopPipeline(number):
                await asyncio.to_thread(self._stop, number)
            case StartPipeline(placed) | MovePipeline(placed) if placed.pipeline.id in startable:
                number, moved = placed.pipeline.id, isinstance(command, MovePipeline)
                try:
                    await asyncio.to_thread(processes.carry_out, [command], known)
                except RunError as error:
                    return self.book.end(number, "failed", str(error))
                order, names = known[number].pipeline.graph.order(), core.network.names
                nodes = {task: names[n] for task, n in zip(order, placed.node.tolist(), strict=True)}
                self.book.runs(number, nodes, moved)
                self._looked_s[number] = time.time(), 0.0
                log.info("pipeline moved" if moved else "pipeline started", extra={"pipeline": number})
            case ReroutePipeline(placed) if placed.pipeline.id in processes.running:
                await asyncio.to_thread(processes.carry_out, [command], known)

    def _stop(self, number: int) -> None:
        assert self._processes is not None
        if number in self._processes.running:
            self._processes.stop(number)


def _same(one: Network, other: Network) -> bool:
    """Whether two networks are alike, free memory and links that are down left out."""
    return (
        one.names == other.names
        and np.array_equal(one.speed_ops, other.speed_ops)
        and np.array_equal(one.ends, other.ends)
        and np.array_equal(one.bandwidth_bps, other.bandwidth_bps)
    )


def start_one(policy: PlacementPolicy) -> list[PlaceCommand]:
    """What a policy does about one pipeline of two tasks on two nodes: whatever is wrong with it is raised.

    Raises:
        PolicyError: it cannot begin.
    """
    link = np.array([[0, 1]]), np.array([1e9])
    network = Network(("one", "other"), np.full(2, 1e9), np.full(2, 1e9), *link)
    graph = TaskGraph(
        "small", (Task("first", 1e6, 1e6), Task("second", 1e6, 1e6)), (Edge("first", "second", 1e3),)
    )
    core = PlaceCore(network, policy)
    core.handle(PipelineSubmitted(arrays_of(Pipeline("small", graph, "one", 1e3, 10.0), 0, network)))
    return core.handle(PlacementDue(0.0))
