"""From a scenario and policies to runs, by the engine that the kind of work has.

Forbidden here: printing and files.
"""

from collections.abc import Iterator, Mapping, Sequence

from edgewise.model.scenario import Scenario
from edgewise.model.work import Stream
from edgewise.run.assigning import beside, in_step
from edgewise.run.tables import Make, SeedRun
from edgewise.run.too_much import refuse_too_much


def simulated(
    scenario: Scenario,
    work: str,
    chosen: Mapping[str, Make],
    seeds: Sequence[int],
    trace: Sequence[Stream] | None = None,
) -> Iterator[SeedRun]:
    """A run of each seed, in order.

    Args:
        work, chosen: as `assigning.assigned` says, each policy as what makes it.
        trace: streams that are run in place of drawn ones.
    Raises:
        ScenarioError: the scenario holds what the simulation of this work does not know, or too much.
        PolicyError: a policy breaks its contract.
    """
    # What one run needs is imported for it: all kinds of work together take a second.
    refuse_too_much(scenario)
    if in_step(scenario, work):
        if work == "services":
            from edgewise.run.services import in_slots as batch
        else:
            from edgewise.run.jobs import in_a_pool as batch
        return batch(scenario, chosen, seeds)
    if (run := beside(scenario, work)) == ("streams",) and not scenario.topology.pools:
        from edgewise.run.streams import alone

        return alone(scenario, chosen, seeds, trace)
    from edgewise.run.joint import joint_runs

    return joint_runs(scenario, run, chosen, seeds, trace)
