"""Trained networks as a `RequestPolicy` and a `ReplicaPolicy`; both draw from π, as they did in training.

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
from edgewise.policies.kais.features import (
    changes_possible,
    draws,
    frame_draws,
    gumbel,
    local_state,
    node_state,
    pair_rows,
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


class LearnedScaling:
    """GPG's orchestrator.

    Args:
        name: of the policy.
        infer: (W, N, D + 1) → nodes (W, H), values (W, H, 2S + 1), the last feature being added to the node's
            value; or (W, N, S, F) → (W, N, 2S + 1) if `pairs`.
        pairs: whether every (node, service) is scored on its own, so that any system will do.
        masked: changes that are impossible are not chosen.
        shape: nodes and services of the system it was trained on.
    """

    def __init__(self, name: str, infer: Infer, pairs: bool, masked: bool, shape: tuple[int, int]) -> None:
        self.name = name
        self._infer, self._pairs, self._masked, self._shape = infer, pairs, masked, shape
        self._system: System | None = None

    def reset(self, system: System) -> None:
        """Nothing is drawn.

        Raises:
            PolicyError: the network was trained on a system of another shape.
        """
        if not self._pairs and (system.nodes, system.services) != self._shape:
            raise PolicyError(
                f"{self.name}: was trained on {self._shape[0]} nodes and {self._shape[1]} services, this "
                f"system has {system.nodes} and {system.services}; train it on this scenario"
            )
        self._system = system

    def scale(self, view: ReplicaView) -> Ints:
        """(W, H, 2) nodes and their changes, drawn from π; of `pairs`, each node's most likely change."""
        assert self._system is not None, "reset comes first"
        system, possible = self._system, changes_possible(self._system, view)
        if self._pairs:
            (values,) = self._infer(pair_rows(system, view))
            nodes = np.broadcast_to(np.arange(system.nodes), (view.worlds, system.nodes))
        else:
            added = gumbel(frame_draws(view, system.nodes))[:, :, None].astype(np.float32)
            nodes, values = self._infer(np.concatenate([node_state(system, view), added], axis=2))
            more = gumbel(frame_draws(view, system.nodes + values[0].size))[:, system.nodes :]
            values = values + more.reshape(values.shape)
        if self._masked:
            here = np.take_along_axis(possible, nodes[:, :, None], axis=1)
            values = np.where(here, values, -np.inf)
        change = values.argmax(axis=2) - system.services
        return np.stack([nodes, change], axis=2).astype(np.int64)
