"""Load by vegeta: an open loop at a rate, or a closed one with a number of connections."""

from __future__ import annotations

import base64
import json
import subprocess
from dataclasses import dataclass
from typing import Any

from beds.go import VEGETA, built
from beds.processes import BedError, dying

INPUT = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [0.0, 1.0, 2.0, 3.0]}]}
BODY = json.dumps(INPUT).encode()


@dataclass(frozen=True)
class Load:
    """What came of some load.

    Attributes:
        per_s: answers of status 200 per second.
        p50_s, p99_s: of the delays.
        status: number of answers by status; "0" stands for none.
    """

    per_s: float
    p50_s: float
    p99_s: float
    requests: int
    status: dict[str, int]


def open_loop(url: str, rate_qps: float, seconds: float, body: bytes = BODY, http2: bool = False) -> Load:
    """Requests at a rate, whatever the answers do."""
    return _attack(url, ["-rate", f"{rate_qps:g}/s", "-max-workers", "4096"], seconds, body, http2)


def closed_loop(url: str, connections: int, seconds: float, body: bytes = BODY, http2: bool = False) -> Load:
    """On each connection one request after another."""
    several = ["-rate", "0", "-max-workers", str(connections), "-workers", str(connections)]
    return _attack(url, [*several, "-connections", str(connections)], seconds, body, http2)


def _attack(url: str, how: list[str], seconds: float, body: bytes, http2: bool) -> Load:
    program = str(built(*VEGETA))
    target = {
        "method": "POST", "url": url, "body": base64.b64encode(body).decode(),
        "header": {"content-type": ["application/json"]},
    }  # fmt: skip
    version = ["-h2c"] if http2 else []
    limits = ["-duration", f"{seconds:g}s", "-timeout", "20s"]
    command = [program, "attack", "-format=json", *limits, *version, *how]
    fired = subprocess.run(
        dying(command), input=json.dumps(target).encode() + b"\n", capture_output=True, check=False
    )
    if fired.returncode:
        raise BedError(f"vegeta: {fired.stderr.decode(errors='replace')[-500:]}")
    said = subprocess.run(
        [program, "report", "-type=json"], input=fired.stdout, capture_output=True, check=True
    )
    found: dict[str, Any] = json.loads(said.stdout)
    delays, status = found["latencies"], found["status_codes"]
    answered_s = (found["duration"] + found["wait"]) / 1e9
    return Load(
        status.get("200", 0) / answered_s,
        delays["50th"] / 1e9,
        delays["99th"] / 1e9,
        found["requests"],
        status,
    )
