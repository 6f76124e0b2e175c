"""What the fallback decided in a policy's place, as tables, pages, files and messages say it.

Forbidden here: printing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from edgewise.core.guard import Decided

ByPolicy = Mapping[str, Mapping[str, Decided]]
"""By the label of a run, as tables have it, and by decision."""
HEADING = "fallback %"


def share(decided: ByPolicy, label: str) -> float:
    """Of decisions that were not the policy's own; where a run has several policies, of the worst of them."""
    return max((one.share for one in decided.get(label, {}).values()), default=0.0)


def column(decided: ByPolicy, labels: Sequence[str]) -> list[str] | None:
    """The shares in percent, for a table with a row for each label; None where there is nothing to say."""
    if not any(one.faults for label in labels for one in decided.get(label, {}).values()):
        return None
    return [f"{100.0 * share(decided, label):.1f}" for label in labels]


def lines(decided: ByPolicy) -> list[str]:
    """A sentence for each policy that failed at something."""
    return [
        f"{one.policy} ({decision}): the fallback decided {one}; edgewise.testing.check_policy says more"
        for one, decision in _each(decided)
        if one.faults
    ]


def nothing(decided: ByPolicy) -> list[str]:
    """A sentence for each policy that was to decide, and of which no decision is its own."""
    return [
        f"policy {one.policy!r} ({decision}) decided nothing itself: all {one.questions} decisions are the "
        f"fallback's, and so is what stands under its name: {why}"
        for one, decision in _each(decided)
        if one.nothing
        for _, why in [next(iter(one.faults.values()))]
    ]


def as_json(decided: ByPolicy) -> dict[str, Any]:
    """Plain values, with the share of each."""
    return {
        label: {
            decision: {**asdict(one), "share": one.share, "faults": _plain(one)}
            for decision, one in of.items()
        }
        for label, of in decided.items()
    }


def of_json(found: Mapping[str, Any]) -> dict[str, dict[str, Decided]]:
    """What `as_json` made."""
    return {
        label: {
            decision: Decided(
                one["policy"], one["questions"], one["instead"],
                {each["kind"]: (each["times"], each["why"]) for each in one["faults"]},
            )
            for decision, one in of.items()
        }
        for label, of in found.items()
    }  # fmt: skip


def _plain(one: Decided) -> list[dict[str, Any]]:
    return [{"kind": kind, "times": times, "why": why} for kind, (times, why) in one.faults.items()]


def _each(decided: ByPolicy) -> list[tuple[Decided, str]]:
    """Each policy once, with its decision; all runs of one that is the same in several together."""
    found: dict[tuple[str, str], Decided] = {}
    for of in decided.values():
        for decision, one in of.items():
            key = decision, one.policy
            found[key] = found[key] + one if key in found else one
    return [(one, decision) for (decision, _), one in found.items()]
