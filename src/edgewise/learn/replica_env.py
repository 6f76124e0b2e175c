"""Environments of requests and replicas: PettingZoo for dispatch, Gymnasium for orchestration.

For training at speed use `sim.slots.replicas.ReplicaWorlds`: it steps W worlds with B sites on arrays.

`SiteDispatchEnv`, one agent for each site ("site_0", …), one step a slot:

| observation[i] | meaning | range |
|---|---|---|
| 0 … S-1 | service of the head, one-hot | 0, 1 |
| S | time left until its deadline, s | >= 0 |
| S+1 | its time on a replica, s | >= 0 |
| S+2 | requests that wait at the site | >= 0 |
| S+3 | measured delay to the cloud, s | >= 0 |
| S+4 | nodes of the site | >= 1 |
| S+5 … | for each own node: queue, free share of cores, of memory, of disk; 0 beyond its nodes | >= 0 |

`action_mask` is F of the paper over the actions 0 (cloud) … N; with an empty queue only 0 is 1, and nothing
is sent. The shared reward is exp(-λ - ε ν), λ the share of requests ending in the slot that violate their
deadline, ν = 1/(1 + exp(-ξ)).

`ScaleEnv`, one step a frame; observation (N, 3 + 2S): free share of cores, memory, disk; queue by service;
replicas by service. Action: H pairs (node, l + S) with l in -S … S. Reward exp(-Σ|Q_n| / N): the paper's
exp(-Σ|Q_n|) is 0 in floating point for long queues, hence the sum is scaled.
"""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import ParallelEnv  # type: ignore[import-untyped]

from edgewise import config, policies
from edgewise.arrays import Floats, Floats32, Ints
from edgewise.core.keyed import Key
from edgewise.core.orchestration import HOLD, ReplicaView, SlotResult, context_mask
from edgewise.model.orchestration import System
from edgewise.model.scenario import Scenario
from edgewise.sim.slots.replicas import ReplicaWorlds
from edgewise.workloads.services import Draw, simulated_services

Observation = dict[str, NDArray[Any]]


def shared_reward(result: SlotResult, balance: float = 1.0) -> Floats:
    """(W,) u = exp(-λ - ε ν)                                                        (KaiS, section III-A).

    Args:
        balance: ε.
    """
    ended = result.in_time + result.violated
    missed = result.violated / np.maximum(ended, 1)
    reward: Floats = np.exp(-missed - balance / (1.0 + np.exp(-result.imbalance)))
    return reward


class _Setting:
    """What both environments share: system, requests by seed, length."""

    def __init__(self, scenario: Scenario | str, draw: Draw | None) -> None:
        loaded = config.load_scenario(scenario) if isinstance(scenario, str) else scenario
        found = simulated_services(loaded)
        self.system, self.slots = found.system, found.slots
        self.draw: Draw = draw or found.draw

    def world(self, seed: int) -> ReplicaWorlds:
        return ReplicaWorlds(self.system, self.draw([seed]), self.slots, [seed])


def local_observations(system: System, view: ReplicaView) -> Floats32:
    """(W, B, F) the observation of each site, as tabled above."""
    own = [np.flatnonzero(system.site_of == b) for b in range(system.sites)]
    most, (worlds, b), s = max(map(len, own)), view.head.shape, system.services
    out = np.zeros((worlds, b, s + 5 + 4 * most), dtype=np.float32)
    cells = np.nonzero(view.head >= 0)
    out[(*cells, view.head_service[cells])] = 1.0
    left_s = np.maximum(view.head_deadline_s - view.clock_s[:, None], 0.0)
    out[:, :, s] = np.where(view.head >= 0, left_s, 0.0)
    out[:, :, s + 1], out[:, :, s + 2] = view.head_service_s, view.site_queue
    out[:, :, s + 3] = view.cloud_delay_s[:, None]
    nodes = np.concatenate([view.waiting[:, 1:].sum(axis=2)[:, :, None], _free(system, view)], axis=2)
    for site, rows in enumerate(own):
        out[:, site, s + 4] = len(rows)
        out[:, site, s + 5 : s + 5 + 4 * len(rows)] = nodes[:, rows].reshape(worlds, -1)
    return out


def _free(system: System, view: ReplicaView) -> Floats:
    """(W, N, 3) free shares of cores, memory and disk."""
    first = system.first_machine[1]
    cores = view.free_cpu_cores[:, first:] / system.cpu_cores[first:]
    memory = view.free_memory_bytes[:, first:] / system.memory_bytes[first:]
    disk = view.free_disk_bytes[:, 1:] / system.disk_bytes[1:]
    return np.maximum(np.stack([cores, memory, disk], axis=2), 0.0)


