"""The demo: the three tiers live under three policies in turn, then the same streams in simulation."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from edgewise import policies
from edgewise.config import dump_scenario
from edgewise.demo import outcome, world
from edgewise.demo.outcome import KINDS, DemoOutcome, PolicyShares, shares_of
from edgewise.demo.reading import characters, found, model_file, read
from edgewise.errors import RunError
from edgewise.model.scenario import Scenario
from edgewise.model.work import Stream
from edgewise.runtime import http
from edgewise.runtime.clients.reaching import ask, operator, store_of
from edgewise.runtime.clients.split_trial import running
from edgewise.runtime.clients.traffic import StreamSeen, Traffic
from edgewise.runtime.controller.plan import Emulation
from edgewise.runtime.process.compiling import needed_by
from edgewise.runtime.protocol.messages import InferRequest, decode_response, encode_request
from edgewise.runtime.watch.starving import Watched, watched
from edgewise.sim.sites import simulation_of

COLOURS = {"ok": "green", "failed": "red", "rejected": "yellow"}
BAR = 40
BUSY = 1.2


def explain(out: Console, costs: world.RunTimes, factor: float, streams: Sequence[Stream]) -> None:
    """Say what is real, what is emulated, and how rates were scaled."""
    out.print(f"[bold]Live:[/bold] {_about(factor, streams)}")
    out.print(
        f"Real: text detection ({1e3 * costs.find_s:.1f} ms here) and recognition "
        f"({1e3 * costs.read_s:.1f} ms) on pictures drawn here; processes, HTTP, decisions. "
        "Emulated: links, and the delays and accuracies of the devices."
    )
    if costs.busy > BUSY:
        out.print(
            f"[yellow]Other programs use this machine: work takes {costs.busy:.1f} times its CPU time. "
            "Expect answers later than simulated.[/yellow]"
        )


def _about(factor: float, streams: Sequence[Stream]) -> str:
    """What is run, in words."""
    rate = sum(stream.rate_qps for stream in streams)
    return (
        f"{len(streams)} streams of the ten reference applications, with their deadlines "
        f"and mix, on {len(world.WORKERS)} workers at two access sites, a central office and a cloud. "
        f"Rates are × {factor * world.PART:.2f} and capacities × {factor:.2f}, which this machine carries: "
        f"{rate:.0f} queries/s when all streams are open."
    )


def streams_shown(
    policy: str, seen: Sequence[StreamSeen], workers: Sequence[str], now_s: float
) -> RenderableType:
    """The live view: applications with their queries so far, workers with their streams."""
    running = [s for s in seen if s.number is not None and not s.closed]
    head = Text(f"policy {policy}, {now_s:.0f} s, {len(running)} streams open", style="bold")
    table = Table("application", "streams", "refused", "queries: ok, failed, rejected", box=SIMPLE_HEAD)
    for name in dict.fromkeys(s.stream.application for s in seen):
        mine = [s for s in seen if s.stream.application == name]
        opened = [s for s in mine if s.number is not None]
        refused = sum(s.worker is None for s in opened)
        table.add_row(name, str(len(opened)), str(refused), _bar([_total(mine, kind) for kind in KINDS]))
    load = Table("worker", "streams", "queries/s", box=SIMPLE_HEAD)
    for worker in workers:
        on = [s for s in running if s.worker == worker]
        load.add_row(worker, str(len(on)), f"{sum(s.stream.rate_qps for s in on):.1f}")
    return Group(head, table, load)


def _bar(counts: Sequence[int]) -> Text:
    total, text = max(sum(counts), 1), Text()
    for kind, count in zip(KINDS, counts, strict=True):
        text.append("█" * round(BAR * count / total), style=COLOURS[kind])
    return text.append("  " + ", ".join(map(str, counts)))


def _total(seen: Sequence[StreamSeen], kind: str) -> int:
    return sum(s.became[kind] for s in seen)


POLICIES = ("closest", "load-balancing", policies.USUAL["dispatch"])  # the first is the naive one
CLIENT_S = 0.002
SWITCH_POLL_S = 0.05
COMPILING = "Compiling kernels, for the first time on this machine: up to half a minute."


def run(seconds: float, out: Console, folder: Path, seed: int) -> DemoOutcome:
    """Run the demo, print its tables, save figure and table.

    Args:
        seconds: of each policy.
        seed: draws the streams, and what is emulated.
        folder: for everything that is written.
    Returns:
        what was measured and simulated.
    Raises:
        EdgewiseError: the networks are not installed, or the system does not start.
    """
    # Before anything is measured: a kernel that is compiled meanwhile would be blamed on a policy.
    wanted = [*(("dispatch", name) for name in POLICIES), ("defer", policies.USUAL["defer"])]
    needed_by(world.scenario(1.0, seconds), wanted, lambda: out.print(COMPILING))
    costs = world.measure()
    unscaled = world.streams(seconds, seed)
    factor = world.scale(unscaled, costs)
    streams = [replace(stream, rate_qps=factor * stream.rate_qps) for stream in unscaled]
    scenario = world.scenario(factor, seconds)
    explain(out, costs, factor, streams)
    state = folder / "system"
    shutil.rmtree(state, ignore_errors=True)
    measured, machine = asyncio.run(_measure(state, scenario, streams, out, seed))
    live = [shares_of(name, [_total(seen, kind) for kind in KINDS]) for name, seen in measured.items()]
    simulated = [simulated_shares(scenario, name, streams, seed) for name in POLICIES]
    result = DemoOutcome(live, simulated, machine)
    outcome.show(out, result)
    command = f"edgewise demo --seconds {seconds:g} --seed {seed}"
    page = outcome.save(folder, result, _about(factor, streams), command, dump_scenario(scenario))
    outcome.conclude(out, result, page)
    return result


async def _measure(
    state: Path, scenario: Scenario, streams: Sequence[Stream], out: Console, seed: int
) -> tuple[dict[str, list[StreamSeen]], dict[str, Watched]]:
    """Play the streams once for each policy; what was seen of them, and of the machine meanwhile."""
    queries = {s.id: encode_request(InferRequest({"x": world.query(s)[1]})) for s in streams}
    results, machine = {}, {}
    async with running(state, None, scenario, Emulation(seed=seed, client_s=CLIENT_S)) as url:
        store = store_of(state)
        admin, processes = operator(store), store.processes()
        store.close()
        names = [r.process.name for r in processes if r.process.kind == "worker"]
        gateways = [http.Client.of_url(url) for _ in range(2)]
        for name in POLICIES:
            await _switch(admin, name)
            traffic = Traffic(streams, gateways, ("site-0", "site-1"), lambda s: queries[s.id], seed)
            async with watched(processes) as machine[name]:
                playing = asyncio.create_task(traffic.play())
                await _show(playing, traffic, name, names, out)
                results[name] = await playing
    out.print(_answers(results[POLICIES[-1]]))
    return results, machine


async def _switch(admin: http.Client, name: str) -> None:
    """Have the policy switched, and wait until it is.

    Raises:
        RunError: it failed.
    """
    answer = await ask(admin, "PUT", "/v1/policies/dispatch", body=f'{{"policy": "{name}"}}'.encode())
    path = answer.headers["location"]
    while (found := json.loads((await ask(admin, "GET", path)).body))["state"] != "done":
        if found["state"] == "failed":
            raise RunError(f"policy {name}: {found['error']}")
        await asyncio.sleep(SWITCH_POLL_S)


async def _show(
    playing: asyncio.Task[list[StreamSeen]],
    traffic: Traffic,
    policy: str,
    workers: Sequence[str],
    out: Console,
) -> None:
    """Show the streams on the terminal until they end; a line at the end where there is no terminal."""
    began_s = time.monotonic()
    if not out.is_terminal:
        seen = await playing
        bound = sum(s.worker is not None for s in seen)
        counts = ", ".join(f"{_total(seen, kind)} {kind}" for kind in KINDS)
        return out.print(f"{policy}: {bound} of {len(seen)} streams bound; queries: {counts}")
    with Live(console=out, refresh_per_second=4) as view:
        while not playing.done():
            view.update(streams_shown(policy, traffic.seen, workers, time.monotonic() - began_s))
            await asyncio.wait([playing], timeout=0.25)


def simulated_shares(scenario: Scenario, policy: str, streams: Sequence[Stream], seed: int) -> PolicyShares:
    """What becomes of the streams' queries in a simulation with this policy."""
    run = simulation_of(scenario, partial(policies.load, "dispatch", policy), seed, streams=streams).run()
    return shares_of(policy, [int(np.sum(run.streams[kind])) for kind in KINDS])


def _answers(seen: Sequence[StreamSeen]) -> Table:
    """What came back from the networks, of one stream for each application."""
    table = Table("application", "picture of", "worker", "answer", title="answers", box=SIMPLE_HEAD)
    alphabet = characters(model_file())
    for s in {s.stream.application: s for s in reversed(seen) if s.answer is not None}.values():
        assert s.answer is not None
        (array,) = decode_response(s.answer.headers, s.answer.body).outputs.values()
        if s.stream.task == world.READ:
            what = f"read “{read(array[0], alphabet)}”"
        else:
            box = found(array)
            what = "no text" if box is None else f"text at x {box[0]}…{box[2]}, y {box[1]}…{box[3]}"
        table.add_row(s.stream.application, world.query(s.stream)[0], s.worker or "", what)
    return table
