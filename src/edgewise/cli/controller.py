"""Asking the controller of a live system; its nodes, pipelines and deferrable jobs, and what a failure does.

The folder of a system says where its controller is, and who may ask.
"""

import asyncio
import json
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from edgewise.cli.output import app, err, out, show
from edgewise.errors import EdgewiseError, RunError, UnansweredError

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


wide = Console(width=None if out.is_terminal else 160)
job_app = typer.Typer(
    no_args_is_help=True, help="One deferrable job.", epilog="Example: edgewise job output 1"
)
app.add_typer(job_app, name="job")
WIDTHS = {"state": 9, "submitted": 14}  # of what must not be cut in a narrow terminal
SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
SIZES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


@app.command(
    epilog="Example: edgewise submit --cores 2 --duration 10m --latest +2h -- python train.py",
    context_settings={"allow_interspersed_args": False},
)
def submit(
    command: Annotated[list[str], typer.Argument(help="Program and arguments, after --.")],
    duration: Annotated[str, typer.Option(help="How long it may run, as 90s, 10m, 1h30m.")],
    cores: Annotated[float, typer.Option(help="Cores it holds.", min=0.01)] = 1.0,
    memory: Annotated[str, typer.Option(help="Memory it holds, as 500M or 2Gi.")] = "0",
    earliest: Annotated[
        str, typer.Option(help="Earliest start: now, +30m, 18:00, 2026-12-24T08:00.")
    ] = "now",
    latest: Annotated[str, typer.Option(help="Latest start; +… counts from now.")] = "+1h",
    priority: Annotated[int, typer.Option(help="Higher first, whatever the policy.", min=-100, max=100)] = 0,
    when_evicted: Annotated[
        str,
        typer.Option(help="When inference needs its node: pause, or restart maybe elsewhere."),
    ] = "pause",
    folder: Folder = DEFAULT,
) -> None:
    """Keep a job that starts once, between earliest and latest, where inference leaves room."""
    now_s = time.time()
    wish = {
        "key": uuid.uuid4().hex, "command": command, "folder": str(Path.cwd()), "cores": cores,
        "memory_bytes": parse_size(memory), "duration_s": parse_span(duration, "duration"),
        "earliest_s": parse_time(earliest, now_s, "earliest"),
        "latest_s": parse_time(latest, now_s, "latest"), "priority": priority,
        "when_evicted": when_evicted,
    }  # fmt: skip
    found = call(folder, "POST", "/v1/admin/jobs", wish, patience_s=20.0)  # its key makes repeats harmless
    wide.print(f"job {found['id']} {found['state']}")


@app.command(epilog="Example: edgewise jobs --all")
def jobs(
    folder: Folder = DEFAULT,
    ended: Annotated[bool, typer.Option("--all", help="Show ended ones too.")] = False,
) -> None:
    """List deferrable jobs."""
    table = Table(box=None)
    for heading in ("job", "state", "cores", "priority", "node", "submitted", "ran"):
        table.add_column(heading, no_wrap=True, min_width=WIDTHS.get(heading, len(heading)))
    for heading in ("command", "why") if ended else ("command",):
        table.add_column(heading, no_wrap=True, overflow="ellipsis")
    for row in call(folder, "GET", "/v1/admin/jobs"):
        if ended or row["ended_s"] is None:
            table.add_row(*_cells(row)[: len(table.columns)])
    wide.print(table)


@job_app.command("output", epilog="Example: edgewise job output 3")
def output(number: Annotated[int, typer.Argument(help="Of the job.")], folder: Folder = DEFAULT) -> None:
    """Print the last of what a job wrote."""
    print(call(folder, "GET", f"/v1/admin/jobs/{number}/output")["output"], end="")


@job_app.command("cancel", epilog="Example: edgewise job cancel 3")
def cancel(number: Annotated[int, typer.Argument(help="Of the job.")], folder: Folder = DEFAULT) -> None:
    """End a job that runs, or never start it."""
    found = call(folder, "DELETE", f"/v1/admin/jobs/{number}")
    wide.print(f"job {number} {found['state']}" + (", ending" if found["ended_s"] is None else ""))


def _cells(row: dict[str, Any]) -> list[str]:
    submitted = datetime.fromtimestamp(row["submitted_s"]).strftime("%m-%d %H:%M:%S")
    ran = "" if row["ran_s"] is None else f"{row['ran_s']:.0f} s"
    command = escape(" ".join(row["command"]))
    figures = [str(row["id"]), row["state"], f"{row['cores']:g}", str(row["priority"]), row["node"] or ""]
    return [*figures, submitted, ran, command[:60], escape(row["why"] or "")]


def parse_span(text: str, name: str) -> float:
    """Seconds of "90", "90s", "10m", "1h30m", "2d".

    Raises:
        EdgewiseError: it is none.
    """
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise EdgewiseError(f"{name}: {text!r} is no time span; write it as 90s, 10m, 1h30m or 2d")
    return float(sum(float(number) * SECONDS[unit or "s"] for number, unit in parts))


def parse_time(text: str, now_s: float, name: str) -> float:
    """Seconds since 1970 of "now", "+30m", "18:00" (the next one) or an ISO date and time.

    Raises:
        EdgewiseError: it is none.
    """
    if text == "now":
        return now_s
    if text.startswith("+"):
        return now_s + parse_span(text[1:], name)
    try:
        if re.fullmatch(r"\d\d:\d\d", text):
            hour, minute = map(int, text.split(":"))
            now = datetime.fromtimestamp(now_s)
            then = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
            return (then if then >= now else then + timedelta(days=1)).timestamp()
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        message = f"{name}: {text!r} is no time; write now, +30m, 18:00 or 2026-12-24T08:00"
        raise EdgewiseError(message) from None


def parse_size(text: str) -> int:
    """Bytes of "0", "500M", "2Gi".

    Raises:
        EdgewiseError: it is none.
    """
    found = re.fullmatch(r"(\d+)([kmg]i?)?b?", text.lower())
    if found is None:
        raise EdgewiseError(f"memory: {text!r} is no size; write it as 500M or 2Gi")
    return int(found[1]) * SIZES[found[2] or ""]
