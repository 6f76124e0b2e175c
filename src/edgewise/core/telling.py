"""What is said while kernels are compiled: which, how many are left, and once.

Nothing is said of a moment: only where this process has compiled for a second, or at once where what it
compiles cannot be kept, so that the next one does so again, or a folder of kernels is not trusted.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

# Before numba, whose variables it sets.
from edgewise.kernels import compiled  # isort: split

from numba.core import event

SAID_AFTER_S = 1.0
MANY = 5  # of what a kernel needs: the ones with more say best what is compiled; others wait for them
_WHAT = {
    "sim.streams": "streams",
    "sim.requests": "requests",
    "sim.slots": "services and jobs in slots",
    "sim.stations": "queues of servers",
    "sim.links": "links",
    "core.": "ledgers and rules",
    "policies.requests": "policies of requests",
    "policies.": "policies",
}
"""What kernels are of, by the module of the one that is called."""


class Far(NamedTuple):
    """How far compiling is.

    Attributes:
        what: the kernels are of, in words.
        done, of: how many of those that the kernel needs that was called.
    """

    what: str
    done: int
    of: int


def tell_once(
    told: Callable[[str], None],
    far: Callable[[Far], None] = lambda found: None,
    after_s: float = SAID_AFTER_S,
) -> None:
    """From now on, call `told` with one line when this process compiles kernels.

    Args:
        far: is called after that with how far it is, each time that a kernel is compiled, and at its end.
        after_s: of compiling, before anything is said of what can be kept.
    """
    register: Any = event.register
    register("numba:compile", _Compiling(told, far, after_s))


def line(far: Far | None = None) -> str:
    """What is said."""
    folder, refused = compiled.FOLDERS[-1], "; ".join(compiled.REFUSED)
    what = f" of {far.what}" if far is not None else ""
    left = f": {far.of - far.done} left" if far is not None else ""
    if compiled.can_keep():
        unused = f" (not used: {refused})" if refused else ""
        return f"compiling kernels{what} for this machine, once{left}; kept in {folder}{unused} …"
    why = refused or f"{folder} cannot be written"
    return f"compiling kernels, in every run anew because {why}; set EDGEWISE_CACHE …"


class _Compiling(event.Listener):
    """Numba's events: the outermost kernel is what Python called, those within are what it needs."""

    def __init__(self, told: Callable[[str], None], far: Callable[[Far], None], after_s: float) -> None:
        self._told, self._far, self._after_s = told, far, after_s
        self._depth, self._passed_s, self._since_s, self._said = 0, 0.0, 0.0, False
        self._now = Far("", 0, 1)

    def on_start(self, event: Any) -> None:
        kernel = event.data["dispatcher"]
        if not isinstance(kernel._cache, compiled._Kept):
            return
        if self._depth == 0:
            self._since_s = time.monotonic()
            self._now = Far(_what(kernel), 0, max(1, sum(map(_is_new, needed(kernel)))))
        self._depth += 1
        self._say()

    def on_end(self, event: Any) -> None:
        if not isinstance(event.data["dispatcher"]._cache, compiled._Kept) or not self._depth:
            return
        self._depth -= 1
        last = self._depth == 0
        done = self._now.of if last else min(self._now.done + 1, self._now.of - 1)
        self._now = self._now._replace(done=done)
        if last:
            self._passed_s += time.monotonic() - self._since_s
        self._say()

    def _say(self) -> None:
        passed_s = self._passed_s + (time.monotonic() - self._since_s if self._depth else 0.0)
        long = passed_s >= (self._after_s if self._now.of >= MANY else 3.0 * self._after_s)
        if not self._said and self._depth and (long or _is_amiss()):
            self._said = True
            self._told(line(self._now))
        if self._said:
            self._far(self._now)


def _is_amiss() -> bool:
    """Whether a folder is not used, or nothing can be kept: that is said at once."""
    return bool(compiled.REFUSED) or not compiled.can_keep()


def _what(kernel: Any) -> str:
    module = kernel.py_func.__module__.removeprefix("edgewise.")
    return next((words for part, words in _WHAT.items() if module.startswith(part)), module)


def needed(kernel: Any) -> set[Any]:
    """A kernel and all that it calls, by their names in its code."""
    found, left = set[Any](), [kernel]
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += _called(one.py_func.__code__, one.py_func.__globals__)
    return found


def _called(code: CodeType, known: dict[str, Any]) -> Iterator[Any]:
    named = [known.get(name) for name in code.co_names]
    of_modules = [each for each in named if isinstance(each, ModuleType)]
    named += [getattr(module, name, None) for module in of_modules for name in code.co_names]
    yield from (each for each in named if isinstance(each, compiled._Kernel))
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _called(each, known)


def _is_new(kernel: Any) -> bool:
    """Whether there is no code of it yet: neither in this process nor on disk."""
    one = getattr(kernel, "called", kernel)
    folders = getattr(one._cache, "_folders", ())
    return not one.overloads and not any(Path(each._cache_file._index_path).exists() for each in folders)
