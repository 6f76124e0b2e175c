"""One adapter for each kind of work: from a scenario, policies and seeds to the tables of a run.

Whatever lies above (the library, the command line, comparisons, reports) knows only `assigned`, which says
which work is run and who decides in it, and `simulated`. Forbidden here: printing and files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from edgewise import policies
from edgewise.arrays import Records
from edgewise.errors import PolicyError, ScenarioError
from edgewise.model.deferrable import Jobs
from edgewise.model.grammar.scenario import SIMULATED, not_run
from edgewise.model.grammar.services import ServicesSpec, TracedRequestsSpec
from edgewise.model.graphs import server_groups
from edgewise.model.scenario import Scenario
from edgewise.model.services import service_names
from edgewise.model.work import Stream
from edgewise.report.schema import WORK
from edgewise.report.summary import beforehand

if TYPE_CHECKING:
    from edgewise.sim.slots.replicas import ReplicaWorlds

Policy = str | type | Callable[[], Any]
"""A name, `file.py:Class`, the path of a card, or a class or function that makes a policy."""
Make = Callable[[], Any]
Columns = Mapping[str, Any]

DECISIONS: Mapping[str, Mapping[str, str | None]] = {
    "streams": {"dispatch": "least-impedance"},
    "services": {"dispatch": None, "orchestrate": None},
    "pipelines": {"place": "otfa"},
    "graphs": {"split": "nona-queues"},
    "jobs": {"defer": "fifo"},
}
"""By the kind of work who decides in it, and the policy where none is named; None: the scenario names one."""
LAID_OUT = "nona-layout"  # splits over several groups of servers, and nothing else does


class SeedRun(NamedTuple):
    """One run.

    Attributes:
        items, windows: the columns of its two tables but for seed and policy.
        faults: why the fallback decided, and how often.
        decision_s: mean time of a decision on this machine, by decision, where it is measured.
    """

    items: Columns
    windows: Columns
    faults: Mapping[str, int] = {}
    decision_s: Mapping[str, float] = {}


def assigned(
    scenario: Scenario, given: Mapping[Any, Any], what: str = "simulate"
) -> tuple[str, dict[str, Any]]:
    """The kind of work that is run, and who decides in it: the policies given, and defaults for the others.

    It is the first work of the scenario that the decisions given are about; a policy without a decision
    (None) is for the first decision of that work.

    Args:
        given: by decision, or by None.
        what: runs them, for messages.
    Raises:
        PolicyError: a decision is unknown, given twice, or those given are of different work.
        ScenarioError: the scenario holds no such work.
    """
    named = [decision for decision in given if decision is not None]
    if unknown := [decision for decision in named if decision not in policies.DECISIONS]:
        known = ", ".join(policies.DECISIONS)
        raise PolicyError(f"unknown decision {unknown[0]!r}; use one of {known}, as dispatch=closest")
    works = [work for work, decisions in DECISIONS.items() if set(named) <= set(decisions)]
    if not works:
        raise PolicyError(f"{' and '.join(named)} are of different work; one run simulates one kind of work")
    not_run(scenario.spec, works, " ".join([what, *(f"--policy {decision}" for decision in named)]))
    work = next(work for work in works if work in scenario.spec.holds)
    chosen = defaults(scenario, work)
    first = next(iter(chosen))
    if None in given and first in given:
        raise PolicyError(f"--policy: {first} is given twice")
    return work, chosen | {decision or first: policy for decision, policy in given.items()}


def defaults(scenario: Scenario, work: str) -> dict[str, Any]:
    """The policies of a kind of work where none are named, by decision."""
    if work == "graphs" and _laid_out(scenario):
        return {"split": LAID_OUT}
    services = scenario.spec.services
    return {decision: name or getattr(services, decision) for decision, name in DECISIONS[work].items()}


def kind_of(work: str, decision: str) -> tuple[str, str | None]:
    """What `policies.load` and `names` call a decision about a kind of work."""
    return decision, {"streams": "streams", "services": "requests"}[work] if decision == "dispatch" else None


def names(scenario: Scenario, work: str, decision: str) -> list[str]:
    """The policies that are compared where none are named: all but cards, which fit one system each."""
    from edgewise.policies.cards import shipped

    kind = kind_of(work, decision)
    if work == "graphs" and _laid_out(scenario):
        return [LAID_OUT]
    return [name for name in policies.names(*kind) if name not in (*shipped(*kind), LAID_OUT)]


def _laid_out(scenario: Scenario) -> bool:
    """Whether split models run on several groups of servers."""
    return len(server_groups(scenario.topology)) > 1


def maker(work: str, decision: str, policy: Policy) -> tuple[str, Make]:
    """The name that a policy goes by, and a function that makes a new one for each run.

    Raises:
        PolicyError: it cannot be loaded.
    """
    if isinstance(policy, str):
        make_it = partial(policies.load, decision, policy, kind_of(work, decision)[1])
        return make_it().name, make_it

    def make() -> Any:
        made = policy()
        if not made.name:
            made.name = type(made).__name__
        return made

    return make().name, make


def about(work: str, decision: str, name: str) -> str:
    """What a policy that `policies.names` lists does, in a sentence."""
    doc = type(policies.load(decision, name, kind_of(work, decision)[1])).__doc__ or ""
    return doc.strip().split("\n")[0]


def notes(scenario: Scenario, work: str, what: str) -> list[str]:
    """What a user should know before a run: work that is left out, and what no policy can change."""
    found = not_run(scenario.spec, SIMULATED if work == "streams" else (work,), what)
    if work == "streams":
        found += beforehand(scenario)
    return found


def simulated(
    scenario: Scenario,
    work: str,
    chosen: Mapping[str, Make],
    seeds: Sequence[int],
    trace: Sequence[Stream] | None = None,
) -> Iterator[SeedRun]:
    """A run of each seed, in order.

    Args:
        work, chosen: as `assigned` says, each policy as what makes it.
        trace: streams that are run in place of drawn ones.
    Raises:
        ScenarioError: the scenario holds what the simulation of this work does not know.
        PolicyError: a policy breaks its contract.
    """
    if trace is not None:
        return _streams(scenario, chosen, seeds, trace)
    return _ADAPTERS[work](scenario, chosen, seeds)


def table(work: str, which: str, policy: str, seed: int, columns: Columns) -> pa.Table:
    """Columns of a run in the schema of `which`, "items" or "windows"."""
    schema = getattr(WORK[work], which)
    rows = len(next(iter(columns.values()), ()))
    whole = {"seed": np.full(rows, seed), "policy": [policy] * rows, **columns}
    return pa.table({name: whole.get(name, []) for name in schema.names}, schema=schema)


def _window(scenario: Scenario, end_s: float | None = None, **figures: Any) -> Columns:
    """Columns of one window over a whole run."""
    span = {"window": 0, "start_s": 0.0, "end_s": scenario.duration_s if end_s is None else end_s}
    return {name: [value] for name, value in (span | figures).items()}


def _streams(
    scenario: Scenario,
    chosen: Mapping[str, Make],
    seeds: Sequence[int],
    trace: Sequence[Stream] | None = None,
) -> Iterator[SeedRun]:
    from edgewise.core.world import World
    from edgewise.sim.sites import simulation_of

    world = World.build(scenario.catalog, scenario.topology)
    for seed in seeds:
        outcome = simulation_of(scenario, chosen["dispatch"], seed, streams=trace, world=world).run()
        yield SeedRun(outcome.streams, outcome.windows, outcome.core.faults)


def _services(scenario: Scenario, chosen: Mapping[str, Make], seeds: Sequence[int]) -> Iterator[SeedRun]:
    from edgewise.sim.slots.replicas import ReplicaWorlds, simulate
    from edgewise.workloads.services import simulated_services

    given, made = simulated_services(scenario), [chosen[name]() for name in DECISIONS["services"]]
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
    measures = ("mean_throughput_fps", "mean_overall_fps", "mean_waiting_s", "unserved")
    columns = ("arrival_s", "start_s", "finish_s", "frames", "migrations")
    for seed in seeds:
        run = simulate_streaming(network, pipelines_of(scenario, seed), policy, seed)
        items = {name: [getattr(made, name) for made in run.pipelines] for name in columns}
        figures = {name: getattr(run, name) for name in measures}
        yield SeedRun(
            {"pipeline": [made.name for made in run.pipelines], **items},
            _window(scenario, run.end_s, pipelines=len(run.pipelines), **figures),
            decision_s={"place": float(np.mean(run.decision_s))},
        )


def _graphs(scenario: Scenario, chosen: Mapping[str, Make], seeds: Sequence[int]) -> Iterator[SeedRun]:
    from edgewise.sim.stations.split import poisson_queries, simulate_split
    from edgewise.splitting import predicted_s, splitting

    found, policy = splitting(scenario), chosen["split"]()
    if found.overload:
        raise ScenarioError(f"nothing can be simulated: {found.overload}")
    rates = np.array([each.rate_qps for each in scenario.graphs])
    queries = max(1, round(float(rates.sum()) * scenario.duration_s))
    names = np.array([each.name for each in scenario.graphs])
    for seed in seeds:
        run = simulate_split(policy, found.program, queries, seed)
        sent_s, graph = poisson_queries(rates, queries, seed)
        settled = run.settled().time_s
        figures = {
            "queries": queries,
            "mean_s": float(settled.mean()),
            "p99_s": float(np.quantile(settled, 0.99)),
            "predicted_s": predicted_s(policy),
            "link_load": run.link_load,
            "server_load": run.server_load,
        }
        items = {"query": np.arange(queries), "graph": names[graph], "sent_s": sent_s, "time_s": run.time_s}
        yield SeedRun(items, _window(scenario, float((sent_s + run.time_s).max()), **figures))


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
        cores = np.array([job.resources.cpu_cores for job in run.jobs])
        _, earliest, _, duration = (
            np.array([job.in_slots(pattern.slot_s) for job in run.jobs]).reshape(-1, 4).T
        )
        began = run.start >= 0
        revenue, delay = float((cores * duration)[began].sum()), float((run.start - earliest)[began].sum())
        names = ("submitted_s", "earliest_s", "latest_s", "duration_s")
        items: dict[str, Any] = {name: [getattr(job, name) for job in run.jobs] for name in names}
        items |= {
            "job": np.arange(cores.size),
            "cores": cores,
            "started_s": [slot * pattern.slot_s if slot >= 0 else None for slot in run.start.tolist()],
            "node": [node or None for node in run.node],
            "suspended_s": run.suspended * pattern.slot_s,
        }
        totals: dict[str, float] = {
            "jobs": cores.size,
            "started": int(began.sum()),
            "lost": int(run.lost.sum()),
        }
        totals |= {"revenue": revenue, "delay": delay, "reward": revenue - jobs.delay_weight * delay}
        window = _window(
            scenario, pattern.slots * pattern.slot_s, **totals, violation=0.0, moves=run.moves.sum()
        )
        yield SeedRun(items, window)


_ADAPTERS: Mapping[str, Callable[[Scenario, Mapping[str, Make], Sequence[int]], Iterator[SeedRun]]] = {
    "streams": _streams,
    "services": _services,
    "pipelines": _pipelines,
    "graphs": _graphs,
    "jobs": _jobs,
}
