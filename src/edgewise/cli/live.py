"""Commands of the live system; `edgewise.runtime` does the work."""

import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from edgewise import policies
from edgewise.cli.controller import DEFAULT, FAILED, Folder, call, failing, follow, show_nodes
from edgewise.cli.output import app, check_folder, err, note, out, show as show_table
from edgewise.cli.running import pipelines_of, show_pipelines
from edgewise.cli.standalone import (
    GrpcPort,
    Host,
    Names,
    Open,
    Otlp,
    TlsCert,
    TlsKey,
    TokenFile,
    client_token,
)
from edgewise.cli.verbs import (
    PolicyOption,
    ScenarioArgument,
    SetOption,
    by_decision,
    load as load_changed,
)
from edgewise.errors import EdgewiseError, PolicyError, RunError, extra
from edgewise.model.grammar.scenario import LIVE, not_run
from edgewise.model.scenario import Scenario
from edgewise.model.ways import unused_cables
from edgewise.report import records

OUTCOMES = ("arrived", "in time", "late", "dropped", "failed")
Restore = Annotated[bool, typer.Option("--restore", help="Go on from the last good copy of a damaged state.")]
COMPILING = "compiling kernels, for the first time on this machine: up to half a minute"


@app.command(epilog="Example: edgewise up tiny --port 8000")
def up(
    scenario: ScenarioArgument,
    folder: Folder = DEFAULT,
    policy: PolicyOption = None,
    models: Annotated[Path | None, typer.Option(help="Folder with VARIANT.onnx or MODEL.onnx files.")] = None,
    gateways: Annotated[
        int | None, typer.Option(help="How many; one for each site by default.", min=1)
    ] = None,
    port: Annotated[
        int, typer.Option(help="Of the first gateway; 0 takes free ones.", min=0, max=65000)
    ] = 8000,
    emulate: Annotated[bool, typer.Option(help="Links and workers take the scenario's time.")] = True,
    changes: SetOption = None,
    seed: Annotated[int, typer.Option(help="Keys the emulated delays and the policy.")] = 0,
    host: Host = "127.0.0.1",
    grpc_port: GrpcPort = None,
    token_file: TokenFile = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    names: Names = None,
    anyone: Open = False,
    otlp: Otlp = None,
    restore: Restore = False,
) -> None:
    """Run a scenario live here until Ctrl-C: workers, gateways, and a controller that keeps them.

    Where it runs already, the change is taken over: processes are replaced one by one, streams stay open.
    """
    from edgewise.cli import waiting
    from edgewise.runtime.compiling import needed_by
    from edgewise.runtime.controller import graphs, nursery, plan, switching
    from edgewise.runtime.serving import Listen

    if models is not None and not models.is_dir():
        raise RunError(f"--models {models}: no such folder")
    records.refuse_others("--state", folder, "a live system")
    loaded = load_changed(scenario, changes)
    runs = LIVE if loaded.topology.sites else LIVE[:2]  # all come through gateways, or run beside them
    note([*not_run(loaded.spec, runs, "edgewise up"), *graphs.not_served(loaded), *unlike(loaded)])
    note(unused_cables(loaded.spec, loaded.topology))
    given = deciding(loaded, by_decision(policy))
    wanted = plan.deciding(loaded, given)
    if restore:
        waiting.restore_state(folder)
    where = Listen(
        host, port, grpc_port, token=client_token(token_file), certificate=tls_cert, key=tls_key,
        names=tuple(names or ()), open=anyone,
    )  # fmt: skip
    again = nursery.is_running(folder)
    left = {} if again else plan.policies_left(folder)
    if again and where.token != waiting.token_of(folder):
        raise RunError("token: cannot change while the system runs; edgewise down, then up")
    needed_by(loaded, wanted.items(), partial(err.print, COMPILING))
    later = go_on(loaded, wanted, given, left)
    store = plan.prepare(
        folder, loaded, given=None if again or left else given, models=models, gateways=gateways,
        emulation=plan.Emulation(emulate, seed), where=where, otlp=otlp,
    )  # fmt: skip
    for decision in later:
        switching.switch_later(store, decision, given[decision])
    rows = store.processes()
    if not again:
        waiting.check_ports(rows)
    for running in rows:
        if running.process.kind == "gateway":
            process, grpc = running.process, running.process.settings["grpc_port"]
            also = "" if grpc is None else f", gRPC at port {grpc}"
            out.print(f"{process.name}: {process.url}{also} (site {process.settings['site']})")
    stand_ins = sum(r.process.settings.get("file", "").endswith(plan.STAND_IN) for r in rows)
    if stand_ins:
        out.print(
            f"{stand_ins} workers have no ONNX file: they return their input, after their profile's time"
        )
    out.print(f"controller: http://127.0.0.1:{store.get('controller')['port']}; state and logs: {folder}")
    store.close()
    if again:
        out.print("it runs already: what changed is replaced, one process after another")
        waiting.wait_until_changed(folder)
        stated = dict.fromkeys((*loaded.spec.named_policies, *given))  # the others stay as they are
        for decision in (each for each in stated if each in wanted):
            switch(folder, "policies", decision, wanted[decision])
    else:
        out.print("starting: networks are loaded")
        said = waiting.Waiting(folder)
        nursery.Nursery(folder, said.look, said.loading).run()
        said.check()


