"""Is this tree slower than another commit? `python -m bench.against COMMIT`

Both trees run the same work in turn, each in a process of its own that is kept, pinned to one CPU. What is
timed is named by what every edition understands: scenarios and policies. Of the live system it is a small
query, at a gateway and at a worker that each tree's own `bench.echo` starts, asked by the same clients.
Medians of CPU time with their spread; a case counts as slower when its median lies beyond the other's by more
than the spread of both.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from bench.load import cpu_s, load, query
from bench.measure import pin

HERE = Path(__file__).resolve().parent.parent
ONE_DECIDES, EACH_DECIDES = {"streams.gateways": "one"}, {"streams.gateways": "per_site"}
ONE_SENDS, EACH_SENDS = {"services.gateways": "one"}, {"services.gateways": "per_site"}
# name → scenario, changes (who decides is said: what is the default has changed), policies by decision
CASES: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
    "streams, three-tier": ("three-tier", ONE_DECIDES, {"dispatch": "least-impedance"}),
    "streams, one gateway": ("full-edge", {"duration_s": 300, **ONE_DECIDES}, {"dispatch": "closest"}),
    "streams, one per site": ("full-edge", {"duration_s": 300, **EACH_DECIDES}, {"dispatch": "closest"}),
    "streams, lookahead": ("three-tier", {"duration_s": 100, **ONE_DECIDES}, {"dispatch": "lookahead"}),
    "services, one gateway": ("kais-demo", ONE_SENDS, {"requests": "greedy", "orchestrate": "marginal"}),
    "services, one per site": ("kais-demo", EACH_SENDS, {"requests": "greedy", "orchestrate": "marginal"}),
    "services, learned": ("scarce", ONE_SENDS, {"requests": "kais-scarce", "orchestrate": "kais-scarce"}),
    "pipelines, recognition": ("recognition", {}, {"place": "otfa"}),
    "pipelines, place jointly": ("recognition", {}, {"place": "joint"}),
    "graphs, split-inception": ("split-inception", {}, {"split": "nona-free"}),
    "jobs, pooled": ("deferrable", {"jobs.room": "pooled"}, {"defer": "horizon"}),
    "jobs, on nodes": ("deferrable", {"jobs.room": "nodes"}, {"defer": "tetris"}),
}
LIVE = {"gateway, a small query": "gateway", "worker, a small query": "worker"}
EVENTS = "one event at a time"  # beside these: opens and closes streams through `DispatchCore.handle`
SERVER = """
import json, sys, time
import edgewise as ew
from edgewise.policies import DECISIONS
was = {} if "requests" in DECISIONS else {"requests": "dispatch"}  # before it had a name of its own
cases, what = json.loads(sys.argv[1]), {}
for name, (scenario, changes, policies) in cases.items():
    policies = {was.get(decision, decision): policy for decision, policy in policies.items()}
    what[name] = lambda s=ew.load_scenario(scenario, changes), p=policies: ew.simulate(s, p, seeds=[1])
def events():
    from edgewise import policies
    from edgewise.core.world import World
    from edgewise.workloads.generate import generate_streams
    try:
        from edgewise.core.dispatch.streams import DispatchCore
        from edgewise.core.dispatch.events import StreamClosed, StreamOpened
    except ImportError:  # before it was a package
        from edgewise.core.dispatch import DispatchCore
        from edgewise.core.events import StreamClosed, StreamOpened
    s = ew.load_scenario("three-tier")
    world, streams = World.build(s.catalog, s.topology), generate_streams(s, 1)
    told = [(t.open_s, 1, StreamOpened(t.open_s, t)) for t in streams]
    told += [(t.close_s, 0, StreamClosed(t.close_s, t.id)) for t in streams]
    told.sort(key=lambda each: each[:2])
    def play():
        core = DispatchCore(world, policies.load("dispatch", "closest"), 1)
        for _, _, event in told:
            core.handle(event)
    return play
what[sys.argv[2]] = events()
for line in sys.stdin:
    name, repeats, began_s = json.loads(line), 0, time.process_time()
    while not repeats or time.process_time() < began_s + 0.3:
        what[name]()
        repeats += 1
    print(json.dumps((time.process_time() - began_s) / repeats), flush=True)
