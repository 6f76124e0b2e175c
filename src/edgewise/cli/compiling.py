"""One line on standard error says that a command compiles kernels."""

from functools import partial

from edgewise.cli.output import err
from edgewise.core.telling import tell_once


def say_when_compiling() -> None:
    """From now on, one line on stderr says that kernels are compiled, when the first one is."""
    tell_once(partial(err.print, highlight=False, markup=False, soft_wrap=True))
