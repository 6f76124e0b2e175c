"""A trained network as a `RequestPolicy`; it draws from π, as it did in training.

How a network is run is handed in; `of_card` does so with onnxruntime.
Execution is decentralised: each site's decision uses that site's rows only, which the tests check.
"""

import hashlib
import json

import numpy as np

from edgewise.arrays import Ints
from edgewise.core.keyed import Key
from edgewise.core.orchestrate import HOLD, ReplicaView, context_mask, hosts
from edgewise.errors import PolicyError
from edgewise.model.orchestration import System
from edgewise.policies.cards import Card, Run
from edgewise.policies.dispatch.requests.base import RequestDispatch
from edgewise.policies.dispatch.requests.features import (
    PAIR_FEATURES,
    draws,
    gumbel,
    local_state,
    station_rows,
)
from edgewise.policies.dispatch.requests.golden import golden_of
from edgewise.policies.dispatch.requests.rules import Weighted
from edgewise.policies.dispatch.requests.stations import STATION_FEATURES

STATES = "site: S + 5 + 5K, one-hot; node: 5 + 2S + 1; version 3"


def feature_hash() -> str:
    """Hash of what the features mean; a policy trained on others is refused."""
    return hashlib.sha256(json.dumps([STATION_FEATURES, PAIR_FEATURES, STATES]).encode()).hexdigest()


def of_card(card: Card) -> RequestDispatch:
    """Dispatcher of a card: a network, or a linear score, which runs inside the compiled engine.

    Raises:
        PolicyError: it was changed, is for other features, or decides otherwise than it did.
    """
    card.check_features(feature_hash())
    part = card.part
    policy: RequestDispatch
    if "weights" in part:
        policy = Weighted(np.array(part["weights"]), card.name)
    else:
        infer = card.network(".dispatch.onnx")
        policy = LearnedDispatch(card.name, infer, part["scored"], part["context"], part["inputs"])
    card.check_golden(golden_of(policy, part["services"], part["site_of"])["golden"], part["golden"])
    return policy


class LearnedDispatch(RequestDispatch):
    """cMMAC's actors: each site draws from its π, with draws of its own (as the paper's agents do).

    Args:
        name: of the policy.
        infer: (M, F) → (M,) scores of stations if `scored`, else (R, D + B) → (R, N + 1) log p.
        scored: whether stations are scored one by one, so that any system will do.
        context: which stations may be chosen, "resources" or "hosts".
        inputs: length of a row that the network reads.
    """

    def __init__(self, name: str, infer: Run, scored: bool, context: str, inputs: int) -> None:
        self.name = name
        self._infer, self._scored, self._inputs = infer, scored, inputs
        self._mask = context_mask if context == "resources" else hosts

    def reset(self, world: System, key: Key) -> None:
        """Nothing is drawn.

        Raises:
            PolicyError: the networks were trained on a system of another shape.
        """
        state = world.services + 5 + 5 * int(np.bincount(world.site_of).max()) + world.sites
        if not self._scored and state != self._inputs:
            raise PolicyError(
                f"{self.name}: its network reads {self._inputs} numbers, this system's sites have {state}; "
                "train it on this scenario, or use a policy that scores stations"
            )
        self.system = world

    def decide(self, view: ReplicaView) -> Ints:
        """A station for each site's head, drawn from π: argmax of log π + Gumbel noise."""
        system, allowed = self.system, self._mask(view)
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
