"""Starts a worker and a gateway in this process and lets clients send pictures through them.

The worker's profile is measured here first, so the core decides with this machine's figures.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from edgewise import policies
from edgewise.config import dump_scenario
from edgewise.core import keyed
from edgewise.core.world import World
from edgewise.demo.pictures import characters, model_file, picture, read
from edgewise.model.scenario import Scenario, parse_scenario
from edgewise.report import records
from edgewise.report.schema import STREAMS, WINDOWS
from edgewise.runtime import http
from edgewise.runtime.gateway import Gateway
from edgewise.runtime.protocol import InferRequest, decode_response, encode_request
from edgewise.runtime.session import Session
from edgewise.runtime.worker import OnnxModel, Worker

MODEL = "text-recogniser"
LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz0123456789"
PICTURE_BYTES = 3 * 48 * 320 * 4


@dataclass(slots=True)
class DemoClient:
    """A client: what it needs, and what it got."""

    application: str
    words: str
    rate_qps: float
    deadline_s: float
    task: str = "read-text"
    min_accuracy: float = 0.0
    answer: str = ""
    where: str = ""
    delays_s: list[float] = field(default_factory=list)
    right: int = 0


def clients(service_s: float) -> list[DemoClient]:
    """Clients with different needs; deadlines in multiples of this machine's own delay."""
    return [
        DemoClient("scoreboard", "Home 3 : 1 Away", 2.0, 12 * service_s),
        DemoClient("subtitles", "edge and cloud", 3.0, 10 * service_s),
        DemoClient("number plate", "KA 42 EW 7", 4.0, 6 * service_s),
        DemoClient("reflex game", "press now", 5.0, 0.5 * service_s),
        DemoClient("archive", "year 1984", 1.0, 20 * service_s, min_accuracy=99.0),
        DemoClient("translator", "guten Tag", 1.0, 20 * service_s, task="translate"),
        DemoClient("camera wall", "gate 12", 0.9 / service_s, 10 * service_s),
    ]


def measure_s(model: OnnxModel, repeats: int = 15) -> float:
    """Median delay of one picture through ONNX Runtime here; the first three runs warm up."""
    (name,) = model.inputs
    request = InferRequest({name: picture("measure me")})
    taken = []
    for _ in range(repeats + 3):
        started = time.perf_counter()
        model.run(request)
        taken.append(time.perf_counter() - started)
    return float(np.median(taken[3:]))


def accuracy_percent(model: OnnxModel, alphabet: tuple[str, ...], count: int = 20) -> float:
    """Share of `count` drawn random words that the model reads without any mistake, in %."""
    (name,) = model.inputs
    right = 0
    for i in range(count):
        draws = keyed.uniform(0, keyed.Purpose.QUERY, i, np.arange(8))
        word = "".join(LETTERS[int(u * len(LETTERS))] for u in draws)
        (scores,) = model.run(InferRequest({name: picture(word)})).outputs.values()
        right += read(scores[0], alphabet) == word
    return 100.0 * right / count


def small_scenario(service_s: float, accuracy: float) -> Scenario:
    """One site and one node with the recogniser, described as any scenario is."""
    data = {
        "name": "demo-live",
        "duration_s": 60,
        "catalog": {
            "models": [{"name": MODEL, "task": "read-text", "accuracy": accuracy}],
            "variants": [
                {
                    "name": f"{MODEL}-cpu",
                    "model": MODEL,
                    "resources": {"cpu_cores": 1},
                    "profile": {"fixed_s": service_s, "source": "measured on this machine"},
                    "capacity_qps": 0.9 / service_s,
                    "largest_bytes": PICTURE_BYTES,
                }
            ],
        },
        "clusters": [{"name": "edge", "tier": 0, "nodes": [{"name": "here", "resources": {"cpu_cores": 1}}]}],
        "sites": [{"name": "localhost", "access_delay_s": 0, "uplink_bps": 10e9}],
        "links": [{"site": "*", "cluster": "edge", "delay_s": 1e-4}],
        "workers": [{"variant": f"{MODEL}-cpu", "node": "here"}],
        "applications": [
            {"name": "any", "task": "read-text", "rate_qps": 1, "size_bytes": PICTURE_BYTES,
             "deadline_s": 1, "length_s": 1}
        ],
        "arrivals": {"clients_per_min": 1},
    }  # fmt: skip
    return parse_scenario(data, "demo")


