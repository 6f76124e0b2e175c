"""The command line, for tests."""

from contextlib import chdir
from unittest.mock import patch

from typer.testing import CliRunner

from edgewise.cli import app, compiling
from edgewise.errors import EdgewiseError


def edgewise(*arguments, folder, code=0):
    """The command line in this process, as `main` runs it; interpreters take seconds to start.

    `code` None takes any code, and what failed said nothing. With --json standard error is left out: another
    test may have had this process say that it compiles kernels.
    """
    with chdir(folder), patch.object(compiling, "say_when_compiling"):  # it is said once a process
        done = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
    error = done.exception if isinstance(done.exception, EdgewiseError) else None
    said = done.stdout if "--json" in arguments else done.output
    if code is None:
        return "" if error else said
    assert (2 if error else done.exit_code) == code, (done.output, done.exception)
    return said + str(error or "")
