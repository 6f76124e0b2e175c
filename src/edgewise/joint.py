"""From a scenario, policies and seeds to the tables of runs of one or several kinds of work on its nodes.

Forbidden here: printing and files.
"""

import gc
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from edgewise import policies
from edgewise.adapters import (
    GraphsToRun,
    Make,
    SeedRun,
    Tables,
    graphs_to_run,
    job_tables,
    pipeline_tables,
    query_tables,
    service_tables,
)
from edgewise.core.defer import Slots
from edgewise.core.defer.core import DeferCore
from edgewise.core.guard import Decided, Guard
from edgewise.core.holders import hold_records
from edgewise.core.keyed import Key
from edgewise.core.ledger import NodeLedger
from edgewise.core.orchestrate.core import OrchestrateCore, orchestrating
from edgewise.core.place.core import PlaceCore, reserving_of
from edgewise.core.plane import HoldsChanged, Plane
from edgewise.core.split.core import SplitCore
from edgewise.errors import ScenarioError
from edgewise.model.orchestration import System
from edgewise.model.pipelines import network_of
from edgewise.model.pools import image_cluster, orchestrated
from edgewise.model.scenario import Scenario
from edgewise.model.services import Services
from edgewise.model.work import DeferrableJob, Stream
from edgewise.policies.defer import FALLBACK
from edgewise.policies.split.forecast import predicted_s
from edgewise.policies.split.policy import POLICIES
from edgewise.sim.clock import JointClock
from edgewise.sim.images import Images, NodeImages, Outages, outages
from edgewise.sim.links.wires import Wires
from edgewise.sim.parts.checkpoints import Checkpoints, ways_of
from edgewise.sim.parts.graphs import GraphsPart, shared_network
from edgewise.sim.parts.jobs import JobsPart, OtherWork
from edgewise.sim.parts.part import WorkPart
from edgewise.sim.parts.pipelines import PipelinesPart
from edgewise.sim.parts.pulls import PullsPart
from edgewise.sim.parts.services import RequestsPart
from edgewise.sim.parts.streams import StreamsPart
from edgewise.sim.parts.workers import WorkersPart
from edgewise.sim.pipelines import PipelineWorld
from edgewise.sim.requests.news import News
from edgewise.sim.requests.sites import Beside, RequestSites
from edgewise.sim.sites import simulation_of
from edgewise.sim.stations.split import SplitWorld
from edgewise.sim.streams.guests import Guests
from edgewise.use import Columns, held_for_life, holders_of, replica_use, server_use, workers_there
from edgewise.workloads.deferrable import jobs_apart, jobs_of, left_over_cores
from edgewise.workloads.pipelines import pipelines_of
from edgewise.workloads.services import (
    services_at_sites,
    simulated_services,
)

Ended = Callable[[], Tables]


@contextmanager
def unsearched() -> Iterator[None]:
    """Python does not look for garbage among what was there before: numba keeps a million objects."""
    mine = not gc.get_freeze_count()
    if mine:
        gc.freeze()
    try:
        yield
    finally:
        if mine:
            gc.unfreeze()


