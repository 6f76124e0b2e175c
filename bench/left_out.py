"""What the model leaves out, bounded in a live run on this machine: docs/left-out.md has the list.

    python -m bench.left_out [--seconds 1] [--rounds 8] [--out docs/results/left-out]

A whole live system: a gateway, a controller, and workers that run the detector MobileNet v1 SSD (random
weights, pictures of 300 x 300) with ONNX Runtime, one thread each. Nothing is emulated. Two questions:

- *Gateway*: more CPU time of its process for each query of a stream and for each request of a service, as
  a share of what the worker takes for it; and what gateway and controller take of a core when nobody asks.
- *Neighbours*: CPU time of a worker for each query while it is alone on its node, while another worker serves
  beside it, and while a process beside it copies memory as fast as it can. Each has its own core, so what
  is more is caches, memory bandwidth and clock. The three take turns.

Power is not measured: this machine shows no counter of it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench import machine
from bench.load import cpu_s, load
from edgewise.model.parsing import parse_scenario
from edgewise.model.scenario import Scenario
from edgewise.profiling.graphs import write
from edgewise.profiling.quiet import Watch
from edgewise.runtime import http
from edgewise.runtime.clients.reaching import ask
from edgewise.runtime.controller.plan import Emulation, prepare
from edgewise.runtime.http.messages import write_request
from edgewise.runtime.protocol.messages import InferRequest, encode_request
from edgewise.runtime.store import Process, Store

OUT = Path(__file__).resolve().parents[1] / "docs" / "results" / "left-out"
SHAPE = (1, 3, 300, 300)
COPY = "import numpy as np\na = np.zeros(2**25)\nb = np.ones(2**25)\nwhile True: a[:] = b"
PATIENCE_S = 60.0
MOST_OTHERS = 0.5  # cores
POWER = "/sys/class/powercap"


def scenario() -> Scenario:
    """Two workers of streams on a node, one of a service in the cloud."""
    room = {"cpu_cores": 4, "memory_bytes": "8GB"}
    variant = {
        "model": "ssd", "resources": {"cpu_cores": 1, "memory_bytes": "500MB"},
        "profile": {"fixed_s": "1ms", "source": "a guess; nothing is emulated"}, "largest_bytes": "2MB",
        "capacity_qps": 1000,
    }  # fmt: skip
    return parse_scenario(
        {
            "name": "left-out", "duration_s": 60, "sharing": "none",
            "catalog": {
                "models": [{"name": "ssd", "task": "detection", "accuracy": 20}],
                "variants": [variant | {"name": name} for name in ("detector", "served")],
            },
            "clusters": [
                {"name": "near", "tier": 0, "nodes": [{"name": "near", "resources": room}]},
                {"name": "cloud", "tier": 1, "nodes": [{"name": "cloud", "resources": room}]},
            ],
            "sites": [{"name": "site", "cluster": "near", "uplink_bps": "100Gbps"}],
            "links": [
                {"site": "site", "cluster": "near", "over": "lan"},
                {"site": "site", "cluster": "cloud", "over": "wan"},
                *({"name": name, "bandwidth_bps": "100Gbps"} for name in ("lan", "wan")),
            ],
            "workers": [{"variant": "detector", "cluster": "near", "count": 2},
                        {"variant": "served", "cluster": "cloud"}],
            "policies": {"dispatch": "closest", "requests": "cloud-only", "orchestrate": "none"},
            "services": {"cloud": "cloud", "cores_held": "life",
                         "offered": [{"variant": "served", "deadline_s": 20, "initial": 0}]},
            "streams": {
                "applications": [{"name": "any", "task": "detection", "rate_qps": 1, "size_bytes": "1.1MB",
                                  "deadline_s": 20, "length_s": 60}],
                "arrivals": {"clients_per_min": 1},
            },
        },
        "left-out",
    )  # fmt: skip


@contextmanager
def started(folder: Path) -> Iterator[Store]:
    """The live system, ended with what it started."""
    models = folder / "models"
    write("mobilenet-ssd-300", models).rename(models / "ssd.onnx")
    with nursing(prepare(folder / "live", scenario(), models=models, emulation=Emulation(on=False))) as store:
        yield store


@contextmanager
def nursing(store: Store, patience_s: float = PATIENCE_S) -> Iterator[Store]:
    """The live system of a store, whose processes all answer; it is ended, and the store closed."""
    command = [sys.executable, "-m", "edgewise.runtime.controller.nursery", str(store.file.parent)]
    nursery = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        asyncio.run(_ready(store, patience_s))
        yield store
    finally:
        nursery.send_signal(signal.SIGTERM)
        nursery.wait(PATIENCE_S)
        store.close()


async def _ready(store: Store, patience_s: float) -> None:
    until_s = time.monotonic() + patience_s
    for name in [process.name for process in _wanted(store)]:
        while not await _answers(store, name, last=time.monotonic() > until_s):
            pass


async def _answers(store: Store, name: str, last: bool) -> bool:
    """Whether a process is ready, where it is now: it moves when another program has taken its port, and what
    scales may want it no longer."""
    process = next((each for each in _wanted(store) if each.name == name), None)
    if process is None:
        return True
    client = http.Client.of_url(process.url)
    try:
        await ask(client, "GET", "/v2/health/ready", patience_s=2.0)
    except (ConnectionError, TimeoutError):
        if last:
            raise
        return False
    finally:
        client.close()
    return True


def _wanted(store: Store) -> list[Process]:
    return [row.process for row in store.processes() if row.process.wanted]


def pid_of(store: Store, name: str) -> int:
    """The process of this name."""
    handles = {row.process.name: row.handle for row in store.processes()}
    handle = store.get("controller_handle") if name == "controller" else handles[name]
    return int(str(handle).split(":")[0])


def port_of(store: Store, name: str) -> int:
    """Where it listens."""
    (process,) = (each for each in _wanted(store) if each.name == name)
    return int(process.url.rsplit(":", 1)[1])


def query(path: str, **headers: str) -> bytes:
    """A picture, as a query's bytes."""
    asked = InferRequest({"picture": np.ones(SHAPE, np.float32)}, id="1", binary=True)
    found, body = encode_request(asked)
    return b"".join(write_request("POST", path, "127.0.0.1", found | headers, body))


