"""A trained network as a `ReplicaPolicy`; it draws from π, as it did in training.

How a network is run is handed in; `of_card` does so with onnxruntime.
"""

import numpy as np

from edgewise.arrays import Ints
from edgewise.core.keyed import Key
from edgewise.core.orchestrate import ReplicaView
from edgewise.errors import PolicyError
from edgewise.model.orchestration import System
from edgewise.policies.cards import Card, Run
from edgewise.policies.orchestrate.base import Orchestration
from edgewise.policies.orchestrate.marginal import MarginalValue, Terms
from edgewise.policies.requests.features import (
    changes_possible,
    frame_draws,
    gumbel,
    node_state,
    pair_rows,
)
from edgewise.policies.requests.learned import feature_hash, golden_of


def of_card(card: Card) -> Orchestration:
    """Orchestrator of a card: a network, or the terms of `MarginalValue`.

    Raises:
        PolicyError: a file is missing, was changed, or decides otherwise than it did.
    """
    card.check_features(feature_hash())
    part = card.part
    services, site_of = part["services"], part["site_of"]
    policy: Orchestration
    if "terms" in part:
        known = (np.array(part["rate_qps"]), np.array(part["time_s"]))
        policy = MarginalValue(Terms(**part["terms"]), *known, card.name)
    else:
        infer, shape = card.network(".orchestrate.onnx"), (len(site_of), services)
        policy = LearnedScaling(card.name, infer, part["pairs"], part["masked"], shape)
    card.check_golden(golden_of(policy, services, site_of)["golden"], part["golden"])
    return policy


class LearnedScaling(Orchestration):
    """GPG's orchestrator.

    Args:
        name: of the policy.
        infer: (W, N, D + 1) → nodes (W, H), values (W, H, 2S + 1), the last feature being added to the node's
            value; or (W, N, S, F) → (W, N, 2S + 1) if `pairs`.
        pairs: whether every (node, service) is scored on its own, so that any system will do.
        masked: changes that are impossible are not chosen.
        shape: nodes and services of the system it was trained on.
    """

    def __init__(self, name: str, infer: Run, pairs: bool, masked: bool, shape: tuple[int, int]) -> None:
        self.name = name
        self._infer, self._pairs, self._masked, self._shape = infer, pairs, masked, shape

    def reset(self, world: System, key: Key) -> None:
        """Nothing is drawn.

        Raises:
            PolicyError: the network was trained on a system of another shape.
        """
        if not self._pairs and (world.nodes, world.services) != self._shape:
            raise PolicyError(
                f"{self.name}: was trained on {self._shape[0]} nodes and {self._shape[1]} services, this "
                f"system has {world.nodes} and {world.services}; train it on this scenario"
            )
        self.system = world

    def decide(self, view: ReplicaView) -> Ints:
        """Nodes and their changes, drawn from π; of `pairs`, each node's most likely change."""
        system, possible = self.system, changes_possible(self.system, view)
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