def unlike(scenario: Scenario) -> list[str]:
    """What runs otherwise than in simulation, in words."""
    found = []
    if scenario.sharing != "none":
        found.append(
            "live, messages do not wait for each other on links: each has the rate and delay of its way; "
            "edgewise simulate shares links"
        )
    if any(getattr(spec, "code", None) is None for spec in scenario.spec.pipelines or ()):
        found.append("pipelines without code are run by stand-ins: they take the time and send the bytes")
    return found


def deciding(scenario: Scenario, given: Mapping[str | None, str]) -> dict[str, str]:
    """Policies by decision of a live system.

    Args:
        given: by decision; by None for the first decision of the scenario's work.
    Raises:
        EdgewiseError: one decision is given twice.
    """
    first = "dispatch" if "streams" in scenario.spec.holds else "requests"
    found: dict[str, str] = {}
    for each, name in given.items():
        decision = first if each is None else policies.check_decision(each)
        if decision in found:
            raise EdgewiseError(f"--policy {each}={name}: {decision} is given twice")
        found[decision] = policies.located(name)
    return found


def go_on(
    scenario: Scenario, wanted: Mapping[str, str], given: Mapping[str, str], left: Mapping[str, str]
) -> list[str]:
    """Say which policies of a system that did not come to its end go on, and which are switched once it runs.

    Args:
        wanted: by decision what would decide, had it ended; `given`: those of them that `up` was told.
        left: what decided.
    Returns:
        the decisions to be switched.
    Raises:
        PolicyError: one that goes on cannot be used any more.
    """
    from edgewise.runtime.compiling import needed_by

    kept = {decision: name for decision, name in left.items() if decision in wanted}
    try:
        needed_by(scenario, kept.items(), partial(err.print, COMPILING))
    except PolicyError as error:
        what = "it decides in a system that was killed"
        raise PolicyError(f"{error}; {what}: mend it, or edgewise down, then up") from None
    later = [decision for decision in given if kept.get(decision, given[decision]) != given[decision]]
    stays = [each for each, name in kept.items() if each not in given and name != wanted[each]]
    said = [f"{each}: {kept[each]} goes on, which decided before the system was killed" for each in stays]
    note(said + [f"{each}: {given[each]} takes over from {kept[each]} once it runs" for each in later])
    return later


def switch(folder: Path, what: str, decision: str, name: str, wait: bool = True) -> Any:
    """Have a policy or a shadow switched in the system that runs, and wait for it; the operation."""
    accepted = call(folder, "PUT", f"/v1/{what}/{decision}", {"policy": name})
    return follow(lambda where: call(folder, "GET", where), accepted) if wait else accepted


