"""Commands of the live system; `edgewise.runtime` does the work."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.cli.commands import verbs
from edgewise.cli.controller import DEFAULT, Folder
from edgewise.cli.deciding import deciding, go_on, prepare, switch
from edgewise.cli.lasting import lasting
from edgewise.cli.output import Json, answer, check_folder, err, note, out
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
from edgewise.errors import EdgewiseError, RunError, extra
from edgewise.model.left_out import LIVE, not_run
from edgewise.model.problems import nearest
from edgewise.model.scenario import Scenario
from edgewise.model.ways import unused_cables
from edgewise.report import records

if TYPE_CHECKING:
    from edgewise.runtime.controller.difference import Deed

app = verbs()
Restore = Annotated[bool, typer.Option("--restore", help="Go on from the last good copy of a damaged state.")]
LOCAL, NAMESPACES, A_CLUSTER = "local", "namespaces", "kubernetes"  # where to run
WITHOUT_GATEWAYS = ("jobs", "pipelines", "timeline")  # runs where there are no sites


@app.command(epilog="Example: edgewise up tiny --port 8000")
def up(
    scenario: ScenarioArgument,
    folder: Folder = DEFAULT,
    policy: PolicyOption = None,
    models: Annotated[Path | None, typer.Option(help="Folder with VARIANT.onnx or MODEL.onnx files.")] = None,
    gateways: Annotated[
        int | None, typer.Option(help="How many; one for each site by default.", min=1)
    ] = None,
    gateway_processes: Annotated[
        int | None, typer.Option(help="Of each gateway, which share its port; 1 by default.", min=1)
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
    on: Annotated[
        str,
        typer.Option(
            help="local: all at localhost; namespaces: each site and node a network of its own; kubernetes: "
            "workers and tasks on a cluster."
        ),
    ] = LOCAL,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Of the cluster; without it KUBECONFIG, or the pod's own cluster.")
    ] = None,
    namespace: Annotated[str, typer.Option(help="Of the cluster, for workers.")] = "edgewise",
    image: Annotated[
        str | None, typer.Option(help="Of edgewise, which the cluster's nodes can pull.")
    ] = None,
    pull: Annotated[str, typer.Option(help="When: IfNotPresent, Always or Never.")] = "IfNotPresent",
    address: Annotated[
        str | None,
        typer.Option(
            help="Of this machine, as pods reach it, HOST or HOST:PORT: they get their models there."
        ),
    ] = None,
    listen: Annotated[
        str | None, typer.Option(help="Where models are given, if --address is that of a Service.")
    ] = None,
    owner: Annotated[
        str | None,
        typer.Option(
            help="deployment/NAME there, whose system it is: gateways are pods, too, and all stays."
        ),
    ] = None,
    priority: Annotated[str | None, typer.Option("--priority-class", help="Of workers, there.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the change and print what it would do; do nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run a scenario live here until Ctrl-C: workers, gateways, and a controller that keeps them.

    Where it runs already, the change is shown and taken over: processes are replaced one by one, streams stay
    open. With --dry-run it is checked and shown alone.

    On namespaces, which need root, links are as fast as the scenario says and messages wait for each other;
    gateways answer this machine at addresses of their own.
    """
    from edgewise.cli import waiting
    from edgewise.runtime import disk
    from edgewise.runtime.clients.reaching import fronts
    from edgewise.runtime.controller import graphs, models as models_of, nursery, plan, switching
    from edgewise.runtime.controller.difference import lines
    from edgewise.runtime.controller.rehearsal import rehearse
    from edgewise.runtime.controller.rolling import difference_of, read_change
    from edgewise.runtime.process.serving import Listen
    from edgewise.runtime.testbeds.spaces import Spaces

    if as_json and not dry_run:
        raise EdgewiseError("--json: is for --dry-run; edgewise status --json says what runs")
    if restore and dry_run:
        raise EdgewiseError("--restore: changes the state, which --dry-run does not; leave one of them out")
    if models is not None and not models.is_dir():
        raise RunError(f"--models {models}: no such folder")
    records.refuse_others("--state", folder, "a live system")
    disk.check_folder(folder, plan.DATABASE)
    loaded = load_changed(scenario, changes)
    runs = LIVE if loaded.topology.sites else WITHOUT_GATEWAYS
    apart = on_namespaces(on, host, otlp)
    pods = {"--address": address, "--listen": listen, "--owner": owner, "--priority-class": priority}
    cluster = on_cluster(on, loaded, folder, kubeconfig, namespace, pull, {"--image": image, **pods})
    note([*not_run(loaded, runs, "edgewise up"), *graphs.not_served(loaded), *unlike(loaded, apart)])
    note(unused_cables(loaded.topology))
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
    prepare(loaded, wanted)
    later = go_on(loaded, wanted, given, left)
    stated = dict.fromkeys((*loaded.policies, *given)) if again else later  # the others stay as they are
    how: dict[str, Any] = {
        "given": None if again or left else given, "models": models, "gateways": gateways,
        "gateway_processes": gateway_processes,
        "emulation": plan.Emulation(emulate, seed), "where": where, "otlp": otlp, "on_namespaces": apart,
        "backend": plan.ChosenBackend(A_CLUSTER, cluster) if cluster else plan.ON_THIS_MACHINE,
        "switched": {decision: wanted[decision] for decision in stated if decision in wanted},
        "superseding": not again,
    }  # fmt: skip
    if dry_run:
        deeds, rows = rehearse(folder, loaded, **how)
        if not again:
            waiting.check_ports(folder, rows)
        return show_difference(deeds, as_json)
    if not again:
        nursery.end_orphan(folder)
    store = plan.prepare(folder, loaded, **how)
    for decision in later:
        switching.switch_later(store, decision, given[decision])
    rows = store.processes()
    if not again:
        waiting.check_ports(folder, rows)
    for front in fronts(store):
        grpc, count = front.settings["grpc_port"], front.share[1]
        also = "" if grpc is None else f", gRPC at port {grpc}"
        shared = "" if count == 1 else f", {count} processes"
        out.print(f"{front.name}: {front.url}{also} (site {front.settings['site']}{shared})")
    stand_ins = sum(r.process.settings.get("file", "").endswith(models_of.STAND_IN) for r in rows)
    if stand_ins:
        out.print(
            f"{stand_ins} workers have no ONNX file: they return their input, after their profile's time"
        )
    out.print(f"controller: http://127.0.0.1:{store.get('controller')['port']}; state and logs: {folder}")
    change, deeds = read_change(store), difference_of(store)
    store.close()
    if again:
        out.print("it runs already: what changed is replaced, one process after another")
    if change is None or change.before is None:
        out.print(f"nothing to take over: {lines(deeds)[-1]}", highlight=False)
    else:
        show_difference(deeds)
    if again:
        waiting.wait_until_changed(folder)
        for decision, name in how["switched"].items():
            switch(folder, "policies", decision, name)
    else:
        out.print("starting: networks are loaded")
        said = waiting.Waiting(folder)
        nursery.Nursery(folder, said.look, said.loading).run()
        if apart:  # all has ended; where the nursery fails what runs goes on, and its namespaces stay
            Spaces(folder).remove()
        if cluster:
            from edgewise.runtime.backends.kubernetes import system

            system.remove(folder)
        said.check()


