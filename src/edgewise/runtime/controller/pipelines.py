"""Pipelines, live: placed on the plane's ledger beside all other work, and run here as processes.

What is decided is decided by `core.place.core.PlaceCore`; here are the clock, the store and the processes. A
pipeline without code is run by stand-ins, which take the time and send the bytes that it says. Flows have the
rates of the plan: on namespaces links hold them to these, and messages have what they leave; else their
senders pace themselves, and messages know nothing of them. Sources send what the cores that other work leaves
let their pipeline do.

Processes are started and ended in threads, and so is the policy asked: all may take seconds. Pipelines start
side by side, a few at a time; what ends has ended before others start in its place. Who tells them what to do
is the controller, so they end with it; its successor starts pipelines where they were.

A pipeline fails where its code does. One that loses a process otherwise comes back, see `fallen`.
"""

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from edgewise import policies
from edgewise.core.place import (
    BandwidthChanged,
    MovePipeline,
    PipelineEnded,
    PipelineSubmitted,
    PlaceCommand,
    PlacementDue,
    PlacementPolicy,
    ReroutePipeline,
    Reserving,
    StartPipeline,
    StopPipeline,
    arrays_of,
    nodes_of,
)
from edgewise.core.place.core import PlaceCore, reserving_of
from edgewise.errors import RunError, ScenarioError
from edgewise.model.pipelines import Network, Pipeline, network_of
from edgewise.model.scenario import Scenario
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.runtime import clock
from edgewise.runtime.backends.tasks import TaskBackend
from edgewise.runtime.controller.fallen import FallenPipelines
from edgewise.runtime.controller.live_plane import LiveDecision, LivePlane
from edgewise.runtime.controller.pipelines_seen import PipelinesSeen, told
from edgewise.runtime.controller.planned_ports import PlannedPorts
from edgewise.runtime.pipelines.live import LivePipeline
from edgewise.runtime.pipelines.processes import PipelineTasks
from edgewise.runtime.states import RUNNING
from edgewise.runtime.store.database import StoreError
from edgewise.runtime.store.pipelines import KeptPipeline
from edgewise.runtime.testbeds import LocalTestbed, Testbed
from edgewise.runtime.testbeds.spaces import SPACES, SpaceTestbed, from_settings

log = logging.getLogger("edgewise.pipelines")
MOST_AT_ONCE = 4  # pipelines whose processes are started or ended side by side


