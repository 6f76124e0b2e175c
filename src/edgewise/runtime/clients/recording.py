"""Live traffic as a scenario and a trace: the folder can be simulated, and is played live again here."""

from __future__ import annotations

import asyncio
import csv
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgewise.config import dump_scenario, load_scenario
from edgewise.errors import RunError
from edgewise.model.scenario import Scenario, parse_scenario
from edgewise.model.work import Stream
from edgewise.runtime import http, private
from edgewise.runtime.clients.traffic import StreamSeen, Traffic, zeros
from edgewise.runtime.controller.plan import SCENARIO
from edgewise.runtime.metrics import watched
from edgewise.runtime.reaching import client_to, store_of
from edgewise.runtime.store import Running
from edgewise.workloads import read_streams_csv

TRACE = "streams.csv"
COLUMNS = (
    "open_s", "site", "application", "length_s", "rate_qps", "size_bytes", "deadline_s", "min_accuracy",
    "priority",
)  # fmt: skip
SHORTEST_S = 1e-3
UNFIT = re.compile(r"[^A-Za-z0-9._-]+")  # for a name in a scenario


@dataclass(frozen=True, slots=True)
class Recording:
    """What was recorded.

    Attributes:
        folder: has scenario.yaml and streams.csv.
        streams: how many.
        duration_s: from the first opening to the last end.
        left_out: streams that no scenario can have: the live system has not their task or site, or they
            tolerate no delay at all.
    """

    folder: Path
    streams: int
    duration_s: float
    left_out: int


def record(state: Path, folder: Path, last_s: float | None = None) -> Recording:
    """Write a live system's streams as a scenario with a trace.

    Args:
        state: folder of the system; it may be running.
        folder: to write to.
        last_s: only streams that opened in so many last seconds.
    Raises:
        RunError: there is no system, or no stream was opened that a scenario can have.
    """
    store = store_of(state)
    now_s = time.time()
    seen = [r for r in store.streams(1_000_000) if last_s is None or r["opened_s"] >= now_s - last_s]
    store.close()
    live = load_scenario(state / SCENARIO)
    rows = [row for row in seen if _is_possible(row, live)]
    if not rows:
        why = f"{len(seen)} of tasks or sites that it has not were; " if seen else ""
        raise RunError(f"state {state}: no stream was opened; {why}there is nothing to record")
    began_s = min(row["opened_s"] for row in rows)
    ends_s = max(row["closed_s"] or now_s for row in rows)
    duration_s = max(ends_s - began_s, 1.0) + SHORTEST_S
    names = _names(rows)
    scenario = _scenario(live, rows, names, duration_s)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    private.write_file(folder / SCENARIO, dump_scenario(scenario))
    sites = [site.name for site in live.topology.sites]
    with private.open_file(folder / TRACE, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for row, name in zip(rows, names, strict=True):
            length_s = max((row["closed_s"] or now_s) - row["opened_s"], SHORTEST_S)
            sizes = (row["rate_qps"], max(row["size_bytes"], 1.0), row["deadline_s"])
            figures = [repr(float(figure)) for figure in sizes]
            rest = [row.get("min_accuracy", 0.0), row.get("priority", 0)]
            opens = round(row["opened_s"] - began_s, 6)
            writer.writerow([opens, row.get("site", sites[0]), name, round(length_s, 6), *figures, *rest])
    return Recording(folder, len(rows), duration_s, len(seen) - len(rows))


def _is_possible(row: dict[str, Any], live: Scenario) -> bool:
    """Whether a scenario can have a stream: gateways keep refused ones, too, whatever they asked for."""
    tasks, sites = ({each.task for each in live.catalog.models}, {site.name for site in live.topology.sites})
    return row["task"] in tasks and row.get("site", min(sites)) in sites and row["deadline_s"] > 0.0


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


def _scenario(
    live: Scenario, rows: Sequence[dict[str, Any]], names: list[str], duration_s: float
) -> Scenario:
    """The live scenario with the applications, their ranges and the rate of arrivals that were seen."""
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
    data = live.spec.model_dump(mode="json")
    per_site_min = len(rows) * 60.0 / duration_s / len(live.topology.sites)
    data |= {
        "name": f"{live.name}-recorded", "description": f"{len(rows)} streams recorded live.",
        "duration_s": duration_s, "window_s": min(live.window_s, duration_s), "timeline": [],
        "streams": {"applications": applications, "arrivals": {"clients_per_min": per_site_min}},
    }  # fmt: skip
    return parse_scenario(data, "recording")


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
    store = store_of(state)
    fronts = [r.process for r in store.processes("gateway")]
    of_site = {front.settings["site"]: front for front in reversed(fronts)}
    sites = [site.name for site in scenario.topology.sites]
    here = [site.name for site in load_scenario(state / SCENARIO).topology.sites]
    if missing := [name for name in sites if name not in here]:
        raise RunError(f"site {missing[0]!r}: the system that is up has only {', '.join(here)}")
    chosen = [of_site.get(name, fronts[0]) for name in sites]
    clients = {site: client_to(front, store, store.get("token")) for site, front in enumerate(chosen)}
    running = store.processes()
    store.close()
    try:
        return asyncio.run(_play(streams, clients, sites, running, seed))
    except (ConnectionError, TimeoutError, ValueError) as error:
        raise RunError(f"replay: {error}") from error


async def _play(
    streams: list[Stream],
    clients: dict[int, http.Client],
    sites: list[str],
    running: list[Running],
    seed: int,
) -> tuple[list[StreamSeen], str | None]:
    queries = {task: await zeros(clients[0], task) for task in {stream.task for stream in streams}}
    traffic = Traffic(streams, clients, sites, lambda stream: queries[stream.task], seed)
    async with watched(running) as machine:
        seen = await traffic.play()
    for client in clients.values():
        client.close()
    return seen, machine.busy