@app.command(epilog="Example: edgewise token > operator.token")
def token(folder: Folder = DEFAULT) -> None:
    """Print the operator's token, for other clients of the REST interfaces; the commands here need none."""
    from edgewise.runtime.reaching import store_of

    store = store_of(folder)
    print(store.secret("operator"))
    store.close()


@app.command(epilog="Example: edgewise down --state runs/live")
def down(folder: Folder = DEFAULT) -> None:
    """End everything, and wait for it: workers and gateways finish what they accepted."""
    from edgewise.cli import waiting

    waiting.end(folder)


@app.command(epilog="Examples: edgewise status; edgewise status --json")
def status(
    folder: Folder = DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything that is known as JSON.")] = False,
) -> None:
    """Show processes, policy and number of streams; of `edgewise run` nodes, links, pipelines and tasks."""
    if (pipelines := pipelines_of(folder)) is not None:
        return print(json.dumps(pipelines, indent=2)) if as_json else show_pipelines(pipelines)
    found = call(folder, "GET", "/v1/status")
    if as_json:
        return print(json.dumps(found, indent=2))
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
) -> None:
    """List the streams and what became of their queries."""
    counted = ("queries", "ok", "failed", "rejected", "excess")
    rows = []
    for row in call(folder, "GET", "/v1/streams"):
        if row["closed_s"] is None or closed:
            reason = row.get("reason")
            where = (row["worker"] or "refused") + (f": {reason}" if reason else "")
            figures = [row.get(name, "") for name in counted]
            rows.append((row["stream"], row.get("application", ""), row["gateway"], where, *figures))
    show_table(("stream", "application", "gateway", "worker", *counted), rows)


@app.command(epilog="Example: edgewise workers")
def workers(folder: Folder = DEFAULT) -> None:
    """List workers with the load that each gateway has on them, and replicas with their requests."""
    rows = []
    for row in call(folder, "GET", "/v1/workers"):
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
def drain(worker: Annotated[str, typer.Argument(help="Its name.")], folder: Folder = DEFAULT) -> None:
    """Take a worker out of service: its streams move, it finishes what it accepted, and ends."""
    _want(folder, worker, False)


@app.command(epilog="Example: edgewise resume small-cpu@near-node")
def resume(worker: Annotated[str, typer.Argument(help="Its name.")], folder: Folder = DEFAULT) -> None:
    """Start a worker that was drained."""
    _want(folder, worker, True)


@app.command(epilog="Example: edgewise openapi gateway > gateway.json")
def openapi(
    which: Annotated[str, typer.Argument(help="gateway, worker or controller.")] = "gateway",
) -> None:
    """Print the OpenAPI document of an interface."""
    from edgewise.runtime.protocol import openapi as described

    if which not in described.NAMES:
        raise EdgewiseError(f"which: {which!r} is none of {', '.join(described.NAMES)}")
    print(json.dumps(described.document(which), indent=2))


@app.command(epilog="Example: edgewise demo --seconds 10")
def demo(
    seconds: Annotated[float, typer.Option(help="How long each policy runs.", min=5, max=600)] = 15.0,
    folder: Annotated[Path, typer.Option("--out", help="Output folder.")] = Path("runs/demo"),
) -> None:
    """Run three tiers live under three policies in turn, and set them beside their simulation.

    Exit status 1 where they differ by more than the tolerance and the machine was not too busy to tell.
    """
    with extra("demo", "the demo"):
        from edgewise import demo as live
    check_folder("--out", folder)
    if not live.run(seconds, out, folder):
        raise typer.Exit(1)


def _want(folder: Path, name: str, wanted: bool) -> None:
    from urllib.parse import quote

    call(folder, "PUT", f"/v1/workers/{quote(name, '', errors='surrogateescape')}", {"wanted": wanted})
    out.print(f"{escape(name)}: {'starting' if wanted else 'draining'}")


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
