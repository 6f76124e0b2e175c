"""Games about services: sites send requests, nodes add and remove replicas."""

from collections.abc import Sequence

import numpy as np

from edgewise import policies
from edgewise.arrays import Bools, Floats, Floats32, Ints
from edgewise.config import load_scenario
from edgewise.core.keyed import Key
from edgewise.core.orchestrate import HOLD, SlotResult, context_mask
from edgewise.learn.joint import Game
from edgewise.model.scenario import Scenario
from edgewise.policies.requests.features import changes_possible, local_state, node_state
from edgewise.sim.slots.replicas import ReplicaWorlds
from edgewise.workloads.services import simulated_services


def shared_reward(result: SlotResult, balance: float = 1.0) -> Floats:
    """(W,) u = exp(-λ - ε ν)                                                        (KaiS, section III-A).

    λ is the share of requests ending in the slot that violate their deadline, 0 if none ends, and
    ν = 1 / (1 + exp(-ξ)).

    Args:
        balance: ε.
    """
    missed = result.violated / np.maximum(result.in_time + result.violated, 1)
    return np.exp(-missed - balance / (1.0 + np.exp(-result.imbalance)))


class ServiceGame(Game):
    """What games of requests and replicas share.

    Args:
        scenario: has services and requests; or its name.
    """

    def __init__(self, scenario: Scenario | str = "kais-demo") -> None:
        found = simulated_services(load_scenario(scenario) if isinstance(scenario, str) else scenario)
        self.system, self.slots = found.system, found.slots
        self.draw = found.draw
        self.begin([0])
        self.features = self.observe().shape[2]

    def begin(self, seeds: Sequence[int]) -> None:
        """New worlds."""
        self.worlds = ReplicaWorlds(self.system, self.draw(seeds), self.slots, seeds)


class RequestsGame(ServiceGame):
    """Every site sends its head somewhere; one with an empty queue can only choose 0, and sends nothing.

    Args:
        scenario: see `ServiceGame`.
        balance: ε of `shared_reward`.
    """

    def __init__(self, scenario: Scenario | str = "kais-demo", balance: float = 1.0) -> None:
        super().__init__(scenario)
        self.balance, self.choices = balance, self.system.stations
        self.agents = [f"site_{b}" for b in range(self.system.sites)]

    def observe(self) -> Floats32:
        """(W, sites, S + 5 + 5K)."""
        return local_state(self.system, self.worlds.view)

    def mask(self) -> Bools:
        """F of the paper."""
        return context_mask(self.worlds.view)

    def act(self, choices: Ints) -> Floats:
        """Send the heads; the reward of the slot."""
        sent = np.where(self.worlds.view.head >= 0, choices, HOLD)
        return shared_reward(self.worlds.step(sent), self.balance)


class OrchestrateGame(ServiceGame):
    """Every node adds or removes a replica, or does nothing; then requests are dispatched for a frame.

    Reward exp(-Σ|Q_n| / N): the paper's exp(-Σ|Q_n|) is 0 in floating point for long queues.

    Args:
        scenario: see `ServiceGame`.
        dispatch: name of a request policy.
    """

    def __init__(self, scenario: Scenario | str = "kais-demo", dispatch: str = "greedy") -> None:
        super().__init__(scenario)
        self.dispatch = policies.load("requests", dispatch)
        self.choices = 2 * self.system.services + 1
        self.agents = [f"node_{n}" for n in range(self.system.nodes)]

    def observe(self) -> Floats32:
        """(W, nodes, 5 + 2S)."""
        return node_state(self.system, self.worlds.view)

    def mask(self) -> Bools:
        """What would change something, and doing nothing."""
        return changes_possible(self.system, self.worlds.view)

    def act(self, choices: Ints) -> Floats:
        """Change replicas, dispatch for a frame."""
        if self.worlds.slot == 0:
            self.dispatch.reset(self.system, Key(0))
        nodes = np.broadcast_to(np.arange(self.system.nodes), choices.shape)
        self.worlds.scale(np.stack([nodes, choices - self.system.services], axis=2))
        for _ in range(self.system.frame_slots):
            self.worlds.step(self.dispatch.decide(self.worlds.view))
        return np.exp(-self.worlds.view.waiting[:, 1:].sum(axis=(1, 2)) / self.system.nodes)
