"""One line on standard error says that a command compiles kernels; a bar beside its own, how far that is."""

from functools import cache, partial

from edgewise.cli.output import err
from edgewise.cli.progress import SaidProgress
from edgewise.core.telling import SAID_AFTER_S, Far, tell_once


@cache
def say_when_compiling(after_s: float = SAID_AFTER_S) -> None:
    """From now on, one line on stderr says that kernels are compiled, when that takes long."""
    told = partial(err.print, highlight=False, markup=False, soft_wrap=True)
    tell_once(told, _show, after_s)


def _show(far: Far) -> None:
    if SaidProgress.shown is not None:
        SaidProgress.shown.beside(f"kernels of {far.what}", far.done, far.of)
