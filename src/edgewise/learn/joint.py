"""What several agents decide at once, as environments: Gymnasium, vectors of worlds, and PettingZoo.

A `Game` has W worlds that go through their steps together. In each step every agent (a site, a node, a job, a
task) chooses one of C; a mask says what it can choose. Three environments wrap it:

    JointEnv   Gymnasium, one world: MultiDiscrete actions, observation (agents, features); `action_masks` is
               what sb3-contrib's MaskablePPO asks for
    BatchEnv   Gymnasium's vector environment: W worlds, stepped together
    AgentsEnv  PettingZoo, one world: an observation and an action mask for each agent, a shared reward

A choice that the mask forbids costs `penalty` and becomes the first that it allows; with `penalty=None` it is
an error. Seeds are training seeds.

What is seen is bounded: a game's features x are observed as x / (1 + |x|), between -1 and 1.

Forbidden here: torch.
"""

from collections.abc import Sequence
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray
from pettingzoo import ParallelEnv  # type: ignore[import-untyped]

from edgewise.arrays import Bools, Floats, Floats32, Ints
from edgewise.errors import PolicyError
from edgewise.seeds import TRAINING

Info = dict[str, Any]
Seen = dict[str, NDArray[Any]]


def bounded(features: Floats32) -> Floats32:
    """x / (1 + |x|), between -1 and 1, in the order of x; what is about one stays well apart."""
    return np.asarray(features / (1.0 + np.abs(features)), dtype=np.float32)


def unbounded(seen: Floats32) -> Floats32:
    """What `bounded` was given, as far as float32 tells; what rounds to the bound was about 1.7e7."""
    inside = np.clip(seen.astype(np.float64), -1 + 2.0**-24, 1 - 2.0**-24)
    return np.asarray(inside / (1.0 - np.abs(inside)), dtype=np.float32)


class Game:
    """Worlds in which agents choose.

    Attributes:
        agents: their names.
        choices: C, how many each has.
        features: of an agent's observation.
        worlds: that `begin` made.
    """

    agents: Sequence[str]
    choices: int
    features: int
    worlds: Any

    def begin(self, seeds: Sequence[int]) -> None:
        """New worlds, one for each seed."""
        raise NotImplementedError

    def observe(self) -> Floats32:
        """(W, agents, features)."""
        raise NotImplementedError

    def seen(self) -> Floats32:
        """(W, agents, features) as environments show them, bounded."""
        return bounded(self.observe())

    def mask(self) -> Bools:
        """(W, agents, C) what can be chosen; at least one for each agent."""
        raise NotImplementedError

    def act(self, choices: Ints) -> Floats:
        """Carry out (W, agents) choices that the mask allows; (W,) reward until the next step."""
        raise NotImplementedError

    @property
    def done(self) -> bool:
        """Whether the worlds are over."""
        return bool(self.worlds.done)

    def step(self, choices: Any, penalty: float | None) -> Floats:
        """As `act`, for any choices.

        Raises:
            PolicyError: a choice is forbidden and `penalty` is None.
        """
        mask = self.mask()
        chosen = np.asarray(choices, dtype=np.int64).reshape(mask.shape[:2])
        wrong = ~np.take_along_axis(mask, chosen[:, :, None], axis=2)[:, :, 0]
        if penalty is None and wrong.any():
            world, agent = np.argwhere(wrong)[0]
            allowed = np.flatnonzero(mask[world, agent]).tolist()
            raise PolicyError(
                f"{self.agents[agent]} of world {world} chose {chosen[world, agent]}, which its action mask "
                f"forbids; it allows {allowed}"
            )
        cost: Floats = (penalty or 0.0) * wrong.sum(axis=1)
        return self.act(np.where(wrong, mask.argmax(axis=2), chosen)) - cost

    def spaces(self) -> tuple[spaces.Box, spaces.MultiDiscrete]:
        """Of observations and of actions of one world."""
        seen = spaces.Box(-1.0, 1.0, (len(self.agents), self.features), np.float32)
        return seen, spaces.MultiDiscrete([self.choices] * len(self.agents))


