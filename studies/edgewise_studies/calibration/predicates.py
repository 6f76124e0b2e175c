"""What the figures of ASET's paper say of its static policies, as predicates with tolerances.

The paper prints no numbers of its curves, and its text says what they show; each predicate is one such
sentence. None is about ASET itself, so a world that fits says nothing yet about how well one learns in it.
Tolerances were written down before any world was measured, and are frozen with the ranges.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from edgewise.policies.dispatch.meta import PAPER
from edgewise_studies.calibration import space

POINT = 0.01
SEEDS = (500_100, 500_101, 500_102)  # of the search, then of its confirmation; validation seeds
ROOM_SEEDS = (500_110, 500_111, 500_112)
MISSES = 2  # predicates that a world may miss before the rest of it is left out
AT_LEAST_WORLDS = 3
MOST_WORLDS = 8


class Measured(NamedTuple):
    """One policy in one setting of a world, mean of the seeds: shares of queries, success by application."""

    success: float
    failed: float
    rejected: float
    applications: Mapping[str, float]


Found = Mapping[str, Mapping[str, Measured]]  # by setting, then by policy


class Predicate(NamedTuple):
    """A sentence of the paper, how it is tested, and which settings it needs."""

    figure: str
    says: str
    test: str
    needs: tuple[str, ...]
    met: Callable[[Found], bool]


def shares(found: Mapping[str, Measured], which: str = "success") -> list[float]:
    """Of every policy, in the paper's order."""
    return [float(getattr(found[name], which)) for name in PAPER]


def spread(found: Mapping[str, Measured], which: str = "success") -> float:
    """Between the policies that have most and least."""
    return max(shares(found, which)) - min(shares(found, which))


def best(found: Mapping[str, Measured]) -> str:
    """The policy of most success."""
    return PAPER[int(np.argmax(shares(found)))]


def nobody_everywhere(found: Mapping[str, Measured]) -> bool:
    """No policy is within a point of the best one in every application."""
    apps = set.intersection(*(set(found[name].applications) for name in PAPER))
    most = {app: max(found[name].applications[app] for name in PAPER) for app in apps}
    return all(any(most[app] - found[name].applications[app] >= POINT for app in apps) for name in PAPER)


def _gains(found: Found) -> list[float]:
    return [co - dc for dc, co in zip(shares(found["dc"]), shares(found["co"]), strict=True)]


