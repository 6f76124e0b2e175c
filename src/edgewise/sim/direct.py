"""Kernels called past numba's look-up: at every call it asks for the type of each array that it is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgewise.kernels.compiled import JIT, numba


class Direct:
    """Calls kernels so; each of them is given arguments of the same types at every call."""

    def __init__(self) -> None:
        self._found = dict[Any, Callable[..., Any]]()

    def __call__(self, kernel: Any, *given: Any) -> Any:
        """What the kernel returns."""
        if (code := self._found.get(kernel)) is None:
            code = self._found[kernel] = direct(kernel, *given)
        return code(*given)


def direct(kernel: Any, *given: Any) -> Callable[..., Any]:
    """The code of a kernel for arguments of the types of these; whoever calls it gives no others."""
    if not JIT:
        found: Callable[..., Any] = kernel
        return found
    types = tuple(map(numba.typeof, given))
    kernel.compile(types)
    return kernel.overloads[types].entry_point  # type: ignore[no-any-return]
