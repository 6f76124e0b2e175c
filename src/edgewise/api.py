"""The Python API: load a scenario, simulate policies of any decision, compare them, replay recordings.

Everything the command line does goes through here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa

from edgewise import parallel, policies as policies_of
from edgewise.config import load_scenario as load_scenario
from edgewise.core.guard import Decided
from edgewise.errors import PolicyError, ScenarioError
from edgewise.model.scenario import Scenario
from edgewise.policies import Policy as Policy
from edgewise.report.schema import WORK
from edgewise.report.use import USE
from edgewise.run import assigning, engines
from edgewise.run.result import Comparison, Result
from edgewise.run.tables import Make, SeedRun, Tables, table

Policies = Policy | Mapping[str, Policy]
"""One policy, which is for the first decision of the scenario's work, or policies by decision."""
Alternatives = Sequence[Policy] | Mapping[Any, Sequence[Policy]]
"""Policies of the first decision of a scenario's work, or of another one as {"defer": ["fifo", …]}."""
Progress = Callable[[], None]


def simulate(
    scenario: Scenario | str | Path,
    policy: Policies | None = None,
    seeds: Iterable[int] = (0,),
    *,
    progress: Progress = lambda: None,
    command: str = "",
    jobs: int = 1,
) -> Result:
    """Simulate a scenario under the policies that decide in it; several kinds of work run on the same nodes.

    Args:
        scenario: a loaded scenario, a file, or the name of a shipped one.
        policy: a name, `file.py:Class`, the path of a card, a class, a function that makes a policy, or a
            policy itself, of which each run has a copy; or these by decision, as {"orchestrate": "marginal"},
            which also says which work is run. Decisions that are not named have the scenario's policy, or a
            default.
        seeds: one run each.
        progress: called after each run.
        jobs: so many processes; the records are the same for any number.
    Raises:
        ScenarioError, PolicyError: they cannot be loaded.
    """
    loaded = _loaded(scenario)
    work, chosen = assigning.assigned(loaded, _by_decision(policy))
    made = {decision: assigning.maker(decision, each) for decision, each in chosen.items()}
    fixed = {decision: name for decision, (name, _) in made.items()}
    makers = {_who(loaded, work, fixed): {decision: make for decision, (_, make) in made.items()}}
    return replace(simulated(loaded, work, makers, fixed, seeds, progress, jobs), command=command)


def compare(
    scenario: Scenario | str | Path,
    policies: Alternatives,
    seeds: Iterable[int] = range(10),
    *,
    fixed: Mapping[Any, Policy] | None = None,
    rival: str | None = None,
    progress: Progress = lambda: None,
    command: str = "",
    jobs: int = 1,
) -> Comparison:
    """Compare policies of one decision on the same arrivals and noise.

    Args:
        policies: of the first decision of the scenario's work; of another one as {"defer": ["fifo", …]}.
        fixed: policies of the other decisions.
        rival: the policy that the others are compared with; the first by default.
        progress, command, jobs: as for `simulate`.
    Returns:
        Mean differences with 95 % intervals, Holm-corrected over the family: of streams and services in the
        share that was answered in time, of other work in the first of its measures (`report.schema.WORK`).
    Raises:
        ScenarioError, PolicyError: they cannot be loaded, or there are fewer than two policies.
    """
    loaded = _loaded(scenario)
    work, found, held = alternatives(loaded, policies, fixed, "compare")
    if len(found) < 2:
        raise PolicyError(f"policies: compare needs at least two, got {len(found)}")
    if rival is not None and rival not in found:
        raise PolicyError(f"rival: {rival!r} is not among {', '.join(found)}")
    result = simulated(loaded, work, found, held, seeds, progress, jobs)
    return compared(replace(result, rival=rival, command=command))


def compared(result: Result) -> Comparison:
    """The policies of a result against its rival, the first where it has none."""
    from edgewise.report import statistics  # slow to import, and only needed here

    rival = result.rival or result.policies[0]
    rows = statistics.judged(result.work, result.summary(), result.policies, rival)
    return Comparison(replace(result, rival=rival), tuple(rows))


def alternatives(
    scenario: Scenario, policies: Alternatives, fixed: Mapping[Any, Policy] | None, what: str
) -> tuple[str, dict[str, dict[str, Make]], dict[str, str]]:
    """The work that is run, the policies of each run by the name of the one that differs, the others' names.

    Raises:
        PolicyError: one cannot be loaded, two have one name, or they are of several decisions.
    """
    if isinstance(policies, Mapping) and len(policies) != 1:
        raise PolicyError(f"policies: {what} those of one decision, got {', '.join(policies) or 'none'}")
    ((decision, listed),) = policies.items() if isinstance(policies, Mapping) else ((None, policies),)
    held_fast = dict(fixed or {})
    work, chosen = assigning.assigned(scenario, held_fast, what, decision)
    varied = decision or next(iter(chosen))
    if listed and varied in held_fast:
        raise PolicyError(f"policies: {varied} is both {what}d and held; leave one out")
    for policy in listed:
        policies_of.find(varied, policy)
    others = {name: assigning.maker(name, each) for name, each in chosen.items() if name != varied}
    held = {name: make for name, (_, make) in others.items()}
    found: dict[str, dict[str, Make]] = {}
    for policy in listed or [chosen[varied]]:
        name, make = assigning.maker(varied, policy)
        if name in found:
            raise PolicyError(f"policies: {name!r} is given twice")
        found[name] = {**held, varied: make}
    return work, found, {name: label for name, (label, _) in others.items()}


