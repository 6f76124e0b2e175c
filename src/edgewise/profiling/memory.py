"""Peak memory of loading and running a network, in a process of its own.

`python -m edgewise.profiling.memory` reads {"file", "threads", "batch", "side", "sizes", "axes"}
as JSON and prints the growth of the resident memory in bytes, or {"error": …}.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgewise.errors import EdgewiseError, ProfileError
from edgewise.profiling.network import OnnxNetwork

RUNS = 3
STATUS = Path("/proc/self/status")


def peak_bytes(
    file: Path, threads: int, batch: int, side: int | None, sizes: Sequence[int], axes: Mapping[str, int]
) -> float:
    """Growth of the resident memory from before loading the network to its peak.

    Raises:
        ProfileError: the process ends without an answer.
    """
    job = {
        "file": str(file),
        "threads": threads,
        "batch": batch,
        "side": side,
        "sizes": list(sizes),
        "axes": dict(axes),
    }
    done = subprocess.run(
        [sys.executable, "-m", "edgewise.profiling.memory"],
        input=json.dumps(job),
        capture_output=True,
        text=True,
    )
    try:
        answer = json.loads(done.stdout)
    except json.JSONDecodeError:
        raise ProfileError(
            f"{file}: cannot be run in a process of its own (exit status {done.returncode})"
        ) from None
    if "error" in answer:
        raise ProfileError(answer["error"])
    return float(answer["bytes"])


def _peak() -> float:
    """Peak resident memory of this process since its start, in bytes."""
    try:
        lines = STATUS.read_text().splitlines()
        return next(float(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return _peak_elsewhere()


def _peak_elsewhere() -> float:
    """Systems without /proc: getrusage, in bytes on macOS; 0 on Windows, which lacks it."""
    try:
        import resource
    except ImportError:
        return 0.0
    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


def _measure(job: Mapping[str, Any]) -> float:
    before = _peak()
    network = OnnxNetwork(Path(job["file"]), job["threads"], job["sizes"], job["axes"])
    arrays = network.arrays(job["batch"], job["side"])
    for _ in range(RUNS):
        network.run(arrays)
    return _peak() - before


if __name__ == "__main__":
    try:
        print(json.dumps({"bytes": _measure(json.load(sys.stdin))}))
    except EdgewiseError as error:
        print(json.dumps({"error": str(error)}))
