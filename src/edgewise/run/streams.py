"""Streams: from a scenario, alone or beside other work, or from what lived, to their tables.

Forbidden here: printing and files.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgewise.core.world import World
from edgewise.model.scenario import Scenario
from edgewise.model.work import Stream
from edgewise.run.holding import workers_held, workers_there
from edgewise.run.shared import Joined, RunContext
from edgewise.run.tables import Columns, Make, SeedRun, Tables
from edgewise.sim.parts.streams import StreamsPart
from edgewise.sim.sites import simulation_of

if TYPE_CHECKING:
    from edgewise.runtime.clients.lived import Lived


def alone(
    scenario: Scenario,
    chosen: Mapping[str, Make],
    seeds: Sequence[int],
    trace: Sequence[Stream] | None = None,
) -> Iterator[SeedRun]:
    """Streams, or those of a trace."""
    holds = {"holds": workers_held(scenario)}
    world = World.build(scenario.catalog, scenario.topology, scenario.sharing)
    for seed in seeds:
        outcome = simulation_of(scenario, chosen["dispatch"], seed, streams=trace, world=world).run()
        decided = {"dispatch": outcome.core.guard.decided(outcome.core.policy)}
        yield SeedRun(outcome.streams, outcome.windows, decided, use=holds | outcome.use)


def joined(run: RunContext) -> Joined:
    """Streams, or those of a trace, beside other work."""
    given = {"streams": run.trace, "wires": run.wires}
    part = StreamsPart(simulation_of(run.scenario, run.chosen["dispatch"], run.seed, **given))
    core = part.simulation.core

    def use() -> Mapping[str, Columns]:
        found = part.outcome.use
        return {**found, "workers": workers_there(run.scenario, found["workers"], run.holders)}

    return Joined(
        part,
        lambda: Tables(part.outcome.streams, part.outcome.windows),
        {"dispatch": lambda: core.guard.decided(core.policy)},
        use,
    )


def lived_streams(scenario: Scenario, seen: "Lived") -> Tables | None:
    """Of a live system; None: it had none."""
    if not seen.streams:
        return None
    variants = {worker.name: (worker.variant, worker.node) for worker in scenario.topology.workers}
    cluster_of = {node.name: node.cluster for node in scenario.topology.nodes}
    rows = []
    for row in seen.streams:
        variant, node = variants.get(row["worker"] or "", (None, ""))
        counts = {name: int(row.get(name) or 0) for name in ("ok", "failed", "rejected")}
        bound = row["worker"] is not None
        rows.append(
            {
                "stream": row["stream"],
                "site": row.get("site", scenario.topology.sites[0].name),
                "application": row.get("application") or "unnamed",
                "source": row.get("source") or None,
                "task": row["task"],
                "open_s": row["opened_s"] - seen.since_s,
                "close_s": (row["closed_s"] or seen.until_s) - seen.since_s,
                "min_accuracy": row.get("min_accuracy", 0.0),
                "worker": row["worker"],
                "variant": row.get("variant") or variant,
                "cluster": row.get("cluster") or cluster_of.get(node),
                "reason": None if bound else row.get("reason") or "not said",
                "queries": sum(counts.values()),
                **counts,
                **{name: row.get(name) for name in ("delay_mean_s", "delay_max_s")},
                **{name: row[name] for name in ("rate_qps", "size_bytes", "deadline_s")},
            }
        )
    items = {name: [row[name] for row in rows] for name in rows[0]}
    return Tables(items, _stream_windows(scenario, seen))


def _stream_windows(scenario: Scenario, seen: "Lived") -> Columns:
    """Windows of all gateways together; of queries of split models the records are their own."""
    from edgewise.runtime.store.records import COUNTS  # a simulation has no store

    others = {graph.name for graph in scenario.graphs}
    found: dict[float, dict[str, Any]] = {}
    for window in seen.windows:
        row = found.setdefault(window.start_s, {"active": "", **dict.fromkeys(COUNTS, 0)})
        row["active"] = window.policy
        for task, counts in window.counts.items():
            if task not in others:
                for name, count in zip(COUNTS, counts, strict=True):
                    row[name] += count
    starts = sorted(found)
    rows = [found[start_s] for start_s in starts]
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in ("active", *COUNTS)}
    counted = zip(*(columns[name] for name in ("ok", "failed", "rejected")), strict=True)
    ends_s = [min(start_s + seen.window_s, seen.until_s) - seen.since_s for start_s in starts]
    return columns | {
        "window": list(range(len(starts))),
        "start_s": [max(start_s - seen.since_s, 0.0) for start_s in starts],
        "end_s": ends_s,
        "queries": [sum(each) for each in counted],
    }
