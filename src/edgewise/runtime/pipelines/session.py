"""A session of pipelines on a backend: tell the core what happened, carry out what it decides, watch.

The scheduler is any placement policy; `core.place.core` asks it, as in simulation: when a pipeline comes or
goes and when a link or node changes. Flows that only change their path or rate go on while it happens; a
pipeline whose tasks move is started anew on its new nodes, and frames on their way are lost.

With a `MetaStore` all of it is kept: a session that was killed is taken up with `resume`, and every decision
takes the work of tasks as it was measured instead of as it was profiled.
"""

import logging
import time
from collections.abc import Callable, Sequence

import numpy as np

from edgewise.core.guard import Guard
from edgewise.core.place import (
    BandwidthChanged,
    MemoryChanged,
    MovePipeline,
    PipelineEnded,
    PipelineSubmitted,
    PlaceCommand,
    PlacementDue,
    PlacementPolicy,
    StartPipeline,
    StopPipeline,
    TaskMeasured,
    arrays_of,
    throughput,
)
from edgewise.core.place.core import PlaceCore
from edgewise.errors import RunError, ScenarioError
from edgewise.model.grammar.scenario import BUDGETS_S
from edgewise.model.pipelines import Network
from edgewise.model.problems import nearest
from edgewise.runtime import clock
from edgewise.runtime.apart import PolicyApart
from edgewise.runtime.pipelines.live import LivePipeline
from edgewise.runtime.pipelines.meta import (
    LinkStatus,
    MetaStore,
    Monitor,
    TaskStatus,
    link_status,
    put_network,
)
from edgewise.runtime.pipelines.processes import PipelineTasks
from edgewise.runtime.pipelines.rates import PipelineRates, rates_of
from edgewise.runtime.pipelines.running import RunningPipeline
from edgewise.runtime.pipelines.task import PERIOD_S
from edgewise.runtime.states import ENDED, RUNNING, WAITING
from edgewise.runtime.testbeds import LocalTestbed, Testbed
from edgewise.runtime.testbeds.netns import NetnsTestbed
from edgewise.runtime.watch.faults import Faults

BACKENDS: dict[str, Callable[[Network], Testbed]] = {"netns": NetnsTestbed, "local": LocalTestbed}
log = logging.getLogger("edgewise.pipelines")


def open_backend(name: str, network: Network) -> Testbed:
    """Nodes and links of `network` on a backend, ready to run processes.

    Raises:
        ScenarioError: no such backend.
        RunError: it cannot work here; the message says what is missing.
    """
    if name not in BACKENDS:
        raise ScenarioError(f"backend {name!r}: is not known; {nearest(name, BACKENDS)}")
    return BACKENDS[name](network)


