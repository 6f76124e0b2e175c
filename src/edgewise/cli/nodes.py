"""Nodes of a live system and links between them, what a failure does to them, and pipelines."""

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
ACCELERATORS = "accelerator_memory_bytes"
Node = Annotated[str, typer.Argument(help="Its name, as `edgewise nodes` shows it.")]
Other = Annotated[
    str | None, typer.Argument(help="Another node: the link between both, which flows of pipelines take.")
]


@app.command(epilog="Example: edgewise nodes")
def nodes(folder: Folder = DEFAULT, as_json: Json = False) -> None:
    """Show the ledger: what each node has, and who holds it; and links that flows of pipelines take."""
    found = call(folder, "GET", "/v1/nodes")

    def shown() -> None:
        show_nodes(found)
        if links := call(folder, "GET", "/v1/links"):
            _show_links(links)

    answer(found, as_json, shown)


@app.command(epilog="Examples: edgewise fail hall-1; edgewise fail hall-0 hall-1")
def fail(node: Node, other: Other = None, folder: Folder = DEFAULT, as_json: Json = False) -> None:
    """Fail a node: what runs there is killed at once, and all kinds of work hear of it; or cut a link.

    Flows of pipelines go around a link that is cut, or stop.
    """
    _change(folder, node, other, False, as_json)


@app.command(epilog="Examples: edgewise repair hall-1; edgewise repair hall-0 hall-1")
def repair(node: Node, other: Other = None, folder: Folder = DEFAULT, as_json: Json = False) -> None:
    """Have a node or link back that failed: its workers and replicas start again, others may take of it."""
    _change(folder, node, other, True, as_json)


@app.command(epilog="Examples: edgewise pipelines; edgewise pipelines 3; edgewise pipelines --end 3")
def pipelines(
    number: Annotated[
        int | None, typer.Argument(help="One of them: what its tasks and flows do, beside the plan.", min=1)
    ] = None,
    folder: Folder = DEFAULT,
    end: Annotated[int | None, typer.Option("--end", help="End the one of this number.", min=1)] = None,
    as_json: Json = False,
) -> None:
    """List the pipelines of the live system, and the nodes of their tasks; show one, or end one."""
    if end is not None:
        call(folder, "DELETE", f"/v1/admin/pipelines/{end}")
        return answer(
            {"pipeline": end, "state": "ending"}, as_json, lambda: out.print(f"pipeline {end}: ending")
        )
    if number is not None:
        one = call(folder, "GET", f"/v1/admin/pipelines/{number}")
        return answer(one, as_json, lambda: _show_pipeline(one))
    found = call(folder, "GET", "/v1/admin/pipelines")
    rows = (
        (row["id"], row["name"], row["state"], f"{row['frames']:.0f}", f"{row['ran_s']:.0f}", row["moves"],
         _where(row["nodes"]) if row["state"] == "running" else row["why"] or "")
        for row in found
    )  # fmt: skip
    headings = ("pipeline", "name", "state", "frames", "ran s", "moves", "tasks on, or why")
    answer(found, as_json, lambda: show(headings, rows))


def _show_pipeline(found: Mapping[str, Any]) -> None:
    """What a pipeline did in the last seconds, beside what was planned."""
    rates, name = found["rates"], escape(found["name"])
    done = f"{found['frames']:.0f} frames in {found['ran_s']:.0f} s"
    out.print(f"pipeline {found['id']} [bold]{name}[/bold]: {found['state']}, {done}")
    if found["why"]:
        out.print(found["why"], markup=False, soft_wrap=True)
    if rates is None:
        return
    busy = rates["busy_s"]
    tasks = ((task, node, f"{1e3 * busy[task]:.1f}") for task, node in rates["nodes"].items())
    show(("task", "node", "ms"), tasks)
    flows = (
        (
            flow["edge"],
            ", ".join("-".join(ends) for ends in flow["path"]),
            *(mbps(flow[f"{what}_bps"]) for what in ("allowed", "planned", "measured")),
        )
        for flow in rates["flows"]
    )
    show(("flow", "links", "allowed Mbit/s", "planned Mbit/s", "measured Mbit/s"), flows)
    planned, measured = rates["planned_fps"], rates["measured_fps"]
    error = f" ({100.0 * (measured / planned - 1.0):+.1f} %)" if planned > 0 else ""
    out.print(
        f"throughput: planned [bold]{planned:.2f}[/bold], measured [bold]{measured:.2f}[/bold] "
        f"frames/s{error}"
    )


def mbps(bps: float) -> str:
    """Mbit/s."""
    return f"{bps / 1e6:.3f}"


def _show_links(found: Sequence[Mapping[str, Any]]) -> None:
    rows = (
        (
            "-".join(row["ends"]),
            "up" if row["up"] else "down",
            *(mbps(row[f"{what}_bps"]) for what in ("bandwidth", "reserved", "carried")),
        )
        for row in found
    )
    show(("link", "state", "Mbit/s", "flows reserve", "flows carry"), rows)


def _where(nodes: Mapping[str, str]) -> str:
    """So many tasks on each node."""
    return ", ".join(f"{count} on {node}" for node, count in Counter(nodes.values()).items())


def _change(folder: Any, node: str, other: str | None, up: bool, as_json: bool) -> None:
    ends = [node] if other is None else [node, other]
    path = "/".join(quote(each, "", errors="surrogateescape") for each in ends)
    done = call(folder, "PUT", f"/v1/{'nodes' if other is None else 'links'}/{path}", {"up": up})
    said = escape(f"{'-'.join(ends)}: {'is back' if up else 'has failed'}")
    answer(done, as_json, lambda: out.print(said))


def show_nodes(found: Sequence[Mapping[str, Any]]) -> None:
    """A line for each node: cores and memory held of all there are, and by whom."""
    kinds = {"cpu_cores": ("cores", 1.0), "memory_bytes": ("memory GB", 1e9)}
    if any(row["total"][ACCELERATORS] for row in found):
        kinds[ACCELERATORS] = ("accelerators GB", 1e9)
    rows = (
        (
            row["node"],
            "up" if row["up"] else "down",
            *(_part(row, kind, unit) for kind, (_, unit) in kinds.items()),
            _who(each["owner"] for each in row["holders"] if any(each[kind] for kind in row["total"])),
        )
        for row in found
    )
    show(("node", "state", *(heading for heading, _ in kinds.values()), "held by"), rows)


def _part(row: Mapping[str, Any], kind: str, unit: float) -> str:
    """How much of a resource is held, of all there is."""
    held, total = row["held"][kind] / unit, row["total"][kind] / unit
    return f"{held:g} of {total:g}" if unit == 1.0 else f"{held:.2f} of {total:.3g}"


def _who(owners: Iterable[str]) -> str:
    """Owners without what says which of several and where."""
    names = Counter(owner.partition(" on ")[0].partition("@")[0] for owner in owners)
    return ", ".join(f"{count} × {name}" if count > 1 else name for name, count in names.items())
