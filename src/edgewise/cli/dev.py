"""`edgewise dev`: commands for who develops edgewise, or packs it."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Literal

import typer

from edgewise.cli.commands import Developing, verbs
from edgewise.cli.output import Json, answer, check_folder, err, out
from edgewise.errors import EdgewiseError, RunError

app = verbs()
dev = typer.Typer(
    cls=Developing,
    no_args_is_help=True,
    help="Commands for who develops edgewise, or packs it.",
    epilog="Example: edgewise dev openapi gateway",
)
app.add_typer(dev, name="dev")


@dev.command(epilog="Example: edgewise dev openapi gateway > gateway.json")
def openapi(
    which: Annotated[str, typer.Argument(help="gateway, worker or controller.")] = "gateway",
) -> None:
    """Print the OpenAPI document of an interface."""
    from edgewise.runtime.protocol import openapi as described

    if which not in described.NAMES:
        raise EdgewiseError(f"which: {which!r} is none of {', '.join(described.NAMES)}")
    print(json.dumps(described.document(which), indent=2))


Cpu = Literal["generic", "host"]


@dev.command(epilog="Example: edgewise dev kernels --into /opt/kernels")
def kernels(
    into: Annotated[
        Path, typer.Option(help="Folder for them; EDGEWISE_KERNELS names it when they are used.")
    ],
    cpu: Annotated[
        Cpu, typer.Option(help="Any processor of this architecture, or this machine's.")
    ] = "generic",
    as_json: Json = False,
) -> None:
    """Compile beforehand what simulated and live runs use, for a container image or a read-only machine."""
    from edgewise.precompile import parts  # imports every policy

    check_folder("--into", into)
    names, processes = list(parts()), os.cpu_count() or 1
    shares = [names[i::processes] for i in range(processes)]
    with err.status(f"compiling kernels for {len(names)} policies"), ThreadPoolExecutor(processes) as pool:
        list(pool.map(lambda share: _compile(share, into.resolve(), cpu), shares))
        left_out = _compile(names, into.resolve(), cpu)  # of two that wrote at once, one may have lost
    for why in left_out:
        err.print(f"left out: {why}", highlight=False, markup=False, soft_wrap=True)
    count = len(names) - len(left_out)
    said = f"kernels of {count} policies; use them with EDGEWISE_KERNELS={into.resolve()}"
    found = {"policies": count, "left_out": left_out, "folder": str(into.resolve())}
    answer(found, as_json, lambda: out.print(said))


def _compile(names: list[str], into: Path, cpu: Cpu) -> list[str]:
    """Compile in a process of its own, which writes to `into`; what it left out.

    Raises:
        RunError: it failed.
    """
    own = ("EDGEWISE_KERNELS", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_CACHE_DIR", "EDGEWISE_JIT")
    environment = {name: value for name, value in os.environ.items() if name not in own}
    environment |= {"EDGEWISE_CACHE": str(into)}
    if cpu == "generic":
        environment |= {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    run = [sys.executable, "-m", "edgewise.precompile", *names]
    done = subprocess.run(run, env=environment, capture_output=True, text=True)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise RunError(f"compiling kernels into {into} failed: {why}")
    return done.stdout.splitlines()
