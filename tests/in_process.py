"""The command line from `main` on, in the process of the tests."""

import io
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from unittest.mock import patch

from edgewise import cli
from edgewise.cli import compiling


def edgewise(*arguments, cwd):
    """Status, output and errors of a command; an interpreter of its own would take seconds to start.

    Whatever would be a traceback fails the test. That kernels are compiled is said once a process.
    """
    out, err, status = io.StringIO(), io.StringIO(), 0
    with (
        chdir(cwd), redirect_stdout(out), redirect_stderr(err), patch.object(compiling, "say_when_compiling"),
        patch.object(sys, "argv", ["edgewise", *map(str, arguments)]),
    ):  # fmt: skip
        try:
            cli.main()
        except SystemExit as end:
            status = end.code or 0
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())
