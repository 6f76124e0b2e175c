"""Which work of a scenario a run is about, who decides in it, and its tables.

Whatever lies above (the library, the command line, comparisons, reports) knows only `assigned`, which says
which work is run and who decides in it, and `simulated`. Forbidden here: printing and files.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from edgewise import policies
from edgewise.adapters import (
    Columns,
    Make as Make,
    SeedRun as SeedRun,
    Tables as Tables,
    jobs_in_a_pool,
    services_in_slots,
    streams,
)
from edgewise.errors import PolicyError, ScenarioError
from edgewise.model.grammar.scenario import not_run
from edgewise.model.scenario import Scenario, server_groups
from edgewise.model.services import answers_left_out
from edgewise.model.sources import Source
from edgewise.model.ways import unused_cables
from edgewise.model.work import Stream
from edgewise.policies import Policy as Policy
from edgewise.report.summary import beforehand

WORK = tuple(dict.fromkeys(policies.DECISIONS.values()))
LAID_OUT = "nona-layout"  # splits over several groups of servers, and nothing else does


def assigned(
    scenario: Scenario, given: Mapping[Any, Any], what: str = "simulate", about: str | None = None
) -> tuple[str, dict[str, Any]]:
    """The kind of work that a run is about, and who decides in it: the policies given, else defaults.

    It is about the work that `about`, else the first decision given is about; a policy without a decision
    (None) is for the first decision of that work. Other work of the scenario runs on the same nodes.
    The policies given are looked for, and nothing is compiled.

    Args:
        given: by decision, of `policies.DECISIONS`, or by None.
        what: runs them, for messages.
        about: a decision.
    Raises:
        PolicyError: a decision is unknown, given twice, or of work that is not run with the others; or a
            policy is not found.
        ScenarioError: the scenario holds no such work.
    """
    asked = (*given, about)
    named = [policies.check_decision(decision) for decision in asked if decision is not None]
    wanted = {about_of(scenario, decision) for decision in named}
    works = [work for work in WORK if wanted <= {work}]
    if not works:
        order = dict.fromkeys(about_of(scenario, each) for each in ([about] if about else named))
        held = [work for work in order if work in scenario.spec.holds]
        works = [work for work in held if wanted <= set(beside(scenario, work))]
        if not works:
            raise PolicyError(
                f"{' and '.join(named)} are of different work, which no run of this scenario has"
            )
    not_run(scenario.spec, works, " ".join([what, *(f"--policy {decision}" for decision in named)]))
    work = next(work for work in works if work in scenario.spec.holds)
    chosen: dict[str, Any] = {}
    for each in beside(scenario, work):
        chosen |= defaults(scenario, each)
    first_decision, found = next(iter(chosen)), dict[str, Any]()
    for decision, policy in given.items():
        key = decision or first_decision
        if key in found:
            raise PolicyError(f"--policy: {key} is given twice")
        found[key] = policy
    for decision, policy in found.items():
        policies.find(decision, policy)
    return work, chosen | found


def decisions(scenario: Scenario, work: str) -> list[str]:
    """Those about a kind of work."""
    return [decision for decision in policies.DECISIONS if about_of(scenario, decision) == work]


def about_of(scenario: Scenario, decision: str) -> str:
    """The kind of work that a decision is about: orchestration of streams, where they alone have workers."""
    pooled = decision == "orchestrate" and scenario.spec.services is None and scenario.topology.pools
    return "streams" if pooled else policies.DECISIONS[decision]


def beside(scenario: Scenario, work: str) -> tuple[str, ...]:
    """A kind of work of a scenario, and those that run on the same nodes at the same time.

    Services do so with a gateway at each site; else they run in the engine of slots, alone.
    """
    alone = _in_slots(scenario)
    return (work, *(each for each in scenario.spec.holds if each != work and not {each, work} & alone))


def _in_slots(scenario: Scenario) -> set[str]:
    services = scenario.spec.services
    return {"services"} if services is not None and services.gateways == "one" else set()


def defaults(scenario: Scenario, work: str) -> dict[str, Any]:
    """The policies of a kind of work where none are named, by decision."""
    who = policies.deciding(scenario)
    if work == "graphs" and _laid_out(scenario):
        who |= {"split": LAID_OUT} | scenario.spec.named_policies
    return {decision: who[decision] for decision in decisions(scenario, work)}


def names(scenario: Scenario, decision: str) -> list[str]:
    """The policies that are compared where none are named: first who decides where nobody else is named.

    Cards are left out, which fit one system each.
    """
    from edgewise.policies.cards import shipped

    work = about_of(scenario, decision)
    first = defaults(scenario, work).get(decision)
    if work == "graphs" and _laid_out(scenario):
        return [LAID_OUT]
    of_sites = decision == "requests" and not _in_slots(scenario)  # as live
    left_out = (*shipped(decision), LAID_OUT)
    found = [name for name in policies.names(decision, of_sites) if name not in left_out]
    return sorted(found, key=lambda name: name != first)


def _laid_out(scenario: Scenario) -> bool:
    """Whether split models run on several groups of servers."""
    return len(server_groups(scenario.topology)) > 1


def maker(decision: str, policy: Policy) -> tuple[str, Make]:
    """The name that a policy goes by, and a function that makes a new one for each run.

    Raises:
        PolicyError: it cannot be loaded.
    """
    make = partial(policies.load, decision, policy)
    return make().name, make


def about(decision: str, name: str) -> str:
    """What a policy that `policies.names` lists does, in a sentence."""
    doc = type(policies.load(decision, name)).__doc__ or ""
    return doc.strip().split("\n")[0]


def notes(scenario: Scenario, work: str, what: str) -> list[str]:
    """What a user should know before a run: work that is left out, and what no policy can change."""
    run = beside(scenario, work)
    found = not_run(scenario.spec, run if in_step(scenario, work) else (*run, "timeline"), what)
    found += unused_cables(scenario.spec, scenario.topology)
    if "services" in run and answers_left_out(scenario):
        found.append(
            "services.offered: answer_bytes is simulated with `gateways: per_site`, not of services of a "
            "trace; here answers take no time to send"
        )
    if "jobs" in run and scenario.jobs is not None and not weighed(scenario, run):
        found.append(
            "jobs: checkpoint_bytes is simulated with `sharing` and services, whose cloud keeps checkpoints; "
            "here they weigh nothing"
        )
    if "streams" in run:
        found += beforehand(scenario)
        if "sharing" not in scenario.spec.model_fields_set:
            found.append(
                "sharing: not said, so each message has the whole bandwidth of its link, as in edgewise 0.1; "
                "write sharing: fifo to let them wait for each other, or sharing: none"
            )
    return found


def weighed(scenario: Scenario, run: Sequence[str]) -> bool:
    """Whether checkpoints that have a size are sent over links, if there are any."""
    jobs = scenario.jobs
    sized = jobs is not None and any(
        (jobs.checkpoint_bytes, *(job.checkpoint_bytes for job in jobs.submitted))
    )
    return not sized or (scenario.sharing != "none" and "services" in run)


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
        ScenarioError: the scenario holds what the simulation of this work does not know, or too much.
        PolicyError: a policy breaks its contract.
    """
    refuse_too_much(scenario)
    if in_step(scenario, work):
        batch = services_in_slots if work == "services" else jobs_in_a_pool
        return batch(scenario, chosen, seeds)
    if (run := beside(scenario, work)) == ("streams",) and not scenario.topology.pools:
        return streams(scenario, chosen, seeds, trace)
    from edgewise.joint import joint_runs  # slow to import, for it knows all kinds of work

    return joint_runs(scenario, run, chosen, seeds, trace)


