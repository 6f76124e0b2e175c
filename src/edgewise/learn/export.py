"""Models of Stable-Baselines3 as policy cards, which decide in simulation and live.

    model = sb3.PPO("MlpPolicy", env := ew.JointEnv(ew.DeferGame())).learn(100_000)
    ew.export(model, env, "runs/mine.json")
    ew.compare("deferrable", {"defer": ["fifo", "runs/mine.json"]})

The network of the card takes what the environment sees before it is bounded, and gives a value for each
choice; the policy takes the best that is allowed. Whoever loads the card needs neither torch nor
Stable-Baselines3.

| environment | decision |
|---|---|
| `DispatchEnv` | `dispatch`, which of the static policies decides each window |
| `JointEnv` of `RequestsGame`, `OrchestrateGame`, `DeferGame` | `requests`, `orchestrate`, `defer` |

Queries of split models and pipelines have games to learn in (`SplitGame`, `PlaceGame`), whose policies are
written as classes. `edgewise.learn.agent` plays a card in the environment that it is from.
"""

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from edgewise.errors import PolicyError
from edgewise.learn.agent import decision_of
from edgewise.learn.env import DispatchEnv
from edgewise.learn.games import OrchestrateGame, RequestsGame
from edgewise.learn.harness import write_card, write_network
from edgewise.learn.joint import JointEnv
from edgewise.policies import cards
from edgewise.policies.defer.rules import golden_views, pool_rows
from edgewise.policies.dispatch.chooser import features_hash, fingerprint, golden_states
from edgewise.policies.exported import EXPORTED, golden, meaning


class Choices(torch.nn.Module):
    """What a model thinks of each choice, from an observation that is not bounded yet.

    Args:
        model: of Stable-Baselines3 or sb3-contrib: DQN and its like, or an actor and critic.
        shape: of the choices of one world.
    Raises:
        PolicyError: the model has neither a Q-network nor an actor over discrete choices.
    """

    def __init__(self, model: Any, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.policy, self.shape = model.policy.cpu().eval(), shape
        if not (hasattr(self.policy, "q_net") or hasattr(self.policy, "action_net")):
            raise PolicyError(
                f"{type(model).__name__}: cannot be exported; use one with discrete actions, such as DQN, "
                "PPO, A2C or MaskablePPO"
            )

    def forward(self, seen: Tensor) -> Tensor:
        """(W, …) observations → (W, …, choices) values or logits."""
        bounded = seen / (1.0 + seen.abs())
        values: Tensor
        if hasattr(self.policy, "q_net"):
            values = self.policy.q_net(bounded)
        else:
            values = self.policy.action_net(self._of_actor(bounded))
        return values.reshape(-1, *self.shape)

    def _of_actor(self, bounded: Tensor) -> Any:
        policy = self.policy
        features = policy.extract_features(bounded)
        if policy.share_features_extractor:
            return policy.mlp_extractor.forward_actor(features)
        return policy.mlp_extractor.forward_actor(features[0])


def export(model: Any, env: Any, path: str | Path) -> Path:
    """Write a trained model as a policy card.

    Args:
        model: of Stable-Baselines3 or sb3-contrib, trained on `env`.
        env: see the module.
        path: of the card, `NAME.json`; the network is written beside it, as NAME.onnx.
    Returns:
        The card's path, which can be named wherever a policy can.
    Raises:
        PolicyError: there is no policy for the decisions of this environment, or model.
        RunError: a file cannot be written.
    """
    path, inner = Path(path), getattr(env, "unwrapped", env)
    if path.suffix != ".json":
        raise PolicyError(f"the card's path is {str(path)!r}; give one that ends in .json, as runs/mine.json")
    if model.observation_space != inner.observation_space or model.action_space != inner.action_space:
        raise PolicyError("the model was trained on other observations or actions than this environment has")
    if isinstance(inner, DispatchEnv):
        about = _of_windows(model, inner, path)
    else:
        about = _of_agents(model, inner, path)
    made = {"command": f"edgewise.export({type(model).__name__}, …)", "edgewise": version("edgewise")}
    card = write_card(path.parent, path.stem, made | about)
    cards.load(decision_of(inner), card)  # decides as it said
    return card


def _of_windows(model: Any, env: DispatchEnv, path: Path) -> dict[str, Any]:
    """A choice among static policies, as cards of `chooser` say it."""
    states = golden_states(env.state, env.world.workers)
    digest, (values,) = _write(model, (len(env.actions),), states, path)
    return {
        "state": env.state,
        "workers": env.world.workers,
        "actions": list(env.actions),
        "topology": fingerprint(env.world),
        "features_sha256": features_hash(env.state),
        "golden": values.argmax(axis=1).tolist(),
        "onnx_sha256": digest,
    }


def _of_agents(model: Any, env: JointEnv, path: Path) -> dict[str, Any]:
    """Choices of several agents."""
    decision, game = decision_of(env), env.game
    agents, choices = len(game.agents), game.choices
    example = np.zeros((1, agents, game.features), dtype=np.float32)
    if decision == "defer":
        example = np.concatenate([pool_rows(view, agents) for view in golden_views()])
    digest, _ = _write(model, (agents, choices), example, path)
    about: dict[str, Any] = {
        "exported": decision,
        "agents": agents,
        "choices": choices,
        "features_sha256": meaning(decision),
        "onnx_sha256": digest,
    }
    if isinstance(game, RequestsGame | OrchestrateGame):
        about |= {"services": game.system.services, "site_of": game.system.site_of.tolist()}
    policy = EXPORTED[decision](cards.Card(path, {"name": path.stem} | about, about))
    return about | {"golden": golden(policy, about)}


def _write(
    model: Any, shape: tuple[int, ...], example: NDArray[Any], path: Path
) -> tuple[str, tuple[NDArray[Any], ...]]:
    free: Mapping[str, Mapping[int, str]] = {"seen": {0: "W"}, "values": {0: "W"}}
    return write_network(
        Choices(model, shape), path.with_suffix(".onnx"), {"seen": example}, ["values"], free
    )
