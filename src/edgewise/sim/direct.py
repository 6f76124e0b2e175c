"""Kernels called past numba's look-up: at every call it asks for the type of each array that it is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgewise.core.compiled import JIT, numba


def direct(kernel: Any, *given: Any) -> Callable[..., Any]:
    """The code of a kernel for arguments of the types of these; whoever calls it gives no others."""
    if not JIT:
        found: Callable[..., Any] = kernel
        return found
    types = tuple(map(numba.typeof, given))
    kernel.compile(types)
    return kernel.overloads[types].entry_point  # type: ignore[no-any-return]
