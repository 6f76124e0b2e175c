"""Commands with an empty kernel cache, on one core: what a user waits for at first."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from typing import Any

TARGET_S = 10.0
WHOLE = {
    "splitting": ("split-inception", "split"),
    "placement": ("recognition", "place"),
    "deferral": ("deferrable", "defer"),
}  # part of `precompile` → a small scenario, and the decision


def commands() -> dict[str, list[str]]:
    """Arguments of Python for each shipped policy of each decision, by name."""
    from edgewise import policies
    from edgewise.precompile import parts

    edgewise = ["-m", "edgewise"]
    found: dict[str, list[str]] = {}
    for part in parts():
        kind, _, name = part.partition(":")
        if kind == "streams":
            found[f"simulate tiny --policy {name}"] = [*edgewise, "simulate", "tiny", "--policy", name]
        elif kind in WHOLE and name != "nona-layout":  # which is for groups of servers
            scenario, decision = WHOLE[kind]
            whole = ["simulate", scenario, "--policy", f"{decision}={name}"]
            found[" ".join(whole)] = [*edgewise, *whole]
        elif kind not in ("requests", "replicas"):
            found[part] = ["-m", "edgewise.precompile", part]
    pairs = [(name, "none") for name in policies.names("requests")] + [
        ("greedy", name) for name in policies.names("orchestrate")
    ]
    for one, two in dict.fromkeys(pairs):
        scenario = "scarce" if two == "kais-scarce" else "kais-demo"  # a card knows its own services only
        whole = ["simulate", scenario, "--policy", f"requests={one}", "--policy", f"orchestrate={two}"]
        found[" ".join(whole)] = [*edgewise, *whole]
    return found


def run(quick: bool) -> dict[str, Any]:
    """Time each of them, which the caller has pinned to one core."""
    names = commands()
    chosen = list(names)[:1] if quick else list(names)
    return {"target_s": TARGET_S, "rows": [{"name": name} | _timed(names[name]) for name in chosen]}


def _timed(arguments: list[str]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        own = ("EDGEWISE_KERNELS", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")
        environment = {name: value for name, value in os.environ.items() if name not in own}
        more = ["--out", os.path.join(folder, "run")] if arguments[1] == "edgewise" else []
        used, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(
            [sys.executable, *arguments, *more],
            env=environment | {"EDGEWISE_CACHE": folder}, cwd=folder, check=True, capture_output=True,
        )  # fmt: skip
        wall_s, now = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"wall_s": wall_s, "cpu_s": now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime}
