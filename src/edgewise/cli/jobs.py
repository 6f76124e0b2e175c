"""Deferrable jobs of a live system."""

import json
import re
import time
import uuid
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from edgewise.cli.commands import verbs
from edgewise.cli.controller import DEFAULT, Folder, call
from edgewise.cli.lasting import lasting, read_duration
from edgewise.cli.output import Json, answer, note, out
from edgewise.errors import EdgewiseError

app = verbs()
wide = Console(width=None if out.is_terminal else 160)
job_app = typer.Typer(
    no_args_is_help=True, help="One deferrable job.", epilog="Example: edgewise job output 1"
)
app.add_typer(job_app, name="job")
WIDTHS = {"state": 9, "submitted": 14}  # of what must not be cut in a narrow terminal
SIZES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


@app.command(
    epilog="Example: edgewise submit --cores 2 --duration 10m --latest +2h -- python train.py",
    context_settings={"allow_interspersed_args": False},
)
def submit(
    command: Annotated[list[str], typer.Argument(help="Program and arguments, after --.")],
    duration: Annotated[float, lasting("How long it may run", least_s=0.001)],
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
    checkpoint: Annotated[
        float | None, lasting("It writes a checkpoint each time that it has run so long", least_s=0.1)
    ] = None,
    checkpoint_size: Annotated[str, typer.Option(help="Size of a checkpoint, as 500M or 2Gi.")] = "0",
    folder: Folder = DEFAULT,
    as_json: Json = False,
) -> None:
    """Keep a job that starts once, between earliest and latest, where inference leaves room."""
    now_s = time.time()
    wish = {
        "key": uuid.uuid4().hex, "command": command, "folder": str(Path.cwd()), "cores": cores,
        "memory_bytes": parse_size(memory), "duration_s": duration,
        "earliest_s": parse_time(earliest, now_s, "earliest"),
        "latest_s": parse_time(latest, now_s, "latest"), "priority": priority,
        "when_evicted": when_evicted,
        "checkpoint_s": checkpoint, "checkpoint_bytes": parse_size(checkpoint_size),
    }  # fmt: skip
    found = call(folder, "POST", "/v1/admin/jobs", wish, patience_s=20.0)  # its key makes repeats harmless
    if found["when_evicted"] != when_evicted:
        note(["on Kubernetes a job that gives its node back restarts, from its last checkpoint"])
    answer(found, as_json, lambda: wide.print(f"job {found['id']} {found['state']}"))


@app.command(epilog="Example: edgewise jobs --all")
def jobs(
    folder: Folder = DEFAULT,
    ended: Annotated[bool, typer.Option("--all", help="Show ended ones too.")] = False,
    as_json: Json = False,
) -> None:
    """List deferrable jobs."""
    found = [row for row in call(folder, "GET", "/v1/admin/jobs") if ended or row["ended_s"] is None]
    if as_json:
        return print(json.dumps(found, indent=1))
    table = Table(box=None)
    for heading in ("job", "state", "cores", "priority", "node", "submitted", "ran"):
        table.add_column(heading, no_wrap=True, min_width=WIDTHS.get(heading, len(heading)))
    for heading in ("command", "why") if ended else ("command",):
        table.add_column(heading, no_wrap=True, overflow="ellipsis")
    for row in found:
        table.add_row(*_cells(row)[: len(table.columns)])
    wide.print(table)


@job_app.command("output", epilog="Example: edgewise job output 3")
def output(number: Annotated[int, typer.Argument(help="Of the job.")], folder: Folder = DEFAULT) -> None:
    """Print the last of what a job wrote."""
    print(call(folder, "GET", f"/v1/admin/jobs/{number}/output")["output"], end="")


@job_app.command("cancel", epilog="Example: edgewise job cancel 3")
def cancel(
    number: Annotated[int, typer.Argument(help="Of the job.")],
    folder: Folder = DEFAULT,
    as_json: Json = False,
) -> None:
    """End a job that runs, or never start it."""
    found = call(folder, "DELETE", f"/v1/admin/jobs/{number}")
    said = f"job {number} {found['state']}" + (", ending" if found["ended_s"] is None else "")
    answer(found, as_json, lambda: wide.print(said))


def _cells(row: dict[str, Any]) -> list[str]:
    submitted = datetime.fromtimestamp(row["submitted_s"]).strftime("%m-%d %H:%M:%S")
    ran = "" if row["ran_s"] is None else f"{row['ran_s']:.0f} s"
    command = escape(" ".join(row["command"]))
    figures = [str(row["id"]), row["state"], f"{row['cores']:g}", str(row["priority"]), row["node"] or ""]
    return [*figures, submitted, ran, command[:60], escape(row["why"] or "")]


def parse_time(text: str, now_s: float, name: str) -> float:
    """Seconds since 1970 of "now", "+30m", "18:00" (the next one) or an ISO date and time.

    Raises:
        EdgewiseError: it is none.
    """
    if text == "now":
        return now_s
    if text.startswith("+"):
        return now_s + read_duration(text[1:], name)
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
