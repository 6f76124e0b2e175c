"""Which work of a scenario is run, and which is not: nothing is left out in silence. Forbidden here: I/O."""

from __future__ import annotations

from collections.abc import Sequence

from edgewise.errors import ScenarioError
from edgewise.model.grammar.scenario import NEEDS, ScenarioSpec

COMMANDS = {  # that simulate each
    "streams": "edgewise simulate",
    "services": "edgewise simulate --policy orchestrate=NAME",
    "jobs": "edgewise simulate --policy defer=NAME",
    "graphs": "edgewise simulate --policy split=NAME",
    "pipelines": "edgewise simulate --policy place=NAME",
}
SIMULATED = ("streams", "timeline")  # by `edgewise simulate` and what it shares its engine with
LIVE = ("streams", "services")  # by `edgewise up`


def not_run(spec: ScenarioSpec, runs: Sequence[str], what: str) -> list[str]:
    """What is left out of a run, in words, one line each.

    Args:
        runs: the kinds of work that are run, of `grammar.scenario.NEEDS`; "timeline" where changes are, too.
        what: runs them: a command or a function.
    Raises:
        ScenarioError: the scenario holds none of them.
    """
    if not set(runs) & set(spec.holds):
        wanted = " or ".join(kind for kind in runs if kind in NEEDS)
        raise ScenarioError(
            f"scenario {spec.name!r}: has no {wanted}, which {what} runs; it has "
            + ", ".join(f"{kind}{_hint(kind)}" for kind in spec.holds)
        )
    found = [*spec.holds, *(["timeline"] if spec.timeline else [])]
    left = [kind for kind in found if kind not in runs]
    return [f"{what} leaves out the {kind} of this scenario{_hint(kind)}" for kind in left]


def _hint(kind: str) -> str:
    return f", which {COMMANDS[kind]} runs" if kind in COMMANDS else ""
