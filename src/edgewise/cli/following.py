"""Waiting for what the live system has accepted, and saying meanwhile how far it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console

from edgewise.errors import RunError, UnansweredError

PERIOD_S = 0.2
SILENT_S = 60.0  # a controller that died is started anew long before, and goes on
SAID = {
    "waiting": "waits for the switches before it",
    "compiling": "compiling its kernels, for the first time on this machine; queries go on",
    "switching": "switching",
}


def follow(ask: Callable[[str], Any], accepted: Mapping[str, Any], err: Console) -> Mapping[str, Any]:
    """Wait until an operation has ended, and return it.

    Args:
        ask: JSON of the controller's answer to a path.
        accepted: the operation, as it was answered.
        err: its progress is shown there.
    Raises:
        RunError: it failed, or the controller is silent for a minute.
    """
    operation, shown, silent_until_s = accepted, "", time.monotonic() + SILENT_S
    path = f"/v1/operations/{operation['id']}"
    with err.status("") as spinner:
        while operation["state"] not in ("done", "failed"):
            seconds = time.time() - operation["accepted_s"]
            said = f"{operation['policy'] or operation['what']}: {SAID[operation['state']]}"
            spinner.update(f"{said}, {seconds:.0f} s")
            if said != shown and not err.is_terminal:
                err.print(said, highlight=False)
            shown = said
            time.sleep(PERIOD_S)
            try:
                operation, silent_until_s = ask(path), time.monotonic() + SILENT_S
            except UnansweredError:
                if time.monotonic() > silent_until_s:
                    raise
    if operation["state"] == "failed":
        raise RunError(f"{operation['what']} {operation['policy']}: {operation['error']}")
    return operation
