"""What records cost a live gateway: `python -m bench.keeping COMMIT`, where COMMIT keeps none, or fewer.

Both trees run the same live system in turn: a gateway and a controller of their own, with workers that return
their input at once, and the store on disk. The same clients ask each gateway for queries of a stream and for
requests of a service. Compared are CPU time of the gateway's process for each answer, and answers a second.
Medians over rounds, with the quartiles' distance; `python -m bench.against` has the rest of a gateway.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from bench.against import HERE, checked_out, said, spread, started_in
from bench.load import cpu_s, load
from edgewise.runtime.http.messages import write_request
from edgewise.runtime.protocol.messages import InferRequest, encode_request

STARTER = """
import asyncio, json, shutil, signal, subprocess, sys, tempfile
from pathlib import Path
from bench.left_out import scenario
from edgewise.runtime import http
from edgewise.runtime.controller.plan import Emulation, prepare
from edgewise.runtime.clients.reaching import ask
from edgewise.model.parsing import parse_scenario
folder, said = Path(tempfile.mkdtemp()) / "live", scenario().spec.model_dump(mode="json", exclude_none=True)
for variant in said["catalog"]["variants"]:
    variant["capacity_qps"], variant["profile"]["fixed_s"] = 1e5, 1e-6  # there is room for the stream
store = prepare(folder, parse_scenario(said, "keeping"), emulation=Emulation(on=False))
command = [sys.executable, "-m", "edgewise.runtime.controller.nursery", str(folder)]
nursery = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
async def begun():
    for row in store.processes():
        client = http.Client.of_url(row.process.url)
        await ask(client, "GET", "/v2/health/ready", patience_s=240)
        client.close()
    front = http.Client.of_url(store.processes("gateway")[0].process.url)
    needs = {"task": "detection", "rate_qps": 5e4, "size_bytes": 100, "deadline_s": 20}
    for _ in range(200):
        answer = await ask(front, "POST", "/v1/streams", body=json.dumps(needs).encode(), patience_s=60)
        if answer.status == 201:
            return json.loads(answer.body)["stream"]
        await asyncio.sleep(0.1)
    sys.exit(f"no stream: {answer.body.decode()}")
stream = asyncio.run(begun())
front = store.processes("gateway")[0]
print(json.dumps([int(front.handle.split(":")[0]), front.process.port, str(stream)]), flush=True)
sys.stdin.read()
nursery.send_signal(signal.SIGTERM)
nursery.wait(60)
shutil.rmtree(folder.parent)
"""
ASKED = {"a query of a stream": "detection", "a request of a service": "served"}
CONNECTIONS, SECONDS = 8, 1.0


def main() -> None:
    """Print what each costs in both trees."""
    parser = argparse.ArgumentParser(prog="python -m bench.keeping", description=__doc__)
    parser.add_argument("commit", help="the other tree")
    parser.add_argument("--rounds", type=int, default=10, help="in turn")
    chosen = parser.parse_args()
    with ExitStack() as stack:
        trees = stack.enter_context(checked_out(chosen.commit)), HERE
        fronts = [stack.enter_context(started(tree)) for tree in trees]
        print(f"{'of':24} {'':>14} {'other':>16} {'this tree':>16}   more")
        for name, task in ASKED.items():
            for front in fronts:
                measured(front, task)  # warm
            pairs = [[measured(front, task) for front in fronts] for _ in range(chosen.rounds)]
            for k, (what, scale) in enumerate((("CPU, µs", 1e6), ("answers/s", 1.0))):
                print(line(name, what, scale, [[one[k] for one in pair] for pair in pairs]), flush=True)


def line(name: str, what: str, scale: float, pairs: list[list[float]]) -> str:
    """Medians of both, and of the paired differences, with their quartiles' distance."""
    more = [100.0 * (b / a - 1.0) for a, b in pairs]
    shown = [
        f"{scale * statistics.median(each):9.1f} ± {scale * spread(list(each)):4.1f}"
        for each in zip(*pairs, strict=True)
    ]
    return f"{name:24} {what:>14} {' '.join(shown)}   {statistics.median(more):+.1f} ± {spread(more):.1f} %"


def measured(front: list[Any], task: str) -> tuple[float, float]:
    """CPU seconds of the gateway for each answer, and answers a second."""
    pid, port, stream = front
    headers, body = encode_request(InferRequest({"x": np.ones((1, 8), np.float32)}))
    headers |= {"edgewise-stream": stream} if task == ASKED["a query of a stream"] else {}
    data = b"".join(write_request("POST", f"/v2/models/{task}/infer", "127.0.0.1", headers, body))
    before_s = cpu_s(pid)
    qps, delays_s = uvloop.run(load(port, data, CONNECTIONS, SECONDS))
    return (cpu_s(pid) - before_s) / len(delays_s), qps


@contextmanager
def started(tree: Path) -> Iterator[list[Any]]:
    """A tree's live system: process and port of the gateway, and a stream."""
    with started_in(f"{tree / 'src'}:{tree}", STARTER) as starter:
        yield json.loads(said(starter))


if __name__ == "__main__":
    main()
