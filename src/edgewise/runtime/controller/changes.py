"""What `edgewise up` asks of a running system, as its store has it: under way, done, or undone.

    under way ─▶ done
        └──────▶ undoing ─▶ failed

What was wanted before is kept with the change, so that whoever runs the controller can undo it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from edgewise.errors import RunError
from edgewise.runtime import private
from edgewise.runtime.backends.local import alive_handle
from edgewise.runtime.http import LOCALHOST
from edgewise.runtime.store import Process, Running, Store, from_fields

SCENARIO = "scenario.yaml"
UNDER_WAY, UNDOING, DONE, FAILED = "under way", "undoing", "done", "failed"
KEPT = ("policy", "services", "request_policy", "replica_policy")


@dataclass(frozen=True, slots=True)
class Change:
    """A change of what is wanted.

    Attributes:
        state: as in the module's drawing.
        why: it failed.
        before: what was wanted, None where nothing ran; see `begin`.
        began_s, ended_s: seconds since 1970; `ended_s` is None before its end.
    """

    state: str
    why: str
    before: dict[str, Any] | None
    began_s: float
    ended_s: float | None = None

    @property
    def open(self) -> bool:
        """Whether there is something left to do."""
        return self.state in (UNDER_WAY, UNDOING)

    def in_state(self, state: str, why: str = "") -> Change:
        """The same change, further on."""
        ended_s = time.time() if state in (DONE, FAILED) else None
        return replace(self, state=state, why=why or self.why, ended_s=ended_s)


def read_change(store: Store) -> Change | None:
    """The latest change, None before the first."""
    found = store.get("change")
    return None if found is None else Change(**found)


def write_change(store: Store, change: Change) -> None:
    """Keep what has become of a change."""
    store.put("change", asdict(change))


def begin(store: Store) -> Change:
    """A change of what is wanted now, to be written once its wishes are.

    Raises:
        RunError: another one is under way.
    """
    rows, change = store.processes(), read_change(store)
    if not any(running.handle and alive_handle(running.handle) for running in rows):
        return Change(UNDER_WAY, "", None, time.time())
    if change is not None and change.open:
        raise RunError(f"state {store.file.parent}: an earlier change is under way; see edgewise status")
    before = {
        "scenario": (store.file.parent / SCENARIO).read_text(),
        "settings": {name: store.get(name) for name in KEPT},
        "processes": [asdict(running.process) for running in rows if running.process.wanted],
        "renamed": {},
    }
    return Change(UNDER_WAY, "", before, time.time())


def undo(store: Store, before: Mapping[str, Any]) -> None:
    """Want again what was wanted before a change."""
    write_scenario(store, before["scenario"])
    for name, value in before["settings"].items():
        store.put(name, value)
    former = {new: old for old, new in before["renamed"].items()}
    rows = {former.get(r.process.name, r.process.name): r for r in store.processes()}
    wanted = [from_fields(fields) for fields in before["processes"]]
    store.want([beside(process, rows) for process in wanted], former)


def write_scenario(store: Store, text: str) -> None:
    """Write the scenario for all processes to read; at once, as a running system reads it."""
    fresh = store.file.parent / f"{SCENARIO}.new"
    private.write_file(fresh, text)
    fresh.replace(store.file.parent / SCENARIO)


def beside(process: Process, rows: Mapping[str, Running]) -> Process:
    """A worker or replica that takes the place of one that runs starts beside it, at another port."""
    old = rows.get(process.name)
    if old is None or old.handle is None or process.kind == "gateway":
        return process
    same = replace(process, port=old.process.port)
    return same if same.digest == old.process.digest else replace(process, port=free_port())


def tls_files(folder: Path, digest: str) -> tuple[Path, Path]:
    """Certificate and key of gateways, named by what they hold: what was there before can be gone back to."""
    return folder / f"tls-{digest}.pem", folder / f"tls-{digest}.key"


def taken(port: int, host: str = LOCALHOST) -> str | None:
    """Why nobody can listen at a port now; None where it is free."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.strerror or str(error)
    return None


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((LOCALHOST, 0))
        return int(probe.getsockname()[1])
