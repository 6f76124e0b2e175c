"""The run of a live system as a result like that of a simulation: its store's rows in the same tables.

What there is to say of a kind of work is made by the very functions that make it of simulated outcomes
(`adapters`), so that a report cannot tell where its records come from. The run begins with the first work
that came since the system was started, its policies or its scenario changed, and all of its tables are whole;
it ends now, or when the system did. Forbidden here: changing anything of the system.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from edgewise import policies, runs
from edgewise.adapters import Columns, Tables, job_tables, pipeline_tables, query_tables, service_tables
from edgewise.config import load_scenario
from edgewise.core.holders import hold_records
from edgewise.core.trust import own_files
from edgewise.errors import RunError, ScenarioError
from edgewise.model.scenario import Scenario
from edgewise.model.services import service_names, services_of
from edgewise.report.schema import WORK
from edgewise.report.use import USE
from edgewise.result import Result
from edgewise.runtime import clock
from edgewise.runtime.clients.lived import Lived, lived
from edgewise.runtime.gateway.tally import CELL_BITS
from edgewise.runtime.reaching import store_of
from edgewise.runtime.records import COUNTS, Request, Window
from edgewise.runtime.store import DATABASE
from edgewise.sim.parts.jobs import JobsOutcome
from edgewise.sim.pipelines import PipelineRecord, PipelineRun
from edgewise.sim.slots import replica_state as k
from edgewise.sim.stations.split import SplitRun

FOLDER = "records"  # in the state, where nobody names another place
SEED = 0  # of all rows: nothing was drawn here
STATES = {"in_time": k.IN_TIME, "late": k.LATE, "dropped": k.DROPPED}


def is_live(folder: Path) -> bool:
    """Whether a folder is that of a live system."""
    return (folder / DATABASE).is_file()


def saved(state: Path, folder: Path | None = None, last_s: float | None = None) -> Path:
    """Write the run of a live system as a run folder, and return this.

    Args:
        state: folder of the system, which may be running.
        folder: where to; None: `records` in the state.
        last_s: only what came in so many last seconds.
    Raises:
        RunError: there is no system, nothing came, or the folder cannot be written.
    """
    with own_files():
        return live_run(state, last_s).save(folder or state / FOLDER)


def live_run(
    state: Path, last_s: float | None = None, between_s: tuple[float, float] | None = None
) -> Result:
    """The run of a live system.

    Args:
        state: folder of the system, which may be running.
        last_s: only what came in so many last seconds.
        between_s: only what was between two moments, Unix time.
    Raises:
        RunError: there is no system, or nothing came.
    """
    with closing(store_of(state)) as store:
        scenario = load_scenario(state / "scenario.yaml")
        seen = lived(store, scenario, clock.unix_s(), last_s, between_s)
    scenario = _lasting(scenario, state, seen)
    tables = {work: made for work, make in _MAKE.items() if (made := make(scenario, seen)) is not None}
    if not tables:
        raise RunError(f"state {state}: no work came since {seen.why}; there is nothing to report")
    return _result(scenario, seen, {work: tables[work] for work in runs.WORK if work in tables})


def _lasting(scenario: Scenario, state: Path, seen: Lived) -> Scenario:
    """The scenario, which lasts as long as the run did, with what happened to nodes."""
    duration_s, services = seen.duration_s, scenario.spec.services
    if services is not None:  # whole frames, as in a recording
        duration_s = math.ceil(duration_s / services.frame_s) * services.frame_s
    changes = {
        "duration_s": duration_s,
        "window_s": min(scenario.window_s, duration_s),
        "timeline": [
            {"at_s": at_s, "node": node, "up": up}
            for at_s, node, up in ((at_s - seen.since_s, node, up) for at_s, node, up in seen.node_changes)
            if 0.0 <= at_s < duration_s
        ],
    }
    try:
        return load_scenario(state / "scenario.yaml", changes)
    except ScenarioError:  # its parts need the duration that it has
        return scenario


def _result(scenario: Scenario, seen: Lived, tables: Mapping[str, Tables]) -> Result:
    works, who = tuple(tables), {work: _label(scenario, seen, work) for work in tables}
    fixed = {decision: _short(name) for decision, name in seen.policies.items() if name}
    results = {
        work: Result(
            scenario,
            work,
            (who[work],),
            (SEED,),
            runs.table(WORK[work].items, who[work], SEED, made.items),
            runs.table(WORK[work].windows, who[work], SEED, made.windows),
            fixed,
        )
        for work, made in tables.items()
    }
    use = {"holds": _holds(seen), "delays": _delays(scenario, seen)}
    made_use = {
        name: runs.table(USE[name], who[works[0]], SEED, columns) for name, columns in use.items() if columns
    }
    live = {"since_s": seen.since_s, "until_s": seen.until_s, "why": seen.why}
    first = results.pop(works[0])
    command = f"edgewise report {seen.state}"
    return replace(first, beside=results, use=made_use, live=live, command=command)


def _label(scenario: Scenario, seen: Lived, work: str) -> str:
    names = [seen.policies.get(decision, "") for decision in runs.decisions(scenario, work)]
    return "+".join(_short(name) for name in names if name) or "as the scenario says"


def _short(name: str) -> str:
    """Of a policy: a file without its folder."""
    return Path(name).name if policies.is_file(name) else name


# kinds of work


def _streams(scenario: Scenario, seen: Lived) -> Tables | None:
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


def _stream_windows(scenario: Scenario, seen: Lived) -> Columns:
    """Windows of all gateways together; of queries of split models the records are their own."""
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
    ends_s = [min(start_s + scenario.window_s, seen.until_s) - seen.since_s for start_s in starts]
    return columns | {
        "window": list(range(len(starts))),
        "start_s": [max(start_s - seen.since_s, 0.0) for start_s in starts],
        "end_s": ends_s,
        "queries": [sum(each) for each in counted],
    }


def _services(scenario: Scenario, seen: Lived) -> Tables | None:
    services, spec = services_of(scenario), scenario.spec.services
    if services is None or spec is None:
        return None
    names = service_names(spec, scenario.catalog)
    asked = [each for each in seen.requests if each.service in names and each.end_s is not None]
    if not asked:
        return None
    sites = [site.name for site in scenario.topology.sites]
    own = [node.name for node in scenario.topology.nodes if node.cluster != spec.cloud]
    station_of = {name: number for number, name in enumerate((spec.cloud, *own))}
    rows = np.zeros(len(asked), k.REQUEST).view(np.recarray)
    rows.arrival_s = [each.at_s - seen.since_s for each in asked]
    rows.deadline_s = rows.arrival_s + [each.deadline_s for each in asked]
    rows.end_s = [(each.end_s or 0.0) - seen.since_s for each in asked]
    rows.site = [sites.index(each.site) if each.site in sites else 0 for each in asked]
    rows.service = [names.index(each.service) for each in asked]
    rows.station = [station_of.get(each.station or "", -1) for each in asked]
    over = np.array([(each.end_s or 0.0) <= seen.until_s for each in asked])
    rows.state = np.where(over, [STATES[each.outcome] for each in asked], k.WORKED_ON)
    rows.end_s[~over] = math.nan
    home = {node: sites[s] for node, s in zip(services.nodes, services.system.site_of, strict=True)}
    return service_tables(scenario, rows, _tally(scenario, asked, rows, home))


def _tally(scenario: Scenario, asked: Sequence[Request], rows: Any, home: Mapping[str, str]) -> Any:
    """(F, COLUMNS) counts and bytes of each frame; images do not go over links live."""
    frame_s = scenario.spec.served.frame_s
    frames = max(math.ceil(scenario.duration_s / frame_s - 1e-9), 1)
    tally = np.zeros((frames, k.COLUMNS))

    def add(at_s: Any, column: int, amount: Any = 1.0) -> None:
        frame = np.clip((np.asarray(at_s) / frame_s).astype(np.int64), 0, frames - 1)
        np.add.at(tally[:, column], frame, amount)

    add(rows.arrival_s, k.ARRIVED)
    for state, column in ((k.IN_TIME, k.DONE_IN_TIME), (k.LATE, k.DONE_LATE), (k.DROPPED, k.LOST)):
        add(rows.end_s[rows.state == state], column)
    size = np.array([each.size_bytes for each in asked])
    local = np.array([home.get(each.station or "") == each.site for each in asked])
    sent = rows.station >= 0
    add(rows.arrival_s[sent & ~local], k.FORWARDED_BYTES, size[sent & ~local])
    add(rows.arrival_s[sent & local], k.LOCAL_BYTES, size[sent & local])
    return tally


def _pipelines(scenario: Scenario, seen: Lived) -> Tables | None:
    if not seen.pipelines or scenario.spec.pipelines is None:
        return None
    names = [kept.live.pipeline.name for kept in seen.pipelines]
    found = tuple(
        PipelineRecord(
            name if names.count(name) == 1 else f"{name}-{kept.id}",
            kept.submitted_s - seen.since_s,
            None if kept.started_s is None else kept.started_s - seen.since_s,
            None if kept.ended_s is None else kept.ended_s - seen.since_s,
            kept.frames,
            kept.moves,
        )
        for name, kept in zip(names, seen.pipelines, strict=True)
    )
    return pipeline_tables(scenario, PipelineRun("", found, seen.duration_s, ()))


def _graphs(scenario: Scenario, seen: Lived) -> Tables | None:
    names = [graph.name for graph in scenario.graphs]
    asked = sorted((each for each in seen.requests if each.service in names), key=lambda each: each.at_s)
    if not any(each.outcome in ("in_time", "late") for each in asked):
        return None
    took_s = np.array(
        [
            each.end_s - each.at_s if each.end_s and each.outcome in ("in_time", "late") else math.nan
            for each in asked
        ]
    )
    graph = np.array([names.index(each.service) for each in asked])
    sent_s = np.array([each.at_s for each in asked]) - seen.since_s
    return query_tables(scenario, SplitRun(graph, took_s, math.nan, math.nan), sent_s, graph, None)


def _jobs(scenario: Scenario, seen: Lived) -> Tables | None:
    if not seen.jobs or scenario.jobs is None:
        return None
    slot_s, jobs = scenario.jobs.pattern.slot_s, seen.jobs

    def seconds(values: Sequence[float | None]) -> Any:
        return np.array([math.nan if value is None else value - seen.since_s for value in values])

    moved = [job.deferrable() for job in jobs]
    here = tuple(
        replace(
            job,
            submitted_s=job.submitted_s - seen.since_s,
            earliest_s=job.earliest_s - seen.since_s,
            latest_s=job.latest_s - seen.since_s,
        )
        for job in moved
    )
    started_s = seconds([job.started_s for job in jobs])
    done = [job.ended_s if job.state == "done" else None for job in jobs]
    run = JobsOutcome(
        here,
        np.where(np.isnan(started_s), -1.0, started_s / slot_s),
        tuple(job.node or "" for job in jobs),
        np.array([job.state == "lost" for job in jobs]).astype(np.int64),
        np.array([job.suspended_s for job in jobs]) / slot_s,
        np.array([job.attempt + (job.suspended_s > 0.0) for job in jobs]),
        seconds(done),
        np.array([job.redone_s for job in jobs]),
    )
    return job_tables(scenario, scenario.jobs, run)


_MAKE = {
    "streams": _streams,
    "services": _services,
    "pipelines": _pipelines,
    "graphs": _graphs,
    "jobs": _jobs,
}


# who used what


def _holds(seen: Lived) -> Columns:
    spans = [
        (max(start_s - seen.since_s, 0.0), min(end_s, seen.until_s) - seen.since_s, what)
        for start_s, end_s, what in seen.spans
        if end_s > seen.since_s and start_s < seen.until_s
    ]
    return hold_records([*((0.0, seen.duration_s, what) for what in seen.totals), *spans])


def _delays(scenario: Scenario, seen: Lived) -> Columns:
    """Answers by application and delay, cell by cell."""
    others, count = {graph.name for graph in scenario.graphs}, dict[tuple[str, int], int]()
    for window in seen.windows:
        for name, cell, answers in _cells(window, others):
            count[name, cell] = count.get((name, cell), 0) + answers
    keys = sorted(count)
    ends_s = (np.array([(cell, cell + 1) for _, cell in keys], dtype=np.int64) << CELL_BITS).view(np.float64)
    low_s, high_s = ends_s.reshape(-1, 2).T
    return {
        "application": [name for name, _ in keys],
        "above_s": low_s.tolist(),
        "up_to_s": high_s.tolist(),
        "answers": [count[key] for key in keys],
    }


def _cells(window: Window, others: set[str]) -> list[tuple[str, int, int]]:
    return [
        (application or "unnamed", int(cell), answers)
        for task, of in window.delays.items()
        if task not in others
        for application, cells in of.items()
        for cell, answers in cells.items()
    ]