async def open_stream(port: int) -> str:
    """Number of a new stream of the gateway."""
    needs = {"task": "detection", "rate_qps": 500, "size_bytes": 1.1e6, "deadline_s": 20}
    client = http.Client("127.0.0.1", port)
    opened = await ask(client, "POST", "/v1/streams", body=json.dumps(needs).encode(), patience_s=PATIENCE_S)
    client.close()
    return str(json.loads(opened.body)["stream"])


def gateway(store: Store, seconds: float) -> dict[str, Any]:
    """CPU seconds of gateway and worker for each query and request, and of a core when nobody asks."""
    port, pids = port_of(store, "gateway-0"), {n: pid_of(store, n) for n in ("gateway-0", "controller")}
    workers = [pid_of(store, each.name) for each in _wanted(store) if each.kind == "worker"]
    before, began_s = {name: cpu_s(pid) for name, pid in pids.items()}, time.monotonic()
    time.sleep(seconds)
    idle = {n: (cpu_s(pid) - before[n]) / (time.monotonic() - began_s) for n, pid in pids.items()}

    def measured(data: bytes) -> dict[str, float]:
        asyncio.run(load(port, data, 1, 0.3))
        started_s, first_s = (cpu_s(pids["gateway-0"]), cpu_s(*workers)), time.monotonic()
        _, delays_s = asyncio.run(load(port, data, 1, seconds))
        beside_s = idle["gateway-0"] * (time.monotonic() - first_s)  # what it takes without queries, too
        gateway_s = (cpu_s(pids["gateway-0"]) - started_s[0] - beside_s) / len(delays_s)
        worker_s = (cpu_s(*workers) - started_s[1]) / len(delays_s)
        return {"served": len(delays_s), "gateway_cpu_s": gateway_s, "worker_cpu_s": worker_s,
                "share": gateway_s / worker_s}  # fmt: skip

    stream = asyncio.run(open_stream(port))
    return {
        "query of a stream": measured(query("/v2/models/detection/infer", **{"edgewise-stream": stream})),
        "request of a service": measured(query("/v2/models/served/infer")),
        "idle_cores": {"gateway": idle["gateway-0"], "controller": idle["controller"]},
    }


