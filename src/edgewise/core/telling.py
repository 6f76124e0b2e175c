"""The one line that says that kernels are compiled, while it lasts."""

from collections.abc import Callable

from edgewise.core import compiled


def tell_once(told: Callable[[str], None]) -> None:
    """From now on, call `told` with the line when this process compiles its first kernel."""
    said: list[str] = []

    def say(name: str) -> None:
        if not said:
            said.append(name)
            told(line())

    compiled.watch(say)


def line() -> str:
    """What is said."""
    folder, refused = compiled.FOLDERS[-1], "; ".join(compiled.REFUSED)
    if compiled.can_keep():
        unused = f" (not used: {refused})" if refused else ""
        return f"compiling kernels for this machine, once; kept in {folder}{unused} …"
    why = refused or f"{folder} cannot be written"
    return f"compiling kernels, in every run anew because {why}; set EDGEWISE_CACHE …"
