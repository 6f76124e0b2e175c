"""The log of looks: one JSON line for every use of test seeds, appended and never rewritten.

{"time": "2030-01-31T12:00:00Z", "paper": "queues", "commit": "1f…", "dirty": false,
 "version": "0.1.0", "seeds": [1000000, …], "quick": false, "finished": true,
 "claims": [{"id": "…", "estimate": 1.0, "ci": [0.9, 1.1], "status": "holds"}, …],
 "scenarios": {"three-tier": "9a…"}}
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from edgewise.errors import RunError
from edgewise.reproduce.claims import Claim
from edgewise.reproduce.place import LOOKS, CodeVersion

try:
    import fcntl
except ImportError:  # not on this system: a line is then one write to a file opened for appending
    fcntl = None  # type: ignore[assignment]


def append_look(
    folder: Path,
    paper: str,
    code: CodeVersion,
    claims: Sequence[Claim],
    *,
    seeds: Sequence[int],
    quick: bool,
    finished: bool,
    scenarios: Mapping[str, str],
) -> Path:
    """Add one use of test seeds, now, to the log in `folder`, which is made, under a lock.

    Args:
        paper: name of the reproduction.
        code: that ran.
        claims: as far as they were made.
        seeds: that were used.
        quick: whether it was a quick run.
        finished: false when it ended early: its figures may have been seen.
        scenarios: name → SHA-256.
    Returns:
        the log.
    Raises:
        RunError: it cannot be written.
    """
    keys = ("id", "estimate", "ci", "status")
    look = {
        "time": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "paper": paper,
        "commit": code.commit,
        "dirty": code.dirty,
        "version": code.version,
        "seeds": list(seeds),
        "quick": quick,
        "finished": finished,
        "claims": [{key: claim.as_dict()[key] for key in keys} for claim in claims],
        "scenarios": dict(scenarios),
    }
    line = json.dumps(look, ensure_ascii=False, allow_nan=False) + "\n"
    path = folder / LOOKS
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(path, "ab", buffering=0) as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
            file.write(line.encode())
            os.fsync(file.fileno())
    except OSError as error:
        raise RunError(f"cannot add a look to {path}: {error}; check the path and its rights") from error
    return path


def read_looks(folder: Path) -> list[dict[str, Any]]:
    """Every look, oldest first; none when there is no log.

    Raises:
        RunError: the log cannot be read, or a line is not JSON.
    """
    path = folder / LOOKS
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"cannot read {path}: {error}; check the path and its rights") from error
    looks = []
    for number, line in enumerate(lines, 1):
        try:
            looks.append(json.loads(line))
        except ValueError as error:
            raise RunError(f"{path}:{number}: not a look: {error}; restore the line from git") from None
    return looks