def neighbours(store: Store, seconds: float, rounds: int) -> dict[str, Any]:
    """CPU seconds of a worker for each query, by who works beside it, as a multiple of alone, by round.

    Each round waits for a quiet moment, all together for `PATIENCE_S`. Where processes that are none of
    ours used half a core all the same, a round is left out, unless all are so: then `busy` is true.
    """
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        return {"left_out": "needs two cores"}
    one, two = (each.name for each in _wanted(store) if each.name.startswith("detector"))
    _pin(pid_of(store, one), cpus[0])
    _pin(pid_of(store, two), cpus[1])
    found: dict[str, list[Beside]] = {"alone": [], "another worker": [], "copies of memory": []}
    until_s = time.monotonic() + PATIENCE_S
    for _ in range(rounds):
        _wait(until_s)
        found["alone"].append(asyncio.run(_beside(store, one, None, seconds)))
        found["another worker"].append(asyncio.run(_beside(store, one, two, seconds)))
        with _copying(cpus[1]) as pid:
            found["copies of memory"].append(asyncio.run(_beside(store, one, None, seconds, pid)))
    quiet = [n for n in range(rounds) if all(each[n].others_cores < MOST_OTHERS for each in found.values())]
    counted = quiet or list(range(rounds))
    return {
        "busy": not quiet,
        "rounds": len(counted),
        "times_alone": {
            name: _spread([each[n].worker_cpu_s / found["alone"][n].worker_cpu_s for n in counted])
            for name, each in found.items()
            if name != "alone"
        },
        "worker_cpu_s": {name: [round(x.worker_cpu_s, 5) for x in each] for name, each in found.items()},
        "others_cores": {name: [round(x.others_cores, 2) for x in each] for name, each in found.items()},
        "cores": cpus[:2],
        "shared_core": _siblings(cpus[0]),
    }


def _wait(until_s: float) -> None:
    """Until others use less than half a core, or patience is over."""
    while time.monotonic() < until_s:
        watch = Watch()
        time.sleep(0.4)
        if watch.cores() < MOST_OTHERS:
            return


class Beside(NamedTuple):
    """CPU seconds of a worker for each query, and cores that others than we used meanwhile."""

    worker_cpu_s: float
    others_cores: float


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def _pin(pid: int, cpu: int) -> None:
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), {cpu})


def _siblings(cpu: int) -> str:
    """CPUs that share a physical core with this one, as Linux says it."""
    return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text().strip()


@contextmanager
def _copying(cpu: int) -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", COPY])
    try:
        os.sched_setaffinity(process.pid, {cpu})
        time.sleep(0.5)
        yield process.pid
    finally:
        process.kill()
        process.wait()


async def _beside(store: Store, one: str, two: str | None, seconds: float, *more: int) -> Beside:
    """Of worker `one`, with `two` serving as much as it can; `more` are processes of ours."""
    token = {"authorization": f"Bearer {store.secret('parts')}"}  # workers answer their own gateways
    data, other = query("/v2/models/detector/infer", **token), None
    if two is not None:
        other = asyncio.create_task(load(port_of(store, two), data, 1, seconds + 0.5))
    await load(port_of(store, one), data, 1, 0.3)
    ours = [*more, pid_of(store, "controller"), *(pid_of(store, each.name) for each in _wanted(store))]
    pid, watch, began_s = pid_of(store, one), Watch(), time.perf_counter()
    before_s, all_s = cpu_s(pid), cpu_s(*ours)
    _, delays_s = await load(port_of(store, one), data, 1, seconds)
    worker_s = (cpu_s(pid) - before_s) / len(delays_s)
    others = watch.cores() - (cpu_s(*ours) - all_s) / (time.perf_counter() - began_s)
    if other is not None:
        await other
    return Beside(worker_s, max(others, 0.0))


def run(seconds: float, rounds: int) -> dict[str, Any]:
    """All that is measured."""
    with tempfile.TemporaryDirectory() as folder, started(Path(folder)) as store:
        counters = sorted(path.name for path in Path(POWER).glob("*:*")) if Path(POWER).is_dir() else []
        return {
            "machine": machine.describe(None),
            "gateway": gateway(store, 3.0 * seconds),
            "neighbours": neighbours(store, seconds, rounds),
            "power": {"counters": counters, "measured": False},
        }


def main() -> None:
    """Measure, write, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="of each part")
    parser.add_argument("--rounds", type=int, default=8, help="of the neighbours")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the result")
    options = parser.parse_args()
    found = run(options.seconds, options.rounds)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "left-out.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({name: found[name] for name in ("gateway", "neighbours", "power")}, indent=1))


if __name__ == "__main__":
    main()
