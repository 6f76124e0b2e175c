"""Which work of a scenario a run is about, who decides in it, and its tables.

Whatever lies above (the library, the command line, comparisons, reports) knows only `assigned`, which says
which work is run and who decides in it, and `simulated`. Forbidden here: printing and files.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from edgewise.model.work import Stream
from edgewise.report.summary import beforehand

Policy = str | type | Callable[[], Any]
"""A name, `file.py:Class`, the path of a card, or a class or function that makes a policy."""

DECISIONS: Mapping[str, Mapping[str, str | None]] = {
    "streams": {"dispatch": "least-impedance"},
    "services": {"dispatch": None, "orchestrate": None},
    "pipelines": {"place": "otfa"},
    "graphs": {"split": "nona-queues"},
    "jobs": {"defer": "fifo"},
}
"""By the kind of work who decides in it, and the policy where none is named; None: the scenario names one."""
LAID_OUT = "nona-layout"  # splits over several groups of servers, and nothing else does


def assigned(
    scenario: Scenario, given: Mapping[Any, Any], what: str = "simulate", about: str | None = None
) -> tuple[str, dict[str, Any]]:
    """The kind of work that a run is about, and who decides in it: the policies given, else defaults.

    It is about the first work of the scenario that `about`, else the decisions given are about; a policy
    without a decision (None) is for the first decision of that work. Other work of the scenario runs on the
    same nodes.

    Args:
        given: by decision, or by None; where streams and services both are dispatched, the run is about one
            of them, and the other's decision is "streams.dispatch" or "services.dispatch".
        what: runs them, for messages.
        about: a decision.
    Raises:
        PolicyError: a decision is unknown, given twice, or of work that is not run with the others.
        ScenarioError: the scenario holds no such work.
    """
    named = [decision for decision in given if decision is not None]
    by_name = {decision: _works(decision) for decision in named}
    # Where "dispatch" and "streams.dispatch" are both given, the run is not about streams.
    open_to = [work for work in DECISIONS if not any(f"{work}.{name}" in named for name in named)]
    works = [work for work in open_to if all(work in of for of in by_name.values())]
    if not works:
        wanted = by_name.values() if about is None else [_works(about)]
        works = [
            work for work in scenario.spec.holds
            if work in open_to and any(work in of for of in wanted)
            and all(set(of) & set(beside(scenario, work)) for of in by_name.values())
        ]  # fmt: skip
        if not works:
            raise PolicyError(
                f"{' and '.join(named)} are of different work, which no run of this scenario has"
            )
    not_run(scenario.spec, works, " ".join([what, *(f"--policy {decision}" for decision in named)]))
    work = next(work for work in works if work in scenario.spec.holds)
    chosen: dict[str, Any] = {}
    for each in beside(scenario, work):
        for decision, policy in defaults(scenario, each).items():
            chosen[decision if decision not in chosen else f"{each}.{decision}"] = policy
    first, found = next(iter(chosen)), dict[str, Any]()
    for decision, policy in given.items():
        key = decision or first
        key = key if key in chosen else key.rpartition(".")[2]
        if key in found:
            raise PolicyError(f"--policy: {key} is given twice")
        found[key] = policy
    return work, chosen | found


def _works(decision: str) -> list[str]:
    """The kinds of work that a decision, as "defer" or "services.dispatch", is about."""
    work, _, name = decision.rpartition(".")
    if name not in policies.DECISIONS or (work and name not in DECISIONS.get(work, ())):
        known = ", ".join(policies.DECISIONS)
        raise PolicyError(f"unknown decision {decision!r}; use one of {known}, as dispatch=closest")
    return [work] if work else [each for each, decisions in DECISIONS.items() if name in decisions]


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
    if work == "graphs" and _laid_out(scenario):
        return {"split": LAID_OUT}
    services = scenario.spec.services
    return {decision: name or getattr(services, decision) for decision, name in DECISIONS[work].items()}


def kind_of(work: str, decision: str) -> tuple[str, str | None]:
    """What `policies.load` and `names` call a decision, as `assigned` has it, of a run about some work."""
    of, _, name = decision.rpartition(".")
    of = of or (work if name in DECISIONS[work] else _works(name)[0])
    return name, {"streams": "streams", "services": "requests"}[of] if name == "dispatch" else None


def names(scenario: Scenario, work: str, decision: str) -> list[str]:
    """The policies that are compared where none are named: first who decides where nobody else is named.

    Cards are left out, which fit one system each.
    """
    from edgewise.policies.cards import shipped

    kind = kind_of(work, decision)
    first = defaults(scenario, decision.rpartition(".")[0] or work).get(kind[0])
    if work == "graphs" and _laid_out(scenario):
        return [LAID_OUT]
    of_sites = kind[1] == "requests" and not _in_slots(scenario)  # as live
    found = [name for name in policies.names(*kind, of_sites) if name not in (*shipped(*kind), LAID_OUT)]
    return sorted(found, key=lambda name: name != first)


def _laid_out(scenario: Scenario) -> bool:
    """Whether split models run on several groups of servers."""
    return len(server_groups(scenario.topology)) > 1


def maker(work: str, decision: str, policy: Policy) -> tuple[str, Make]:
    """The name that a policy goes by, and a function that makes a new one for each run.

    Raises:
        PolicyError: it cannot be loaded.
    """
    if isinstance(policy, str):
        name, kind = kind_of(work, decision)
        make_it = partial(policies.load, name, policy, kind)
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
    run = beside(scenario, work)
    found = not_run(scenario.spec, run if in_step(scenario, work) else (*run, "timeline"), what)
    if "services" in run and answers_left_out(scenario):
        found.append(
            "services.offered: answer_bytes is simulated with `gateways: per_site`, not of services of a "
            "trace; here answers take no time to send"
        )
    if "streams" in run:
        found += beforehand(scenario)
        if "sharing" not in scenario.spec.model_fields_set:
            found.append(
                "sharing: not said, so each message has the whole bandwidth of its link, as in edgewise 0.1; "
                "write sharing: fifo to let them wait for each other, or sharing: none"
            )
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
        ScenarioError: the scenario holds what the simulation of this work does not know, or too much.
        PolicyError: a policy breaks its contract.
    """
    refuse_too_much(scenario)
    if in_step(scenario, work):
        batch = services_in_slots if work == "services" else jobs_in_a_pool
        return batch(scenario, chosen, seeds)
    if (run := beside(scenario, work)) == ("streams",):
        return streams(scenario, chosen, seeds, trace)
    from edgewise.joint import joint_runs  # slow to import, for it knows all kinds of work

    return joint_runs(scenario, run, chosen, seeds, trace)