def show_difference(deeds: Sequence["Deed"], as_json: bool = False) -> None:
    """Print what a change does."""
    from edgewise.runtime.controller.difference import lines

    def shown() -> None:
        for line in lines(deeds):
            out.print(line, markup=False, highlight=False, soft_wrap=True)

    answer({"difference": [asdict(each) for each in deeds]}, as_json, shown)


def on_namespaces(on: str, host: str, otlp: str | None) -> bool:
    """Whether sites and nodes shall be namespaces.

    Raises:
        EdgewiseError: there is no such thing to run on, or another option does not go with it.
    """
    from edgewise.runtime.http import LOCALHOST

    if on not in (LOCAL, NAMESPACES, A_CLUSTER):
        raise EdgewiseError(f"--on {on}: is not known; {nearest(on, (LOCAL, NAMESPACES, A_CLUSTER))}")
    if on == NAMESPACES and host != LOCALHOST:
        raise EdgewiseError(
            f"--host {host}: on namespaces gateways have addresses of their own; leave it out"
        )
    if on == NAMESPACES and otlp is not None:
        raise EdgewiseError(f"--otlp {otlp}: nothing in a namespace reaches it; leave it out")
    return on == NAMESPACES


def on_cluster(
    on: str,
    scenario: Scenario,
    folder: Path,
    kubeconfig: Path | None,
    namespace: str,
    pull: str,
    pods: Mapping[str, str | None],
) -> dict[str, Any] | None:
    """Where workers shall run on Kubernetes, for the store; None: here.

    Args:
        namespace, pull: of pods, and when their image is pulled.
        pods: other options that are about them, by name.
    Raises:
        EdgewiseError: an option is missing or does not go with it, or the cluster lacks what is needed.
    """
    if on != A_CLUSTER:
        for name, value in {"--kubeconfig": kubeconfig, **pods}.items():
            if value is not None:
                raise EdgewiseError(f"{name} {value}: is for --on kubernetes; leave it out")
        return None
    for name in ("--image", "--address"):
        if pods[name] is None:
            raise EdgewiseError(f"--on kubernetes: needs {name}; see edgewise up --help")
    with extra("kubernetes", "--on kubernetes"):
        from edgewise.runtime.backends.kubernetes import system

    file = None if kubeconfig is None else str(kubeconfig.absolute())
    address, port = system.address_of(str(pods["--address"]))
    where = system.OnCluster(
        file, namespace, str(pods["--image"]), address, pull,
        listen=pods["--listen"], priority=pods["--priority-class"],
    )  # fmt: skip
    system.check(where, scenario.topology)
    if pods["--owner"] is not None:
        where = replace(where, owner=system.owner_of(where.client(), pods["--owner"]))
        system.lead(where, port, lambda: out.print("another controller leads; waiting for its lease"))
    return system.settings_of(where, folder, port)


