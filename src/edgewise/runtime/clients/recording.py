"""Live traffic as a scenario and traces: the folder can be simulated, and its streams are played again here.

Streams, requests, pipelines and jobs are those that came, one by one; of queries of a split model the rate is
kept. Failures of nodes are the recording's timeline.
"""

import csv
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from edgewise.config import dump_scenario, load_scenario
from edgewise.errors import RunError
from edgewise.model.grammar.scenario import NEEDS
from edgewise.model.parsing import parse_scenario
from edgewise.model.scenario import Scenario
from edgewise.model.services import service_names
from edgewise.model.values import most_of
from edgewise.model.work import INFERENCE, DeferrableJob
from edgewise.runtime import clock, disk
from edgewise.runtime.clients.reaching import fronts, store_of
from edgewise.runtime.clients.traffic import StreamSeen, Traffic, at_sites, measured, zeros
from edgewise.runtime.controller.jobs import SLOT_S
from edgewise.runtime.controller.live_plane import LivePlane
from edgewise.runtime.controller.plan import SCENARIO
from edgewise.runtime.store import Store
from edgewise.runtime.store.faults import Fault
from edgewise.runtime.store.jobs import MOST_JOBS
from edgewise.runtime.store.pipelines import KeptPipeline
from edgewise.runtime.store.records import Request
from edgewise.workloads.generate import BROUGHT, SHORTEST_S, read_streams_csv
from edgewise.workloads.services import COLUMNS as REQUEST_COLUMNS

TRACE, REQUESTS, FAULTS = "streams.csv", "requests.csv", "faults.csv"
COLUMNS = (
    "open_s", "site", "application", "length_s", "rate_qps", "size_bytes", "deadline_s", "min_accuracy",
    "priority", "source",
)  # fmt: skip
GOES_ON_S = 86400.0  # longest that a recording goes on after now, for jobs that run or wait
HELD_FOR_LIFE = (
    "services.cores_held is 'life' in the recording: jobs are told what is left of nodes, and cores that "
    "each request holds by itself are known to nobody"
)
UNFIT = re.compile(r"[^A-Za-z0-9._-]+")  # for a name in a scenario


@dataclass(frozen=True, slots=True)
class Recording:
    """What was recorded.

    Attributes:
        folder: has scenario.yaml, and the files that it names.
        came: how many streams, requests, queries (those of split models), pipelines, jobs and faults.
        duration_s: from the first of them to the last end.
        left_out: streams that no scenario can have: the live system has not their task or site, or they
            tolerate no delay at all, or more than a scenario may say.
        later: jobs that start more than a day from now, which are left out, too.
        otherwise: settings that the recording has otherwise than the system had, and why.
    """

    folder: Path
    came: Mapping[str, int]
    duration_s: float
    left_out: int
    later: int
    otherwise: tuple[str, ...] = ()


