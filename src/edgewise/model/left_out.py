"""Which kinds of work a command runs, and what it says of those that it leaves out. Forbidden here: I/O."""

from collections.abc import Sequence

from edgewise.errors import ScenarioError
from edgewise.model.grammar.scenario import NEEDS
from edgewise.model.scenario import Scenario

COMMANDS = {  # that simulate each
    "streams": "edgewise simulate",
    "services": "edgewise simulate --policy requests=NAME",
    "jobs": "edgewise simulate --policy defer=NAME",
    "graphs": "edgewise simulate --policy split=NAME",
    "pipelines": "edgewise simulate --policy place=NAME",
}
SIMULATED = ("streams", "timeline")  # by `edgewise simulate` and what it shares its engine with
LIVE = ("streams", "services", "graphs", "jobs", "pipelines", "timeline")  # by `edgewise up`


def not_run(scenario: Scenario, runs: Sequence[str], what: str) -> list[str]:
    """What is left out of a run, in words, one line each.

    Args:
        runs: the kinds of work that are run, of `Scenario.holds`; "timeline" where changes are, too.
        what: runs them: a command or a function.
    Raises:
        ScenarioError: the scenario holds none of them.
    """
    if not set(runs) & set(scenario.holds):
        wanted = " or ".join(kind for kind in runs if kind in NEEDS)
        raise ScenarioError(
            f"scenario {scenario.name!r}: has no {wanted}, which {what} runs; it has "
            + ", ".join(f"{kind}{_hint(kind)}" for kind in scenario.holds)
        )
    found = [*scenario.holds, *(["timeline"] if scenario.timeline else [])]
    left = [kind for kind in found if kind not in runs]
    return [f"{what} leaves out the {kind} of this scenario{_hint(kind)}" for kind in left]


def _hint(kind: str) -> str:
    return f", which {COMMANDS[kind]} runs" if kind in COMMANDS else ""
