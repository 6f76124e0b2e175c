"""`edgewise kernels` compiles beforehand, as for an image; and one line says when a command compiles."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from edgewise.cli.output import app, err, out
from edgewise.core.telling import tell_once
from edgewise.errors import RunError

Cpu = Literal["generic", "host"]


@app.command(epilog="Example: edgewise kernels --into /opt/kernels")
def kernels(
    into: Annotated[
        Path, typer.Option(help="Folder for them; EDGEWISE_KERNELS names it when they are used.")
    ],
    cpu: Annotated[
        Cpu, typer.Option(help="Any processor of this architecture, or this machine's.")
    ] = "generic",
) -> None:
    """Compile beforehand what simulated and live runs use, for a container image or a read-only machine."""
    from edgewise.precompile import parts  # imports every policy

    into.mkdir(parents=True, exist_ok=True)
    names, processes = list(parts()), os.cpu_count() or 1
    shares = [names[i::processes] for i in range(processes)]
    with err.status(f"compiling kernels for {len(names)} policies"), ThreadPoolExecutor(processes) as pool:
        list(pool.map(lambda share: _compile(share, into.resolve(), cpu), shares))
        left_out = _compile(names, into.resolve(), cpu)  # of two that wrote at once, one may have lost
    for why in left_out:
        err.print(f"left out: {why}", highlight=False, markup=False, soft_wrap=True)
    out.print(
        f"kernels of {len(names) - len(left_out)} policies; use them with EDGEWISE_KERNELS={into.resolve()}"
    )


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


def say_when_compiling() -> None:
    """From now on, one line on stderr says that kernels are compiled, when the first one is."""
    tell_once(partial(err.print, highlight=False, markup=False, soft_wrap=True))
