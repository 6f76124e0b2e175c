"""One adapter for each kind of work, alone: from a scenario, policies and seeds to the columns of its runs.

Forbidden here: printing and files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from edgewise.arrays import Floats, Ints, Records
from edgewise.errors import ScenarioError
from edgewise.model.deferrable import Jobs
from edgewise.model.grammar.services import ServicesSpec, TracedRequestsSpec
from edgewise.model.scenario import Scenario
from edgewise.model.services import service_names
from edgewise.model.work import Stream

if TYPE_CHECKING:
    from edgewise.sim.jobs import JobsOutcome
    from edgewise.sim.pipelines import PipelineRun
    from edgewise.sim.slots.replicas import ReplicaWorlds
    from edgewise.sim.stations.split import SplitRun

Make = Callable[[], Any]
Columns = Mapping[str, Any]


class Tables(NamedTuple):
    """Columns of the two tables of one kind of work in a run, but for seed and policy."""

    items: Columns
    windows: Columns


class SeedRun(NamedTuple):
    """One run.

    Attributes:
        items, windows: as `Tables`, of the kind of work that it is about.
        faults: why the fallback decided, and how often.
        decision_s: mean time of a decision on this machine, by decision, where it is measured.
        beside: the other kinds of work of a joint run.
    """

    items: Columns
    windows: Columns
    faults: Mapping[str, int] = {}
    decision_s: Mapping[str, float] = {}
    beside: Mapping[str, Tables] = {}


def _window(scenario: Scenario, end_s: float | None = None, **figures: Any) -> Columns:
    """Columns of one window over a whole run."""
    span = {"window": 0, "start_s": 0.0, "end_s": scenario.duration_s if end_s is None else end_s}
    return {name: [value] for name, value in (span | figures).items()}


def streams(
    scenario: Scenario,
    chosen: Mapping[str, Make],
    seeds: Sequence[int],
    trace: Sequence[Stream] | None = None,
) -> Iterator[SeedRun]:
    """Streams, or those of a trace."""
    from edgewise.core.world import World
    from edgewise.sim.sites import simulation_of

    world = World.build(scenario.catalog, scenario.topology)
    for seed in seeds:
        outcome = simulation_of(scenario, chosen["dispatch"], seed, streams=trace, world=world).run()
        yield SeedRun(outcome.streams, outcome.windows, outcome.core.faults)


def _services(scenario: Scenario, chosen: Mapping[str, Make], seeds: Sequence[int]) -> Iterator[SeedRun]:
    from edgewise.sim.slots.replicas import ReplicaWorlds, simulate
    from edgewise.workloads.services import simulated_services

    given, made = simulated_services(scenario), [chosen[name]() for name in ("dispatch", "orchestrate")]
    drawn = given.draw(seeds)
    worlds = ReplicaWorlds(given.system, drawn, given.slots, seeds, None, given.spec.nodes_per_frame)
    outcome = simulate(worlds, *made)
    items = [_requests(scenario, given.spec, worlds.state.truth.request[w]) for w in range(len(seeds))]
    took_s = _decision_s(worlds, *made)
    counted = ("arrived", "in_time", "late", "dropped", "forwarded_bytes", "local_bytes", "image_bytes")
    frame_s = given.spec.frame_s
    for world in range(len(seeds)):
        frames = {name: getattr(outcome, name)[world] for name in counted}
        number = np.arange(len(frames["arrived"]))
        waiting = frames["arrived"] - frames["in_time"] - frames["late"] - frames["dropped"]
        span = {"window": number, "start_s": number * frame_s, "end_s": (number + 1) * frame_s}
        yield SeedRun(items[world], {**span, **frames, "waiting": waiting}, decision_s=took_s)


def _requests(scenario: Scenario, spec: ServicesSpec, rows: Records) -> Columns:
    """Columns of the requests of a world that arrived."""
    from edgewise.sim.slots.replica_state import OUTCOMES, UNSEEN

    number = np.flatnonzero(rows.state != UNSEEN)
    rows, topology = rows[number].view(np.recarray), scenario.topology
    stations = [spec.cloud, *(node.name for node in topology.nodes if node.cluster != spec.cloud)]
    names = service_names(spec, scenario.catalog)
    if isinstance(spec.requests, TracedRequestsSpec):  # those of the trace
        names = [f"service-{s}" for s in range(spec.requests.services)]
    return {
        "request": number,
        "service": pa.array(names).take(pa.array(rows.service)),
        "site": pa.array([site.name for site in topology.sites]).take(pa.array(rows.site)),
        "station": pa.array(stations).take(pa.array(rows.station, mask=rows.station < 0)),
        "arrival_s": rows.arrival_s,
        "deadline_s": rows.deadline_s,
        "end_s": pa.array(rows.end_s, mask=np.isnan(rows.end_s)),
        "outcome": pa.array(OUTCOMES).take(pa.array(rows.state)),
    }


def _decision_s(worlds: ReplicaWorlds, dispatch: Any, orchestrate: Any) -> dict[str, float]:
    """Seconds per dispatch of a site and per orchestration of a world, over one frame (KaiS's Φ_d)."""
    from edgewise.core.keyed import Key
    from edgewise.core.one_world import batched

    view, (dispatch, orchestrate) = worlds.reset(), (batched(dispatch), batched(orchestrate))
    for policy in (dispatch, orchestrate):
        policy.reset(worlds.system, Key(0))
    began = time.perf_counter()
    worlds.scale(orchestrate.decide(view).numbers())
    scale_s, used_s, heads = (time.perf_counter() - began) / view.worlds, 0.0, 0
    for _ in range(worlds.system.frame_slots):
        began = time.perf_counter()
        stations = dispatch.decide(view)
        used_s += time.perf_counter() - began
        heads += int((stations >= 0).sum())
        worlds.step(stations)
    return {"dispatch": used_s / max(heads, 1), "orchestrate": scale_s}


def _pipelines(scenario: Scenario, chosen: Mapping[str, Make], seeds: Sequence[int]) -> Iterator[SeedRun]:
    from edgewise.model.network import network_of
    from edgewise.sim.pipelines import simulate_streaming
    from edgewise.workloads.pipelines import pipelines_of

    network, policy = network_of(scenario), chosen["place"]()
    for seed in seeds:
        run = simulate_streaming(network, pipelines_of(scenario, seed), policy, seed)
        yield SeedRun(*pipeline_tables(scenario, run), decision_s={"place": float(np.mean(run.decision_s))})


def pipeline_tables(scenario: Scenario, run: PipelineRun) -> Tables:
    """Columns of pipelines."""
    measures = ("mean_throughput_fps", "mean_overall_fps", "mean_waiting_s", "unserved")
    columns = ("arrival_s", "start_s", "finish_s", "frames", "migrations")
    items = {name: [getattr(made, name) for made in run.pipelines] for name in columns}
    figures = {name: getattr(run, name) for name in measures}
    return Tables(
        {"pipeline": [made.name for made in run.pipelines], **items},
        _window(scenario, run.end_s, pipelines=len(run.pipelines), **figures),
    )


def _graphs(scenario: Scenario, chosen: Mapping[str, Make], seeds: Sequence[int]) -> Iterator[SeedRun]:
    from edgewise.sim.stations.split import poisson_queries, simulate_split
    from edgewise.splitting import predicted_s, splitting

    found, policy = splitting(scenario), chosen["split"]()
    if found.overload:
        raise ScenarioError(f"nothing can be simulated: {found.overload}")
    rates = np.array([each.rate_qps for each in scenario.graphs])
    queries = max(1, round(float(rates.sum()) * scenario.duration_s))
    for seed in seeds:
        run = simulate_split(policy, found.program, queries, seed)
        yield SeedRun(
            *query_tables(scenario, run, *poisson_queries(rates, queries, seed), predicted_s(policy))
        )


def query_tables(
    scenario: Scenario, run: SplitRun, sent_s: Floats, graph: Ints, predicted_s: float | None
) -> Tables:
    """Columns of queries of split models."""
    names = np.array([each.name for each in scenario.graphs])
    settled = run.settled().time_s
    figures = {
        "queries": sent_s.size,
        "mean_s": float(settled.mean()),
        "p99_s": float(np.quantile(settled, 0.99)),
        "predicted_s": predicted_s,
        "link_load": run.link_load,
        "server_load": run.server_load,
    }
    items = {"query": np.arange(sent_s.size), "graph": names[graph], "sent_s": sent_s, "time_s": run.time_s}
    return Tables(items, _window(scenario, float((sent_s + run.time_s).max()), **figures))


def _jobs(scenario: Scenario, chosen: Mapping[str, Make], seeds: Sequence[int]) -> Iterator[SeedRun]:
    from edgewise.core.defer import Objective
    from edgewise.sim.slots.defer import simulate
    from edgewise.workloads.deferrable import generate, jobs_of

    jobs = jobs_of(scenario)
    if jobs.room == "nodes":
        yield from _jobs_on_nodes(scenario, jobs, chosen, seeds)
        return
    worlds = generate(jobs.pattern, seeds, jobs.submitted)
    objective = Objective(jobs.delay_weight, jobs.violation_weight)
    outcome = simulate(worlds, chosen["defer"](), objective, seeds[0])
    figures = [name for name in outcome._fields if name != "start"]
    for world in range(worlds.worlds):
        job = np.arange(int(worlds.jobs[world]))
        start = outcome.start[world, job]
        items: dict[str, Any] = {
            "job": job,
            "cores": worlds.demand[world, job, 0].astype(float),
            "started_s": [None if slot < 0 else float(slot * worlds.slot_s) for slot in start],
            "node": [None] * job.size,
            "suspended_s": np.zeros(job.size),
        }
        for name in ("submitted", "earliest", "latest", "duration"):
            items[f"{name}_s"] = getattr(worlds, name)[world, job] * worlds.slot_s
        totals = {name: getattr(outcome, name)[world] for name in figures}
        yield SeedRun(items, _window(scenario, worlds.slots * worlds.slot_s, **totals, moves=0))


def _jobs_on_nodes(
    scenario: Scenario, jobs: Jobs, chosen: Mapping[str, Make], seeds: Sequence[int]
) -> Iterator[SeedRun]:
    from edgewise.sim.jobs import simulate_on_nodes
    from edgewise.workloads.deferrable import jobs_apart, left_over_cores

    pattern = jobs.pattern
    for seed in seeds:
        left, made = left_over_cores(pattern, seed), jobs_apart(jobs, seed)
        run = simulate_on_nodes(made, scenario.topology.nodes, left, pattern.slot_s, chosen["defer"](), seed)
        yield SeedRun(*job_tables(scenario, jobs, run))


def job_tables(scenario: Scenario, jobs: Jobs, run: JobsOutcome) -> Tables:
    """Columns of jobs on nodes."""
    slot_s = jobs.pattern.slot_s
    cores = np.array([job.resources.cpu_cores for job in run.jobs])
    _, earliest, _, duration = np.array([job.in_slots(slot_s) for job in run.jobs]).reshape(-1, 4).T
    began = run.start >= 0
    revenue, delay = float((cores * duration)[began].sum()), float((run.start - earliest)[began].sum())
    names = ("submitted_s", "earliest_s", "latest_s", "duration_s")
    items: dict[str, Any] = {name: [getattr(job, name) for job in run.jobs] for name in names}
    items |= {
        "job": np.arange(cores.size),
        "cores": cores,
        "started_s": [slot * slot_s if slot >= 0 else None for slot in run.start.tolist()],
        "node": [node or None for node in run.node],
        "suspended_s": run.suspended * slot_s,
    }
    totals: dict[str, float] = {"jobs": cores.size, "started": int(began.sum()), "lost": int(run.lost.sum())}
    totals |= {"revenue": revenue, "delay": delay, "reward": revenue - jobs.delay_weight * delay}
    end_s = jobs.pattern.slots * slot_s
    return Tables(items, _window(scenario, end_s, **totals, violation=0.0, moves=run.moves.sum()))


ADAPTERS: Mapping[str, Callable[[Scenario, Mapping[str, Make], Sequence[int]], Iterator[SeedRun]]] = {
    "streams": streams,
    "services": _services,
    "pipelines": _pipelines,
    "graphs": _graphs,
    "jobs": _jobs,
}
