"""`edgewise policy` and `edgewise shadow`: switch who decides in the live system, and say how far it is."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from edgewise import config
from edgewise.cli.commands import verbs
from edgewise.cli.controller import DEFAULT, Folder, call
from edgewise.cli.deciding import deciding, switch
from edgewise.cli.output import Json, answer, out, show, show_shadows
from edgewise.cli.state import show_faults, show_policies
from edgewise.cli.verbs import complete_policy, parted

app = verbs()
policy_app = typer.Typer(
    no_args_is_help=True,
    help="Who decides in the live system.",
    epilog="Example: edgewise policy set closest",
)
shadow_app = typer.Typer(
    no_args_is_help=True,
    help="A second policy that only watches.",
    epilog="Example: edgewise shadow set closest",
)
app.add_typer(policy_app, name="policy")
app.add_typer(shadow_app, name="shadow")

Named = Annotated[
    str,
    typer.Argument(
        help="[DECISION=]NAME; decisions are dispatch, requests, split, place, orchestrate and defer, and "
        "a NAME alone is for the first that the scenario knows. A name may also be file.py:Class "
        "or the path of a card.",
        autocompletion=complete_policy,
    ),
]
Wait = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Wait until it is done; edgewise policy progress asks later.")
]


@policy_app.command("set", epilog="Example: edgewise policy set defer=sjf")
def set_policy(given: Named, wait: Wait = True, folder: Folder = DEFAULT, as_json: Json = False) -> None:
    """Switch a policy; streams, requests, replicas and jobs stay where they are.

    Where it fails at one gateway, all go back to the policy before, and the exit status is 2.
    """
    decision, name, found = _switched(folder, "policies", given, wait, as_json)
    if wait and not as_json:
        gateways = ", ".join(row["gateway"] for row in found["gateways"]) or "the controller"
        out.print(f"{decision}: {name} in {gateways}", markup=False, soft_wrap=True)
        show_faults(call(folder, "GET", f"/v1/policies/{decision}"))


@policy_app.command("show", epilog="Example: edgewise policy show orchestrate")
def show_policy(
    decision: Annotated[str | None, typer.Argument(help="Of which to list the names, too.")] = None,
    folder: Folder = DEFAULT,
    as_json: Json = False,
) -> None:
    """Say who decides, and for one decision which policies there are."""
    if decision is None:
        rows = call(folder, "GET", "/v1/policies")
        return answer(rows, as_json, lambda: show_policies(rows))
    one = call(folder, "GET", f"/v1/policies/{decision}")
    return answer(one, as_json, lambda: _show_names(one))


def _show_names(found: Mapping[str, Any]) -> None:
    show_policies([found])
    out.print(f"there are {', '.join(found['available'])}")


@policy_app.command("progress", epilog="Example: edgewise policy progress")
def progress(folder: Folder = DEFAULT, as_json: Json = False) -> None:
    """List the last switches of policies and shadows: how far each is, at which gateway, and what failed."""
    found = call(folder, "GET", "/v1/operations")
    answer(found, as_json, lambda: _show_operations(found))


def _show_operations(found: Sequence[Mapping[str, Any]]) -> None:
    rows = []
    for row in found:
        steps = ", ".join(f"{step['gateway']} {step['state']}" for step in row["gateways"])
        since, of = f"{time.time() - row['since_s']:.0f} s", f"{row['what']} {row['decision']}"
        rows.append((row["id"], of, row["policy"] or "none", row["state"], since, steps, row["error"] or ""))
    show(("switch", "of", "to", "state", "since", "gateways", "error"), rows)


@shadow_app.command("set", epilog="Example: edgewise shadow set closest")
def set_shadow(given: Named, wait: Wait = True, folder: Folder = DEFAULT, as_json: Json = False) -> None:
    """Let a second policy see the same events; what it would do is logged and counted. DECISION= ends it."""
    decision, name, _ = _switched(folder, "shadows", given, wait, as_json)
    if wait and not as_json:
        out.print(f"{decision}: {name or 'no policy'} in shadow", markup=False, soft_wrap=True)


@shadow_app.command("show", epilog="Example: edgewise shadow show defer")
def show_shadow(
    decision: Annotated[str | None, typer.Argument(help="Of which; all if not given.")] = None,
    folder: Folder = DEFAULT,
    as_json: Json = False,
) -> None:
    """Say what second policies would have decided, beside what was decided."""
    have = [row["decision"] for row in call(folder, "GET", "/v1/policies") if row["shadow"]]
    found = [
        (each, ", ".join(filter(None, (row["gateway"], row["answer"].get("variant")))), row["answer"])
        for each in ([decision] if decision else have)
        for row in call(folder, "GET", f"/v1/shadows/{each}")
        if row["answer"].get("policy")
    ]
    named = [dict(zip(("decision", "at", "report"), each, strict=True)) for each in found]
    none = "no policy in shadow; set one with edgewise shadow set [DECISION=]NAME"
    answer(named, as_json, lambda: show_shadows(found) if found else out.print(none))


def _switched(folder: Path, what: str, given: str, wait: bool, as_json: bool) -> tuple[str, str, Any]:
    """Ask for a switch, and wait for it or say that it was accepted; decision, name, operation."""
    decision, name = parted(given)
    call(folder, "GET", "/v1/policies")  # where nothing runs, that is what to say
    ((kind, located),) = deciding(config.load_scenario(folder / "scenario.yaml"), {decision: name}).items()
    found = switch(folder, what, kind, located, wait)
    if as_json:
        print(json.dumps(found, indent=1))
    elif not wait:
        out.print(f"switch {found['id']} is accepted; edgewise policy progress says how far it is")
    return kind, located, found
