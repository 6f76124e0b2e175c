"""Asking the controller of a live system; its nodes, pipelines on them, and what a failure of one does.

The folder of a system says where its controller is, and who may ask.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.markup import escape

from edgewise.cli.output import app, err, out, show
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
    from edgewise.runtime import reaching

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


Node = Annotated[str, typer.Argument(help="Its name, as `edgewise nodes` shows it.")]


@app.command(epilog="Example: edgewise nodes")
def nodes(folder: Folder = DEFAULT) -> None:
    """Show the ledger: what each node has, and who holds it."""
    show_nodes(call(folder, "GET", "/v1/nodes"))


@app.command(epilog="Example: edgewise fail hall-1")
def fail(node: Node, folder: Folder = DEFAULT) -> None:
    """Fail a node: what runs there is killed at once, and all kinds of work hear of it."""
    _change(folder, node, up=False)


@app.command(epilog="Example: edgewise repair hall-1")
def repair(node: Node, folder: Folder = DEFAULT) -> None:
    """Have a node back that failed: its workers and replicas start again, others may take of it."""
    _change(folder, node, up=True)


@app.command(epilog="Examples: edgewise pipelines; edgewise pipelines --end 3")
def pipelines(
    folder: Folder = DEFAULT,
    end: Annotated[int | None, typer.Option("--end", help="End the one of this number.", min=1)] = None,
) -> None:
    """List the pipelines of the live system, and the nodes of their tasks; or end one."""
    if end is not None:
        call(folder, "DELETE", f"/v1/admin/pipelines/{end}")
        return out.print(f"pipeline {end}: ending")
    rows = (
        (row["id"], row["name"], row["state"], f"{row['frames']:.0f}", f"{row['ran_s']:.0f}", row["moves"],
         _where(row["nodes"]) if row["state"] == "running" else row["why"] or "")
        for row in call(folder, "GET", "/v1/admin/pipelines")
    )  # fmt: skip
    show(("pipeline", "name", "state", "frames", "ran s", "moves", "tasks on, or why"), rows)


def _where(nodes: Mapping[str, str]) -> str:
    """So many tasks on each node."""
    return ", ".join(f"{count} on {node}" for node, count in Counter(nodes.values()).items())


def _change(folder: Any, node: str, up: bool) -> None:
    call(folder, "PUT", f"/v1/nodes/{quote(node, '', errors='surrogateescape')}", {"up": up})
    out.print(escape(f"{node}: {'is back' if up else 'has failed'}"))


def show_nodes(found: Sequence[Mapping[str, Any]]) -> None:
    """A line for each node: cores and memory held of all there are, and by whom."""
    rows = (
        (
            row["node"],
            "up" if row["up"] else "down",
            f"{row['held']['cpu_cores']:g} of {row['total']['cpu_cores']:g}",
            f"{row['held']['memory_bytes'] / 1e9:.2f} of {row['total']['memory_bytes'] / 1e9:.3g}",
            _who(each["owner"] for each in row["holders"] if each["cpu_cores"] or each["memory_bytes"]),
        )
        for row in found
    )
    show(("node", "state", "cores", "memory GB", "held by"), rows)


def _who(owners: Iterable[str]) -> str:
    """Owners without what says which of several and where."""
    names = Counter(owner.partition(" on ")[0].partition("@")[0] for owner in owners)
    return ", ".join(f"{count} × {name}" if count > 1 else name for name, count in names.items())
