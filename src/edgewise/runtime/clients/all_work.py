"""Clients that bring all work of the scenario that is up: what it says comes, at the times that it says.

All of it is what a simulation with the same seed draws, and as large, where models take any size. As there,
its time begins when it was decided on replicas before anything has come. Nodes fail and come back as the
timeline says. A job counts seconds, and so stands still while it is suspended.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from edgewise.config import load_scenario
from edgewise.errors import RunError
from edgewise.model.grammar.pipelines import PipelineSpec
from edgewise.model.pipelines import Pipeline
from edgewise.model.scenario import Scenario
from edgewise.model.services import service_names
from edgewise.model.topology import NodeChange
from edgewise.model.work import DeferrableJob
from edgewise.runtime import clock, disk, http
from edgewise.runtime.backends.system import BACKEND, THIS_MACHINE
from edgewise.runtime.clients.reaching import ask, operator, store_of
from edgewise.runtime.clients.traffic import (
    FAILED,
    OK,
    REJECTED,
    Loaded,
    StreamSeen,
    Traffic,
    Zeros,
    ask_service,
    at_sites,
    measured,
    zeros_for,
)
from edgewise.runtime.controller.graphs import served_graphs
from edgewise.runtime.controller.plan import SCENARIO
from edgewise.runtime.pipelines.live import LivePipeline, live_pipeline
from edgewise.runtime.protocol.messages import DEADLINE
from edgewise.workloads.deferrable import jobs_apart
from edgewise.workloads.generate import BROUGHT, generate_streams
from edgewise.workloads.pipeline_profiler import with_figures
from edgewise.workloads.pipelines import pipelines_of
from edgewise.workloads.queries import split_queries
from edgewise.workloads.services import simulated_services

QUERY_S = 10.0  # a query of a split model has so long
OF_LIMIT = 0.95  # a job that runs for longer than it said is ended, its start included
START_S, POD_START_S = 3.0, 20.0  # of a process, and of a pod
LATER_S = 60.0
LONGEST_FRAME_S, DECIDED_S = 30.0, 0.5  # that is waited for; until the controller has decided in one


@dataclass(slots=True)
class Brought:
    """What became of all work.

    Attributes:
        seed: keys what came.
        figures: by kind of work, how much came, and what became of it.
        median_s: of answers that came in time or late.
        sources: by source, how many queries came of all of them, and what became of these.
        began_s: when the scenario's time began, Unix time.
        waited: share of the time that processes could have run in which they waited to.
        busy: why all this says more about the machine than about the system; None where it does not.
    """

    seed: int
    figures: dict[str, dict[str, int]] = field(default_factory=dict)
    median_s: dict[str, float] = field(default_factory=dict)
    sources: dict[str, dict[str, int]] = field(default_factory=dict)
    began_s: float = 0.0
    waited: float = 0.0
    busy: str | None = None


def _nobody(_: str) -> None:
    """Nobody is told."""


def bring(
    state: Path, seed: int = 0, later_s: float = LATER_S, say: Callable[[str], None] = _nobody
) -> Brought:
    """Bring all work of the scenario that is up, for as long as it says.

    Args:
        state: its folder.
        seed: of what comes.
        later_s: that pipelines and jobs have to end after all else.
        say: is told what makes the run differ from its plan.
    Raises:
        RunError: the system does not answer.
    """
    store, scenario = store_of(state), load_scenario(state / SCENARIO)
    clients = at_sites(store, [site.name for site in scenario.topology.sites])
    here = store.get(BACKEND, THIS_MACHINE) == THIS_MACHINE
    jobs = (sys.executable, START_S) if here else ("python3", POD_START_S)  # that of the image
    controller, running = operator(store), store.processes()
    bringing = _Bringing(scenario, clients, controller, seed, later_s, say, jobs)
    store.close()
    found, machine = measured("load", running, [*clients, bringing.controller], bringing.all())
    found.busy, found.waited = machine.busy, machine.waited
    disk.write_file(state / BROUGHT, msgspec.json.encode(found))
    return found


class _Bringing:
    """All kinds of work, each by its own clients.

    Args:
        gateways: a client for each site.
        controller: a client of it.
        later_s, say: see `bring`.
        jobs: the interpreter that they run, and how long their start may take.
    """

    def __init__(
        self,
        scenario: Scenario,
        gateways: Sequence[http.Client],
        controller: http.Client,
        seed: int,
        later_s: float,
        say: Callable[[str], None],
        jobs: tuple[str, float],
    ) -> None:
        self._later_s, self._say, self._run_jobs = later_s, say, jobs
        self.scenario, self._gateways, self.controller, self.seed = scenario, gateways, controller, seed
        self.found, self._began_s, self._began = Brought(seed), 0.0, 0.0
        self._unprepared, self._prepared = 1 + len(scenario.holds), asyncio.Event()

    async def all(self) -> Brought:
        """From the beginning to the end of the scenario, and until what came has ended."""
        works: dict[str, Callable[[], Awaitable[None]]] = {
            "streams": self._streams, "services": self._services, "graphs": self._graphs,
            "pipelines": self._pipelines, "jobs": self._jobs,
        }  # fmt: skip
        holds = self.scenario.holds
        await asyncio.gather(self._timeline(), *(works[work]() for work in holds))
        self.found.figures = {work: self.found.figures[work] for work in holds}
        return self.found

    async def _begin(self) -> None:
        """One kind of work is prepared: its time begins when all are."""
        self._unprepared -= 1
        if self._unprepared == 0:
            await self._frame()
            self._began_s, self._began = clock.monotonic_s(), clock.unix_s()
            self.found.began_s = self._began
            self._prepared.set()
        await self._prepared.wait()

    async def _frame(self) -> None:
        """Wait until one has begun, at a whole number of them, and is decided; not where it is long."""
        frame_s = self.scenario.served.frame_s if self.scenario.services is not None else 0.0
        if 0.0 < frame_s <= LONGEST_FRAME_S:
            await clock.next_period(clock.unix_s, frame_s)
            await clock.sleep(DECIDED_S)

    async def _until(self, at_s: float) -> None:
        await asyncio.sleep(max(self._began_s + at_s - clock.monotonic_s(), 0.0))

    async def _timeline(self) -> None:
        await self._begin()
        for change in self.scenario.timeline:
            if isinstance(change, NodeChange):
                await self._until(change.at_s)
                await self._ask("PUT", f"/v1/nodes/{change.node}", {"up": change.up})

    async def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = b"" if body is None else msgspec.json.encode(body)
        answer = await ask(self.controller, method, path, body=data)
        found = json.loads(answer.body)
        if answer.status != 200:
            raise RunError(f"load: {method} {path}: {found.get('error', answer.status)}")
        return found

    # streams, requests, queries

    async def _zeros(self, names: Iterable[str]) -> dict[str, Zeros]:
        return {name: await zeros_for(self._gateways[0], name) for name in names}

    async def _streams(self) -> None:
        streams = generate_streams(self.scenario, self.seed)
        queries = await self._zeros({stream.task for stream in streams})
        sites = [site.name for site in self.scenario.topology.sites]
        traffic = Traffic(
            streams, self._gateways, sites, lambda s: queries[s.task].sized(s.size_bytes), self.seed
        )
        await self._begin()
        seen = await traffic.play()
        self.found.figures["streams"] = became(seen)
        for source in self.scenario.streams.sources:
            mine = [each for each in seen if each.stream.source and each.stream.application == source.name]
            self.found.sources[source.name] = became(mine)
        self._median("streams", [delay_s for each in seen for delay_s in each.delays_s])

    async def _services(self) -> None:
        names = service_names(self.scenario.served, self.scenario.catalog)
        drawn = simulated_services(self.scenario).draw([self.seed])
        queries = await self._zeros(names)
        columns = (drawn.arrival_s, drawn.site, drawn.service, drawn.deadline_s, drawn.payload_bytes)
        rows = [column[0, : int(drawn.count[0])].tolist() for column in columns]
        loaded = Loaded(0.0)

        async def one(
            arrival_s: float, site: int, service: int, deadline_s: float, size_bytes: float
        ) -> None:
            await self._until(arrival_s)
            headers, body = queries[names[service]].sized(size_bytes)
            given_s = deadline_s - arrival_s
            headers = headers | {DEADLINE: f"{given_s:.6f}"}
            await ask_service(self._gateways[site], names[service], headers, body, given_s, loaded)

        await self._begin()
        await asyncio.gather(*(one(*row) for row in zip(*rows, strict=True)))
        self._note_loaded("services", loaded)

    async def _graphs(self) -> None:
        graphs = served_graphs(self.scenario)
        queries = await self._zeros(graph.name for graph in graphs)
        loaded = Loaded(QUERY_S)

        async def one(at_s: float, graph: int) -> None:
            name, rate_qps = self.scenario.graphs[graph].name, self.scenario.graphs[graph].rate_qps
            await self._until(at_s)
            headers, body = queries[name].of()
            stated = {DEADLINE: f"{QUERY_S:g}", "edgewise-rate-qps": f"{rate_qps:g}"}
            client = self._gateways[graph % len(self._gateways)]  # one decides on all, as in simulation
            await ask_service(client, name, headers | stated, body, QUERY_S, loaded)

        await self._begin()
        drawn = split_queries(self.scenario.graphs, self.scenario.duration_s, self.seed)
        rows = zip(*(column.tolist() for column in drawn), strict=True)
        await asyncio.gather(*(one(at_s, g) for at_s, g in rows if self.scenario.graphs[g] in graphs))
        self._note_loaded("graphs", loaded)

    # pipelines and jobs

    async def _pipelines(self) -> None:
        scenario = await asyncio.to_thread(with_figures, self.scenario, self._say)
        pipelines = pipelines_of(scenario, self.seed)
        specs = {each.name: each for each in scenario.pipelines or () if isinstance(each, PipelineSpec)}
        path = "/v1/admin/pipelines"

        async def one(pipeline: Pipeline) -> int:
            spec = specs.get(pipeline.name)
            live = (
                LivePipeline(pipeline) if spec is None or spec.code is None else live_pipeline(pipeline, spec)
            )
            await self._until(pipeline.arrival_s)
            return int((await self._ask("POST", path, {"key": uuid4().hex, "live": live}))["id"])

        await self._begin()
        await self._ended("pipelines", path, [one(each) for each in pipelines])

    async def _jobs(self) -> None:
        assert self.scenario.jobs is not None
        jobs = jobs_apart(self.scenario.jobs, self.seed)
        path = "/v1/admin/jobs"

        async def one(job: DeferrableJob) -> int:
            await self._until(job.submitted_s)
            wish = {
                "key": uuid4().hex, "command": program(job.duration_s, *self._run_jobs), "folder": "/",
                "cores": job.resources.cpu_cores, "memory_bytes": job.resources.memory_bytes,
                "duration_s": job.duration_s, "earliest_s": self._began + job.earliest_s,
                "latest_s": self._began + job.latest_s, "priority": job.priority,
                "when_evicted": job.when_evicted, "checkpoint_s": job.checkpoint_s,
                "checkpoint_bytes": job.checkpoint_bytes,
            }  # fmt: skip
            return int((await self._ask("POST", path, wish))["id"])

        await self._begin()
        await self._ended("jobs", path, [one(each) for each in jobs])

    async def _ended(self, work: str, path: str, coming: Sequence[Awaitable[int]]) -> None:
        """Wait until what came has ended, for a while after the end of the scenario."""
        numbers = set(await asyncio.gather(*coming))
        while True:
            mine = [row for row in await self._ask("GET", path) if row["id"] in numbers]
            late = clock.monotonic_s() - self._began_s > self.scenario.duration_s + self._later_s
            if late or all(row["ended_s"] is not None for row in mine):
                break
            await asyncio.sleep(0.25)
        states = Counter(row["state"] for row in mine)
        left = sum(row["ended_s"] is None for row in mine)
        self._note(
            work, states["done"], len(mine) - states["done"] - states["lost"] - left, states["lost"], left
        )

    def _note_loaded(self, work: str, seen: Loaded) -> None:
        became = seen.became
        failed, refused = became["late"] + became["failed"], became["refused"] + became["dropped"]
        self._note(work, became["in time"], failed, refused)
        self._median(work, seen.delays_s)

    def _note(self, work: str, ok: int, failed: int, refused: int, left: int = 0) -> None:
        counts = {"ok": ok, "failed": failed, "refused": refused, "left": left}
        self.found.figures[work] = {"came": sum(counts.values()), **counts}

    def _median(self, work: str, delays_s: Sequence[float]) -> None:
        if delays_s:
            self.found.median_s[work] = sorted(delays_s)[len(delays_s) // 2]


def became(seen: Sequence[StreamSeen]) -> dict[str, int]:
    """How many queries of streams came, and what became of them."""
    ok, failed, refused = (sum(each.became[name] for each in seen) for name in (OK, FAILED, REJECTED))
    return {"came": ok + failed + refused, "ok": ok, "failed": failed, "refused": refused, "left": 0}


COUNTING = """
import os, time
left_s = {:.3f} - float(os.environ.get("EDGEWISE_SAVED_S", 0))  # from its last checkpoint
while left_s > 0.0:
    began_s = time.monotonic()
    time.sleep(min(left_s, 0.5))
    left_s -= min(time.monotonic() - began_s, 1.0)  # the rest of it is suspension
"""


def program(limit_s: float, python: str, start_s: float) -> list[str]:
    """A command that runs for nearly so long, time in suspension left out.

    Args:
        python: the interpreter.
        start_s: what a start may take.
    """
    run_s = min(OF_LIMIT * limit_s, max(limit_s - start_s, limit_s / 2.0))
    return [python, "-I", "-S", "-c", COUNTING.format(run_s)]
