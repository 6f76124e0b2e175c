"""The command line; each command says with `--help` what it does, with an example."""

import sys
from typing import NoReturn

from rich.markup import escape

from edgewise.cli import (  # each brings its commands
    check as check,
    controller as controller,
    live as live,
    profile as profile,
    running as running,
    standalone as standalone,
    standard,
    sweeps as sweeps,
    switch as switch,
    traffic as traffic,
    train as train,
    verbs as verbs,
)
from edgewise.cli.output import PANELS as PANELS, app as app, err, explain as explain
from edgewise.cli.profile import say_when_compiling
from edgewise.errors import EdgewiseError


def _fail(message: str) -> NoReturn:
    err.print(f"[bold red]error:[/bold red] {escape(message)}", highlight=False, soft_wrap=True)
    sys.exit(2)


def main() -> None:
    """Run the command line; errors meant for the user become one message and exit status 2."""
    standard.make_usable()
    say_when_compiling()
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # what cannot be written is said while something can
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