def record(state: Path, folder: Path, last_s: float | None = None) -> Recording:
    """Write what came to a live system, all kinds of work, as a scenario with traces.

    What policies failed at stands beside them.

    Args:
        state: folder of the system; it may be running.
        folder: to write to.
        last_s: only what came in so many last seconds.
    Raises:
        RunError: there is no system, or nothing came that a scenario can have.
    """
    store, now_s = store_of(state), clock.unix_s()
    live, since_s = load_scenario(state / SCENARIO), 0.0 if last_s is None else now_s - last_s
    one_gateway = len(fronts(store)) == 1 and len(live.topology.sites) > 1
    seen, slot_s = (
        _seen(store, live, since_s, now_s),
        live.jobs.pattern.slot_s if live.jobs is not None else SLOT_S,
    )
    rows, requests, jobs = seen.rows, seen.requests, seen.jobs
    asked_s = [each.at_s for each in (*requests, *seen.queries)]
    came = [row["opened_s"] for row in rows] + asked_s + [job.submitted_s for job in jobs]
    began_s = min(came + [each.submitted_s for each in seen.pipelines])
    ends = [row["closed_s"] or now_s for row in rows] + asked_s
    latest_end_s = now_s + GOES_ON_S
    ends += [min(job.earliest_s + job.duration_s + 2 * slot_s, latest_end_s) for job in jobs]
    ends += [each.ended_s or now_s for each in seen.pipelines]
    duration_s = max(max(ends) - began_s, 1.0) + SHORTEST_S
    services = live.services
    otherwise: tuple[str, ...] = ()
    if requests and services is not None:  # whole frames are simulated
        duration_s = math.ceil(duration_s / services.frame_s) * services.frame_s
    data = live.spec.model_dump(mode="json", exclude_none=True, exclude=set(NEEDS)) | {
        "name": f"{live.name}-recorded", "duration_s": duration_s,
        "timeline": _timeline(seen.changes, began_s, duration_s),
        "description": f"{len(rows)} streams, {len(requests)} requests, {len(seen.queries)} queries of split "
        f"models, {len(seen.pipelines)} pipelines and {len(jobs)} jobs recorded live.",
        "window_s": min(live.window_s, duration_s),
    }  # fmt: skip
    disk.make_all(folder)
    if rows:
        names = _names(rows)
        data["streams"] = _streams(live, rows, names, duration_s)
        if one_gateway:
            data["streams"]["gateways"] = "one"
        _write(folder / TRACE, COLUMNS, _stream_lines(live, rows, names, began_s, now_s))
    if requests and services is not None:
        asked: dict[str, Any] = {"requests": {"file": REQUESTS}}
        if jobs and services.cores_held != "life":
            asked["cores_held"], otherwise = "life", (HELD_FOR_LIFE,)
        data["services"] = services.model_dump(mode="json", exclude_none=True) | asked
        for offered in data["services"]["offered"]:
            if (name := offered.get("variant")) in seen.answer_bytes and services.answers:
                offered["answer_bytes"] = round(seen.answer_bytes[name], 1)
        _write(folder / REQUESTS, REQUEST_COLUMNS, _request_lines(live, requests, began_s))
    if seen.queries:
        data["graphs"] = _graphs(live, seen.queries, duration_s)
    if seen.pipelines:
        data["pipelines"] = [_pipeline(each, began_s) for each in seen.pipelines]
    if jobs:
        listed = [_job(job, began_s, duration_s - 2 * slot_s) for job in jobs]
        data["jobs"] = {
            "slot_s": slot_s,
            "room": "nodes",
            "on_demand": {"mean": seen.held},
            "submitted": listed,
        }
    if seen.faults:
        _write(folder / FAULTS, Fault._fields, seen.faults)
    if (state / BROUGHT).is_file():
        disk.write_file(folder / BROUGHT, (state / BROUGHT).read_bytes())
    disk.write_file(folder / SCENARIO, dump_scenario(parse_scenario(data, "recording")))
    kinds: dict[str, Sized] = {
        "streams": rows, "requests": requests, "queries": seen.queries, "pipelines": seen.pipelines,
        "jobs": jobs, "faults": seen.faults,
    }  # fmt: skip
    counts = {kind: len(found) for kind, found in kinds.items()}
    return Recording(folder, counts, duration_s, seen.left_out, seen.later, otherwise)


class _Seen(NamedTuple):
    """What came to a live system.

    Attributes:
        rows: streams, as the state has them.
        requests: of services.
        queries: of split models.
        answer_bytes: by service, the mean of an answer.
        pipelines: as the state has them.
        jobs: as they would be submitted anew.
        changes: (time in s, node, whether it is up).
        faults: of policies.
        left_out: streams that no scenario can have.
        later: jobs that start too late, see `Recording`.
        held: share of cores that inference holds.
    """

    rows: list[dict[str, Any]]
    requests: list[Request]
    queries: list[Request]
    answer_bytes: dict[str, float]
    pipelines: list[KeptPipeline]
    jobs: list[DeferrableJob]
    changes: list[tuple[float, str, bool]]
    faults: list[Fault]
    left_out: int
    later: int
    held: float