class JointRun:
    """One joint run of a scenario.

    Args:
        works: kinds of work that are run.
        chosen: what makes each policy, by decision, as `runs.assigned` names them.
        trace: streams in place of drawn ones.
        check: validate what holds what after every moment.
        graphs: what is split, where it has been read already.
        other: work that is not simulated and holds nodes in place of workers.
    Attributes:
        joint: the clock, at the beginning.
        parts: by kind of work.
        wires: links that messages of all kinds share; None where each has its own.
        reserved: what flows and image pulls have of these.
        holders: who held what.
    """

    @unsearched()
    def __init__(
        self,
        scenario: Scenario,
        works: Sequence[str],
        chosen: Mapping[str, Make],
        seed: int,
        trace: Sequence[Stream] | None = None,
        check: bool = False,
        graphs: GraphsToRun | None = None,
        other: OtherWork | None = None,
    ) -> None:
        self.parts: dict[str, Any] = {}
        self.scenario, self.seed, self._chosen, self._trace = scenario, seed, chosen, trace
        self._split = graphs
        links = (scenario.sharing, scenario.topology, scenario.duration_s)
        self.wires = None if scenario.sharing == "none" else Wires(*links)
        self.reserved = None if self.wires is None else PullsPart(scenario, self.wires)
        self.plane = Plane(NodeLedger(scenario.topology.nodes))
        for_life = held_for_life(scenario, works) if other is None else {}
        self.plane.handle(HoldsChanged(tuple(for_life)), 0.0)
        self.holders = holders_of(scenario, self.plane.ledger, for_life)
        self.asked: dict[str, Callable[[], Decided]] = {}
        self._tables: dict[str, Ended] = {}
        build: dict[str, Callable[[], WorkPart]] = {
            "streams": self._streams,
            "services": self._services,
            "pipelines": self._pipelines,
            "graphs": self._graphs,
            "jobs": self._jobs,
        }
        for work in build:
            if work in works:
                self.parts[work] = build[work]()
        lag_s, parts = scenario.telemetry_lag_s, list(self.parts.values())
        parts += self._pools()
        parts += [self.reserved] if self.reserved is not None else []  # it knows of the others' commands
        nodes = scenario.topology.nodes
        parts[:0] = [other] if other is not None else []
        self.joint = JointClock(parts, self.plane, nodes, scenario.timeline, lag_s, check, self.holders)

    @unsearched()
    def run(self) -> dict[str, Tables]:
        """Go to the end; the tables of each kind of work."""
        self.joint.run()
        if self.wires is not None:
            self.wires.bring_up(math.inf)
        last_s = (
            0.0 if list(self.parts) == ["pipelines"] else self.scenario.duration_s
        )  # which end by themselves
        self.holders.finish(max(last_s, self.joint.now_s))
        return {work: ended() for work, ended in self._tables.items()}

    def decided(self) -> dict[str, Decided]:
        """By decision how often its policy was to decide, and did not, so far."""
        return {decision: asked() for decision, asked in self.asked.items()}

    def use(self) -> Mapping[str, Columns]:
        """Columns of the tables of `report.use`, once it has run."""
        found = dict(self.parts["streams"].outcome.use) if "streams" in self.parts else {}
        workers = [workers_there(self.scenario, found["workers"], self.holders)] if found else []
        if "workers" in self.parts:
            use = self.parts["workers"].outcome.use["workers"]
            alone = workers_there(self.scenario, use, self.holders)
            workers.append({**alone, "work": ["services"] * len(alone["worker"])})
        if "services" in self.parts:
            workers.append(replica_use(self.scenario, self.parts["services"].sites, self.holders))
        if "graphs" in self.parts:
            workers.append(server_use(self.scenario, self.parts["graphs"].busy_s))
        columns = workers[0] if workers else {}
        joined = {name: [row for each in workers for row in each[name]] for name in columns}
        links = {} if self.wires is None else self.wires.records()
        return found | {"holds": hold_records(self.holders.spans), "workers": joined, "links": links}

    def _streams(self) -> WorkPart:
        given = {"streams": self._trace, "wires": self.wires}
        part = StreamsPart(simulation_of(self.scenario, self._chosen["dispatch"], self.seed, **given))

        def ended() -> Tables:
            return Tables(part.outcome.streams, part.outcome.windows)

        self._tables["streams"] = ended
        core = part.simulation.core
        self.asked["dispatch"] = lambda: core.guard.decided(core.policy)
        return part

    def _services(self) -> WorkPart:
        spec = self.scenario.spec.services
        if spec is not None and spec.cores_held != "life" and self.scenario.jobs is not None:
            raise ScenarioError(
                f"{self.scenario.name}: services.cores_held: is 'request', so nobody knows which cores are "
                "left to jobs; write 'life'"
            )
        make = self._chosen["requests"]
        given = simulated_services(self.scenario)
        news = News(self.scenario.telemetry_period_s, self.scenario.telemetry_lag_s)
        drawn = given.draw([self.seed])
        services = services_at_sites(self.scenario, given)
        guests = self._guests(services)
        core = self._orchestrates(services)
        sites = RequestSites(
            services, drawn, make, self.seed, given.slots // given.system.frame_slots, news,
            Beside(self._images, self.wires, guests),
        )  # fmt: skip
        if guests is not None:
            self._with_workers.simulation.count_requests = sites.count

        def ended() -> Tables:
            return service_tables(self.scenario, sites.rows, sites.tally)

        self._tables["services"] = ended
        self.asked["requests"] = sites.decided
        topology, variant = self.scenario.topology, self.scenario.catalog.variant
        start_s = {w.name: variant(w.variant).start_s for w in topology.workers if w.pool is None}
        return RequestsPart(sites, core, start_s, every=self._pooled)

    def _orchestrates(self, services: Services | None) -> OrchestrateCore:
        """The core that orchestrates services and pools of workers; how images come."""
        self._what = orchestrated(self.scenario, services)
        core = orchestrating(self._what, self._chosen["orchestrate"](), self.plane.ledger)
        self.plane.cores["orchestrate"] = core
        self.asked["orchestrate"] = lambda: core.guard.decided(core.policy)
        self._images = self._images_to(self._what.system)
        return core

    def _images_to(self, system: System) -> Images | Outages:
        """How images come to nodes."""
        if self.reserved is None:
            return outages(self.scenario)
        return self.reserved.images(system.site_of, image_cluster(self.scenario))

    @property
    def _pooled(self) -> bool:
        """Whether workers come and go, of streams or of requests that they serve."""
        return bool(self.parts.keys() & {"streams", "workers"}) and bool(self.scenario.topology.pools)

    def _pools(self) -> list[WorkPart]:
        """The part of these workers."""
        if not self._pooled:
            return []
        frames = "services" not in self.parts
        core: Any = self._orchestrates(None) if frames else self.plane.cores["orchestrate"]
        simulation = self._with_workers.simulation
        sites = None if frames else self.parts["services"].sites
        return [WorkersPart(self.scenario, simulation, self._what, core, self._images, sites)]

    def _guests(self, services: Services) -> Guests | None:
        """Requests at workers that streams use, too; None: no worker serves any."""
        if not (named := [each.name for each in services.workers]):
            return None
        if "streams" not in self.parts:
            self.parts["workers"] = self._workers_alone()
        return self._with_workers.host(named)

    @property
    def _with_workers(self) -> StreamsPart:
        """The part that has streams' workers."""
        part: StreamsPart = self.parts.get("streams") or self.parts["workers"]
        return part

    def _workers_alone(self) -> StreamsPart:
        """Workers that serve requests, and no streams."""
        name, given = policies.deciding(self.scenario)["dispatch"], {"streams": (), "wires": self.wires}
        return StreamsPart(
            simulation_of(self.scenario, lambda: policies.load("dispatch", name), self.seed, **given)
        )

    def _graphs(self) -> WorkPart:
        scenario, policy = self.scenario, self._chosen["split"]()
        program, queries, telemetry = self._split or graphs_to_run(scenario)
        guard = Guard()
        core = SplitCore(program, policy, self.seed, guard, follows=telemetry is not None)
        self.asked["split"] = lambda: _all_queries(guard.decided(policy), queries)
        network, wires = None, None
        if self.wires is not None:
            network, route = shared_network(program, scenario.topology, self.wires)
            wires = (self.wires, route) if route else None
        world = SplitWorld(program, queries, self.seed, core, telemetry, network)
        nodes = [node.name for node in scenario.topology.nodes if node.speed_ops > 0]
        self._tables["graphs"] = lambda: query_tables(
            scenario, world.outcome(), world.sent_s, world.jobs, predicted_s(policy)
        )
        start_s = max(graph.start_s for graph in scenario.spec.graphs or ())
        return GraphsPart(world, nodes, scenario.duration_s, (scenario.telemetry_lag_s, start_s), wires)

    def _pipelines(self) -> WorkPart:
        network, pipelines = network_of(self.scenario), pipelines_of(self.scenario, self.seed)
        policy, reserving = self._chosen["place"](), reserving_of(self.scenario)
        guard = Guard()
        core = PlaceCore(network, policy, self.seed, guard, self.plane.ledger, reserving)
        self.asked["place"] = lambda: guard.decided(policy)
        self.plane.cores["place"] = core
        tell = None if self.reserved is None else self.reserved.flows_on(network)
        self.holders.place = core
        self.holders.on_net = () if self.wires is None else self.wires.routes.between
        part = PipelinesPart(PipelineWorld(pipelines, core), tell)
        if any(pipeline.image_bytes > 0.0 for pipeline in pipelines):
            self._fetch_images(part)
        self._tables["pipelines"] = lambda: pipeline_tables(self.scenario, part.world.outcome())
        return part

    def _fetch_images(self, part: PipelinesPart) -> None:
        """Images of pipelines come to nodes, as those of workers do; where images are kept they are there."""
        scenario, kept = self.scenario, image_cluster(self.scenario)
        nodes, system = scenario.topology.nodes, orchestrated(scenario, None).system
        rows = {node.name: n for n, node in enumerate(nodes) if node.cluster != kept}
        images = NodeImages(self._images_to(system), system, part.image_came)
        part.world.fetches(images, [rows.get(name, -1) for name in part.world.core.network.names])

    def _jobs(self) -> WorkPart:
        jobs, policy = jobs_of(self.scenario), self._chosen["defer"]()
        pattern, made = jobs.pattern, jobs_apart(jobs, self.seed)
        guard, instead = Guard(), policies.load("defer", FALLBACK)
        core = DeferCore(Slots(pattern.slot_s), self.plane.ledger, policy, instead, Key(self.seed), guard)
        self.asked["defer"] = lambda: guard.decided(policy)
        self.plane.cores["defer"] = core
        part = JobsPart(made, core, pattern.slots, pattern.slot_s, self._checkpoints(made))
        self._tables["jobs"] = lambda: job_tables(self.scenario, jobs, part.outcome())
        return part

    def _checkpoints(self, jobs: Sequence[DeferrableJob]) -> Checkpoints:
        """They are kept where images come from, and go over the links that all share, if there are both."""
        if self.reserved is None or self.wires is None or "services" not in self.parts:
            return Checkpoints(jobs)
        services = self.parts["services"].sites.services
        ways = ways_of(self.wires, services.clusters[0], services.nodes, services.system.site_of)
        return Checkpoints(jobs, self.reserved.pulls, ways)


