"""Cases that need a process of their own: start-up, peak memory, two CPUs."""

from __future__ import annotations

import json
import os
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.startup import BARE, PROBE, SCRIPT

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = ("numpy", "numba", "pyarrow", "pydantic", "yaml", "edgewise")


def full_edge(antennas: int, rounds: int) -> dict[str, Any]:
    """`bench.scenario` in a new process."""
    return _json("-m", "bench.scenario", str(antennas), str(rounds))


def slots(rounds: int, worlds: int, count: int, cpus: Iterable[int]) -> list[dict[str, Any]]:
    """`bench.worlds` on one and on two threads; the median round of each by wall time.

    Args:
        cpus: which both may run on.
    """
    allowed = set(cpus)
    threads = [t for t in (1, 2) if t <= len(allowed)]
    runs: dict[int, list[dict[str, Any]]] = {t: [] for t in threads}
    for _ in range(rounds):
        for t in threads:
            runs[t].append(_json("-m", "bench.worlds", str(t), str(worlds), str(count), cpus=allowed))
    return [sorted(runs[t], key=lambda run: float(run["wall_s"]))[len(runs[t]) // 2] for t in threads]


def kais(rounds: int, worlds: int, count: int, cpus: Iterable[int]) -> list[dict[str, Any]]:
    """`bench.kais`: plain loop (threads 0), one thread, two; the median round of each by wall time.

    Args:
        count: slots of a world; the plain loop passes as many, in one world.
        cpus: which all may run on.
    """
    allowed = set(cpus)
    kinds = [0, *(t for t in (1, 2) if t <= len(allowed))]
    runs: dict[int, list[dict[str, Any]]] = {t: [] for t in kinds}
    for _ in range(rounds):
        for t in kinds:
            runs[t].append(_json("-m", "bench.kais", str(t), str(worlds), str(count), cpus=allowed))
    median = [sorted(runs[t], key=lambda run: float(run["wall_s"]))[len(runs[t]) // 2] for t in kinds]
    rates = [float(run["slots"]) / float(run["cpu_s"]) for run in median]
    derived = [{"per_cpu_s": rate, "times_plain": rate / rates[0]} for rate in rates]
    return [run | more for run, more in zip(median, derived, strict=True)]


def startup(rounds: int) -> dict[str, Any]:
    """Time of a process that simulates `tiny`, next to an empty one, and where it goes."""
    _python("-c", SCRIPT)  # compiles what is not compiled yet
    whole = [_timed(SCRIPT) for _ in range(rounds)]
    bare = [_timed(BARE) for _ in range(rounds)]
    parts = [_json("-c", PROBE) for _ in range(rounds)]
    return {
        "wall_s": [wall for wall, _ in whole],
        "cpu_s": [cpu for _, cpu in whole],
        "bare_cpu_s": [cpu for _, cpu in bare],
        "steps_cpu_s": {name: statistics.median(part[name] for part in parts) for name in parts[0]},
        "imports_s": _imports(_python("-X", "importtime", "-c", "import edgewise.api").stderr),
    }


def _imports(log: str) -> dict[str, float]:
    """Seconds of each library, with what it imports first, from `-X importtime`."""
    found: dict[str, float] = {}
    for micro, name in re.findall(r"^import time:\s*\d+ \|\s*(\d+) \|\s*(\S+)$", log, flags=re.MULTILINE):
        if name in LIBRARIES:
            found.setdefault(name, int(micro) * 1e-6)
    return found


def _timed(script: str) -> tuple[float, float]:
    used, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    _python("-c", script)
    wall_s, now = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall_s, now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime


def _json(*arguments: str, cpus: Iterable[int] | None = None) -> Any:
    return json.loads(_python(*arguments, cpus=cpus).stdout)


def _python(*arguments: str, cpus: Iterable[int] | None = None) -> subprocess.CompletedProcess[str]:
    mine = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    try:
        if cpus is not None and mine is not None:
            os.sched_setaffinity(0, cpus)  # the new process inherits it
        return subprocess.run(
            [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"python {' '.join(arguments)[:80]} failed:\n{error.stderr}") from None
    finally:
        if cpus is not None and mine is not None:
            os.sched_setaffinity(0, mine)
