"""Which worlds fit: the rule of `predicates`, carried out once and frozen with a hash of every scenario."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from edgewise.errors import EdgewiseError
from edgewise_studies.calibration import measure, predicates, space
from edgewise_studies.calibration.measure import Row
from edgewise_studies.frozen import check_setting, setting_text, sha256

NAME = "aset-calibration-worlds"


def counts(rows: Sequence[Row]) -> dict[int, int]:
    """Predicates met, of the worlds that were measured whole; by number of the world."""
    found = {}
    for world in sorted({row["world"] for row in rows} - {space.SHIPPED}):
        judged = predicates.judge(measure.found_of(rows, world))
        if len(judged) == len(predicates.PREDICATES):
            found[world] = sum(judged.values())
    return found


def choose(rows: Iterable[Row]) -> list[int]:
    """The worlds that fit, by `predicates.RULE`, on the seed of the search.

    Raises:
        EdgewiseError: too few were measured.
    """
    searched = [row for row in rows if row["seed"] == predicates.SEEDS[0]]
    met = counts(searched)
    if len(met) < predicates.AT_LEAST_WORLDS:
        raise EdgewiseError(f"{len(met)} worlds were measured whole; measure more before choosing")
    least = sorted(met.values(), reverse=True)[predicates.AT_LEAST_WORLDS - 1]
    return [world for world, count in met.items() if count >= least][: predicates.MOST_WORLDS]


def described(worlds: Iterable[int]) -> dict[str, Any]:
    """What is frozen of them: their points, and the hash of each scenario."""
    return {
        "worlds": {
            str(world): {
                "point": space.point(world),
                "sha256": {name: sha256(space.scenario_of(world, name)) for name in space.SETTINGS},
            }
            for world in worlds
        }
    }


def frozen(results: Path) -> list[int]:
    """The worlds that were frozen, each still as it was then.

    Raises:
        ScenarioError: none were, or they differ.
    """
    path = results / "frozen" / f"{NAME}.json"
    known = json.loads(path.read_text(encoding="utf-8"))["worlds"] if path.is_file() else {}
    worlds = [int(world) for world in known]
    check_setting(NAME, setting_text(described(worlds)), results)
    return sorted(worlds)