def unlike(scenario: Scenario, apart: bool) -> list[str]:
    """What runs otherwise than in simulation, in words; `apart`: on namespaces."""
    found = []
    if scenario.sharing != "none" and not apart:
        found.append(
            "live, messages do not wait for each other on links: each has the rate and delay of its way; "
            "edgewise simulate shares links, and so does --on namespaces"
        )
    if any(getattr(spec, "code", None) is None for spec in scenario.pipelines or ()):
        found.append("pipelines without code are run by stand-ins: they take the time and send the bytes")
    return found


@app.command(epilog="Example: edgewise down --state runs/live")
def down(folder: Folder = DEFAULT) -> None:
    """End everything, and wait for it: workers and gateways finish what they accepted."""
    from edgewise.cli import waiting

    waiting.end(folder)


@app.command(epilog="Example: sudo edgewise clean")
def clean(
    everything: Annotated[bool, typer.Option("--all", help="Also those of systems that still run.")] = False,
    as_json: Json = False,
) -> None:
    """Remove namespaces that a killed system has left, with all that is in them."""
    from edgewise.runtime.controller.nursery import is_running
    from edgewise.runtime.process.places import holders
    from edgewise.runtime.testbeds import spaces

    removed: list[str] = []
    for folder in spaces.left_behind():
        if everything or not (is_running(folder) or holders(folder)):
            removed += spaces.Spaces(folder).remove()
    said = f"removed {len(removed)} namespaces" + (f": {', '.join(removed)}" if removed else "")
    answer({"removed": removed}, as_json, lambda: out.print(said))


@app.command(epilog="Example: edgewise demo --seconds 10")
def demo(
    seconds: Annotated[float, lasting("How long each policy runs", least_s=5, most_s=600)] = 15.0,
    folder: Annotated[Path, typer.Option("--out", help="Output folder.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(min=0, help="Draws the streams and what is emulated.")] = 0,
    as_json: Json = False,
) -> None:
    """Run three tiers live under three policies in turn, and set them beside their simulation.

    Exit status 1 where both order the policies differently. A share that is far from the simulated one is
    said, and how long the processes waited for a processor meanwhile.
    """
    with extra("demo", "the demo"):
        from edgewise import demo as live
    check_folder("--out", folder)
    found = live.run(seconds, err if as_json else out, folder, seed)
    if as_json:
        print(json.dumps(live.as_json(found, folder), indent=1))
    if not found.same_order:
        raise typer.Exit(1)
