"""The registry of request policies, and the base of those that are one compiled function.

A new one is a kernel `decide(system, view, w, b, memory) -> station` and a subclass of `KernelDispatch`
that names it, with the decorator `@request_policy("name")`. The batched simulation compiles the kernel in;
`dispatch` calls the same kernel on any view, live too.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from edgewise.core.compiled import kernel
from edgewise.core.orchestration import HOLD, ReplicaView, RequestPolicy
from edgewise.errors import PolicyError
from edgewise.model.orchestration import Floats, Ints, System

P = TypeVar("P", bound=type)
_registered: dict[str, type] = {}


def request_policy(name: str) -> Callable[[P], P]:
    """Register a class as the request policy `name`.

    Raises:
        PolicyError: another class has that name.
    """

    def register(cls: P) -> P:
        other = _registered.get(name)
        if other is not None and other.__qualname__ != cls.__qualname__:
            raise PolicyError(f"request policy {name!r} is taken by {other.__module__}.{other.__qualname__}")
        cls.name = name  # type: ignore[attr-defined]
        _registered[name] = cls
        return cls

    return register


def names() -> list[str]:
    """Every request policy that `load` finds, sorted."""
    return sorted(_registered)


def load(name: str) -> RequestPolicy:
    """A new request policy.

    Raises:
        PolicyError: nothing has that name.
    """
    if name not in _registered:
        near = difflib.get_close_matches(name, names(), 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise PolicyError(f"no request policy {name!r}{hint} Have: {', '.join(names())}")
    policy: RequestPolicy = _registered[name]()
    return policy


class KernelDispatch:
    """Base of policies that are one kernel.

    Attributes:
        decide: decide(system, view, w, b, memory) -> station of the head of site b in world w, or HOLD.
        memory: arrays of the kernel's own.
    """

    name = ""
    decide: Any  # a numba dispatcher, or under EDGEWISE_JIT=0 a plain function: set as a staticmethod
    memory: Floats = np.zeros(1)

    def reset(self, system: System) -> None:
        """Remember the system; kernels remember nothing else."""
        self.system = system

    def dispatch(self, view: ReplicaView) -> Ints:
        """(W, B) what the kernel decides for each head."""
        stations = np.full(view.site.shape, HOLD, dtype=np.int64)
        _decide_all(self.system, view, self.decide, self.memory, stations)
        return stations


@kernel
def _decide_all(
    system: System, view: ReplicaView, decide: Callable[..., int], memory: Any, stations: Ints
) -> None:
    for w in range(stations.shape[0]):
        for b in range(stations.shape[1]):
            if view.site[w, b].head >= 0:
                stations[w, b] = decide(system, view, w, b, memory)
