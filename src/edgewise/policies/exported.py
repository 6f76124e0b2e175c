"""Networks of one's own, trained on the environments: they see what agents saw there, and choose the best.

`edgewise.learn.export` writes their files. Each network takes (W, agents, features) as its game observes them
(`edgewise.learn.games`) and gives (W, agents, choices) values; the largest that the game's mask allows is
taken. A card is for the system that its environment was of: as many sites, nodes and services.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgewise.arrays import Bools, Floats32, Ints
from edgewise.core.defer import CapacityView, Slots
from edgewise.core.keyed import Key
from edgewise.core.orchestrate import HOLD, ReplicaView, context_mask
from edgewise.errors import PolicyError
from edgewise.model.orchestration import System
from edgewise.policies.cards import Card, Run
from edgewise.policies.defer.rules import feature_hash as features_of_jobs, golden_views, pool_rows, turns
from edgewise.policies.orchestrate.base import Orchestration
from edgewise.policies.requests.features import changes_possible, local_state, node_state
from edgewise.policies.requests.learned import feature_hash as features_of_services, golden_of
from edgewise.policies.requests.rules import RequestDispatch


def best(infer: Run, seen: Floats32, allowed: Bools) -> Ints:
    """(W, agents) of the allowed choices the one of largest value.

    Args:
        seen: (W, agents, features).
        allowed: (W, agents, choices), at least one for each agent.
    """
    (values,) = infer(seen)
    return np.asarray(np.where(allowed, values, -np.inf).argmax(axis=2))


def _refuse_others(name: str, what: str, here: tuple[int, ...], trained: tuple[int, ...]) -> None:
    if here != trained:
        raise PolicyError(
            f"{name}: was trained on {what} of shape {trained}, here it is {here}; train it on this scenario"
        )


class ExportedRequests(RequestDispatch):
    """Each site's head goes where its agent says."""

    def __init__(self, card: Card) -> None:
        self.name, self._infer = card.name, card.network()
        self._shape = (int(card.part["agents"]), int(card.part["choices"]))

    def reset(self, world: System, key: Key) -> None:
        """Nothing is drawn.

        Raises:
            PolicyError: the network is for another number of sites or stations.
        """
        _refuse_others(self.name, "sites and stations", (world.sites, world.stations), self._shape)
        self.system = world

    def decide(self, view: ReplicaView) -> Ints:
        """(W, sites) stations."""
        chosen = best(self._infer, local_state(self.system, view), context_mask(view))
        return np.where(view.head >= 0, chosen, HOLD)


class ExportedScaling(Orchestration):
    """Each node adds or removes what its agent says."""

    def __init__(self, card: Card) -> None:
        self.name, self._infer = card.name, card.network()
        self._shape = (int(card.part["agents"]), int(card.part["choices"]))

    def reset(self, world: System, key: Key) -> None:
        """Nothing is drawn.

        Raises:
            PolicyError: the network is for another number of nodes or services.
        """
        here = (world.nodes, 2 * world.services + 1)
        _refuse_others(self.name, "nodes and changes", here, self._shape)
        self.system = world

    def decide(self, view: ReplicaView) -> Ints:
        """(W, nodes, 2) nodes and their changes."""
        change = best(self._infer, node_state(self.system, view), changes_possible(self.system, view))
        nodes = np.broadcast_to(np.arange(self.system.nodes), change.shape)
        return np.stack([nodes, change - self.system.services], axis=2)


class ExportedDeferral:
    """Jobs start whose agents say so, by submission, while they fit."""

    decision, batched = "defer", True

    def __init__(self, card: Card) -> None:
        self.name, self._infer = card.name, card.network()
        self._places = int(card.part["agents"])

    def reset(self, world: Slots, key: Key) -> None:
        """Nothing is drawn, and nothing kept."""

    def decide(self, view: CapacityView) -> Ints:
        """(W, P) turns.

        Raises:
            PolicyError: the pool has more jobs than the network has places for.
        """
        jobs = view.state.shape[1]
        if jobs > self._places:
            raise PolicyError(
                f"{self.name}: was trained on pools of up to {self._places} jobs, here are {jobs}"
            )
        startable = np.zeros((view.state.shape[0], self._places, 2), dtype=np.bool_)
        startable[:, :, 0] = True
        startable[:, :jobs, 1] = view.startable
        wanted = best(self._infer, pool_rows(view, self._places), startable)[:, :jobs] == 1
        return np.asarray(turns(view, wanted.astype(np.float64), skip=True) * wanted)


EXPORTED: Mapping[str, Any] = {
    "requests": ExportedRequests,
    "orchestrate": ExportedScaling,
    "defer": ExportedDeferral,
}


def of_card(card: Card) -> Any:
    """The policy of a card that was exported.

    Raises:
        PolicyError: its files were changed, are for other features, or decide otherwise than they did.
    """
    decision = str(card.about["exported"])
    card.check_features(meaning(decision))
    policy = EXPORTED[decision](card)
    card.check_golden(golden(policy, card.about), card.part["golden"])
    return policy


def meaning(decision: str) -> str:
    """Hash of what the features mean that an exported network reads."""
    return features_of_jobs() if decision == "defer" else features_of_services()


def golden(policy: Any, about: Mapping[str, Any]) -> list[Any]:
    """What a policy decides in 16 made-up views of a system like that of its card."""
    if policy.decision == "defer":
        return [policy.decide(view)[0].tolist() for view in golden_views()]
    return list(golden_of(policy, about["services"], about["site_of"])["golden"])