"""
STARTER = """
import json, sys, uvloop
from bench.echo import open_stream, process, serve_echo, serve_gateway, serve_worker
_, to_echo = process(serve_echo)
worker, to_worker = process(serve_worker, 16)
gateway, to_gateway = process(serve_gateway, to_echo)
asked = {"worker": "/v2/models/echo/infer", "gateway": "/v2/models/copy/infer"}
where = {"worker": [worker.pid, to_worker, asked["worker"], ""],
         "gateway": [gateway.pid, to_gateway, asked["gateway"], uvloop.run(open_stream(to_gateway))]}
print(json.dumps(where), flush=True)
sys.stdin.read()
"""
CONNECTIONS, QUERIES_S = 16, 0.5


def main() -> None:
    """Command line of `python -m bench.against`."""
    parser = argparse.ArgumentParser(prog="python -m bench.against", description=__doc__)
    parser.add_argument("commit", help="the other tree")
    parser.add_argument("--rounds", type=int, default=7, help="of each case, in turn")
    parser.add_argument("--only", default="", help="cases with this in their name")
    chosen = parser.parse_args()
    pin()
    with ExitStack() as stack:
        trees = stack.enter_context(checked_out(chosen.commit)), HERE
        print(f"{'case':26} {'other, ms':>18} {'this tree, ms':>18}   this / other", flush=True)
        for started, timed, cases in ((server, simulated_s, (*CASES, EVENTS)), (answering, asked_s, LIVE)):
            names = [name for name in cases if chosen.only in name]
            servers = [stack.enter_context(started(tree)) for tree in trees if names]
            for name in names:
                print(
                    compared(name, [partial(timed, each, name) for each in servers], chosen.rounds),
                    flush=True,
                )


def compared(name: str, timed: list[Callable[[], float]], rounds: int) -> str:
    """A case's line: medians, spreads and verdict."""
    for each in timed:
        each()  # compiled, and warm
    turns = [[1e3 * each() for each in timed] for _ in range(rounds)]
    (a, wide_a), (b, wide_b) = ((statistics.median(x), spread(x)) for x in zip(*turns, strict=True))
    verdict = "slower" if b > a + max(wide_a, wide_b) else "faster" if b < a - max(wide_a, wide_b) else ""
    return f"{name:26} {a:9.4g} ± {wide_a:6.2g} {b:9.4g} ± {wide_b:6.2g}   {b / a:.2f} {verdict}"


def spread(times: list[float]) -> float:
    """From the lower to the upper quartile."""
    low, _, high = statistics.quantiles(times, n=4)
    return high - low


def simulated_s(asked: subprocess.Popen[str], name: str) -> float:
    """CPU seconds that a tree takes for a case."""
    assert asked.stdin is not None
    print(json.dumps(name), file=asked.stdin, flush=True)
    return float(said(asked))


def asked_s(where: dict[str, Any], name: str) -> float:
    """CPU seconds that a tree's gateway or worker takes for a query."""
    pid, port, path, stream = where[LIVE[name]]
    before_s = cpu_s(pid)
    _, delays_s = uvloop.run(load(port, query(path, (1, 8), stream), CONNECTIONS, QUERIES_S))
    return (cpu_s(pid) - before_s) / len(delays_s)


def said(asked: subprocess.Popen[str]) -> str:
    """The next line of a process."""
    assert asked.stdout is not None
    return asked.stdout.readline() or sys.exit("the process ended; what it said is above")


def server(tree: Path) -> AbstractContextManager[subprocess.Popen[str]]:
    """A process that runs cases with the package of a tree."""
    return started_in(str(tree / "src"), SERVER, json.dumps(CASES), EVENTS)


@contextmanager
def answering(tree: Path) -> Iterator[dict[str, Any]]:
    """A tree's gateway and worker: process, port, path and stream of each."""
    with started_in(f"{tree / 'src'}:{tree}", STARTER) as starter:
        yield json.loads(said(starter))


@contextmanager
def started_in(path: str, *command: str) -> Iterator[subprocess.Popen[str]]:
    """A process that knows the packages of a path, in an empty folder."""
    environment = {**os.environ, "PYTHONPATH": path}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (
        tempfile.TemporaryDirectory() as empty,
        subprocess.Popen([sys.executable, "-c", *command], env=environment, cwd=empty, **pipes) as started,
    ):
        try:
            yield started
        finally:
            started.stdin.close()  # what it started ends with it
            started.wait()


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Another commit in a folder of its own."""
    git = ["git", "-C", str(HERE), "worktree"]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run([*git, "add", "--detach", "--quiet", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


if __name__ == "__main__":
    main()
