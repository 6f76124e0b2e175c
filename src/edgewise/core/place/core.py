"""`PlaceCore`: what happens to pipelines, links and nodes goes in, what is to be done comes out.

Simulation, controller and test beds drive the same core: they tell it what happened, then that all was told,
and carry out its commands. Forbidden here: clocks, I/O, threads.

A decision is due once a pipeline has come or ended, a node or link of a test bed has changed, or a task was
measured; and, while a pipeline waits, whenever work that does not go for tasks has taken or left anything of
nodes.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from edgewise.arrays import Floats
from edgewise.core.capacity import CapacityChanged, Evicted
from edgewise.core.guard import Guard, Shadow, begin
from edgewise.core.keyed import Key
from edgewise.core.ledger import NodeLedger, Reservation
from edgewise.core.link_ledger import FlowRates, LinkLedger
from edgewise.core.place import (
    PUBLISHED,
    BandwidthChanged,
    MemoryChanged,
    NetworkView,
    PipelineArrays,
    PipelineEnded,
    PipelineSubmitted,
    PlaceCommand,
    PlaceEvent,
    Placement,
    PlacementDue,
    PlacementPolicy,
    Reserving,
    StopPipeline,
    TaskMeasured,
    free_memory,
    throughput,
    validate,
)
from edgewise.core.place.answers import by_id, checked, command
from edgewise.errors import CapacityError
from edgewise.model.pipelines import Network
from edgewise.model.scenario import Scenario
from edgewise.model.topology import KINDS, Node, Resources
from edgewise.model.work import INFERENCE, Hold, computing_holds

DECISION = "place"
CHANGES = PipelineSubmitted | PipelineEnded | BandwidthChanged | MemoryChanged  # after any, one decides anew
CORES, MEMORY = KINDS.index("cpu_cores"), KINDS.index("memory_bytes")
ENOUGH_FRAMES = 10  # before a measured time counts for more than the profile


class PlaceCore:
    """Decides where pipelines run, by a policy.

    Args:
        network: where they run.
        policy: begins anew.
        seed: of the policy's own draws.
        guard: asks the policy; what runs goes on as it is when there is no answer that can be carried out.
            None: what is wrong with the policy is raised.
        ledger: of all that takes of nodes; what others leave there of memory is what pipelines have, whatever
            `network` says. None: nobody else takes any.
        reserving: what flows may have of links.
    Attributes:
        network: as it is now, with what flows may have of links; a link that is down has bandwidth 0.
        whole_bps: (L,) of each link, with what is kept for others.
        links: the rates that flows have.
        pipelines: all that wait or run, by id, in the order in which they came, with their work as measured.
        running: the placements as they were last commanded, oldest first.
        shadow: watches what is decided, if there is one.
    """

    def __init__(
        self,
        network: Network,
        policy: PlacementPolicy,
        seed: int = 0,
        guard: Guard | None = None,
        ledger: NodeLedger | None = None,
        reserving: Reserving = PUBLISHED,
    ) -> None:
        self.whole_bps, self.reserving, self._key = network.bandwidth_bps, reserving, Key(seed)
        self.network = replace(network, bandwidth_bps=self._left_bps(network.bandwidth_bps))
        self.ledger = _ledger_of(network) if ledger is None else ledger
        self.links = LinkLedger(self.network.bandwidth_bps)
        self.pipelines: dict[int, PipelineArrays] = {}
        self.running: dict[int, Placement] = {}
        self.shadow: Shadow[Mapping[int, Placement]] | None = None
        self._planned: dict[int, Placement] = {}  # with the rates that were decided
        self._told = False  # something came, ended or changed since the last decision
        self._rows = np.array([self.ledger.row(name) for name in network.names])
        self._left = self._left_now()  # as of that decision
        self._computing: set[str] = set()  # owners of cores that tasks use
        self._see_nodes()
        self.use(policy, guard)

    def use(self, policy: PlacementPolicy, guard: Guard | None = None) -> None:
        """Ask another policy from now on.

        Raises:
            PolicyError: it cannot begin; all is as before then.
        """
        self.policy, self.guard = begin(policy, *self.given), guard

    def watch_with(self, policy: PlacementPolicy | None, guard: Guard | None = None) -> None:
        """Ask a second policy the same from now on, and compare; None: no longer.

        Raises:
            PolicyError: it cannot begin; all is as before then.
        """
        self.shadow = (
            None
            if policy is None
            else Shadow(begin(policy, *self.given), guard or Guard(), self._nodes_of, self._planned_of)
        )

    def _left_bps(self, whole_bps: Floats) -> Floats:
        """(L,) what flows may have of links."""
        return whole_bps * (1.0 - self.reserving.kept) if self.reserving.kept else whole_bps

    @property
    def given(self) -> tuple[Network, Key]:
        """What policies begin with now."""
        return self.network, self._key

    def _nodes_of(self, placed: Mapping[int, Placement]) -> dict[Hashable, str]:
        names = self.network.names
        return {(i, task): names[n] for i, p in placed.items() for task, n in enumerate(p.node.tolist())}

    def _planned_of(self, placed: Mapping[int, Placement]) -> dict[str, float]:
        return {"planned_fps": float(throughput(self.network, list(placed.values())).sum())}

    def handle(self, event: PlaceEvent) -> list[PlaceCommand]:
        """Take note of an event; commands follow a decision and what takes memory from tasks.

        Raises:
            PolicyError: without a guard: the policy places a pipeline that neither waits nor runs.
            CapacityError, ValueError: without a guard: its answer cannot be carried out, see `validate`.
        """
        self._told |= isinstance(event, CHANGES)
        match event:
            case PlacementDue(time_s, decided) if decided is not None:
                view = self.view(time_s)
                return self._decide(view, self._fitting(view, decided))
            case PlacementDue(time_s):
                return self._decide(self.view(time_s), self.question(time_s)()) if self.due else []
            case PipelineSubmitted(pipeline):
                self.pipelines[pipeline.id] = pipeline
            case PipelineEnded(number):
                self.pipelines.pop(number, None)
                self._end(number)
                self._share_cores()
            case BandwidthChanged(link, bandwidth_bps):
                self.whole_bps = _changed(self.whole_bps, link, bandwidth_bps)
                self.network = replace(self.network, bandwidth_bps=self._left_bps(self.whole_bps))
                self.links.change(link, float(self.network.bandwidth_bps[link]))
                self._share_cores()  # slower flows make fewer frames
            case MemoryChanged(node, memory_bytes):
                self._resize(node, memory_bytes)
                return self._make_room()
            case CapacityChanged() | Evicted():
                return self._make_room()
            case TaskMeasured():
                self._note(event)
        return []

    @property
    def due(self) -> bool:
        """Whether a decision is due, see the module; it is not any more once the policy is asked."""
        waits = len(self.running) < len(self.pipelines)
        return self._told or (waits and not np.array_equal(self._left, self._left_now()))

    def _left_now(self) -> Floats:
        """(N, K) what work of inference, tasks' memory among it, leaves of nodes: jobs go for tasks."""
        left: Floats = self.ledger.left_over(INFERENCE)[self._rows]
        return left

    def question(self, now_s: float) -> Callable[[], Mapping[int, Placement]]:
        """What asks the policy about things as they are now; it may be called later, and in any thread."""
        view, self._told, self._left = self.view(now_s), False, self._left_now()
        return lambda: self._asked(view)

    def view(self, now_s: float) -> NetworkView:
        """What a policy sees now."""
        waiting = tuple(pipeline for number, pipeline in self.pipelines.items() if number not in self.running)
        free = self.free_memory_bytes(), self.links.free_bps()
        return NetworkView(now_s, self.network, *free, waiting, tuple(self._in_force()))

    def free_memory_bytes(self) -> Floats:
        """(N,) what is left on each node, where that of work that tasks push out is free."""
        return free_memory(self.ledger.left_over(INFERENCE)[self._rows, MEMORY], self.network)

    def rates_fps(self) -> dict[int, float]:
        """Frames per second of each pipeline that runs, at the cores and bandwidth that it has now."""
        return {p.pipeline.id: fps for p, fps in self._rated()}

    def _rated(self) -> Iterator[tuple[Placement, float]]:
        placed = self._in_force()
        return zip(placed, throughput(self.network, placed).tolist(), strict=True)

    def flows_bps(self) -> Floats:
        """(2, L) what flows have of each link, towards its second node and towards its first."""
        ends, found = self.network.ends, np.zeros((2, len(self.network.ends)))
        for placed in self._in_force():
            for edge, at in enumerate(placed.tail_node.tolist()):
                for link in placed.path(edge).tolist():
                    back = int(ends[link, 0] != at)
                    found[back, link] += placed.bandwidth_bps[edge]
                    at = ends[link, 1 - back]
        return found

    def validate(self) -> None:
        """Check that what runs is known, is what the ledgers hold, and fits; see `core.place.validate`.

        Raises:
            AssertionError, CapacityError, ValueError: it is not.
        """
        assert self.running.keys() == self._planned.keys() == self.links.held.keys() <= self.pipelines.keys()
        self.ledger.validate()
        self.links.validate()
        held = {each.owner: each for each in self.ledger.reservations if each.decision == DECISION}
        for owner in self._computing:
            held.pop(owner, None)  # less than it needs for rounding, or for a moment
        assert held == {each.owner: each for placed in self._planned.values() for each in self._holds(placed)}
        validate(self.network, self._in_force())

    def _in_force(self) -> list[Placement]:
        """What runs, at rates that its links still carry."""
        held = self.links.held
        rates = ((p, held[number].bps) for number, p in self._planned.items())
        return [p if bps is p.bandwidth_bps else replace(p, bandwidth_bps=bps) for p, bps in rates]

    def _holds(self, placed: Placement) -> Iterator[Reservation]:
        """What a pipeline holds of each node."""
        for node, held in enumerate(np.bincount(placed.node, placed.pipeline.memory_bytes).tolist()):
            if held > 0.0:
                name, hold = self.network.names[node], Hold(Resources(memory_bytes=held))
                yield Reservation(f"pipeline {placed.pipeline.id} on {name}", name, *hold, DECISION)

    def _take(self, decided: Mapping[int, Placement]) -> None:
        """Hold what is decided in place of what was."""
        before = {number: self._planned[number] for number in decided.keys() & self._planned.keys()}
        moved = [
            p for n, p in decided.items() if n not in before or before[n].node.tolist() != p.node.tolist()
        ]
        for placed in moved:
            self._give_back(placed.pipeline.id)
        for placed in moved:
            for each in self._holds(placed):
                self.ledger.reserve(each)
        self.links.reserve(
            {n: FlowRates(p.start, p.links, p.bandwidth_bps, p.bandwidth_bps) for n, p in decided.items()}
        )
        self._planned |= decided

    def _give_back(self, number: int) -> None:
        """Release what a pipeline holds of nodes, if it runs."""
        if number in self._planned:
            for each in self._holds(self._planned[number]):
                self.ledger.release(each.owner)

    def _end(self, number: int) -> None:
        self._give_back(number)
        self.links.release(number)
        self.running.pop(number, None)
        self._planned.pop(number, None)

    def _asked(self, view: NetworkView) -> dict[int, Placement]:
        policy, guard = self.policy, self.guard
        if guard is None:
            return checked(policy, view, self.reserving.capped)
        return guard.ask(lambda: checked(policy, view, self.reserving.capped), dict[int, Placement])

    def _fitting(self, view: NetworkView, decided: Mapping[int, Placement]) -> dict[int, Placement]:
        """What was decided about things as they were, where it can be carried out as they are."""
        known, wanted = by_id(view.running), {n: p for n, p in decided.items() if n in self.pipelines}
        try:
            validate(view.network, list((known | wanted).values()))
        except (CapacityError, ValueError):
            return {}
        return wanted

    def _decide(self, view: NetworkView, decided: Mapping[int, Placement]) -> list[PlaceCommand]:
        no_news = np.array_equal(self._left, self._left_now())
        self._take(decided)
        if no_news:  # since the policy was asked; what it takes itself is none
            self._left = self._left_now()
        self._share_cores()
        before, self.running = self.running, by_id(view.running) | dict(decided)
        if (shadow := self.shadow) is not None:
            known = by_id(view.running)
            shadow.watch(
                lambda: known | checked(shadow.policy, view, self.reserving.capped), self.running, view.now_s
            )
        commands = (command(before.get(number), placed) for number, placed in self.running.items())
        return [each for each in commands if each is not None]

    def _note(self, measured: TaskMeasured) -> None:
        """Work is what it was measured to be, time of a frame x speed of the node, once that is certain."""
        pipeline = self.pipelines.get(measured.pipeline)
        if pipeline is None or measured.frames < ENOUGH_FRAMES:
            return
        work_ops = measured.time_s * float(self.network.speed_ops[measured.node])
        pipeline = pipeline._replace(work_ops=_changed(pipeline.work_ops, measured.task, work_ops))
        self.pipelines[pipeline.id], self._told = pipeline, True
        if pipeline.id in self._planned:
            self._planned[pipeline.id] = replace(self._planned[pipeline.id], pipeline=pipeline)
            self._share_cores()

    def _resize(self, node: int, memory_bytes: float) -> None:
        """A node has so much memory beside what others hold."""
        name, total = self.network.names[node], memory_bytes + float(self._others_bytes()[node])
        self.ledger.change_nodes(
            replace(each, resources=replace(each.resources, memory_bytes=total))
            if each.name == name
            else each
            for each in self.ledger.there
        )

    def _others_bytes(self) -> Floats:
        """(N,) memory of work that is no task and does not go for one."""
        held = dict.fromkeys(self.network.names, 0.0)
        for each in self.ledger.reservations:
            stays = each.priority >= INFERENCE or not each.preemptible
            if each.decision != DECISION and stays and each.node in held:
                held[each.node] += each.resources.memory_bytes
        return np.array(list(held.values()))

    def _see_nodes(self) -> None:
        total: Floats = self.ledger.nodes.total[0, self._rows, MEMORY]
        self.network = replace(self.network, memory_bytes=np.maximum(total - self._others_bytes(), 0.0))
        if (before := self.network.cores) is not None:
            cores: Floats = self.ledger.left_over(INFERENCE)[self._rows, CORES]
            if not np.array_equal(before, cores):  # else whoever looks sees that they are the same
                self.network = replace(self.network, cores=cores)

    def _share_cores(self) -> None:
        """Hold the cores that tasks use now: as many as others leave, and jobs give way to them."""
        if self.network.cores is None:
            return
        wanted = {each.owner: each for each in self._uses()}
        changed = [each for each in wanted.values() if self.ledger.needs(each.owner) != each]
        for owner in (self._computing - wanted.keys()) | {each.owner for each in changed}:
            self.ledger.release(owner)
        for each in changed:
            self.ledger.hold(each)
        self._computing = set(wanted)

    def _uses(self) -> Iterator[Reservation]:
        """Cores that each pipeline that runs uses of each node."""
        network = self.network
        for p, fps in self._rated():
            cores = p.pipeline.work_ops * fps * network.task_cores[p.node] / network.speed_ops[p.node]
            for node, used_cores in enumerate(np.bincount(p.node, cores).tolist()):
                if used_cores > 0.0:
                    name, hold = network.names[node], computing_holds(used_cores)
                    yield Reservation(f"tasks of pipeline {p.pipeline.id} on {name}", name, *hold, DECISION)

    def _make_room(self) -> list[PlaceCommand]:
        """Of pipelines with tasks on a node that lacks memory, those that started last wait again."""
        self._see_nodes()
        stopped: list[PlaceCommand] = []
        while (number := self._last_without_room()) is not None:
            self._end(number)
            stopped.append(StopPipeline(number))
        self._share_cores()
        return stopped

    def _last_without_room(self) -> int | None:
        short = {
            each.node
            for placed in self._planned.values()
            for each in self._holds(placed)
            if self.ledger.of(each.owner) != each
        }
        names = self.network.names
        last_first = reversed(self._planned.items())
        return next((n for n, p in last_first if any(names[node] in short for node in p.node.tolist())), None)


def reserving_of(scenario: Scenario) -> Reserving:
    """What flows may reserve of the links of a scenario."""
    return Reserving(scenario.reservations.capped, scenario.reservations.kept)


def _ledger_of(network: Network) -> NodeLedger:
    """The network's memory and cores, which nobody else takes of."""
    cores = np.zeros(len(network.names)) if network.cores is None else network.cores
    rows = zip(network.names, cores.tolist(), network.memory_bytes.tolist(), strict=True)
    return NodeLedger(Node(name, "", Resources(*has)) for name, *has in rows)


def _changed(values: Floats, at: int, value: float) -> Floats:
    made = values.copy()
    made[at] = value
    return made