PREDICATES: Mapping[str, Predicate] = {
    "dc-alike": Predicate(
        "5a", "dc-cloud: the various static policies have small differences in performance",
        "best - worst <= 10 points", ("dc",),
        lambda found: spread(found["dc"]) <= 10 * POINT,
    ),
    "co-higher": Predicate(
        "5c", "co-dc-cloud: all the policies achieve a higher success ratio",
        "co-dc-cloud - dc-cloud > 0 for each of the seven", ("dc", "co"),
        lambda found: min(_gains(found)) > 0.0,
    ),
    "co-much-higher": Predicate(
        "5c", "moving some resources to central offices makes a huge difference",
        "mean of co-dc-cloud - dc-cloud over the seven >= 5 points", ("dc", "co"),
        lambda found: float(np.mean(_gains(found))) >= 5 * POINT,
    ),
    "edge-apart": Predicate(
        "6a", "full-edge: where resources are distributed, policies differ",
        "best - worst >= 5 points, and more than on dc-cloud", ("dc", "edge"),
        lambda found: spread(found["edge"]) >= max(5 * POINT, spread(found["dc"])),
    ),
    "edge-fails": Predicate(
        "6c", "full-edge: queries are handled violating one or more QoS requirements",
        "the best policy fails at least 1 point", ("edge",),
        lambda found: found["edge"][best(found["edge"])].failed >= POINT,
    ),
    "edge-rejects": Predicate(
        "6d", "full-edge: queries are rejected for lack of resources, by the best static policy least",
        "some policy rejects at least 1 point more than the one that rejects least", ("edge",),
        lambda found: spread(found["edge"], "rejected") >= POINT,
    ),
    "apps-differ": Predicate(
        "4a", "full-edge: no policy fits all; applications benefit differently",
        "each policy is at least 1 point below the best in some application", ("edge",),
        lambda found: nobody_everywhere(found["edge"]),
    ),
    "impedance-low": Predicate(
        "III-C", "least impedance leads to the best performance when the overall load is low",
        "λ = 20: within 1 point of the best of the seven", ("edge-20",),
        lambda found: max(shares(found["edge-20"])) - found["edge-20"]["least-impedance"].success <= POINT,
    ),
    "rates-fall": Predicate(
        "6b", "full-edge over λ = 20 … 100: more clients, less success",
        "best of seven: λ = 20 >= 60 >= 100 within 1 point each, and 20 at least 3 points above 100",
        ("edge-20", "edge", "edge-100"),
        lambda found: _fall(*(max(shares(found[name])) for name in ("edge-20", "edge", "edge-100"))),
    ),
    "impedance-rejects": Predicate(
        "III-C", "least impedance may suffer from a high rejection rate once the fastest are saturated",
        "λ = 100: it rejects at least 1 point more than the one that rejects least", ("edge-100",),
        lambda found: found["edge-100"]["least-impedance"].rejected
        - min(shares(found["edge-100"], "rejected")) >= POINT,
    ),
    "burst-struggle": Predicate(
        "7a", "policies that are decent under stable load struggle in more dynamic scenarios",
        "the best of λ = 60 loses at least 1 point under bursts", ("edge", "burst"),
        lambda found: found["edge"][best(found["edge"])].success
        - found["burst"][best(found["edge"])].success >= POINT,
    ),
    "apps-differ-burst": Predicate(
        "4b", "with changing rates, relying on a single policy is yet more uncertain",
        "under bursts, too, each policy is at least 1 point below the best in some application", ("burst",),
        lambda found: nobody_everywhere(found["burst"]),
    ),
}  # fmt: skip
RULE = (
    f"a world fits if it meets the largest number of predicates that at least {AT_LEAST_WORLDS} worlds meet, "
    f"or more; of more than {MOST_WORLDS} the first by number; one that misses more than {MISSES} is not "
    "measured further"
)


def _fall(low: float, middle: float, high: float) -> bool:
    return low >= middle - POINT and middle >= high - POINT and low - high >= 3 * POINT


def judge(found: Found) -> dict[str, bool]:
    """Whether each predicate is met whose settings were measured."""
    return {
        name: bool(each.met(found))
        for name, each in PREDICATES.items()
        if all(setting in found for setting in each.needs)
    }


def misses(found: Found) -> int:
    """How many of the predicates that can be judged are not met."""
    return sum(not met for met in judge(found).values())


def setting() -> dict[str, Any]:
    """All that is frozen before the first world is measured."""
    return {
        "paper": "ASET",
        "predicates": {name: [p.figure, p.says, p.test] for name, p in PREDICATES.items()},
        "rule": RULE,
        "ranges": {name: list(span) for name, span in space.RANGES.items()},
        "choices": {
            "office": list(map(dict, space.OFFICES)), "centre": list(map(dict, space.CENTRES)),
            "cloud": list(map(dict, space.CLOUDS)), "access": list(map(dict, space.ACCESSES)),
            "feedback": list(map(list, space.FEEDBACK)), "ssd": list(space.SSD_ACCURACY),
        },
        "worlds": space.WORLDS, "key": space.KEY.seed, "antennas": space.ANTENNAS, "load_qps": space.LOAD_QPS,
        "settings": {name: list(each) for name, each in space.SETTINGS.items()},
        "seeds": list(SEEDS), "seeds_of_room": list(ROOM_SEEDS),
    }  # fmt: skip
