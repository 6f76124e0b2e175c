"""What records cost a live gateway: `python -m bench.keeping [COMMIT]`, where COMMIT keeps none, or fewer.

Without COMMIT the other tree is the last commit of this one, whose gateways count and write nothing: all else
is the same. Both trees run one live system in turn: a gateway and a controller of their own, with workers
that return their input at once, and the store on disk. The same clients ask each gateway for queries of a
stream and for requests of a service. Compared are CPU time of the gateway's process for each answer, and
answers a second: medians over rounds with the quartiles' distance, the mean ratio of pairs with its 95 %
interval, and the mean of the best tenth of the rounds of each, which other software disturbed least.
`python -m bench.against` has the rest of a gateway.

With --alone no system runs: what counts and writes is timed by itself, the least of many turns, which other
software hardly disturbs.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from bench.against import HERE, checked_out, said, spread, started_in
from bench.load import cpu_s, load
from bench.measure import least_s
from edgewise.report.intervals import mean_interval
from edgewise.runtime.gateway.tally import StreamTally
from edgewise.runtime.http.messages import write_request
from edgewise.runtime.protocol.messages import InferRequest, encode_request
from edgewise.runtime.store.records import Request
from edgewise.runtime.store.steady import SteadyStore

# Names of the runtime are those that `bench.left_out` of the same tree has, wherever they stand there.
STARTER = """
import asyncio, json, shutil, signal, subprocess, sys, tempfile
from pathlib import Path
from bench.left_out import Emulation, ask, http, parse_scenario, prepare, scenario
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
CONNECTIONS = 8
# What is added to files of a tree whose gateways keep no records.
SILENT = {
    "gateway/tally.py": """
for name in ("opened", "query", "answered", "worked", "sent"):
    setattr(StreamTally, name, lambda *_: None)
StreamTally.changed = lambda *_: []
""",
    "store/records.py": """
RecordTable.note_requests = RecordTable.note_outcomes = RecordTable.note_windows = lambda *_: None
""",
}


def main() -> None:
    """Print what each costs in both trees."""
    parser = argparse.ArgumentParser(prog="python -m bench.keeping", description=__doc__)
    parser.add_argument("commit", nargs="?", help="the other tree; else this one's, without records")
    parser.add_argument("--rounds", type=int, default=10, help="in turn, each tree first in every other one")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each tree in a round")
    parser.add_argument("--alone", action="store_true", help="only what counts and writes, without a system")
    chosen = parser.parse_args()
    if chosen.alone:
        return print("\n".join(f"{what:40} {1e6 * each_s:6.2f} µs" for what, each_s in alone().items()))
    with ExitStack() as stack:
        trees = stack.enter_context(other_tree(chosen.commit)), HERE
        fronts = [stack.enter_context(started(tree)) for tree in trees]
        print(f"{'of':24} {'':>10} {'other':>18} {'this tree':>18}   more, in pairs; of the best tenth")
        for name, task in ASKED.items():
            for front in fronts:
                measured(front, task, chosen.seconds)  # warm
            pairs = [pair(fronts, task, chosen.seconds, turned=k % 2 == 1) for k in range(chosen.rounds)]
            for k, (what, scale) in enumerate((("CPU, µs", 1e6), ("answers/s", 1.0))):
                found = [[one[k] for one in both] for both in pairs]
                print(line(name, what, scale, found, most_is_best=k == 1), flush=True)


def alone() -> dict[str, float]:
    """CPU seconds of what records add to a gateway, by what it is."""
    tally, rows = StreamTally(10.0), [Request(1e9, "here", "a", 1.0, 100.0, "near", 1e9, "in_time")] * 350

    def counted() -> None:
        for _ in range(500):
            tally.query(1.0, "a", "ok")
            tally.answered(1.0, "a", "camera", 0.01)
            tally.sent(1.0, "here", "near", 100, 100)

    def windows() -> None:
        tally.query(1.0, "a", "ok")
        store.records.note_windows(tally.changed(1e9, "gateway-0", 5.0, "closest"))
        tally.written()

    with tempfile.TemporaryDirectory() as folder:
        store = SteadyStore(Path(folder) / "live" / "state.sqlite")
        found = {
            "a query, counted": least_s(counted) / 500,
            "a request, written with 349 others": least_s(lambda: store.records.note_requests(rows)) / 350,
            "windows, written four times a second": least_s(windows),
            "what became of a stream, written then": least_s(
                lambda: store.records.note_outcomes({1: {"ok": 1, "worker": "w"}})
            ),
        }
        store.close()
    return found


@contextmanager
def other_tree(commit: str | None) -> Iterator[Path]:
    """A commit, or the last one here without what keeps records."""
    with checked_out(commit or "HEAD") as tree:
        for file, more in ({} if commit else SILENT).items():
            with (tree / "src" / "edgewise" / "runtime" / file).open("a", encoding="utf-8") as code:
                code.write(more)
        yield tree


def pair(fronts: list[Any], task: str, seconds: float, turned: bool) -> list[tuple[float, float]]:
    """Both gateways in turn, the second one first where it is `turned`."""
    asked = [measured(front, task, seconds) for front in (fronts[::-1] if turned else fronts)]
    return asked[::-1] if turned else asked


def line(name: str, what: str, scale: float, pairs: list[list[float]], most_is_best: bool) -> str:
    """Medians of both and their quartiles' distance, what the second has more, and the best tenth of each."""
    more = [math.log(b / a) for a, b in pairs]
    shown = [
        f"{scale * statistics.median(each):9.1f} ± {scale * spread(list(each)):4.1f}"
        for each in zip(*pairs, strict=True)
    ]
    found = mean_interval(more)
    mean, *ends = (
        math.nan if each is None else 100.0 * math.expm1(each) for each in (found.mean, found.low, found.high)
    )
    other, this = (best_tenth(each, most_is_best) for each in zip(*pairs, strict=True))
    return (
        f"{name:24} {what:>10} {' '.join(shown)}   {mean:+.1f} % [{ends[0]:+.1f} … {ends[1]:+.1f}];"
        f" {scale * other:.1f}, {scale * this:.1f}: {100.0 * (this / other - 1.0):+.1f} %"
    )


def best_tenth(values: Iterable[float], most_is_best: bool) -> float:
    """Mean of the best tenth of values, of one at least."""
    ordered = sorted(values, reverse=most_is_best)
    return statistics.mean(ordered[: math.ceil(len(ordered) / 10)])


def measured(front: list[Any], task: str, seconds: float) -> tuple[float, float]:
    """CPU seconds of the gateway for each answer, and answers a second."""
    pid, port, stream = front
    headers, body = encode_request(InferRequest({"x": np.ones((1, 8), np.float32)}))
    headers |= {"edgewise-stream": stream} if task == ASKED["a query of a stream"] else {}
    data = b"".join(write_request("POST", f"/v2/models/{task}/infer", "127.0.0.1", headers, body))
    before_s = cpu_s(pid)
    qps, delays_s = uvloop.run(load(port, data, CONNECTIONS, seconds))
    return (cpu_s(pid) - before_s) / len(delays_s), qps


@contextmanager
def started(tree: Path) -> Iterator[list[Any]]:
    """A tree's live system: process and port of the gateway, and a stream."""
    with started_in(f"{tree / 'src'}:{tree}", STARTER) as starter:
        yield json.loads(said(starter))


if __name__ == "__main__":
    main()
