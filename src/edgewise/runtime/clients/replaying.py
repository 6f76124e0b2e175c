"""Plays a recording against the live system that is up."""

from __future__ import annotations

import asyncio
from pathlib import Path

from edgewise.config import load_scenario
from edgewise.errors import RunError
from edgewise.model.work import Stream
from edgewise.runtime import http
from edgewise.runtime.clients.recording import TRACE
from edgewise.runtime.clients.traffic import StreamSeen, Traffic, zeros
from edgewise.runtime.controller.plan import SCENARIO
from edgewise.runtime.reaching import client_to, store_of
from edgewise.runtime.starving import numbers_of, watched
from edgewise.workloads import read_streams_csv


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
    numbers = numbers_of(store.processes())
    store.close()
    try:
        return asyncio.run(_play(streams, clients, sites, numbers, seed))
    except (ConnectionError, TimeoutError, ValueError) as error:
        raise RunError(f"replay: {error}") from error


async def _play(
    streams: list[Stream], clients: dict[int, http.Client], sites: list[str], numbers: list[int], seed: int
) -> tuple[list[StreamSeen], str | None]:
    queries = {task: await zeros(clients[0], task) for task in {stream.task for stream in streams}}
    traffic = Traffic(streams, clients, sites, lambda stream: queries[stream.task], seed)
    async with watched(numbers) as machine:
        seen = await traffic.play()
    for client in clients.values():
        client.close()
    return seen, machine.busy