def refuse_too_much(scenario: Scenario) -> None:
    """Refuse what would fill the memory, or never end: most often a slip of the pen.

    Raises:
        ScenarioError: says how much of what there would be.
    """
    for what, count, most in (*_much_of_streams(scenario), *_much_of_others(scenario)):
        if count > most:
            raise ScenarioError(
                f"{scenario.name}: {what}: about {count:.3g}; {most:,} can be simulated at most"
            )


def _much_of_streams(scenario: Scenario) -> Iterator[tuple[str, float, int]]:
    """What there is much of, how much, and the most that can be simulated."""
    came, duration_s = scenario.streams, scenario.duration_s
    starts_s = [min(start_s, duration_s) for start_s, _ in came.arrivals.steps]
    clients = float(np.diff([*starts_s, duration_s]) @ [rate / 60.0 for _, rate in came.arrivals.steps])
    clients *= len(scenario.topology.sites)
    queries = max([each.rate_qps[1] * min(each.length_s[1], duration_s) for each in came.applications] or [0])
    sent = sum(map(_sent, came.sources)) * duration_s
    yield "window_s: windows in duration_s", duration_s / scenario.window_s, 10_000_000
    yield "telemetry.period_s: periods in duration_s", duration_s / scenario.telemetry_period_s, 100_000_000
    yield "streams.arrivals: clients in duration_s", clients, 10_000_000
    yield "streams.applications: queries of all clients", clients * queries, 1_000_000_000_000
    yield "streams.sources: queries of all of them", sent, 1_000_000_000_000


def _much_of_others(scenario: Scenario) -> Iterator[tuple[str, float, int]]:
    """As `_much_of_streams`, of work that is no stream."""
    spec, duration_s = scenario.spec, scenario.duration_s
    if spec.services is not None:
        rate_qps = getattr(spec.services.requests, "rate_qps", 0.0)
        yield "services.requests: requests in duration_s", rate_qps * duration_s, 100_000_000
        yield "services.slot_s: slots in duration_s", duration_s / spec.services.slot_s, 1_000_000_000
    for i, graph in enumerate(spec.graphs or ()):
        yield f"graphs[{i}].rate_qps: queries in duration_s", graph.rate_qps * duration_s, 100_000_000
    if spec.jobs is not None:
        slots = duration_s / spec.jobs.slot_s
        drawn = spec.jobs.drawn.per_slot * slots if spec.jobs.drawn is not None else 0.0
        yield "jobs.slot_s: slots in duration_s", slots, 10_000_000
        yield "jobs.drawn.per_slot: jobs in duration_s", drawn, 10_000_000


def _sent(source: Source) -> float:
    """Queries/s of all of a source."""
    return source.rate_qps * source.count * len(source.sites)


def in_step(scenario: Scenario, work: str) -> bool:
    """Whether the seeds of a run are worlds of one batch, which is not taken apart."""
    if work == "services":
        return scenario.spec.services is not None and scenario.spec.services.gateways == "one"
    pooled = work == "jobs" and scenario.jobs is not None and scenario.jobs.room != "nodes"
    return pooled and len(beside(scenario, work)) == 1


def table(schema: pa.Schema, policy: str, seed: int, columns: Columns) -> pa.Table:
    """Columns of a run in a schema of `report.schema` or `report.use`."""
    rows = len(next(iter(columns.values()), ()))
    whole = {**columns, "seed": np.full(rows, seed), "policy": [policy] * rows}
    return pa.table({name: whole.get(name, []) for name in schema.names}, schema=schema)
