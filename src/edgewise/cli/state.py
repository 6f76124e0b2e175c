"""What a live system says of itself: its processes, streams, workers; and workers that come and go."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.markup import escape

from edgewise.cli.commands import verbs
from edgewise.cli.controller import DEFAULT, FAILED, Folder, call, failing
from edgewise.cli.nodes import show_nodes
from edgewise.cli.output import Json, answer, out, show as show_table

app = verbs()
OUTCOMES = ("arrived", "in time", "late", "dropped", "failed")


@app.command(epilog="Example: edgewise token > operator.token")
def token(folder: Folder = DEFAULT) -> None:
    """Print the operator's token, for other clients of the REST interfaces; the commands here need none."""
    from edgewise.runtime.clients.reaching import store_of

    store = store_of(folder)
    print(store.secret("operator"))
    store.close()


@app.command(epilog="Examples: edgewise status; edgewise status --json")
def status(
    folder: Folder = DEFAULT,
    as_json: Json = False,
) -> None:
    """Show processes, policy and number of streams."""
    found = call(folder, "GET", "/v1/status")
    answer(found, as_json, lambda: _show_status(found))


def _show_status(found: Mapping[str, Any]) -> None:
    later = {True: ", to be replaced", False: ""}
    rows = (
        (
            row["name"],
            row["kind"],
            f"{row['state']}{later[bool(row['outdated'])]}",
            row["restarts"],
            row["url"],
        )
        for row in found["processes"]
    )
    show_table(("process", "kind", "state", "restarts", "url"), rows)
    for row in found["processes"]:
        if row["state"] == FAILED:
            out.print(
                failing(row["name"], row["failures"], row["why"]), markup=False, style="red", soft_wrap=True
            )
    show_nodes(found["nodes"])
    if found["orchestration"] is not None:
        show_services(found["orchestration"])
    change = found["change"]
    if change["state"] != "done":
        said = {"undoing": "is being undone", "failed": "was undone"}.get(change["state"], "is under way")
        out.print(escape(f"the latest change {said} {change['why']}".rstrip()), soft_wrap=True)
    if found["store"]:
        out.print(escape(found["store"]), soft_wrap=True)
    out.print(f"streams: {found['streams_open']} open")
    for work in ("jobs", "pipelines"):
        if found[work]:
            out.print(f"{work}: {', '.join(f'{count} {state}' for state, count in found[work].items())}")
    show_policies(found["policies"])


def show_policies(rows: Sequence[Mapping[str, Any]]) -> None:
    """Say who decides and who watches, and why a policy does not decide, where it does not."""
    shown = ((row["decision"], row["policy"], row["shadow"] or "", _alike(row)) for row in rows)
    show_table(("decision", "policy", "in shadow", "decided alike"), shown)
    for row in rows:
        if row["fault"]:
            why = f"policy of {row['decision']} failed: {row['fault']}"
            out.print(why, markup=False, style="red", soft_wrap=True)
        show_faults(row)


def _alike(row: Mapping[str, Any]) -> str:
    return f"{row['alike']} of {row['decisions']}" if row.get("decisions") is not None else ""


def show_faults(row: Mapping[str, Any]) -> None:
    """Say how often the policy of a decision has failed since it decides, if it has."""
    if found := row["faults"]:
        many = f"{found['times']} decisions" if found["times"] > 1 else "a decision"
        when = time.strftime("%H:%M:%S", time.localtime(found["at_s"]))
        said = (
            f"{row['decision']}: {many} of {row['policy']} failed, the last at {when} in {found['process']}"
        )
        out.print(f"{said}: {found['why']}; {found['instead']}", markup=False, style="red", soft_wrap=True)


@app.command(epilog="Example: edgewise streams")
def streams(
    folder: Folder = DEFAULT,
    closed: Annotated[bool, typer.Option("--all", help="Show closed ones too.")] = False,
    as_json: Json = False,
) -> None:
    """List the streams and what became of their queries."""
    found = [row for row in call(folder, "GET", "/v1/streams") if row["closed_s"] is None or closed]
    answer(found, as_json, lambda: _show_streams(found))


def _show_streams(found: Sequence[Mapping[str, Any]]) -> None:
    counted, rows = ("queries", "ok", "failed", "rejected", "excess"), []
    for row in found:
        reason = row.get("reason")
        where = (row["worker"] or "refused") + (f": {reason}" if reason else "")
        figures = [row.get(name, "") for name in counted]
        rows.append((row["stream"], row.get("application", ""), row["gateway"], where, *figures))
    show_table(("stream", "application", "gateway", "worker", *counted), rows)


@app.command(epilog="Example: edgewise workers")
def workers(folder: Folder = DEFAULT, as_json: Json = False) -> None:
    """List workers with the load that each gateway has on them, and replicas with their requests."""
    found = call(folder, "GET", "/v1/workers")
    answer(found, as_json, lambda: _show_workers(found))


def _show_workers(found: Sequence[Mapping[str, Any]]) -> None:
    rows = []
    for row in found:
        views = list(row.get("gateways", {}).values())
        capacity = f"{views[0]['capacity_qps']:.1f}" if views else "–"
        streams = sum(view["streams"] for view in views)
        load = f"{max((view['load_qps'] for view in views), default=0.0):.1f}"
        reached = bool(views) and all(view["up"] for view in views)
        state = "not reached" if row["state"] == "running" and not reached else row["state"]
        if any(view["refuses_token"] for view in views):
            state = "refuses our token"
        held = [each["held"] for each in (row, *views) if "held" in each]
        requests = sum(held) if held else ""
        rows.append((row["name"], state, row["restarts"], capacity, load, streams, requests))
    show_table(("worker", "state", "restarts", "capacity", "load", "streams", "requests"), rows)


@app.command(epilog="Example: edgewise drain small-cpu@near-node")
def drain(
    worker: Annotated[str, typer.Argument(help="Its name.")], folder: Folder = DEFAULT, as_json: Json = False
) -> None:
    """Take a worker out of service: its streams move, it finishes what it accepted, and ends."""
    _want(folder, worker, False, as_json)


@app.command(epilog="Example: edgewise resume small-cpu@near-node")
def resume(
    worker: Annotated[str, typer.Argument(help="Its name.")], folder: Folder = DEFAULT, as_json: Json = False
) -> None:
    """Start a worker that was drained."""
    _want(folder, worker, True, as_json)


def _want(folder: Path, name: str, wanted: bool, as_json: bool) -> None:
    call(folder, "PUT", f"/v1/workers/{quote(name, '', errors='surrogateescape')}", {"wanted": wanted})
    state = "starting" if wanted else "draining"
    answer({"worker": name, "state": state}, as_json, lambda: out.print(f"{escape(name)}: {state}"))


def show_services(found: dict[str, Any]) -> None:
    """Print replicas of each service by node, and what became of its requests.

    Args:
        found: "orchestration" of the controller's status.
    """
    rows = (
        (
            row["service"],
            *(_cell(states) for states in row["nodes"].values()),
            *(row["requests"].get(name.replace(" ", "_"), 0) for name in OUTCOMES),
        )
        for row in found["services"]
    )
    headings = ("service", *found["services"][0]["nodes"], *OUTCOMES)
    show_table(headings, rows, "Replicas by node, and requests")


def _cell(states: dict[str, int]) -> str:
    """Replicas that serve, then +n that start, -n that go."""
    serve, go = states["ready"] + states["removing"], states["removing"] + states["leaving"]
    changes = [f"+{states['starting']}"] if states["starting"] else []
    changes += [f"-{go}"] if go else []
    return " ".join([str(serve), *changes])
