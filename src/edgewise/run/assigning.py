"""Which kinds of work of a scenario run together, who decides in them, and what a user should know of it.

Forbidden here: printing and files.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from edgewise import policies
from edgewise.errors import PolicyError
from edgewise.model.graphs import server_groups
from edgewise.model.left_out import not_run
from edgewise.model.scenario import Scenario
from edgewise.model.services import answers_left_out
from edgewise.model.ways import unused_cables
from edgewise.policies import Policy as Policy
from edgewise.report.summary import beforehand
from edgewise.run.tables import Make

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
        held = [work for work in order if work in scenario.holds]
        works = [work for work in held if wanted <= set(beside(scenario, work))]
        if not works:
            raise PolicyError(
                f"{' and '.join(named)} are of different work, which no run of this scenario has"
            )
    not_run(scenario, works, " ".join([what, *(f"--policy {decision}" for decision in named)]))
    work = next(work for work in works if work in scenario.holds)
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
    pooled = decision == "orchestrate" and scenario.services is None and scenario.topology.pools
    return "streams" if pooled else policies.DECISIONS[decision]


def beside(scenario: Scenario, work: str) -> tuple[str, ...]:
    """A kind of work of a scenario, and those that run on the same nodes at the same time.

    Services do so with a gateway at each site; else they run in the engine of slots, alone.
    """
    alone = _in_slots(scenario)
    return (work, *(each for each in scenario.holds if each != work and not {each, work} & alone))


def _in_slots(scenario: Scenario) -> set[str]:
    services = scenario.services
    return {"services"} if services is not None and services.gateways == "one" else set()


def defaults(scenario: Scenario, work: str) -> dict[str, Any]:
    """The policies of a kind of work where none are named, by decision."""
    who = policies.deciding(scenario)
    if work == "graphs" and _laid_out(scenario):
        who |= {"split": LAID_OUT, **scenario.policies}
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
    found = not_run(scenario, run if in_step(scenario, work) else (*run, "timeline"), what)
    found += unused_cables(scenario.topology)
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


def in_step(scenario: Scenario, work: str) -> bool:
    """Whether the seeds of a run are worlds of one batch, which is not taken apart."""
    if work == "services":
        return scenario.services is not None and scenario.services.gateways == "one"
    pooled = work == "jobs" and scenario.jobs is not None and scenario.jobs.room != "nodes"
    return pooled and len(beside(scenario, work)) == 1
