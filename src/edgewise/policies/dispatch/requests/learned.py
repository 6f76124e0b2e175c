"""A trained network as a `RequestPolicy`; it draws from π, as it did in training.

How a network is run is handed in; `edgewise.learn.orchestration.export.load` does so with onnxruntime.
Execution is decentralised: each site's decision uses that site's rows only, which the tests check.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgewise.arrays import Floats32, Ints
from edgewise.core.orchestration import HOLD, ReplicaView, context_mask, hosts
from edgewise.errors import PolicyError
from edgewise.model.orchestration import System
from edgewise.policies.dispatch.requests.features import (
    draws,
    gumbel,
    local_state,
    station_rows,
)

Infer = Callable[[Floats32], tuple[NDArray[Any], ...]]


class LearnedDispatch:
    """cMMAC's actors: each site draws from its π, with draws of its own (as the paper's agents do).

    Args:
        name: of the policy.
        infer: (M, F) → (M,) scores of stations if `scored`, else (R, D + B) → (R, N + 1) log p.
        scored: whether stations are scored one by one, so that any system will do.
        context: which stations may be chosen, "resources" or "hosts".
        inputs: length of a row that the network reads.
    """

    def __init__(self, name: str, infer: Infer, scored: bool, context: str, inputs: int) -> None:
        self.name = name
        self._infer, self._scored, self._inputs = infer, scored, inputs
        self._mask = context_mask if context == "resources" else hosts
        self._system: System | None = None

    def reset(self, system: System) -> None:
        """Nothing is drawn.

        Raises:
            PolicyError: the networks were trained on a system of another shape.
        """
        state = system.services + 5 + 5 * int(np.bincount(system.site_of).max()) + system.sites
        if not self._scored and state != self._inputs:
            raise PolicyError(
                f"{self.name}: its network reads {self._inputs} numbers, this system's sites have {state}; "
                "train it on this scenario, or use a policy that scores stations"
            )
        self._system = system

    def dispatch(self, view: ReplicaView) -> Ints:
        """A station for each site's head, drawn from π: argmax of log π + Gumbel noise."""
        assert self._system is not None, "reset comes first"
        system, allowed = self._system, self._mask(view)
        values = np.full(allowed.size, -np.inf)
        if self._scored:
            rows = station_rows(system, view, allowed)
            if rows.cell.size:
                values[rows.cell] = self._infer(rows.values)[0]
        else:
            local = local_state(system, view)
            site = np.broadcast_to(np.eye(system.sites, dtype=np.float32), (*local.shape[:2], system.sites))
            flat = np.concatenate([local, site], axis=2).reshape(-1, self._inputs)
            values = np.where(allowed.reshape(-1), self._infer(flat)[0].reshape(-1), -np.inf)
        best = (values.reshape(allowed.shape) + gumbel(draws(view, system.stations))).argmax(axis=2)
        return np.where(view.head >= 0, best, HOLD)