PLANNED = tuple(POLICIES.values())  # a run leaves nothing behind in them but their plan


def _all_queries(decided: Decided, queries: int) -> Decided:
    """With those that were placed in compiled code."""
    return replace(decided, questions=max(decided.questions, queries))


def joint_runs(
    scenario: Scenario,
    works: Sequence[str],
    chosen: Mapping[str, Make],
    seeds: Sequence[int],
    trace: Sequence[Stream] | None = None,
) -> Iterator[SeedRun]:
    """A run of each seed, in order; the first kind of work is the one that it is about."""
    graphs = graphs_to_run(scenario) if "graphs" in works else None
    if graphs is not None and type(split := chosen["split"]()) in PLANNED:  # plans once for all seeds
        chosen = {**chosen, "split": lambda: split}
    for seed in seeds:
        other = None
        if tuple(works) == ("jobs",):
            nodes, pattern = scenario.topology.nodes, jobs_of(scenario).pattern
            other = OtherWork(nodes, left_over_cores(pattern, seed), pattern.slot_s)
        run = JointRun(scenario, works, chosen, seed, trace, graphs=graphs, other=other)
        tables = run.run()
        about = tables.pop(works[0])
        yield SeedRun(*about, run.decided(), run.joint.decision_s(), beside=tables, use=run.use())