def run(seconds: float, out: Console, folder: Path) -> None:
    """Run the live demo, print what happened to each stream, and save the records.

    Raises:
        EdgewiseError: the model's package is not installed.
    """
    file = model_file()
    model = OnnxModel(MODEL, file, file.parent)
    service_s = measure_s(model)
    out.print(
        f"[bold]Live:[/bold] {file.name} on ONNX Runtime reads a picture in {1e3 * service_s:.1f} ms here."
    )
    waiting = clients(service_s)
    accuracy = accuracy_percent(model, characters(file))
    out.print(
        f"It reads {accuracy:.0f} % of random 8-letter words without a mistake: its accuracy for the core."
    )
    scenario = small_scenario(service_s, accuracy)
    session = asyncio.run(_serve(model, scenario, waiting, seconds))
    rows = session.stream_records()
    out.print(_table(waiting, rows))
    records.write_run(
        folder,
        scenario_yaml=dump_scenario(scenario),
        manifest={
            "scenario": scenario.name,
            "policies": [session.core.policy.name],
            "seeds": [session.seed],
            "version": version("edgewise"),
            "command": "edgewise demo",
        },
        streams=pa.Table.from_pylist(rows, schema=STREAMS),
        windows=pa.Table.from_pylist(session.window_records(), schema=WINDOWS),
    )
    out.print(f"live records: [bold]{folder}[/bold]")


async def _serve(
    model: OnnxModel, scenario: Scenario, waiting: Sequence[DemoClient], seconds: float
) -> Session:
    worker = Worker(model)
    behind = await http.serve(worker.handle)
    started = time.monotonic()
    world = World.build(scenario.catalog, scenario.topology)
    session = Session(world, policies.load("least-impedance"), 0, lambda: time.monotonic() - started)
    gateway = Gateway(session, [http.Client(behind.host, behind.port)], [MODEL])
    front = await http.serve(gateway.handle)
    alphabet = characters(model.file)
    with Progress(transient=True) as bar:
        shown = bar.add_task("streams running", total=seconds)
        chores = [
            asyncio.create_task(_tick(lambda: bar.advance(shown, 0.1))),
            asyncio.create_task(gateway.keep_time()),
        ]
        try:
            await asyncio.gather(*(_client(c, front, seconds, alphabet, model) for c in waiting))
        finally:
            for chore in chores:
                chore.cancel()
    await worker.drain()
    await front.close()
    await behind.close()
    session.core.validate()
    return session


async def _tick(advance: Any) -> None:
    while True:
        await asyncio.sleep(0.1)
        advance()


async def _client(
    client: DemoClient, front: http.Server, seconds: float, alphabet: tuple[str, ...], model: OnnxModel
) -> None:
    """One client: opens its stream, sends a picture each period, closes the stream."""
    connection = http.Client(front.host, front.port)
    needs = {
        "application": client.application, "task": client.task, "rate_qps": client.rate_qps,
        "size_bytes": PICTURE_BYTES, "deadline_s": client.deadline_s, "min_accuracy": client.min_accuracy,
    }  # fmt: skip
    opened = await connection.request("POST", "/v1/streams", body=json.dumps(needs).encode())
    answer = json.loads(opened.body)
    if opened.status != 201:
        client.where = answer["reason"]
        connection.close()
        return
    client.where = f"{answer['variant']} on {answer['cluster']}"
    (name,) = model.inputs
    headers, body = encode_request(InferRequest({name: picture(client.words)}))
    headers["edgewise-stream"] = str(answer["stream"])
    ends = time.monotonic() + seconds
    due = time.monotonic()
    while due < ends:
        await asyncio.sleep(max(due - time.monotonic(), 0.0))
        due += 1.0 / client.rate_qps
        sent = time.monotonic()
        response = await connection.request("POST", f"/v2/models/{client.task}/infer", headers, body)
        client.delays_s.append(time.monotonic() - sent)
        if response.status == 200:
            (scores,) = decode_response(response.headers, response.body).outputs.values()
            client.answer = read(scores[0], alphabet)
            client.right += client.answer == client.words
    await connection.request("DELETE", f"/v1/streams/{answer['stream']}")
    connection.close()


def _table(waiting: Sequence[DemoClient], streams: list[dict[str, Any]]) -> Table:
    table = Table("stream", "needs", "what happened, and why", title="streams", box=SIMPLE_HEAD)
    rows = {row["application"]: row for row in streams}
    for client in waiting:
        accuracy = f", ≥ {client.min_accuracy:.0f} % right" if client.min_accuracy else ""
        needs = f"{client.task}\n{client.rate_qps:.0f}/s, ≤ {1e3 * client.deadline_s:.0f} ms{accuracy}"
        table.add_row(client.application, needs, _outcome(client, rows[client.application]))
    return table


def _outcome(client: DemoClient, row: dict[str, Any]) -> str:
    if row["reason"]:
        return f"[red]refused:[/red] {row['reason']}"
    median_ms = 1e3 * float(np.median(client.delays_s))
    return (
        f"[green]bound[/green] to {client.where}: {row['ok']} of {row['queries']} in time,\n"
        f"median {median_ms:.0f} ms; picture of “{client.words}” read as “{client.answer}”"
    )