class JointEnv(gymnasium.Env[Floats32, Ints]):
    """One world of a game; see the module.

    Args:
        game: what is played.
        penalty: of each forbidden choice; None makes it an error.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  (Gymnasium's own form)

    def __init__(self, game: Game, penalty: float | None = 1.0) -> None:
        self.game, self.penalty = game, penalty
        self.observation_space, self.action_space = game.spaces()  # type: ignore[assignment]

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Floats32, Info]:
        """A new world; the same seed gives the same one."""
        super().reset(seed=seed)
        self.game.begin([int(self.np_random.integers(TRAINING.stop))])
        return self.game.seen()[0], {"action_mask": self.action_masks()}

    def step(self, action: Ints) -> tuple[Floats32, SupportsFloat, bool, bool, Info]:
        """All agents choose, and time passes to the next step."""
        (reward,) = self.game.step(action, self.penalty).tolist()
        return self.game.seen()[0], reward, False, self.game.done, {"action_mask": self.action_masks()}

    def action_masks(self) -> Bools:
        """(agents · C,) what can be chosen."""
        return self.game.mask()[0].flatten()


class BatchEnv(VectorEnv[Floats32, Ints, Any]):
    """W worlds of a game that begin, step and end together; the step after their end begins new ones.

    Args:
        game: what is played.
        num_envs: W.
        penalty: of each forbidden choice; None makes it an error.
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012  (Gymnasium's own form)

    def __init__(self, game: Game, num_envs: int, penalty: float | None = 1.0) -> None:
        self.game, self.num_envs, self.penalty = game, num_envs, penalty
        self.single_observation_space, self.single_action_space = game.spaces()
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed: Any = None, options: Info | None = None) -> tuple[Floats32, Info]:
        """New worlds; the same seed gives the same ones."""
        super().reset(seed=seed)
        self.game.begin(self.np_random.integers(TRAINING.stop, size=self.num_envs).tolist())
        return self.game.seen(), {"action_mask": self.game.mask()}

    def step(self, actions: Ints) -> tuple[Floats32, Floats, Bools, Bools, Info]:
        """All agents of all worlds choose, and time passes to the next step."""
        none = np.zeros(self.num_envs, dtype=np.bool_)
        if self.game.done:
            seen, info = self.reset()
            return seen, np.zeros(self.num_envs), none, none, info
        reward = self.game.step(actions, self.penalty)
        over = np.full(self.num_envs, self.game.done)
        return self.game.seen(), reward, none, over, {"action_mask": self.game.mask()}


class AgentsEnv(ParallelEnv):  # type: ignore[misc]
    """One world of a game, agent by agent; all get the same reward.

    Args:
        game: what is played.
        penalty: of each forbidden choice; None makes it an error.
    """

    metadata: dict[str, Any] = {"name": "edgewise_v0", "render_modes": []}  # noqa: RUF012

    def __init__(self, game: Game, penalty: float | None = 1.0) -> None:
        self.game, self.penalty, self.render_mode = game, penalty, None
        self.possible_agents = list(game.agents)
        self.agents = list(self.possible_agents)
        seen = spaces.Box(-1.0, 1.0, (game.features,), np.float32)
        whole = {"observation": seen, "action_mask": spaces.MultiBinary(game.choices)}
        self._seen = {agent: spaces.Dict(whole) for agent in self.agents}
        self._actions = {agent: spaces.Discrete(game.choices) for agent in self.agents}
        self._draws = np.random.default_rng()

    def observation_space(self, agent: str) -> spaces.Dict:
        """What the agent sees, and what it can choose."""
        return self._seen[agent]

    def action_space(self, agent: str) -> spaces.Discrete[Any]:
        """One of C."""
        return self._actions[agent]

    def reset(self, seed: int | None = None, options: Info | None = None) -> tuple[dict[str, Seen], Info]:
        """A new world; the same seed gives the same one."""
        if seed is not None:
            self._draws = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.game.begin([int(self._draws.integers(TRAINING.stop))])
        return self._observe(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """All agents choose, and time passes to the next step."""
        agents = self.agents
        (reward,) = self.game.step([actions[agent] for agent in agents], self.penalty).tolist()
        done = self.game.done
        self.agents = [] if done else agents
        ends = dict.fromkeys(agents, False), dict.fromkeys(agents, done)
        return self._observe(), dict.fromkeys(agents, reward), *ends, {agent: {} for agent in agents}

    def _observe(self) -> dict[str, Seen]:
        seen, mask = self.game.seen()[0], self.game.mask()[0].astype(np.int8)
        return {
            agent: {"observation": seen[i], "action_mask": mask[i]}
            for i, agent in enumerate(self.possible_agents)
        }
