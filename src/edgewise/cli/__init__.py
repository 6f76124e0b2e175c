"""The command line; each command says with `--help` what it does, with an example."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import typer
from rich.markup import escape
from typer.core import TyperGroup

from edgewise.cli import jobs, live, nodes, reproduce as reproducing, running, sweeps, switch, traffic, verbs
from edgewise.cli.catalog import catalog
from edgewise.cli.kernels import kernels, say_when_compiling
from edgewise.cli.output import err
from edgewise.cli.profile import profile
from edgewise.cli.standalone import app as standalone
from edgewise.cli.train import app as training
from edgewise.errors import EdgewiseError

PANELS = {
    "Simulate": "scenarios explain policies simulate compare sweep size replay report schema",
    "Train and reproduce": "train reproduce looks freeze",
    "Run live": "up down status load record policy shadow streams workers drain resume pipelines nodes fail "
    "repair token",
    "Deferrable jobs, live": "submit jobs job",
    "Try on this machine": "demo run clean profile catalog kernels",
    "Parts of a live system": "worker gateway openapi",
}
"""Commands in the order of `--help`."""
GONE = {
    "orchestrate": "edgewise simulate SCENARIO --policy dispatch=NAME --policy orchestrate=NAME",
    "split": "edgewise explain SCENARIO for the plan, edgewise simulate or compare SCENARIO --policies "
    "split=NAME,…, and edgewise run SCENARIO for what it measured live",
    "stream": "edgewise run SCENARIO (or read-text, or --resume), edgewise status --state FOLDER, "
    "and edgewise clean",
}


class Commands(TyperGroup):
    """Commands in panels; what has gone says where to."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of `PANELS`."""
        listed = " ".join(PANELS.values()).split()
        return sorted(super().list_commands(ctx), key=listed.index)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command with its panel.

        Raises:
            EdgewiseError: it was there once.
        """
        if cmd_name in GONE:
            raise EdgewiseError(f"edgewise {cmd_name} is gone; use {GONE[cmd_name]}")
        found: Any = super().get_command(ctx, cmd_name)
        for panel, names in PANELS.items():
            if found is not None and cmd_name in names.split():
                found.rich_help_panel = panel
        return found


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Schedule machine-learning inference over edge and cloud, in simulation and live.",
    epilog="Example: edgewise compare three-tier --policies closest,least-impedance --seeds 0:10",
)

app.command(epilog="Example: edgewise profile tiny-yolov2-416 --threads 2 --out catalog.yaml")(profile)
app.command(epilog="Example: edgewise catalog detection")(catalog)
app.command(epilog="Example: edgewise kernels --into /opt/kernels")(kernels)
for _commands in (verbs, sweeps, running, reproducing, live, nodes, traffic, switch, jobs):
    app.add_typer(_commands.app)
app.add_typer(standalone)
app.add_typer(training, name="train")


def _fail(message: str) -> NoReturn:
    err.print(f"[bold red]error:[/bold red] {escape(message)}", highlight=False, soft_wrap=True)
    sys.exit(2)


def explain(error: OSError) -> str:
    """What happened: not every `OSError` is about a file, time-outs and broken connections are such too."""
    if isinstance(error, ConnectionError | TimeoutError):
        return f"{str(error) or type(error).__name__}: the other side did not answer, or hung up; see its log"
    why = error.strerror or str(error)
    if error.filename is None:
        return why
    path = isinstance(error, FileNotFoundError | PermissionError | NotADirectoryError | IsADirectoryError)
    return f"{error.filename}: {why}{'; check the path and its rights' if path else ''}"


def main() -> None:
    """Run the command line; errors meant for the user become one message and exit status 2."""
    say_when_compiling()
    try:
        app()
    except EdgewiseError as error:
        _fail(str(error))
    except ModuleNotFoundError as error:  # commands of the live system import what they need
        if (error.name or "").startswith("edgewise"):
            raise  # a fault of ours, which no installing mends
        _fail(f"cannot import {error.name}: pip install 'edgewise[live]'")
    except OSError as error:  # nothing closer has explained it
        _fail(explain(error))
    except KeyboardInterrupt:
        sys.exit(130)
