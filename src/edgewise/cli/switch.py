"""`edgewise policy` and `edgewise shadow`: switch what decides in the live system, and say how far it is."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import typer

from edgewise.cli.following import follow
from edgewise.cli.live import DEFAULT, Folder, _call
from edgewise.cli.output import err, out, show
from edgewise.errors import EdgewiseError

app = typer.Typer(rich_markup_mode="rich")
policy_app = typer.Typer(
    no_args_is_help=True, help="The policy of all gateways.", epilog="Example: edgewise policy set closest"
)
shadow_app = typer.Typer(
    no_args_is_help=True,
    help="A second policy that only watches.",
    epilog="Example: edgewise shadow set closest",
)
app.add_typer(policy_app, name="policy")
app.add_typer(shadow_app, name="shadow")

PolicyOf = Annotated[str, typer.Option("--of", help="What it decides about: streams, requests or replicas.")]
Wait = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Wait until it is done; edgewise policy progress asks later.")
]


@policy_app.command("set", epilog="Example: edgewise policy set closest")
def set_policy(
    name: Annotated[str, typer.Argument(help="A registered policy.")],
    of: PolicyOf = "streams",
    wait: Wait = True,
    folder: Folder = DEFAULT,
) -> None:
    """Switch a policy; streams, requests and replicas stay where they are.

    Where it fails at one gateway, all go back to the policy before, and the exit status is 2.
    """
    found = _switched(folder, _path(of), name, wait)
    if wait:
        gateways = ", ".join(row["gateway"] for row in found["gateways"]) or "no gateway yet"
        out.print(f"policy {name} in {'the controller' if of == 'replicas' else gateways}")


@policy_app.command("show", epilog="Example: edgewise policy show --of replicas")
def show_policy(of: PolicyOf = "streams", folder: Folder = DEFAULT) -> None:
    """Say which policy is in use, and which there are."""
    found = _call(folder, "GET", _path(of))
    out.print(f"{found['policy']}, of {', '.join(found['available'])}")


@policy_app.command("progress", epilog="Example: edgewise policy progress")
def progress(folder: Folder = DEFAULT) -> None:
    """List the last switches of policies and shadows: how far each is, at which gateway, and what failed."""
    rows = []
    for row in _call(folder, "GET", "/v1/operations"):
        steps = ", ".join(f"{step['gateway']} {step['state']}" for step in row["gateways"])
        since, to = f"{time.time() - row['since_s']:.0f} s", row["policy"] or "none"
        rows.append((row["id"], row["what"], to, row["state"], since, steps, row["error"] or ""))
    show(("switch", "of", "to", "state", "since", "gateways", "error"), rows)


@shadow_app.command("set", epilog="Example: edgewise shadow set closest")
def set_shadow(
    name: Annotated[str, typer.Argument(help='A registered policy; "" ends it.')],
    wait: Wait = True,
    folder: Folder = DEFAULT,
) -> None:
    """Let a second policy see the same events; what it would do is logged and counted."""
    _switched(folder, "/v1/shadow", name, wait)
    if wait:
        out.print(f"{name or 'no policy'} in shadow")


@shadow_app.command("report", epilog="Example: edgewise shadow report")
def report_shadow(folder: Folder = DEFAULT) -> None:
    """Say what the shadow would have done."""
    found = _call(folder, "GET", "/v1/shadow")
    if not any(row["answer"].get("policy", True) for row in found):
        out.print("no policy in shadow; set one with edgewise shadow set P")
        return
    for row in found:
        answer = {name: json.dumps(x) if isinstance(x, dict) else x for name, x in row["answer"].items()}
        show((row["gateway"], ""), ((name.replace("_", " "), value) for name, value in answer.items()))


def _path(of: str) -> str:
    paths = {"streams": "/v1/policy", "requests": "/v1/request-policy", "replicas": "/v1/replica-policy"}
    if of not in paths:
        raise EdgewiseError(f"--of: {of!r} is none of {', '.join(paths)}")
    return paths[of]


def _switched(folder: Any, path: str, name: str, wait: bool) -> Any:
    """Ask for a switch, and wait for it or say that it was accepted; the operation."""
    accepted = _call(folder, "PUT", path, {"policy": name})
    if not wait:
        out.print(f"switch {accepted['id']} is accepted; edgewise policy progress says how far it is")
        return accepted
    return follow(lambda where: _call(folder, "GET", where), accepted, err)
