"""Nodes of a live system, what a failure does to them, and pipelines."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.markup import escape

from edgewise.cli.commands import verbs
from edgewise.cli.controller import DEFAULT, Folder, call
from edgewise.cli.output import Json, answer, out, show

app = verbs()
Node = Annotated[str, typer.Argument(help="Its name, as `edgewise nodes` shows it.")]


@app.command(epilog="Example: edgewise nodes")
def nodes(folder: Folder = DEFAULT, as_json: Json = False) -> None:
    """Show the ledger: what each node has, and who holds it."""
    found = call(folder, "GET", "/v1/nodes")
    answer(found, as_json, lambda: show_nodes(found))


@app.command(epilog="Example: edgewise fail hall-1")
def fail(node: Node, folder: Folder = DEFAULT, as_json: Json = False) -> None:
    """Fail a node: what runs there is killed at once, and all kinds of work hear of it."""
    _change(folder, node, False, as_json)


@app.command(epilog="Example: edgewise repair hall-1")
def repair(node: Node, folder: Folder = DEFAULT, as_json: Json = False) -> None:
    """Have a node back that failed: its workers and replicas start again, others may take of it."""
    _change(folder, node, True, as_json)


@app.command(epilog="Examples: edgewise pipelines; edgewise pipelines --end 3")
def pipelines(
    folder: Folder = DEFAULT,
    end: Annotated[int | None, typer.Option("--end", help="End the one of this number.", min=1)] = None,
    as_json: Json = False,
) -> None:
    """List the pipelines of the live system, and the nodes of their tasks; or end one."""
    if end is not None:
        call(folder, "DELETE", f"/v1/admin/pipelines/{end}")
        return answer(
            {"pipeline": end, "state": "ending"}, as_json, lambda: out.print(f"pipeline {end}: ending")
        )
    found = call(folder, "GET", "/v1/admin/pipelines")
    rows = (
        (row["id"], row["name"], row["state"], f"{row['frames']:.0f}", f"{row['ran_s']:.0f}", row["moves"],
         _where(row["nodes"]) if row["state"] == "running" else row["why"] or "")
        for row in found
    )  # fmt: skip
    headings = ("pipeline", "name", "state", "frames", "ran s", "moves", "tasks on, or why")
    answer(found, as_json, lambda: show(headings, rows))


def _where(nodes: Mapping[str, str]) -> str:
    """So many tasks on each node."""
    return ", ".join(f"{count} on {node}" for node, count in Counter(nodes.values()).items())


def _change(folder: Any, node: str, up: bool, as_json: bool) -> None:
    call(folder, "PUT", f"/v1/nodes/{quote(node, '', errors='surrogateescape')}", {"up": up})
    said = escape(f"{node}: {'is back' if up else 'has failed'}")
    answer({"node": node, "up": up}, as_json, lambda: out.print(said))


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
