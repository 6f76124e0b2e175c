"""A day under workers of streams that stay, and under each rule that scales them.

    python -m bench.scaling [--scenario campus] [--rules fixed,autoscaler,forecast] [--seeds 500000:500002]

Under `fixed` all workers of streams that the scenario begins with stay, and replicas of services follow
`autoscaler`; under the other rules its pools come and go. For each rule and seed: shares in time of each kind
of work, jobs done by their deadline, core-hours that each kind holds, the sum of the peaks of all kinds over
the peak of their sum: how much sharing one system saves. Seeds are of validation.
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
SLACK_S = 1e-6  # of times that are sums of slots


def fixed(name: str) -> Scenario:
    """The scenario, whose workers of streams are those it begins with, for good."""
    rows = [
        worker.model_dump(mode="json", exclude_unset=True, exclude={"least", "most"})
        for worker in load_scenario(name).spec.workers or ()
    ]
    return load_scenario(name, {"workers": rows})


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
        jobs = items["jobs"]
        found["jobs"] = len(jobs["job"])
        found["jobs done by their deadline"] = sum(
            ended_s is not None and ended_s <= latest_s + duration_s + SLACK_S
            for ended_s, latest_s, duration_s in zip(
                jobs["ended_s"], jobs["latest_s"], jobs["duration_s"], strict=True
            )
        )
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
    pooled, rows = load_scenario(asked.scenario), dict[str, list[Any]]()
    for rule in asked.rules.split(","):
        for seed in parse_seeds(asked.seeds):
            chosen = {"dispatch": "least-harm", "orchestrate": USUAL if rule == FIXED else rule}
            result = ew.simulate(fixed(asked.scenario) if rule == FIXED else pooled, chosen, [seed])
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
