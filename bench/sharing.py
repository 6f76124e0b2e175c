"""What two processes behind one port serve, beside one: the same load to each, in pairs.

    python -m bench.sharing [--pairs 5] [--seconds 2]

An echo worker, one or two gateway processes and the load generator. Each connection has queries of one of two
streams, which two processes have one each: so about half of the queries come to the process that has their
stream, and half are passed on. "CPU" is that of all gateway processes for each query. Where the machine has
no core to spare for a second process, that alone says what sharing costs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from typing import Any

import numpy as np
import uvloop

from bench.echo import gateway_to, open_stream, process, serve_echo
from bench.load import cpu_s, load, query
from edgewise.runtime.gateway.admin import with_admin
from edgewise.runtime.gateway.siblings import Siblings
from edgewise.runtime.http.ports import free_port
from edgewise.runtime.process.serving import Listen, listen
from edgewise.runtime.store import Process, sibling_name

CONNECTIONS = 16
TOKEN = "between-the-parts"


async def serve_sharing(ready: Any, argument: tuple[int, int, int, list[Process]]) -> None:
    """One of the processes of a gateway; a single one listens at the port by itself."""
    worker_port, port, number, among = argument
    me = among[number]
    gateway = gateway_to(worker_port, me.share)
    handler = with_admin(gateway)
    if len(among) == 1:
        await listen(handler, Listen(port=port), at_once=True)
    else:
        siblings = Siblings(gateway, handler, me, TOKEN)
        siblings.follow(among)
        await listen(handler, Listen(port=me.port), at_once=True, before=siblings.taking)
        await listen(siblings.handle, Listen(port=port, shared=True), at_once=True)
    ready.put(port)
    await asyncio.gather(gateway.keep_time(), gateway.watch())


def run(pairs: int, seconds: float) -> list[dict[int, dict[str, float]]]:
    """Measure pairs; within each, which comes first alternates."""
    worker, worker_port = process(serve_echo)
    found = []
    try:
        for k in range(pairs):
            counts = (1, 2) if k % 2 == 0 else (2, 1)
            found.append({count: _measured(worker_port, count, seconds) for count in counts})
    finally:
        worker.terminate()
    return found


def _measured(worker_port: int, count: int, seconds: float) -> dict[str, float]:
    port = free_port()
    among = [
        Process(sibling_name("gateway-0", k), "gateway", free_port(), {"share": [k, count]})
        for k in range(count)
    ]
    started = [process(serve_sharing, (worker_port, port, k, among))[0] for k in range(count)]
    try:
        return uvloop.run(_loaded(port, [each.pid for each in started], seconds))
    finally:
        for each in started:
            each.terminate()


async def _loaded(port: int, pids: list[int], seconds: float) -> dict[str, float]:
    streams = dict[int, str]()
    while len(streams) < 2:
        stream = await open_stream(port, 2e4)
        streams[int(stream) % 2] = stream
    asked = [query("/v2/models/copy/infer", (1, 8), stream) for stream in streams.values()]
    await asyncio.gather(*(load(port, each, CONNECTIONS // 2, 0.3) for each in asked))
    before_s = cpu_s(*pids)
    loaded = await asyncio.gather(*(load(port, each, CONNECTIONS // 2, seconds) for each in asked))
    spent_s, delays_s = cpu_s(*pids) - before_s, np.concatenate([delays for _, delays in loaded])
    return {
        "qps": sum(qps for qps, _ in loaded), "p50_s": float(np.median(delays_s)),
        "cpu_s": spent_s / len(delays_s),
    }  # fmt: skip


def main() -> None:
    """Print each pair, and the medians of what two processes are to one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    found = run(options.pairs, options.seconds)
    for pair in found:
        shown = [f"{count}: {' '.join(f'{k} {v:.3g}' for k, v in pair[count].items())}" for count in (1, 2)]
        print("   ".join(shown))
    ratios = {name: np.median([pair[2][name] / pair[1][name] for pair in found]) for name in found[0][1]}
    load_1 = os.getloadavg()[0]
    print(f"two to one, medians: {', '.join(f'{name} {ratio:.2f}' for name, ratio in ratios.items())}")
    print(f"{os.cpu_count()} cores, load {load_1:.1f}")


if __name__ == "__main__":
    main()
