"""What a day of a scenario is like under rules that are not ours: how full, how even, and what is in time.

    python -m bench.world [--scenario campus] [--seeds 500000:500002] [--hours 14:17]

Kubernetes' autoscaler scales all that scales, and published or plain rules decide the rest. Written are the
shares in time of each kind of work, use of nodes' cores in the busy hours (the four in which most is held),
use of each link in its own busiest hour, and the sum of the peaks of all kinds over the peak of their sum.
With `--hours` only these hours of the day are run, and nothing is written. Seeds
are of validation.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import edgewise as ew
from bench.scaling import NOT_HELD, OUT, figures
from edgewise.cli.verbs import parse_seeds
from edgewise.config import edition, load_scenario
from edgewise.model.scenario import Scenario

PLAIN = {
    "dispatch": "closest", "requests": "two-choices", "split": "whole-least-loaded",
    "place": "otfa", "orchestrate": "autoscaler", "defer": "earliest-deadline",
}  # fmt: skip
HOUR_S, BUSY = 3600.0, 4


def shortened(name: str, hours: tuple[int, int]) -> Scenario:
    """These hours of the day alone."""
    steps = load_scenario(name).streams.arrivals.steps
    first, last = (hour * HOUR_S for hour in hours)
    before = [rate for at_s, rate in steps if at_s <= first][-1]
    later = [{"at_s": at_s - first, "rate": rate} for at_s, rate in steps if first < at_s < last]
    return load_scenario(
        name,
        {
            "duration_s": last - first, "timeline": [], "streams.begins_at_s": first,
            "streams.arrivals.clients_per_min": [{"at_s": 0.0, "rate": before}, *later],
        },
    )  # fmt: skip


def by_hour(rows: Mapping[str, Sequence[Any]], hours: int, of: str) -> dict[str, list[float]]:
    """Core-hours in each hour, by `work` or by `place` (of the latter what work holds, and `total`)."""
    found: dict[str, list[float]] = defaultdict(lambda: [0.0] * hours)
    columns = (rows[name] for name in ("place", "work", "start_s", "end_s", "cores"))
    for place, work, begin_s, end_s, cores in zip(*columns, strict=True):
        name = work if of == "work" else place if work not in NOT_HELD else ""
        for hour in range(int(begin_s // HOUR_S), min(hours, int(end_s // HOUR_S) + 1)):
            within = min(end_s, (hour + 1) * HOUR_S) - max(begin_s, hour * HOUR_S)
            found[name][hour] += max(within, 0.0) * cores / HOUR_S
    return found


def use_of_cores(rows: Mapping[str, Sequence[Any]], hours: int) -> dict[str, Any]:
    """In the busy hours, and which these are; and core-hours of each kind by the hour."""
    held = by_hour(rows, hours, "work")
    total, gone = held.pop("total"), held.pop("gone", [0.0] * hours)
    has = [total[hour] - gone[hour] for hour in range(hours)]
    taken = [sum(held[work][hour] for work in held) for hour in range(hours)]
    busy = sorted(sorted(range(hours), key=lambda hour: -taken[hour])[:BUSY])
    use = sum(taken[hour] for hour in busy) / sum(has[hour] for hour in busy)
    return {"busy hours": busy, "use of cores %": 100.0 * use, "cores by hour": dict(held), "taken": taken}


def use_of_links(rows: Mapping[str, Sequence[Any]], hours: int) -> dict[str, tuple[int, float]]:
    """Of each link's direction: its busiest hour, and the % that messages and reserved rates take then."""
    bits: dict[str, list[list[float]]] = defaultdict(lambda: [[0.0, 0.0] for _ in range(hours)])
    names = ("link", "start_s", "end_s", "capacity_bps", "reserved_bps", "sent_bits")
    for link, begin_s, end_s, has_bps, held_bps, sent in zip(*(rows[name] for name in names), strict=True):
        span = bits[link][min(int(begin_s // HOUR_S), hours - 1)]
        span[0] += sent + held_bps * (end_s - begin_s)
        span[1] += has_bps * (end_s - begin_s)
    shares = {link: [100.0 * used / max(has, 1.0) for used, has in spans] for link, spans in bits.items()}
    return {link: (share.index(max(share)), max(share)) for link, share in sorted(shares.items())}


def measured(scenario: Scenario, seed: int) -> dict[str, Any]:
    """Of one run."""
    result, hours = ew.simulate(scenario, PLAIN, [seed]), round(scenario.duration_s / HOUR_S)
    found = figures(result) | use_of_cores(result.use["holds"].to_pydict(), hours)
    return found | {"links": use_of_links(result.use["links"].to_pydict(), hours)}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Means over seeds: figures, links in their busiest hour, and cores by hour and kind of work."""
    plain = [name for name, value in rows[0].items() if isinstance(value, int | float)]
    lines = ["| | |", "|---|---:|"]
    lines += [f"| {name} | {statistics.fmean(row[name] for row in rows):,.2f} |" for name in plain]
    lines.append(f"| busy hours | {' '.join(map(str, rows[0]['busy hours']))} |")
    lines += ["", "| link | busiest hour | use % |", "|---|---:|---:|"]
    for link, (hour, _) in rows[0]["links"].items():
        lines.append(f"| {link} | {hour} | {statistics.fmean(row['links'][link][1] for row in rows):.1f} |")
    works = list(rows[0]["cores by hour"])
    lines += ["", "| hour | " + " | ".join(works) + " |", "|---:|" + "---:|" * len(works)]
    for hour in range(len(rows[0]["cores by hour"][works[0]])):
        means = [statistics.fmean(row["cores by hour"][work][hour] for row in rows) for work in works]
        lines.append(f"| {hour} | " + " | ".join(f"{mean:.1f}" for mean in means) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run, print, and write."""
    parser = argparse.ArgumentParser(description="What a day is like under rules that are not ours.")
    parser.add_argument("--scenario", default="campus")
    parser.add_argument("--seeds", default="500000:500002")
    parser.add_argument("--hours", help="of the day, as 14:17")
    asked = parser.parse_args()
    if asked.hours:
        first, last = map(int, asked.hours.split(":"))
        scenario = shortened(asked.scenario, (first, last))
    else:
        scenario = load_scenario(asked.scenario)
    rows = [measured(scenario, seed) for seed in parse_seeds(asked.seeds)]
    print(table(rows))
    if not asked.hours:
        found = {
            "command": f"python -m bench.world --scenario {asked.scenario} --seeds {asked.seeds}",
            "frozen": {"edition": edition(scenario), "date": datetime.now(UTC).date().isoformat()},
            "policies": PLAIN, "rows": rows,
        }  # fmt: skip
        file = OUT / f"{asked.scenario}-world"
        file.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
        frozen = f"`{found['command']}`, frozen as `{edition(scenario)}` on {found['frozen']['date']}"
        file.with_suffix(".md").write_text(f"{frozen}\n\n{table(rows)}\n")


if __name__ == "__main__":
    main()
