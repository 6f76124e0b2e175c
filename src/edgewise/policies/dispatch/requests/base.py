"""The bases of request policies: of all that ship, and of those that are one compiled function.

A new one is a kernel `rule(system, view, world, b, memory) -> station` and a subclass of `KernelDispatch`
that names it, with the decorator `@policy("name")`. The batched simulation compiles the kernel in;
`decide` calls the same kernel on any view, live too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.compiled import kernel
from edgewise.core.keyed import Key
from edgewise.core.orchestrate import HOLD, ReplicaView
from edgewise.model.orchestration import System


class RequestDispatch:
    """Base of all that ship: they see many worlds at once."""

    decision, of, batched = "dispatch", "requests", True
    name = ""

    def reset(self, world: System, key: Key) -> None:
        """Remember the system; draws come from `view.seed`."""
        self.system = world


class KernelDispatch(RequestDispatch):
    """Base of policies that are one kernel.

    Attributes:
        rule: rule(system, view, world, b, memory) -> station of the head of site b, or HOLD.
        memory: arrays of the kernel's own.
    """

    rule: Any  # a numba dispatcher, or under EDGEWISE_JIT=0 a plain function: set as a staticmethod
    in_worlds: Any = None  # a kernel that fills (W, B) stations and is kept on disk; None: made of `rule`
    memory: Floats = np.zeros(1)

    def decide(self, view: ReplicaView) -> Ints:
        """(W, B) what the kernel decides for each head."""
        stations = np.empty(view.site.shape, dtype=np.int64)
        (self.in_worlds or in_worlds(self.rule))(self.system, view, self.memory, stations)
        return stations


@cache
def at_sites(rule: Callable[..., int]) -> Callable[..., None]:
    """Kernel (system, view, world, memory, stations) that fills (B,) with what `rule` says for world w."""

    @kernel(allocates=False, cache=False)
    def decide_at_sites(system: System, view: ReplicaView, world: int, memory: Any, stations: Ints) -> None:
        for b in range(stations.size):
            stations[b] = rule(system, view, world, b, memory) if view.site[world, b].head >= 0 else HOLD

    return decide_at_sites


@cache
def in_worlds(rule: Callable[..., int]) -> Callable[..., None]:
    """Kernel (system, view, memory, stations) that fills (W, B) stations."""
    decide_at_sites = at_sites(rule)

    @kernel(allocates=False, cache=False)
    def decide_in_worlds(system: System, view: ReplicaView, memory: Any, stations: Ints) -> None:
        for world in range(stations.shape[0]):
            decide_at_sites(system, view, world, memory, stations[world])

    return decide_in_worlds
