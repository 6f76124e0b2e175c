"""Who decides in a live system: policies as they are given, what goes on after a fall, and switches."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from edgewise import policies
from edgewise.cli.controller import call, follow
from edgewise.cli.output import err, note
from edgewise.errors import EdgewiseError, PolicyError
from edgewise.model.scenario import Scenario

COMPILING = "compiling kernels, for the first time on this machine: up to half a minute"


def prepare(scenario: Scenario, wanted: Mapping[str, str]) -> None:
    """Compile what policies need, and say that it takes a while where it does.

    Args:
        wanted: by decision.
    Raises:
        PolicyError: one cannot be used.
    """
    from edgewise.runtime.process.compiling import needed_by

    needed_by(scenario, wanted.items(), partial(err.print, COMPILING))


def deciding(scenario: Scenario, given: Mapping[str | None, str]) -> dict[str, str]:
    """Policies by decision of a live system.

    Args:
        given: by decision; by None for the first decision of the scenario's work.
    Raises:
        EdgewiseError: one decision is given twice.
    """
    first = "dispatch" if "streams" in scenario.holds else "requests"
    found: dict[str, str] = {}
    for each, name in given.items():
        decision = first if each is None else policies.check_decision(each)
        if decision in found:
            raise EdgewiseError(f"--policy {each}={name}: {decision} is given twice")
        found[decision] = policies.located(name)
    return found


def go_on(
    scenario: Scenario, wanted: Mapping[str, str], given: Mapping[str, str], left: Mapping[str, str]
) -> list[str]:
    """Say which policies of a system that did not come to its end go on, and which are switched once it runs.

    Args:
        wanted: by decision what would decide, had it ended; `given`: those of them that `up` was told.
        left: what decided.
    Returns:
        the decisions to be switched.
    Raises:
        PolicyError: one that goes on cannot be used any more.
    """
    kept = {decision: name for decision, name in left.items() if decision in wanted}
    try:
        prepare(scenario, kept)
    except PolicyError as error:
        what = "it decides in a system that was killed"
        raise PolicyError(f"{error}; {what}: mend it, or edgewise down, then up") from None
    later = [decision for decision in given if kept.get(decision, given[decision]) != given[decision]]
    stays = [each for each, name in kept.items() if each not in given and name != wanted[each]]
    said = [f"{each}: {kept[each]} goes on, which decided before the system was killed" for each in stays]
    note(said + [f"{each}: {given[each]} takes over from {kept[each]} once it runs" for each in later])
    return later


def switch(folder: Path, what: str, decision: str, name: str, wait: bool = True) -> Any:
    """Have a policy or a shadow switched in the system that runs, and wait for it; the operation."""
    accepted = call(folder, "PUT", f"/v1/{what}/{decision}", {"policy": name})
    return follow(lambda where: call(folder, "GET", where), accepted) if wait else accepted
