"""Is this tree slower than another commit? `python -m bench.against COMMIT`

Both trees run the same work in turn, each in a process of its own that is kept, pinned to one CPU. What is
timed is named by what every edition understands: scenarios and policies. Medians of CPU time with their
spread; a case counts as slower when its median lies beyond the other's by more than the spread of both.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.measure import pin

HERE = Path(__file__).resolve().parent.parent
# name → scenario, changes, policies by decision
CASES: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
    "streams, three-tier": ("three-tier", {}, {"dispatch": "least-impedance"}),
    "streams, full-edge": ("full-edge", {"duration_s": 300}, {"dispatch": "closest"}),
    "streams, lookahead": ("three-tier", {"duration_s": 100}, {"dispatch": "lookahead"}),
    "services, kais-demo": ("kais-demo", {}, {"dispatch": "greedy", "orchestrate": "marginal"}),
    "services, learned": ("scarce", {}, {"dispatch": "kais-scarce", "orchestrate": "kais-scarce"}),
    "pipelines, recognition": ("recognition", {}, {"place": "otfa"}),
    "pipelines, place jointly": ("recognition", {}, {"place": "joint"}),
    "graphs, split-inception": ("split-inception", {}, {"split": "nona-free"}),
    "jobs, deferrable": ("deferrable", {}, {"defer": "horizon"}),
    "jobs, on nodes": ("deferrable", {"jobs.room": "nodes"}, {"defer": "tetris"}),
}
EVENTS = "one event at a time"  # beside these: opens and closes streams through `DispatchCore.handle`
SERVER = """
import json, sys, time
import edgewise as ew
cases, what = json.loads(sys.argv[1]), {}
for name, (scenario, changes, policies) in cases.items():
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
    name, repeats = json.loads(line)
    began_s = time.process_time()
    for _ in range(repeats):
        what[name]()
    print(json.dumps((time.process_time() - began_s) / repeats), flush=True)
"""


def main() -> None:
    """Command line of `python -m bench.against`."""
    parser = argparse.ArgumentParser(prog="python -m bench.against", description=__doc__)
    parser.add_argument("commit", help="the other tree")
    parser.add_argument("--rounds", type=int, default=7, help="of each case, in turn")
    parser.add_argument("--only", default="", help="cases with this in their name")
    chosen = parser.parse_args()
    pin()
    names = [name for name in (*CASES, EVENTS) if chosen.only in name]
    with ExitStack() as stack:
        other = stack.enter_context(checked_out(chosen.commit))
        servers = [stack.enter_context(server(tree / "src")) for tree in (other, HERE)]
        for row in compared(servers, names, chosen.rounds):
            print(row, flush=True)


def compared(servers: list[subprocess.Popen[str]], names: list[str], rounds: int) -> Iterator[str]:
    """A line for each case: medians, spreads and verdict."""
    yield f"{'case':26} {'other, ms':>18} {'this tree, ms':>18}   this / other"
    for name in names:
        for each in servers:
            timed_s(each, name, 1)  # compiled, and warm
        repeats = max(1, int(0.3 / max(timed_s(servers[0], name, 1), 1e-3)))
        turns = [[timed_s(each, name, repeats) for each in servers] for _ in range(rounds)]
        other, here = ([1e3 * turn[k] for turn in turns] for k in range(2))
        (a, wide_a), (b, wide_b) = ((statistics.median(x), spread(x)) for x in (other, here))
        verdict = "slower" if b > a + max(wide_a, wide_b) else "faster" if b < a - max(wide_a, wide_b) else ""
        yield f"{name:26} {a:9.1f} ± {wide_a:6.1f} {b:9.1f} ± {wide_b:6.1f}   {b / a:.2f} {verdict}"


def spread(times: list[float]) -> float:
    """From the lower to the upper quartile."""
    low, _, high = statistics.quantiles(times, n=4)
    return high - low


def timed_s(asked: subprocess.Popen[str], name: str, repeats: int) -> float:
    """CPU seconds that a tree takes for a case."""
    assert asked.stdin is not None and asked.stdout is not None
    print(json.dumps([name, repeats]), file=asked.stdin, flush=True)
    line = asked.stdout.readline()
    if not line:
        sys.exit(f"{name}: the process ended; what it said is above")
    return float(line)


@contextmanager
def server(source: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that runs cases with the package in `source`."""
    environment = {**os.environ, "PYTHONPATH": str(source)}
    command = [sys.executable, "-c", SERVER, json.dumps(CASES), EVENTS]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (
        tempfile.TemporaryDirectory() as empty,
        subprocess.Popen(command, env=environment, cwd=empty, **pipes) as started,
    ):
        try:
            yield started
        finally:
            started.terminate()


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
