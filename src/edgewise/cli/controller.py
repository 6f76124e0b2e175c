"""Asking the controller of a live system.

The folder of a system says where its controller is, and who may ask.
"""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from edgewise.cli.output import err
from edgewise.errors import RunError, UnansweredError

Folder = Annotated[
    Path, typer.Option("--state", help="Folder of the live system's state.", callback=Path.absolute)
]
DEFAULT = Path("runs/live")


def call(folder: Path, method: str, path: str, body: Any = None, patience_s: float = 10.0) -> Any:
    """JSON of the controller's answer, which is waited for so long; shows the folder's operator token.

    Raises:
        RunError: there is no controller, or it refuses.
        UnansweredError: it does not answer.
    """
    from edgewise.runtime.clients import reaching

    store = reaching.store_of(folder)
    client = reaching.operator(store)
    store.close()
    data = b"" if body is None else json.dumps(body).encode()

    async def send() -> Any:
        try:
            return await reaching.ask(client, method, path, body=data, patience_s=patience_s)
        finally:
            client.close()

    try:
        answer = asyncio.run(send())
    except ConnectionError:
        why = "its controller cannot be reached; is edgewise up running?"
        raise UnansweredError(f"state {folder}: {why}") from None
    except TimeoutError:
        why = f"its controller runs, but did not answer within {patience_s:g} s; try again"
        raise UnansweredError(f"state {folder}: {why}") from None
    found = json.loads(answer.body)
    if answer.status not in (200, 202):
        raise RunError(found.get("error", f"status {answer.status}"))
    return found


PERIOD_S = 0.2
SILENT_S = 60.0  # a controller that died is started anew long before, and goes on
SAID = {
    "waiting": "waits for the switches before it",
    "compiling": "compiling its kernels, for the first time on this machine; queries go on",
    "switching": "switching",
}
FAILED = "failed"  # a process: it ends again and again before it serves


def follow(ask: Callable[[str], Any], accepted: Mapping[str, Any]) -> Mapping[str, Any]:
    """Wait until an operation has ended, and return it.

    Args:
        ask: JSON of the controller's answer to a path.
        accepted: the operation, as it was answered.
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


def failing(name: str, failures: int, why: str) -> str:
    """A line about a process that ends again and again before it serves."""
    return f"{name} {FAILED} {failures} times: {why}; it is tried again and again until that is mended"