def replay(
    folder: str | Path,
    policies: Alternatives = (),
    seed: int = 0,
    *,
    fixed: Mapping[Any, Policy] | None = None,
    command: str = "",
) -> Result:
    """Simulate what was recorded, all kinds of work together, under each policy of one decision.

    Args:
        folder: has scenario.yaml and what it names, as `edgewise record` writes them.
        policies, fixed: as `compare` takes them; one policy is enough, without any the defaults decide.
        seed: keys delays and phases; what came is as recorded.
    Raises:
        ScenarioError, PolicyError: something cannot be read or loaded.
    """
    from edgewise.workloads.generate import read_streams_csv

    folder = Path(folder)
    if not (folder / "scenario.yaml").is_file():
        raise ScenarioError(f"{folder}: no recording, it lacks scenario.yaml; edgewise record makes one")
    scenario = load_scenario(folder / "scenario.yaml")
    work, found, held = alternatives(scenario, policies, fixed, "replay")
    traced = "streams" in assigning.beside(scenario, work)
    trace = read_streams_csv(folder / "streams.csv", scenario, seed) if traced else None
    return replace(simulated(scenario, work, found, held, (seed,), trace=trace), command=command)


def _loaded(scenario: Scenario | str | Path) -> Scenario:
    return scenario if isinstance(scenario, Scenario) else load_scenario(scenario)


def _by_decision(policy: Policies | None) -> Mapping[Any, Policy]:
    if policy is None:
        return {}
    return dict(policy) if isinstance(policy, Mapping) else {None: policy}


def simulated(
    scenario: Scenario,
    work: str,
    makers: Mapping[str, Mapping[str, Make]],
    fixed: Mapping[str, str],
    seeds: Iterable[int],
    progress: Progress = lambda: None,
    jobs: int = 1,
    trace: Sequence[Any] | None = None,
) -> Result:
    """Run every policy of `makers`, as `alternatives` gives them, with every seed."""
    seeds = tuple(seeds)
    if not seeds:
        raise PolicyError("seeds: none given; use for example --seeds 0:5")
    parts = [seeds] if jobs == 1 or assigning.in_step(scenario, work) else [(seed,) for seed in seeds]
    tasks = [(scenario, work, makers[name], part, trace) for name in makers for part in parts]
    ended: dict[int, list[SeedRun]] = {number: [] for number in range(len(tasks))}
    if jobs == 1:
        for number, task in enumerate(tasks):
            for run in engines.simulated(*task):
                ended[number].append(run)
                progress()
    else:
        for number, ended[number] in parallel.each(_listed, tasks, jobs):
            for _ in ended[number]:
                progress()
    tables: dict[str, tuple[list[pa.Table], list[pa.Table]]] = {}
    use: dict[str, list[pa.Table]] = {}
    decided: dict[str, dict[str, dict[str, Decided]]] = {}
    decision_s: dict[str, Mapping[str, float]] = {}
    every = product(makers, seeds)
    names = {(kind, name): name for kind in assigning.beside(scenario, work) for name in makers}
    if len(fixed) == len(next(iter(makers.values()))):  # nothing is varied
        names = {(kind, name): _who(scenario, kind, fixed) for kind, name in names}
    for (name, seed), run in zip(every, (run for one in ended.values() for run in one), strict=True):
        for kind, each in {work: Tables(run.items, run.windows), **run.beside}.items():
            items, windows = tables.setdefault(kind, ([], []))
            label, of = (names[kind, name], seed), WORK[kind]
            items.append(table(of.items, *label, each.items))
            windows.append(table(of.windows, *label, each.windows))
        for which, columns in run.use.items():
            use.setdefault(which, []).append(table(USE[which], names[work, name], seed, columns))
        for decision, one in run.decided.items():
            kind = assigning.about_of(scenario, decision)
            known = decided.setdefault(kind, {}).setdefault(names[kind, name], {})
            known[decision] = known[decision] + one if decision in known else one
        decision_s |= {name: run.decision_s} if run.decision_s else {}
    results = {
        kind: Result(
            scenario,
            kind,
            tuple(names[kind, name] for name in makers),
            seeds,
            pa.concat_tables(one),
            pa.concat_tables(two),
            fixed,
            decided=decided.get(kind, {}),
        )
        for kind, (one, two) in tables.items()
    }
    return replace(
        results.pop(work),
        decision_s=decision_s,
        beside=results,
        use={which: pa.concat_tables(found) for which, found in use.items()},
    )


def _who(scenario: Scenario, work: str, fixed: Mapping[str, str]) -> str:
    """The policies that decide on a kind of work, of all of a run."""
    return "+".join(fixed[each] for each in assigning.decisions(scenario, work))


def _listed(*task: Any) -> list[SeedRun]:
    """Runs, to be sent to another process."""
    return list(engines.simulated(*task))
