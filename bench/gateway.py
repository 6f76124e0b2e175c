"""What the gateway costs: the same queries to a worker directly and through the gateway, core in the path.

    python -m bench gateway
    python -m bench.gateway [--seconds 4] [--profile gateway.prof]

Three processes on this machine: an echo worker (our HTTP server, a handler that only copies), a gateway,
and the load generator. "added" is the difference of the medians; "gateway CPU" is its process's CPU time for
each request: the bound of its throughput when the machine has cores to spare for the other two.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import uvloop

from bench.echo import open_stream, process, serve_echo, serve_gateway
from bench.load import cpu_s, load, query

SIZES = {"32 B": (1, 8), "600 kB": (1, 150_000)}
TARGETS = {"32 B": 0.2e-3, "600 kB": 1e-3}  # added to the median at one connection, seconds
TARGET_QPS = 10_000.0  # of 32 B at 16 connections


def run(rounds: int, seconds: float = 1.0, profile: str = "") -> dict[str, Any]:
    """Measure every size at 1 and 16 connections; the best round of each counts, all are kept."""
    worker, worker_port = process(serve_echo)
    gateway, gateway_port = process(serve_gateway, worker_port, profile)
    try:
        each = uvloop.run(_rounds(worker_port, gateway_port, gateway.pid, rounds, seconds))
    finally:
        gateway.terminate()
        worker.terminate()
    return {"rows": [_row(*where, repeats) for where, repeats in each.items()]}


async def _rounds(worker: int, gateway: int, pid: int, rounds: int, seconds: float) -> dict[Any, Any]:
    stream = await open_stream(gateway)
    each: dict[tuple[str, int], list[dict[str, float]]] = {}
    for _ in range(rounds):
        for name, shape in SIZES.items():
            direct = query("/v2/models/echo/infer", shape)
            through = query("/v2/models/copy/infer", shape, stream)
            for connections in (1, 16):
                await load(gateway, through, connections, 0.2)
                qps_d, delays_d = await load(worker, direct, connections, seconds)
                before_s = cpu_s(pid)
                qps_g, delays_g = await load(gateway, through, connections, seconds)
                each.setdefault((name, connections), []).append({
                    "direct_p50_s": float(np.median(delays_d)), "gateway_p50_s": float(np.median(delays_g)),
                    "direct_qps": qps_d, "gateway_qps": qps_g,
                    "gateway_cpu_s": (cpu_s(pid) - before_s) / len(delays_g),
                })  # fmt: skip
    return each


def _row(size: str, connections: int, repeats: list[dict[str, float]]) -> dict[str, Any]:
    best = {
        name: min(r[name] for r in repeats) for name in ("direct_p50_s", "gateway_p50_s", "gateway_cpu_s")
    }
    best |= {name: max(r[name] for r in repeats) for name in ("direct_qps", "gateway_qps")}
    return {
        "size": size, "connections": connections, **best,
        "added_p50_s": best["gateway_p50_s"] - best["direct_p50_s"],
        "target_added_s": TARGETS[size] if connections == 1 else None,
        "target_qps": TARGET_QPS if (size, connections) == ("32 B", 16) else None,
        "repeats": repeats,
    }  # fmt: skip


def main() -> None:
    """Print what `run` measures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--profile", default="", help="write a cProfile of the gateway here")
    options = parser.parse_args()
    for row in run(options.rounds, options.seconds, options.profile)["rows"]:
        figures = {name: row[name] for name in row if name.endswith(("_s", "_qps")) and row[name]}
        print(
            row["size"], row["connections"], {name: float(f"{value:.4g}") for name, value in figures.items()}
        )


if __name__ == "__main__":
    main()