class LivePipelines(LiveDecision):
    """Keeps the pipelines of a live system.

    Args:
        plane: knows what other work leaves.
        tasks: runs the tasks; None: this machine.
    Attributes:
        fallen: those that lost processes.
        processes: of those that run; None before there was one.
        seen: what they say, None likewise.
        down: links.
    """

    def __init__(self, plane: LivePlane, tasks: TaskBackend | None = None) -> None:
        super().__init__(plane, "place")
        self.book, self.core = plane.store.pipelines, None
        plane.carry_out |= dict.fromkeys(get_args(PlaceCommand), self._obey)
        self._tasks, self._planned = tasks, frozenset[int]()
        self.processes: PipelineTasks | None = None
        self.seen: PipelinesSeen | None = None
        self._scenario: Scenario | None = None  # that the nodes and links of the processes are of
        self.down: set[int] = set()
        self._commands: list[PlaceCommand] = []  # to be carried out
        self._still: set[int] = set()  # frames meet a node that is down, or it is about to come back
        self.fallen = FallenPipelines()
        self._carrying: dict[int, tuple[PlaceCommand, asyncio.Task[None]]] = {}
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
        core = self._core_of(network_of(self.plane.scenario), reserving_of(self.plane.scenario))
        self.watch()
        self.plane.listen(now_s)
        await self._follow()
        await self._switch_links(now_s)
        kept = {each.id: each for each in self.book.open()}
        self._tell(core, kept, now_s)
        if not self.loading() and core.due:
            for event in [event for each in kept.values() for event in told(core, each)]:
                self.plane.tell(event, now_s)
            decided = await asyncio.to_thread(core.question(now_s))  # all else goes on meanwhile
            if self.core is core:
                self.plane.tell(PlacementDue(now_s, decided), now_s)
        self._halt(core, now_s)
        if self.processes is not None and core.network.cores is not None:
            self.processes.pace(core.rates_fps())
        self._carry_on()

    def close(self) -> None:
        """End all processes; what is not over waits for the next controller, or for a scenario."""
        self.plane.cores.pop("place", None)
        if (processes := self.processes) is not None:
            stopped = list(processes.running)
            processes.stop(*stopped)
            for number in stopped:
                self.book.waits(number)
        self.core, self._commands = None, []
        self._still, self.fallen, self._looked_s = set(), FallenPipelines(), {}

    # the core

    def _core_of(self, network: Network, reserving: Reserving) -> PlaceCore:
        """The core in the plane; another one where the network is another."""
        same = self.seen is not None and self.seen.network.alike(network)
        if self.core is not None and not (same and self.core.reserving == reserving):
            self.close()
        name = self.store.policy("place") or policies.USUAL["place"]
        if self.core is None:
            for each in [each for each in self.plane.ledger.reservations if each.decision == "place"]:
                self.plane.ledger.release(each.owner)
            first, ledger = policies.load("place", policies.USUAL["place"]), self.plane.ledger
            self.core = PlaceCore(network, first, ledger=ledger, reserving=reserving)
            self.begin_with(name)
            self.seen, self._scenario, self.down = PipelinesSeen(network), self.plane.scenario, set()
            self.processes, self._watching = PipelineTasks(self._bed(network), self._tasks), ""
        elif name != self.name:
            self.begin_with(name)
        core: PlaceCore = self.core
        self.plane.cores["place"] = core
        return core

    def _bed(self, network: Network) -> Testbed:
        """Nodes and links as they are."""
        spaces = from_settings(self.store.get(SPACES, {}))
        if not spaces:
            return LocalTestbed(network, lambda: self._planned)
        return SpaceTestbed(network, self.plane.scenario.topology, spaces)

    async def _follow(self) -> None:
        """See what tasks say; have flows on the links of a scenario that is another one to others alone."""
        assert self.processes is not None and self.seen is not None
        if self._scenario is not self.plane.scenario:
            scenario, bed = self.plane.scenario, self._bed(self.seen.network)
            await asyncio.to_thread(self.processes.lay, bed, self.down)
            self._scenario = scenario
        self.seen.look(self.processes.running)

    async def _switch_links(self, now_s: float) -> None:
        """Links fail, and are back, as the store says; flows go around those that are down."""
        assert self.processes is not None and self.seen is not None
        network = self.seen.network
        pairs = [set(ends) for ends in self.store.links_down()]
        ends = [{network.names[node] for node in ends} for ends in network.ends.tolist()]
        down = {link for link, each in enumerate(ends) if each in pairs}
        for link in sorted(down ^ self.down):
            up = link not in down
            await asyncio.to_thread(self.processes.set_link, link, up)
            self.plane.tell(BandwidthChanged(link, float(network.bandwidth_bps[link]) if up else 0.0), now_s)
        self.down = down

    def links(self) -> list[dict[str, Any]]:
        """Links between nodes, and what flows have of them; none before there is anything to place."""
        if self.core is None or self.seen is None:
            return []
        return self.seen.links(self.core, self.down)

    def rates(self, number: int) -> dict[str, Any] | None:
        """What a pipeline that runs did in the last seconds, beside its plan; None: nothing is known yet."""
        if self.core is None or self.seen is None:
            return None
        return self.seen.report(self.core, number)

    def _tell(self, core: PlaceCore, kept: dict[int, KeptPipeline], now_s: float) -> None:
        """Tell the core which pipelines came and ended."""
        for each in list(kept.values()):
            self._count(each, now_s)
            if how := self._end_of(each.id):
                self.book.end(each.id, *how)
                del kept[each.id]
        gone, fresh = core.pipelines.keys() - kept.keys(), kept.keys() - core.pipelines.keys()
        for number in gone:
            self.plane.tell(PipelineEnded(number), now_s)
            self._commands.append(StopPipeline(number))
            self._looked_s.pop(number, None)
            self.fallen.forget(number)
        for number in sorted(fresh):
            try:
                arrays = arrays_of(kept[number].live.pipeline, number, core.network)
            except (ScenarioError, ValueError) as error:  # its source went with a change of the scenario
                self.book.end(number, "failed", str(error))
            else:
                self.plane.tell(PipelineSubmitted(arrays), now_s)

    def _halt(self, core: PlaceCore, now_s: float) -> None:
        """Have pipelines stand still whose frames meet a dead node, until it is back or the core moves them,
        and those that lost processes, until they may start again."""
        down = {n for n, name in enumerate(core.network.names) if name in self.store.nodes_down()}
        self._still &= core.running.keys()
        for number, placed in core.running.items():
            why = None if number in self._still else self._fell(number, now_s)
            waits = self.fallen.waits(number, now_s)
            broken = why or waits or not down.isdisjoint(nodes_of(core.network, placed).tolist())
            if broken and number not in self._still:
                self._still.add(number)
                self.book.waits(number, why)
                self._commands.append(StopPipeline(number))
            elif number in self._still and not broken:
                self._still.remove(number)
                self._commands.append(StartPipeline(placed))

    def _end_of(self, number: int) -> tuple[str, str] | None:
        """How a pipeline has ended, if it has."""
        kept = self.book.get(number)
        assert kept is not None and self.processes is not None
        if kept.cancel:
            return "cancelled", "as was asked for"
        if kept.over:
            return "done", f"{kept.frames:.0f} frames"
        running = self.processes.running.get(number)
        try:
            for process in running.processes.values() if running else ():
                if process.culprit and not process.died:
                    process.check()
        except RunError as error:
            return "failed", str(error)
        return None

    def _fell(self, number: int, now_s: float) -> str | None:
        """Why a pipeline must be started again, where processes of it have ended that did not fail."""
        assert self.processes is not None
        if number in self._carrying or any(number == _number_of(each) for each in self._commands):
            return None  # those that are there are about to be replaced, or have only just begun
        why = self.fallen.seen(number, self.processes, now_s)
        return None if why is None else self._again(number, now_s, why)

    def _again(self, number: int, now_s: float, why: str) -> str:
        """Note that a pipeline is to be started again; returns `why`."""
        did_frames = self._looked_s.pop(number, (0.0, 0.0))[1] > 0.0
        self.fallen.again(number, now_s, why, did_frames)
        return why

    def listed(self) -> list[KeptPipeline]:
        """All of the last month, oldest first, with what could not be written down yet."""
        return [self._up_to_date(kept) for kept in self.book.listed()]

    def get(self, number: int) -> KeptPipeline | None:
        """One of them, None when there is none."""
        kept = self.book.get(number)
        return None if kept is None else self._up_to_date(kept)

    def _up_to_date(self, kept: KeptPipeline) -> KeptPipeline:
        frames, ran_s = self._fresh(kept, clock.unix_s())
        return replace(kept, frames=kept.frames + frames, ran_s=kept.ran_s + ran_s)

    def _count(self, kept: KeptPipeline, now_s: float) -> None:
        """Note how far a pipeline is; what cannot be written down counts the next time."""
        frames, ran_s = self._fresh(kept, now_s)
        if ran_s > 0.0:
            measured = self.seen.measured(kept.id) if self.seen is not None else None
            with suppress(StoreError):  # whatever else is to be done does not wait for it
                self.book.went_on(kept.id, frames, ran_s, measured)
                self._looked_s[kept.id] = now_s, self._looked_s[kept.id][1] + frames

    def _fresh(self, kept: KeptPipeline, now_s: float) -> tuple[float, float]:
        """Frames that a pipeline's last tasks finished, and seconds that it ran, since it was counted."""
        running = self.processes.running.get(kept.id) if self.processes is not None else None
        if kept.state != RUNNING or running is None or kept.id not in self._looked_s.keys() - self._carrying:
            return 0.0, 0.0
        order, pipeline = running.live.pipeline.graph.order(), running.placed.pipeline
        last = [name for i, name in enumerate(order) if i not in pipeline.tail]
        frames = min(running.processes[name].latest.get("frames", 0.0) for name in last)
        since_s, before = self._looked_s[kept.id]
        return max(frames - before, 0.0), now_s - since_s

    # its commands

    @property
    def busy(self) -> bool:
        """Whether commands are under way."""
        return bool(self._carrying or self._commands)

    def _obey(self, command: PlaceCommand, now_s: float) -> None:
        """Note a command; `step` carries it out, for it takes seconds."""
        if isinstance(command, StopPipeline):
            self.book.waits(command.pipeline)
            self._looked_s.pop(command.pipeline, None)
        if isinstance(command, MovePipeline):
            self._commands.append(StopPipeline(_number_of(command)))  # others wait for its end, not its start
        self._commands.append(command)

    def _carry_on(self) -> None:
        """Begin commands in their order, several side by side; see the module."""
        for number in [number for number, (_, task) in self._carrying.items() if task.done()]:
            self._carrying.pop(number)[1].result()
        while self._commands and len(self._carrying) < MOST_AT_ONCE:
            ending = any(isinstance(each, StopPipeline) for each, _ in self._carrying.values())
            number = _number_of(self._commands[0])
            if ending or number in self._carrying:
                return
            command = self._commands.pop(0)
            self._carrying[number] = command, asyncio.create_task(self._carry_out(command))

    async def _carry_out(self, command: PlaceCommand) -> None:
        """Start, move, pace or end processes."""
        processes, known = self.processes, {each.id: each.live for each in self.book.open()}
        assert processes is not None
        match command:
            case StopPipeline(number):
                await asyncio.to_thread(processes.stop, number)
            case StartPipeline(placed) | MovePipeline(placed) if (
                placed.pipeline.id in known.keys() - self._still
            ):
                await self._start(processes, command, known)
            case ReroutePipeline(placed) if placed.pipeline.id in processes.running:
                await asyncio.to_thread(processes.carry_out, [command], known)

    async def _start(
        self,
        processes: PipelineTasks,
        command: StartPipeline | MovePipeline,
        known: dict[int, LivePipeline],
    ) -> None:
        core, placed, moved = self.core, command.placement, isinstance(command, MovePipeline)
        number = placed.pipeline.id
        self._planned = PlannedPorts(self.store).all  # the store is this thread's
        try:
            await asyncio.to_thread(processes.carry_out, [command], known)
        except OSError as error:
            self._still.add(number)
            return self.book.waits(number, self._again(number, clock.unix_s(), str(error)))
        except RunError as error:
            running = processes.running.get(number)
            if self.core is core and running and not any(p.died for p in running.processes.values()):
                self.book.end(number, "failed", str(error))
            return None  # else it was ended meanwhile, or `_fell` sees what became of it
        if self.core is not core:
            return await asyncio.to_thread(processes.stop, number)
        order, names = known[number].pipeline.graph.order(), processes.backend.network.names
        nodes = {task: names[n] for task, n in zip(order, placed.node.tolist(), strict=True)}
        self.book.runs(number, nodes, moved)
        now_s = clock.unix_s()
        self._looked_s[number] = self._looked_s.get(number, (now_s,))[0] if moved else now_s, 0.0
        log.info("pipeline moved" if moved else "pipeline started", extra={"pipeline": number})


def _number_of(command: PlaceCommand) -> int:
    """The pipeline that a command is about."""
    return command.pipeline if isinstance(command, StopPipeline) else command.placement.pipeline.id


def rehearse(policy: PlacementPolicy, _: Network | None = None) -> list[PlaceCommand]:
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