def _seen(store: Store, live: Scenario, since_s: float, now_s: float) -> _Seen:
    graphs = [graph.name for graph in live.graphs]
    opened = [
        row
        for row in store.records.streams(1_000_000)
        if row["opened_s"] >= since_s and row["task"] not in graphs  # queries of those are counted apart
    ]
    rows = [row for row in opened if _is_possible(row, live)]
    names = [] if live.services is None else service_names(live.services, live.catalog)
    asked = store.records.requests(since_s)
    requests, queries = ([each for each in asked if each.service in of] for of in (names, graphs))
    changes = [each for each in store.node_changes() if each[0] >= since_s]
    faults, plane, answer_bytes = store.faults.since(since_s), LivePlane(store), store.records.answer_bytes()
    plane.listen(since_s)
    left = float(plane.ledger.left_over(INFERENCE)[:, 0].sum())
    submitted = [job.deferrable() for job in store.jobs.listed(MOST_JOBS) if job.submitted_s >= since_s]
    most_s = most_of("duration_s")
    jobs = [job for job in submitted if job.earliest_s <= now_s + GOES_ON_S and job.duration_s <= most_s]
    pipelines = [each for each in store.pipelines.listed() if each.submitted_s >= since_s]
    store.close()
    if not (rows or requests or queries or pipelines or jobs):
        why = f"{len(opened)} of tasks or sites that it has not were; " if opened else ""
        raise RunError(f"state {store.file.parent}: no stream was opened; {why}there is nothing to record")
    total = sum(node.resources.cpu_cores for node in live.topology.nodes)
    held, left_out, later = 1.0 - left / total, len(opened) - len(rows), len(submitted) - len(jobs)
    return _Seen(
        rows, requests, queries, answer_bytes, pipelines, jobs, changes, faults, left_out, later, held
    )


def _timeline(
    changes: Sequence[tuple[float, str, bool]], began_s: float, duration_s: float
) -> list[dict[str, Any]]:
    """Failures and repairs of nodes, as far as they are inside the recording."""
    found = [(at_s - began_s, node, up) for at_s, node, up in changes]
    return [{"at_s": at_s, "node": node, "up": up} for at_s, node, up in found if 0.0 <= at_s < duration_s]


def _graphs(live: Scenario, queries: Sequence[Request], duration_s: float) -> list[dict[str, Any]]:
    """Split models that were asked, at the rate of late."""
    asked = Counter(each.service for each in queries)
    return [
        graph.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
        | {"rate_qps": asked[graph.name] / duration_s}
        for graph in live.graphs
        if asked[graph.name]
    ]


def _pipeline(kept: KeptPipeline, began_s: float) -> dict[str, Any]:
    """A pipeline as it was submitted; of a task's outputs of several sizes the largest."""
    pipeline, graph = kept.live.pipeline, kept.live.pipeline.graph
    tasks = []
    for task in graph.tasks:
        out = [edge for edge in graph.edges if edge.source == task.name]
        tasks.append(
            {
                "name": task.name, "downstream": [edge.target for edge in out], "work_ops": task.work_ops,
                "memory_bytes": task.memory_bytes,
                "output_bytes": max((edge.size_bytes for edge in out), default=0.0),
            }
        )  # fmt: skip
    length = {"frames": pipeline.frames} if pipeline.frames is not None else {"length_s": pipeline.duration_s}
    return {
        "name": f"{pipeline.name}-{kept.id}", "source": pipeline.source, "input_bytes": pipeline.input_bytes,
        "arrive_s": kept.submitted_s - began_s, "tasks": tasks, **length,
    }  # fmt: skip


def _job(job: DeferrableJob, began_s: float, duration_s: float) -> dict[str, Any]:
    """A job as it was submitted; its latest start leaves it time to end in the recording."""
    earliest_s = job.earliest_s - began_s
    latest_s = min(job.latest_s - began_s, duration_s - job.duration_s)
    return {
        "name": f"job-{job.id}", "cores": job.resources.cpu_cores, "memory_bytes": job.resources.memory_bytes,
        "duration_s": job.duration_s, "submitted_s": job.submitted_s - began_s, "earliest_s": earliest_s,
        "latest_s": max(latest_s, earliest_s), "priority": job.priority, "when_evicted": job.when_evicted,
        **({} if job.checkpoint_s is None else {"checkpoint_s": job.checkpoint_s}),
        **({"checkpoint_bytes": job.checkpoint_bytes} if job.checkpoint_bytes else {}),
    }  # fmt: skip


def _request_lines(live: Scenario, requests: Sequence[Request], began_s: float) -> Iterator[Sequence[Any]]:
    took_s = {each.name: each.profile.delay_s(each.largest_bytes) for each in live.catalog.variants}
    for each in requests:
        figures = max(each.deadline_s, 0.0), took_s[each.service], each.size_bytes
        yield round(each.at_s - began_s, 6), each.site, each.service, *figures


