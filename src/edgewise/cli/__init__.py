"""The command line; each command says with `--help` what it does, with an example.

Its modules bring the commands of `table`, and are imported when one of them is called.
"""

import gc
import sys
from typing import Annotated

import typer

from edgewise import __version__
from edgewise.cli import plain, standard
from edgewise.cli.commands import Commands
from edgewise.cli.mistakes import UsageError, told
from edgewise.cli.output import be_quiet, end_of, explain as explain, fail, out
from edgewise.cli.table import PANELS as PANELS
from edgewise.errors import EdgewiseError

# Objects made before Python searches for garbage: at its own 700, an eighth of a command goes into that.
SELDOM = 100_000, 50, 100
plain.use()
app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Schedule machine-learning inference over edge and cloud, in simulation and live.",
    epilog="Example: edgewise compare three-tier --policies closest,least-impedance --seeds 0:10",
)


def _version(asked: bool) -> None:
    if asked:
        out.print(f"edgewise {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def every(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_version),
    ] = False,
) -> None:
    """What holds for every command."""
    be_quiet(False)


def _run() -> int:
    """Run the command that is given; its exit status."""
    try:
        status = app(prog_name="edgewise", standalone_mode=False)
    finally:
        sys.stdout.flush()  # what cannot be written is said while something can
    return end_of(status)


def main() -> None:
    """Run the command line; errors meant for the user become one message and exit status 2."""
    gc.set_threshold(*SELDOM)
    standard.make_usable()
    try:
        sys.exit(_run())
    except UsageError as error:
        if type(error).__name__ != "NoArgsIsHelpError":  # which has printed the help by now
            fail(told(error))
    except EdgewiseError as error:
        fail(str(error))
    except ModuleNotFoundError as error:  # commands of the live system import what they need
        if (error.name or "").startswith("edgewise"):
            raise  # a fault of ours, which no installing mends
        fail(f"cannot import {error.name}: pip install 'edgewise[live]'")
    except OSError as error:  # nothing closer has explained it
        fail(explain(error))
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(2)
