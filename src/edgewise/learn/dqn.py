"""ASET's trainer: DQN as its algorithm 1 has it, with four later improvements as options.

Read it from top to bottom: what is configured, what is kept, one episode, its gradient steps,
the loop. ASET's constants are not published; those below were chosen on validation seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import PolicyError
from edgewise.learn.env import DispatchEnv, Observation, Reward
from edgewise.learn.networks import NETWORKS
from edgewise.learn.replay import Replay, Transitions
from edgewise.policies.dispatch.meta import ALL

Report = Callable[[dict[str, float]], None]
IMPROVEMENTS: dict[str, dict[str, Any]] = {
    "double": {"double": True},  # van Hasselt et al. 2016
    "dueling": {"dueling": True},  # Wang et al. 2016
    "n-step": {"n_step": 3},  # Sutton 1988
    "prioritised": {"priority": 0.6},  # Schaul et al. 2016
    "none": {},
}


@dataclass(frozen=True, slots=True)
class DqnConfig:
    """What a training needs; the card of a policy holds it.

    Attributes:
        scenario: its name, without changes.
        state: "history" (ASET's network) or "pooled" (any number of workers).
        actions: static policies to choose from.
        episodes: of training; each has its own seed: `seed`, `seed` + 1, …
        seed: keys episodes, exploration, replay and the network's weights.
        gamma, learning_rate: γ and α.
        room: N_r, frames of the replay buffer.
        steps_per_episode, batch: G and M.
        epsilon_first, epsilon_last, epsilon_episodes: ε falls linearly over so many episodes.
        warm_up: episodes at random before learning; the network is normalised by their states.
        double, dueling, n_step, priority: improvements; algorithm 1 has False, False, 1 and 0.
        reward: φ, θ and c.
    """

    scenario: str = "full-edge"
    state: str = "history"
    actions: tuple[str, ...] = ALL
    episodes: int = 40
    seed: int = 0
    gamma: float = 0.9
    learning_rate: float = 5e-4
    room: int = 1500
    steps_per_episode: int = 16
    batch: int = 32
    epsilon_first: float = 1.0
    epsilon_last: float = 0.05
    epsilon_episodes: int = 20
    warm_up: int = 5
    double: bool = True
    dueling: bool = True
    n_step: int = 3
    priority: float = 0.0
    reward: Reward = field(default_factory=Reward)

    def improved(self, names: Sequence[str]) -> DqnConfig:
        """With these of `IMPROVEMENTS` and no others; "none" names none of them.

        Raises:
            PolicyError: there is no such improvement.
        """
        chosen = dict[str, Any](double=False, dueling=False, n_step=1, priority=0.0)
        for name in (name.strip() for name in names):
            if name not in IMPROVEMENTS:
                raise PolicyError(f"improvement {name!r}: use some of {', '.join(IMPROVEMENTS)}")
            chosen |= IMPROVEMENTS[name]
        return replace(self, **chosen)

    def epsilon(self, episode: int) -> float:
        """ε of an episode, 1 while warming up."""
        if episode < self.warm_up:
            return 1.0
        share = min((episode - self.warm_up) / max(self.epsilon_episodes, 1), 1.0)
        return self.epsilon_first + share * (self.epsilon_last - self.epsilon_first)


class DqnTrainer:
    """A training that can be stopped, saved, and resumed exactly.

    Attributes:
        network: Q.
        episode: how many were played.
        curve: success of each.
    """

    def __init__(self, config: DqnConfig, env: DispatchEnv | None = None) -> None:
        torch.manual_seed(config.seed)
        self.config = config
        self.env = env or DispatchEnv(config.scenario, config.actions, config.state, config.reward)
        shape = self.env.observation_space.shape
        assert shape is not None
        self.network, self.target = (
            NETWORKS[config.state](shape, len(config.actions), config.dueling) for _ in range(2)
        )
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=config.learning_rate)
        self.replay = Replay(config.room, shape, config.gamma, config.n_step, config.priority)
        self.rng = np.random.default_rng(config.seed)
        self.episode, self.curve = 0, list[float]()

    def play(self, epsilon: float) -> float:
        """One episode, ε-greedy; it is kept for replay. Returns its mean success."""
        state, _ = self.env.reset(options={"episode": self.config.seed + self.episode})
        states, actions, rewards, successes = [state], list[int](), list[float](), list[float]()
        lost = over = False
        while not (lost or over):
            explore = self.rng.random() < epsilon
            action = int(self.rng.integers(len(self.config.actions))) if explore else self.best(state)
            state, reward, lost, over, info = self.env.step(np.int64(action))
            states.append(state)
            actions.append(action)
            rewards.append(reward)
            successes.append(info["success"])
        self.replay.add(states, actions, rewards, lost)
        return float(np.mean(successes))

    def best(self, state: Observation) -> int:
        """The action of largest value."""
        with torch.no_grad():
            return int(self.network(torch.from_numpy(state)[None]).argmax())

    def learn(self) -> float:
        """G gradient steps; targets come from the network as it was before them. Returns the mean loss.

        y = r + γ max_a Q(s', a; φ_k)          (algorithm 1; double: a from Q(·; φ), van Hasselt et al. 2016)
        """
        self.target.load_state_dict(self.network.state_dict())
        losses = []
        for _ in range(self.config.steps_per_episode):
            batch = self.replay.sample(self.config.batch, self.rng)
            error = self._errors(batch)
            loss = (torch.from_numpy(batch.weight) * torch.nn.functional.huber_loss(
                error, torch.zeros_like(error), reduction="none"
            )).mean()  # fmt: skip
            self.optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), 10.0)
            self.optimiser.step()
            self.replay.judge(batch.place, error.detach().numpy())
            losses.append(float(loss.detach()))
        return float(np.mean(losses))

    def _errors(self, batch: Transitions) -> Tensor:
        state, following = torch.from_numpy(batch.state), torch.from_numpy(batch.following)
        value = self.network(state).gather(1, torch.from_numpy(batch.action)[:, None])[:, 0]
        with torch.no_grad():
            ahead = self.target(following)
            chosen = (self.network(following) if self.config.double else ahead).argmax(1, keepdim=True)
            wanted = torch.from_numpy(batch.reward) + torch.from_numpy(batch.discount) * ahead.gather(
                1, chosen
            ).squeeze(1)
        error: Tensor = value - wanted
        return error

    def train(self, report: Report = lambda figures: None, until: int | None = None) -> None:
        """Play and learn until so many episodes were played (all, by default)."""
        config = self.config
        while self.episode < min(until or config.episodes, config.episodes):
            epsilon = config.epsilon(self.episode)
            success = self.play(epsilon)
            self.episode += 1
            self.curve.append(success)
            if self.episode == config.warm_up:
                known = np.flatnonzero(self.replay.action >= 0)
                self.network.fit(torch.from_numpy(self.replay.states[known].astype(np.float32)))
            loss = self.learn() if self.episode >= config.warm_up else 0.0
            report({"episode": self.episode, "success": success, "epsilon": epsilon, "loss": loss})

    def save(self, path: Path) -> None:
        """Write everything; `load` goes on as if nothing had happened."""
        arrays = {key: torch.from_numpy(np.array(x)) for key, x in self.replay.arrays().items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = {
            "config": asdict(self.config),
            "network": self.network.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "replay": arrays,
            "random": self.rng.bit_generator.state,
            "episode": self.episode,
            "curve": self.curve,
        }
        torch.save(whole, path)

    @classmethod
    def load(cls, path: Path, episodes: int | None = None, env: DispatchEnv | None = None) -> DqnTrainer:
        """A training as it was saved; nothing is unpickled but tensors and plain data."""
        whole: dict[str, Any] = torch.load(path, weights_only=True)
        figures = whole["config"] | {"reward": Reward(**whole["config"]["reward"])}
        figures |= {"actions": tuple(figures["actions"]), "episodes": episodes or figures["episodes"]}
        trainer = cls(DqnConfig(**figures), env)
        trainer.network.load_state_dict(whole["network"])
        trainer.optimiser.load_state_dict(whole["optimiser"])
        trainer.replay.restore({key: x.numpy() for key, x in whole["replay"].items()})
        trainer.rng.bit_generator.state = whole["random"]
        trainer.episode, trainer.curve = whole["episode"], list(whole["curve"])
        return trainer
