"""A day under workers of streams that stay, and under each rule that scales them.

    python -m bench.scaling [--scenario campus] [--rules fixed,autoscaler,forecast] [--seeds 500000:500002]

Workers of streams may go down to one in each place and up to what fits, but for those that services use, too.
Under `fixed` they stay, as the scenario says, and replicas of services follow `autoscaler`. For each rule and
seed: shares in time of each kind of work, core-hours that each kind holds, and the sum of the peaks of all
kinds over the peak of their sum: how much sharing one system saves. Seeds are of validation.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import edgewise as ew
from edgewise.cli.verbs import parse_seeds
from edgewise.config import edition, load_scenario
from edgewise.model.scenario import Scenario

OUT = Path(__file__).resolve().parents[1] / "docs" / "results" / "scaling"
FIXED, USUAL = "fixed", "autoscaler"
NOT_HELD = ("total", "gone", "other")


def scaled(name: str) -> Scenario:
    """The scenario, whose workers of streams come and go; those of services' variants stay."""
    plain = load_scenario(name)
    services = plain.spec.services
    served = {getattr(each, "variant", None) for each in services.offered} if services else set()
    workers = []
    for worker in plain.spec.workers or ():
        row = worker.model_dump(mode="json", exclude_unset=True)
        if worker.variant not in served:
            row["least"] = 1
            if services and worker.cluster == services.cloud:  # there is room for any number
                row["most"] = worker.count
        workers.append(row)
    return load_scenario(name, {"workers": workers})


def figures(result: ew.Result) -> dict[str, Any]:
    """Of one run."""
    items = {"streams": result.items.to_pydict()}
    items |= {kind: each.items.to_pydict() for kind, each in result.beside.items()}
    queries = sum(items["streams"]["queries"])
    found: dict[str, Any] = {
        "queries": queries, "streams in time %": 100.0 * sum(items["streams"]["ok"]) / max(queries, 1),
    }  # fmt: skip
    if "services" in items:
        state = items["services"]["outcome"]
        found["requests in time %"] = 100.0 * state.count("in_time") / max(len(state), 1)
    if "pipelines" in items:
        found["frames"] = sum(items["pipelines"]["frames"])
    if "jobs" in items:
        found["jobs ended"] = sum(ended_s is not None for ended_s in items["jobs"]["ended_s"])
    return found | held(result.use["holds"].to_pydict())


def held(rows: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Core-hours by kind of work, and the sum of the peaks over the peak of the sum."""
    hours: dict[str, float] = defaultdict(float)
    changes: dict[str, list[tuple[float, float]]] = defaultdict(list)
    columns = (rows[name] for name in ("work", "start_s", "end_s", "cores"))
    for work, begin_s, end_s, cores in zip(*columns, strict=True):
        if work not in NOT_HELD:
            hours[work] += (end_s - begin_s) * cores / 3600.0
            for kind in (work, "all"):
                changes[kind] += [(begin_s, cores), (end_s, -cores)]
    peak = {kind: _peak(each) for kind, each in changes.items()}
    found = {f"core-hours of {work}": value for work, value in sorted(hours.items())}
    return found | {"peaks over peak": sum(peak[work] for work in hours) / peak["all"]}


def _peak(changes: Iterable[tuple[float, float]]) -> float:
    now = most = 0.0
    for _, cores in sorted(changes):  # at one time who goes is first
        now += cores
        most = max(most, now)
    return most


def table(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Means over seeds, a column for each rule."""
    names = list(next(iter(rows.values()))[0])
    lines = ["| | " + " | ".join(f"`{rule}`" for rule in rows) + " |", "|---|" + "---:|" * len(rows)]
    for name in names:
        means = [statistics.fmean(each[name] for each in found) for found in rows.values()]
        lines.append(f"| {name} | " + " | ".join(f"{mean:,.2f}" for mean in means) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(description="A day under rules that scale workers of streams.")
    parser.add_argument("--scenario", default="campus")
    parser.add_argument("--rules", default=f"{FIXED},{USUAL},forecast")
    parser.add_argument("--seeds", default="500000:500002")
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    plain, pooled, rows = load_scenario(asked.scenario), scaled(asked.scenario), dict[str, list[Any]]()
    for rule in asked.rules.split(","):
        for seed in parse_seeds(asked.seeds):
            chosen = {"dispatch": "least-harm", "orchestrate": USUAL if rule == FIXED else rule}
            result = ew.simulate(plain if rule == FIXED else pooled, chosen, [seed])
            rows.setdefault(rule, []).append(figures(result))
            print(f"{rule}, seed {seed}: {rows[rule][-1]}", flush=True)
    given = f"--scenario {asked.scenario} --rules {asked.rules} --seeds {asked.seeds}"
    found = {"command": f"python -m bench.scaling {given}", "edition": edition(pooled), "rows": rows}
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / f"{asked.scenario}.json").write_text(json.dumps(found, indent=1) + "\n")
    (asked.out / f"{asked.scenario}.md").write_text(f"`{found['command']}`\n\n{table(rows)}\n")
    print(table(rows))


if __name__ == "__main__":
    main()