def _stream_lines(
    live: Scenario, rows: Sequence[dict[str, Any]], names: Sequence[str], began_s: float, now_s: float
) -> Iterator[Sequence[Any]]:
    sites = [site.name for site in live.topology.sites]
    for row, name in zip(rows, names, strict=True):
        length_s = max((row["closed_s"] or now_s) - row["opened_s"], SHORTEST_S)
        sizes = (row["rate_qps"], max(row["size_bytes"], 1.0), row["deadline_s"])
        figures = [repr(float(figure)) for figure in sizes]
        rest = [row.get("min_accuracy", 0.0), row.get("priority", 0), row.get("source") or ""]
        opens = round(row["opened_s"] - began_s, 6)
        yield opens, row.get("site", sites[0]), name, round(length_s, 6), *figures, *rest


def _write(path: Path, columns: Sequence[str], lines: Iterable[Sequence[Any]]) -> None:
    with disk.open_file(path, "w", newline="") as file:
        csv.writer(file).writerows([columns, *lines])


def _is_possible(row: dict[str, Any], live: Scenario) -> bool:
    """Whether a scenario can have a stream: gateways keep refused ones, too, whatever they asked for."""
    tasks, sites = ({each.task for each in live.catalog.models}, {site.name for site in live.topology.sites})
    return (
        row["task"] in tasks
        and row.get("site", min(sites)) in sites
        and 0.0 < row["deadline_s"] <= most_of("deadline_s")
    )


def _names(rows: Sequence[dict[str, Any]]) -> list[str]:
    """An application of each stream; one name means one task."""
    tasks: dict[str, str] = {}
    names = []
    for row in rows:
        name = UNFIT.sub("-", row.get("application") or "").lstrip("._-") or "unnamed"
        if tasks.setdefault(name, row["task"]) != row["task"]:
            name = f"{name}-{row['task']}"
            tasks[name] = row["task"]
        names.append(name)
    return names


def _streams(
    live: Scenario, rows: Sequence[dict[str, Any]], names: list[str], duration_s: float
) -> dict[str, Any]:
    """The applications, their ranges and the rate of arrivals that were seen."""
    applications = []
    for name in dict.fromkeys(names):
        mine = [row for row, other in zip(rows, names, strict=True) if other == name]
        lengths = [
            max((row["closed_s"] or row["opened_s"] + duration_s) - row["opened_s"], SHORTEST_S)
            for row in mine
        ]
        applications.append(
            {
                "name": name, "task": mine[0]["task"], "weight": len(mine),
                "rate_qps": _range([row["rate_qps"] for row in mine]),
                "deadline_s": _range([row["deadline_s"] for row in mine]),
                "length_s": _range(lengths),
                "size_bytes": max(max(row["size_bytes"] for row in mine), 1.0),
                "min_accuracy": min(row.get("min_accuracy", 0.0) for row in mine),
            }
        )  # fmt: skip
    per_site_min = len(rows) * 60.0 / duration_s / len(live.topology.sites)
    return {"applications": applications, "arrivals": {"clients_per_min": per_site_min}}


def _range(values: list[float]) -> list[float]:
    return [float(min(values)), float(max(values))]


def play(state: Path, folder: Path, seed: int = 0) -> tuple[list[StreamSeen], str | None]:
    """Open the recorded streams at their times and send their queries, filled with zeros.

    Args:
        state: folder of the system that is up; its sites must have the recording's names.
        folder: the recording.
        seed: keys the phases.
    Returns:
        What their clients saw, and why that says more about the machine than about the system, if it does.
    Raises:
        ScenarioError: the recording cannot be read.
        RunError: the system does not answer, or has not the recording's sites.
    """
    scenario = load_scenario(folder / SCENARIO)
    streams = read_streams_csv(folder / TRACE, scenario, seed)
    sites = [site.name for site in scenario.topology.sites]
    here = [site.name for site in load_scenario(state / SCENARIO).topology.sites]
    if missing := [name for name in sites if name not in here]:
        raise RunError(f"site {missing[0]!r}: the system that is up has only {', '.join(here)}")
    store = store_of(state)
    clients, running = at_sites(store, sites), store.processes()
    store.close()

    async def played() -> list[StreamSeen]:
        queries = {task: await zeros(clients[0], task) for task in {stream.task for stream in streams}}
        return await Traffic(streams, clients, sites, lambda stream: queries[stream.task], seed).play()

    seen, machine = measured("replay", running, clients, played())
    return seen, machine.busy
