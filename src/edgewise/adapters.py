"""From a run to the columns of its records; and runs of one kind of work that have an engine of their own.

Forbidden here: printing and files.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from edgewise import policies
from edgewise.arrays import Floats, Ints, Records
from edgewise.core.defer import ROUNDING
from edgewise.core.guard import Decided, Guard
from edgewise.errors import ScenarioError
from edgewise.model.scenario import Scenario
from edgewise.model.work import Jobs, Stream

if TYPE_CHECKING:
    from edgewise.model.grammar.scenario import TelemetrySpec
    from edgewise.policies.split import SplitProgram
    from edgewise.policies.split.layout import LayoutProgram
    from edgewise.sim.parts.jobs import JobsOutcome
    from edgewise.sim.pipelines import PipelineRun
    from edgewise.sim.stations.split import SplitRun

Make = Callable[[], Any]
Columns = Mapping[str, Any]
GraphsToRun = tuple["SplitProgram | LayoutProgram", int, "TelemetrySpec | None"]


class Tables(NamedTuple):
    """Columns of the two tables of one kind of work in a run, but for seed and policy."""

    items: Columns
    windows: Columns


class SeedRun(NamedTuple):
    """One run.

    Attributes:
        items, windows: as `Tables`, of the kind of work that it is about.
        decided: by decision how often its policy was to decide, and did not.
        decision_s: mean time of a decision on this machine, by decision, where it is measured.
        beside: the other kinds of work of a joint run.
        use: columns of the tables of `report.use`, those that are known.
    """

    items: Columns
    windows: Columns
    decided: Mapping[str, Decided] = {}
    decision_s: Mapping[str, float] = {}
    beside: Mapping[str, Tables] = {}
    use: Mapping[str, Columns] = {}


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
    from edgewise.use import workers_held

    holds = {"holds": workers_held(scenario)}
    world = World.build(scenario.catalog, scenario.topology, scenario.sharing)
    for seed in seeds:
        outcome = simulation_of(scenario, chosen["dispatch"], seed, streams=trace, world=world).run()
        decided = {"dispatch": outcome.core.guard.decided(outcome.core.policy)}
        yield SeedRun(outcome.streams, outcome.windows, decided, use=holds | outcome.use)


def services_in_slots(
    scenario: Scenario, chosen: Mapping[str, Make], seeds: Sequence[int]
) -> Iterator[SeedRun]:
    """Services whose gateways see all, in slots; the seeds are one batch."""
    from edgewise.sim.slots.guarded import GuardedReplicas, GuardedRequests
    from edgewise.sim.slots.replicas import ReplicaWorlds, decision_s, simulate
    from edgewise.use import replicas_held
    from edgewise.workloads.services import names_of, simulated_services

    given, counts = simulated_services(scenario), list[Ints]()
    requests, orchestrate = chosen["requests"](), chosen["orchestrate"]()
    made = GuardedRequests(requests, Guard()), GuardedReplicas(orchestrate, Guard())
    drawn = given.draw(seeds)
    worlds = ReplicaWorlds(given.system, drawn, given.slots, seeds, None, given.spec.nodes_per_frame)
    simulate(worlds, *made, lambda view: counts.append((view.ready + view.starting)[:, 1:]))
    truth = worlds.state.truth
    runs = [service_tables(scenario, truth.request[w], truth.tally[w]) for w in range(len(seeds))]
    asked = (one.guard.decided(one.policy) for one in made)
    decided = dict(zip(("requests", "orchestrate"), asked, strict=True))  # of all worlds together
    took_s, names, held = decision_s(worlds, *made), names_of(scenario, given.spec), np.array(counts)
    for w, tables in enumerate(runs):
        holds = replicas_held(scenario, given.system, names, held[:, w])
        yield SeedRun(*tables, {} if w else decided, took_s, use={"holds": holds})


def service_tables(scenario: Scenario, rows: Records, tally: Floats) -> Tables:
    """Columns of the requests of a world that arrived, from (R,) `REQUEST`, and of (F, COLUMNS) frames."""
    from edgewise.sim.slots.replica_state import OUTCOMES, UNSEEN
    from edgewise.workloads.services import names_of

    spec, topology = scenario.spec.served, scenario.topology
    number = np.flatnonzero(rows.state != UNSEEN)
    first = slice(number.size)  # all that arrived, unless some are missing in between
    rows = rows[first if np.array_equal(number[-1:], [number.size - 1]) else number].view(np.recarray)
    stations = [spec.cloud, *(node.name for node in topology.nodes if node.cluster != spec.cloud)]
    items = {
        "request": number,
        "service": pa.array(names_of(scenario, spec)).take(pa.array(rows.service)),
        "site": pa.array([site.name for site in topology.sites]).take(pa.array(rows.site)),
        "station": pa.array(stations).take(pa.array(rows.station, mask=rows.station < 0)),
        "arrival_s": rows.arrival_s,
        "deadline_s": rows.deadline_s,
        "end_s": pa.array(rows.end_s, mask=np.isnan(rows.end_s)),
        "outcome": pa.array(OUTCOMES).take(pa.array(rows.state)),
    }
    counts = tally[:, :4].astype(np.int64).T
    frame = np.arange(len(tally))
    span = {"window": frame, "start_s": frame * spec.frame_s, "end_s": (frame + 1) * spec.frame_s}
    columns = dict(zip(("arrived", "in_time", "late", "dropped"), counts, strict=True))
    sizes = dict(zip(("forwarded_bytes", "local_bytes", "image_bytes"), tally[:, 4:].T.copy(), strict=True))
    return Tables(items, {**span, **columns, **sizes, "waiting": counts[0] - counts[1:].sum(axis=0)})


def pipeline_tables(scenario: Scenario, run: "PipelineRun") -> Tables:
    """Columns of pipelines."""
    measures = ("mean_throughput_fps", "mean_overall_fps", "mean_waiting_s", "unserved")
    columns = ("arrival_s", "start_s", "finish_s", "frames", "migrations")
    items = {name: [getattr(made, name) for made in run.pipelines] for name in columns}
    figures = {name: getattr(run, name) for name in measures}
    return Tables(
        {"pipeline": [made.name for made in run.pipelines], **items},
        _window(scenario, run.end_s, pipelines=len(run.pipelines), **figures),
    )


def graphs_to_run(scenario: Scenario) -> GraphsToRun:
    """What is split, how many queries come, and how news of servers come, if they do.

    Raises:
        ScenarioError: servers would always be busy.
    """
    from edgewise.splitting import splitting

    found, telemetry = splitting(scenario), scenario.spec.telemetry
    if found.overload:
        raise ScenarioError(f"nothing can be simulated: {found.overload}")
    rate_qps = sum(each.rate_qps for each in scenario.graphs)
    return (
        found.program,
        max(1, round(rate_qps * scenario.duration_s)),
        telemetry if telemetry.servers else None,
    )


def query_tables(
    scenario: Scenario, run: "SplitRun", sent_s: Floats, graph: Ints, predicted_s: float | None
) -> Tables:
    """Columns of queries of split models; a load that is NaN was not measured."""
    names = np.array([each.name for each in scenario.graphs])
    settled, open_ = run.settled().time_s, np.isnan(run.time_s)
    settled = settled[~np.isnan(settled)]
    figures = {
        "queries": sent_s.size,
        "mean_s": float(settled.mean()),
        "p99_s": float(np.quantile(settled, 0.99)),
        "predicted_s": predicted_s,
        "link_load": None if np.isnan(run.link_load) else run.link_load,
        "server_load": None if np.isnan(run.server_load) else run.server_load,
    }
    items = {"query": np.arange(sent_s.size), "graph": names[graph], "sent_s": sent_s}
    ended, end_s = pa.array(run.time_s, mask=open_), float(np.nanmax(sent_s + run.time_s))
    return Tables(items | {"time_s": ended}, _window(scenario, end_s, **figures))


def jobs_in_a_pool(scenario: Scenario, chosen: Mapping[str, Make], seeds: Sequence[int]) -> Iterator[SeedRun]:
    """Jobs on what other work leaves of all nodes together; the seeds are one batch."""
    from edgewise.core.defer import Objective
    from edgewise.policies.defer import FALLBACK
    from edgewise.sim.slots.defer import simulate
    from edgewise.sim.slots.guarded import GuardedJobs
    from edgewise.use import pool_held
    from edgewise.workloads.deferrable import generate, jobs_of

    jobs = jobs_of(scenario)
    worlds = generate(jobs.pattern, seeds, jobs.submitted)
    objective = Objective(jobs.delay_weight, jobs.violation_weight)
    asked = GuardedJobs(chosen["defer"](), Guard(), policies.load("defer", FALLBACK))
    outcome = simulate(worlds, asked, objective, seeds[0])
    figures = [name for name in outcome._fields if name != "start"]
    for world in range(worlds.worlds):
        job = np.arange(int(worlds.jobs[world]))
        start, nothing = outcome.start[world, job], np.zeros(job.size)
        end = start + worlds.duration[world, job]
        ended = (start >= 0) & (end <= worlds.slots)
        cores = worlds.demand[world, job, 0].astype(float)
        items: dict[str, Any] = {
            "job": job,
            "cores": cores,
            "started_s": pa.array(start * worlds.slot_s, pa.float64(), mask=start < 0),
            "ended_s": pa.array(end * worlds.slot_s, pa.float64(), mask=~ended),
            "node": [None] * job.size,
            "suspended_s": nothing,
            "redone_s": nothing,
        }
        for name in ("submitted", "earliest", "latest", "duration"):
            items[f"{name}_s"] = getattr(worlds, name)[world, job] * worlds.slot_s
        totals = {name: getattr(outcome, name)[world] for name in figures}
        totals |= {"ended": ended.sum(), "finished_core_s": float((cores * items["duration_s"])[ended].sum())}
        windows = _window(scenario, worlds.slots * worlds.slot_s, **totals, moves=0, redone_core_s=0.0)
        decided = {} if world else {"defer": asked.guard.decided(asked.policy)}
        yield SeedRun(items, windows, decided, use={"holds": pool_held(worlds, world, start)})


def job_tables(scenario: Scenario, jobs: Jobs, run: "JobsOutcome") -> Tables:
    """Columns of jobs on nodes."""
    slot_s = jobs.pattern.slot_s
    cores = np.array([job.resources.cpu_cores for job in run.jobs])
    _, earliest, latest, duration = np.array([job.in_slots(slot_s) for job in run.jobs]).reshape(-1, 4).T
    began, ended = run.start >= 0, ~np.isnan(run.ended_s)
    in_time = ended & (run.ended_s <= (latest + duration) * slot_s * (1 + ROUNDING))
    core_s = cores * [job.duration_s for job in run.jobs]
    names = ("submitted_s", "earliest_s", "latest_s", "duration_s")
    items: dict[str, Any] = {name: [getattr(job, name) for job in run.jobs] for name in names}
    items |= {
        "job": np.arange(cores.size),
        "cores": cores,
        "started_s": [slot * slot_s if slot >= 0 else None for slot in run.start.tolist()],
        "node": [node or None for node in run.node],
        "ended_s": pa.array(run.ended_s, mask=~ended),
        "suspended_s": run.suspended * slot_s,
        "redone_s": run.redone_s,
    }
    totals = {
        "jobs": cores.size,
        "started": began.sum(),
        "ended": ended.sum(),
        "lost": run.lost.sum(),
        "finished_core_s": float(core_s[in_time].sum()),
        "redone_core_s": float(cores @ run.redone_s),
        "delay": float((run.start - earliest)[began].sum()),
        "moves": run.moves.sum(),
    }
    published = dict.fromkeys(("reward", "revenue", "violation"))
    return Tables(items, _window(scenario, jobs.pattern.slots * slot_s, **totals, **published))