def refuse_too_much(scenario: Scenario) -> None:
    """Refuse what would fill the memory, or never end: most often a slip of the pen.

    Raises:
        ScenarioError: says how much of what there would be.
    """
    came, duration_s, services = scenario.streams, scenario.duration_s, scenario.spec.services
    starts_s = [min(start_s, duration_s) for start_s, _ in came.arrivals.steps]
    clients = np.diff([*starts_s, duration_s]) @ [rate / 60.0 for _, rate in came.arrivals.steps]
    clients *= len(scenario.topology.sites)
    queries = max([each.rate_qps[1] * min(each.length_s[1], duration_s) for each in came.applications] or [0])
    rate_qps = getattr(services and services.requests, "rate_qps", 0.0)
    for what, count, most in (
        ("window_s: windows in duration_s", duration_s / scenario.window_s, 10_000_000),
        ("telemetry.period_s: periods in duration_s", duration_s / scenario.telemetry_period_s, 100_000_000),
        ("streams.arrivals: clients in duration_s", clients, 10_000_000),
        ("streams.applications: queries of all clients", clients * queries, 1_000_000_000_000),
        ("services.requests: requests in duration_s", rate_qps * duration_s, 100_000_000),
    ):
        if count > most:
            raise ScenarioError(
                f"{scenario.name}: {what}: about {count:.3g}; {most:,} can be simulated at most"
            )


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
