"""The registry of request policies, and the base of those that are one compiled function.

A new one is a kernel `decide(system, view, w, b, memory) -> station` and a subclass of `KernelDispatch`
that names it, with the decorator `@request_policy("name")`. The batched simulation compiles the kernel in;
`dispatch` calls the same kernel on any view, live too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.compiled import kernel
from edgewise.core.orchestration import HOLD, ReplicaView, RequestPolicy
from edgewise.model.orchestration import System
from edgewise.policies.names import Names

_names = Names("request policy")

request_policy = _names.add


def names() -> list[str]:
    """Every request policy that `load` finds, sorted."""
    return sorted(_names)


def load(name: str) -> RequestPolicy:
    """A new request policy.

    Raises:
        PolicyError: nothing has that name.
    """
    policy: RequestPolicy = _names.create(name)
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
        stations = np.empty(view.site.shape, dtype=np.int64)
        in_worlds(self.decide)(self.system, view, self.memory, stations)
        return stations


@cache
def at_sites(decide: Callable[..., int]) -> Callable[..., None]:
    """Kernel (system, view, w, memory, stations) that fills (B,) with what `decide` says for world w."""

    @kernel(allocates=False, cache=False)
    def decide_at_sites(system: System, view: ReplicaView, w: int, memory: Any, stations: Ints) -> None:
        for b in range(stations.size):
            stations[b] = decide(system, view, w, b, memory) if view.site[w, b].head >= 0 else HOLD

    return decide_at_sites


@cache
def in_worlds(decide: Callable[..., int]) -> Callable[..., None]:
    """Kernel (system, view, memory, stations) that fills (W, B) stations."""
    decide_at_sites = at_sites(decide)

    @kernel(allocates=False, cache=False)
    def decide_in_worlds(system: System, view: ReplicaView, memory: Any, stations: Ints) -> None:
        for w in range(stations.shape[0]):
            decide_at_sites(system, view, w, memory, stations[w])

    return decide_in_worlds