class PipelineSession:
    """Streaming pipelines on a backend under a placement policy. Use it with `with`, or call `close`.

    Args:
        backend: nodes and links.
        policy: begins anew for the backend's network. When it raises, answers too late, or what cannot be
            carried out, what runs goes on as it is, and `guard.fault` says why.
        seed: of the policy's own draws.
        meta: keeps what is decided and seen; None keeps nothing.
        patience_s: with the policy, and with the shadow.
        shadow: a second policy that only watches, see `core.guard`.
    Attributes:
        core: what there is to decide about, and what was decided.
        processes: of the pipelines that run.
    """

    def __init__(
        self,
        backend: Testbed,
        policy: PlacementPolicy,
        seed: int = 0,
        meta: MetaStore | None = None,
        patience_s: float = BUDGETS_S.place,
        shadow: PlacementPolicy | None = None,
    ) -> None:
        self.backend, self.meta = backend, meta
        self.faults = Faults("run")
        self.guard = self._guard(policy, patience_s)
        self.core = PlaceCore(backend.network, policy, seed, self.guard)
        if shadow is not None:
            self.core.watch_with(shadow, self._guard(shadow, patience_s, shadow=True))
        self.processes = PipelineTasks(backend)
        self._known: dict[int, LivePipeline] = {}
        self._monitor: Monitor | None = None
        self._began_s = clock.monotonic_s()

    def _guard(self, policy: PlacementPolicy, patience_s: float, shadow: bool = False) -> Guard:
        apart = isinstance(policy, PolicyApart)
        return self.faults.guard("place", _name(policy), patience_s, shadow, apart)

    @property
    def running(self) -> dict[int, RunningPipeline]:
        """The processes of each pipeline that runs, by its number."""
        return self.processes.running

    def __enter__(self) -> "PipelineSession":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, pipelines: Sequence[LivePipeline]) -> None:
        """Add pipelines and decide; those that find no room wait.

        Raises:
            ScenarioError: a pipeline's source is no node.
            RunError: a task cannot start.
        """
        if self.meta is not None:  # whoever takes them up finds where they ran, killed however early
            network = self.backend.network
            put_network(self.meta, self, np.zeros(len(network.names)), np.zeros(len(network.ends)))
        for live in pipelines:
            self.backend.network.node(live.pipeline.source)  # refused before it is kept
            self._add(len(self._known) if self.meta is None else self.meta.add(live), live)
        self.decide()

    def resume(self) -> list[str]:
        """Take up the pipelines that a session on the same database left; links that were down stay so.

        Returns:
            names of these pipelines.
        Raises:
            ScenarioError: a pipeline's source is no node.
            RunError: the session keeps nothing, or a task cannot start.
        """
        if self.meta is None:
            raise RunError("resume: this session keeps nothing; give it a MetaStore")
        left = self.meta.unfinished()
        for number, live in left:
            self._add(number, live)
        for row in self.meta.seen(LinkStatus):
            if not row.up and {row.one, row.other} <= set(self.backend.network.names):
                self._switch(self.backend.network.link(row.one, row.other), up=False)
        self.decide()
        return [live.pipeline.name for _, live in left]

    def _add(self, number: int, live: LivePipeline) -> None:
        self.core.handle(PipelineSubmitted(arrays_of(live.pipeline, number, self.backend.network)))
        self._known[number] = live

    def finish(self, name: str) -> None:
        """End a running pipeline, and decide anew.

        Raises:
            ScenarioError: none of that name runs.
        """
        found = [number for number, r in self.running.items() if r.live.pipeline.name == name]
        if not found:
            names = ", ".join(self.names()) or "none"
            raise ScenarioError(f"pipeline {name!r}: does not run; running: {names}")
        self._stop(found[0], ENDED)
        self.core.handle(PipelineEnded(found[0]))
        self.decide()

    def names(self) -> list[str]:
        """Pipelines that run."""
        return [r.live.pipeline.name for r in self.running.values()]

    def set_link(self, link: int, up: bool) -> None:
        """A link fails or returns; what runs is planned anew around it."""
        self._switch(link, up)
        self.decide()

    def set_node(self, node: int, up: bool) -> None:
        """A node takes no task any more, or does again; pipelines with tasks there are placed anew."""
        memory_bytes = float(self.backend.network.memory_bytes[node]) if up else 0.0
        self._carry_out(self.core.handle(MemoryChanged(node, memory_bytes)))
        self.decide()

    def _switch(self, link: int, up: bool) -> None:
        bandwidth_bps = float(self.backend.network.bandwidth_bps[link]) if up else 0.0
        self.core.handle(BandwidthChanged(link, bandwidth_bps))
        self.backend.set_link(link, up)
        if self.meta is not None:
            self.meta.put([link_status(self, link, 0.0)])

    def decide(self) -> None:
        """Tell the core what tasks were measured to take, let it decide, and carry that out.

        Raises:
            RunError: a task cannot start.
        """
        self._tell_measured()
        self._carry_out(self.core.handle(PlacementDue(clock.monotonic_s() - self._began_s)))
        if self.meta is not None:
            self.meta.faults.note(self.faults.drain())
            self._monitor = self._monitor or Monitor(self, self.meta.file)

    def _tell_measured(self) -> None:
        if self.meta is None:
            return
        nodes = self.backend.network.names
        for number in self.core.pipelines:
            order = self._known[number].pipeline.graph.order()
            for row in self.meta.seen(TaskStatus, number):
                if row.node in nodes:
                    at = order.index(row.name), nodes.index(row.node)
                    self.core.handle(TaskMeasured(number, *at, row.frames, row.time_s))

    def measure(self, seconds: float, settle_s: float = 1.0) -> tuple[PipelineRates, ...]:
        """What pipelines and flows do, over `seconds` after a while of settling.

        Raises:
            RunError: a task failed.
        """
        time.sleep(settle_s)
        before = self._reports()
        time.sleep(seconds)
        after = self._reports()
        network = self.core.network
        planned = throughput(network, [self.core.running[number] for number in self.running])
        return tuple(
            rates_of(pipeline, network.names, float(fps), before[number], after[number])
            for (number, pipeline), fps in zip(self.running.items(), planned, strict=True)
        )

    def close(self) -> None:
        """End all processes and pipelines, and remove the backend's traces."""
        if self._monitor is not None:
            self._monitor.stop()
        for number in list(self.running):
            self._stop(number, ENDED)
        for number in self._known:
            self._note(number, ENDED)
        self.backend.close()

    def _note(self, number: int, state: str) -> None:
        if self.meta is not None:
            self.meta.set_state(number, state)

    def _stop(self, number: int, state: str) -> None:
        """End the processes of a pipeline that runs."""
        self.processes.stop(number)
        self._note(number, state)

    def _carry_out(self, commands: Sequence[PlaceCommand]) -> None:
        self.processes.carry_out(commands, self._known)
        for command in commands:
            match command:
                case StopPipeline(number):
                    self._note(number, WAITING)
                case StartPipeline(placed) | MovePipeline(placed):
                    self._note(placed.pipeline.id, RUNNING)

    def _reports(self) -> dict[int, dict[str, dict[str, float]]]:
        try:
            return {
                number: {name: process.report() for name, process in pipeline.processes.items()}
                for number, pipeline in self.running.items()
            }
        except RunError:
            time.sleep(4 * PERIOD_S)  # whoever failed first may not have said so yet
            for pipeline in self.running.values():
                for process in pipeline.processes.values():
                    if process.culprit:
                        process.check()
            raise


def _name(policy: PlacementPolicy) -> str:
    return getattr(policy, "name", "") or type(policy).__name__
