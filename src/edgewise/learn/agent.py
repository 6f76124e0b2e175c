"""Policy cards back in the environments that they are from, as models of Stable-Baselines3 are there.

    model = sb3.PPO("MlpPolicy", env := ew.JointEnv(ew.DeferGame())).learn(100_000)
    card = ew.export(model, env, "runs/mine.json")
    evaluate_policy(ew.Agent(card, env), env)  # of Stable-Baselines3: the reward that the card earns

So a card that somebody else made, or those that ship, can be a rival in one's own training loop, without the
library that it was trained with.

Forbidden here: torch.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgewise.arrays import Floats32, Ints
from edgewise.errors import PolicyError
from edgewise.learn.env import DispatchEnv
from edgewise.learn.games import DeferGame, OrchestrateGame, RequestsGame
from edgewise.learn.joint import JointEnv, unbounded
from edgewise.policies import cards
from edgewise.policies.dispatch.chooser import trained

Found = tuple[Callable[[Floats32], NDArray[Any]], bool, tuple[Any, ...], tuple[Any, ...]]
"""Values of choices, whether observations are bounded, what a card is for, and what the environment has."""
ENVIRONMENTS = "a DispatchEnv, or a JointEnv of a RequestsGame, OrchestrateGame or DeferGame"


def decision_of(env: Any) -> str:
    """What the policy of an environment's card decides.

    Raises:
        PolicyError: there is none for it.
    """
    if isinstance(env, DispatchEnv):
        return "dispatch"
    games = {RequestsGame: "requests", OrchestrateGame: "orchestrate", DeferGame: "defer"}
    game = type(env.game) if isinstance(env, JointEnv) else None
    for kind, decision in games.items():
        if game is not None and issubclass(game, kind):
            return decision
    raise PolicyError(f"{type(env).__name__}: has no policy to export to; use {ENVIRONMENTS}")


class Agent:
    """Takes of each observation the choice that the card's network values most, of those allowed.

    Args:
        path: of the card.
        env: what it plays; of a JointEnv it asks for the action masks.
    Raises:
        PolicyError: there is no card for such an environment, or it is for another number of agents, of
            workers or of choices.
    """

    def __init__(self, path: str | Path, env: Any) -> None:
        path, self._env = Path(path), getattr(env, "unwrapped", env)
        decision = decision_of(self._env)
        of = self._of_windows if decision == "dispatch" else self._of_agents
        self._values, self._bound, fits, here = of(decision, path)
        if here != fits:
            raise PolicyError(f"policy card {path}: is for {fits}, this environment has {here}")

    def _of_windows(self, decision: str, path: Path) -> Found:
        network, env = trained(path), self._env
        fits = network.state, network.actions, network.workers or env.world.workers
        return network.values, env.bound, fits, (env.state, env.actions, env.world.workers)

    def _of_agents(self, decision: str, path: Path) -> Found:
        cards.load(decision, path)  # decides as it said
        card, game = cards.read(decision, path), self._env.game
        if "exported" not in card.about:
            raise card.error(
                "was not made by ew.export; its network sees something else than environments show"
            )
        run = card.network()
        fits = card.part["agents"], card.part["choices"]
        return lambda seen: run(seen)[0], True, fits, (len(game.agents), game.choices)

    def predict(
        self,
        observation: NDArray[Any],
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[Ints, Any]:
        """Actions for one observation, or for a batch of one, and the state, which is none.

        Args:
            observation: as the environment shows it.
            state: as Stable-Baselines3 hands it on; not used, as the other two.
            episode_start: see `state`.
            deterministic: see `state`.
        """
        shape = self._env.observation_space.shape
        seen: Floats32 = np.asarray(observation, dtype=np.float32).reshape(-1, *shape)
        values = self._values(unbounded(seen) if self._bound else seen)
        if not isinstance(self._env, DispatchEnv):
            values = np.where(self._env.action_masks().reshape(values.shape[1:]), values, -np.inf)
        chosen: Ints = np.asarray(values.argmax(axis=-1))
        return (chosen if observation.ndim > len(shape) else chosen[0]), state