class SiteDispatchEnv(ParallelEnv):  # type: ignore[misc]
    """Dispatch by one agent for each site, see the table above.

    Args:
        scenario: has services and requests; or its name.
        draw: seeds → worlds of requests; None: the scenario's own.
        balance: ε of the reward.
    """

    metadata: dict[str, Any] = {"name": "edgewise_dispatch_v0", "render_modes": []}  # noqa: RUF012

    def __init__(
        self, scenario: Scenario | str = "kais-demo", draw: Draw | None = None, balance: float = 1.0
    ) -> None:
        self._setting, self._balance, self.render_mode = _Setting(scenario, draw), balance, None
        system = self._setting.system
        self.possible_agents = [f"site_{b}" for b in range(system.sites)]
        self.agents = list(self.possible_agents)
        most = int(np.bincount(system.site_of, minlength=system.sites).max())
        seen = spaces.Box(0.0, np.inf, (system.services + 5 + 4 * most,), np.float32)
        mask = spaces.Box(0, 1, (system.stations,), np.int8)
        self._seen = {
            a: spaces.Dict({"observation": seen, "action_mask": mask}) for a in self.possible_agents
        }
        self._actions = {a: spaces.Discrete(system.stations) for a in self.possible_agents}
        self._draws = np.random.default_rng()

    def observation_space(self, agent: str) -> spaces.Dict:
        """See the table above."""
        return self._seen[agent]

    def action_space(self, agent: str) -> spaces.Discrete[Any]:
        """0: the cloud, n + 1: node n."""
        return self._actions[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Observation], dict[str, dict[str, Any]]]:
        """A new world; the same seed gives the same one."""
        if seed is not None:
            self._draws = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.worlds = self._setting.world(int(self._draws.integers(500_000)))  # training seeds
        return self._observe(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """Send every site's head; an agent whose queue is empty sends nothing.

        Raises:
            PolicyError: a station that does not host the service; the action mask says which do.
        """
        agents, view = self.agents, self.worlds.view
        stations = np.array([[int(actions[agent]) for agent in agents]])
        result = self.worlds.step(np.where(view.head >= 0, stations, HOLD))
        reward, done = float(shared_reward(result, self._balance)[0]), self.worlds.done
        if done:
            self.agents = []
        return (
            self._observe(),
            dict.fromkeys(agents, reward),
            dict.fromkeys(agents, False),
            dict.fromkeys(agents, done),
            {agent: {} for agent in agents},
        )

    def _observe(self) -> dict[str, Observation]:
        view = self.worlds.view
        seen, mask = local_observations(self._setting.system, view)[0], context_mask(view)[0]
        return {
            agent: {"observation": seen[b], "action_mask": mask[b].astype(np.int8)}
            for b, agent in enumerate(self.possible_agents)
        }


class ScaleEnv(gymnasium.Env[Floats32, Ints]):
    """Orchestration frame by frame over a fixed dispatch, see above.

    Args:
        scenario: has services and requests; or its name.
        dispatch: name of a request policy.
        changes: H, how many nodes change in a frame.
        draw: seeds → worlds of requests; None: the scenario's own.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  (Gymnasium's own form)

    def __init__(
        self,
        scenario: Scenario | str = "kais-demo",
        dispatch: str = "greedy",
        changes: int = 2,
        draw: Draw | None = None,
    ) -> None:
        self._setting, self._dispatch = (
            _Setting(scenario, draw),
            policies.load("dispatch", dispatch, "requests"),
        )
        system = self._setting.system
        shape = (system.nodes, 3 + 2 * system.services)
        self.observation_space = spaces.Box(0.0, np.inf, shape, np.float32)
        self.action_space = spaces.MultiDiscrete([system.nodes, 2 * system.services + 1] * changes)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats32, dict[str, Any]]:
        """A new world; the same seed gives the same one."""
        super().reset(seed=seed)
        self._worlds = self._setting.world(int(self.np_random.integers(500_000)))  # training seeds
        self._dispatch.reset(self._setting.system, Key(0))
        return self._observe(), {}

    def step(self, action: Ints) -> tuple[Floats32, SupportsFloat, bool, bool, dict[str, Any]]:
        """Add and remove replicas, then dispatch for a frame; what is not possible does nothing."""
        commands = np.asarray(action, dtype=np.int64).reshape(1, -1, 2)
        valid = self._worlds.scale(commands - np.array([0, self._setting.system.services]))
        for _ in range(self._setting.system.frame_slots):
            self._worlds.step(self._dispatch.dispatch(self._worlds.view))
        queued = float(self._worlds.view.waiting[:, 1:].sum())
        reward = float(np.exp(-queued / self._setting.system.nodes))
        return self._observe(), reward, False, self._worlds.done, {"valid": valid[0]}

    def _observe(self) -> Floats32:
        view = self._worlds.view
        parts = (_free(self._setting.system, view), view.waiting[:, 1:], (view.ready + view.starting)[:, 1:])
        seen: Floats32 = np.concatenate(parts, axis=2)[0].astype(np.float32)
        return seen
