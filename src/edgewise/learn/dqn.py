"""ASET's trainer: DQN as its algorithm 1 has it, with five improvements as options.

Read it from top to bottom: what is configured, what is kept, one episode, its gradient steps,
the loop. ASET's constants are not published; those below were chosen on validation seeds.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise import policies
from edgewise.core.dispatch.policy import DispatchPolicy
from edgewise.core.world import World
from edgewise.errors import PolicyError
from edgewise.learn.env import DispatchEnv, Observation, Reward
from edgewise.learn.harness import Figures, Trainer, descend, write_network
from edgewise.learn.networks import NETWORKS
from edgewise.learn.replay import Replay, Transitions
from edgewise.model.scenario import Scenario
from edgewise.model.setting import setting
from edgewise.policies.dispatch.chooser import GOLDEN_WORKERS, features_hash, fingerprint, golden_states
from edgewise.policies.dispatch.meta import ALL
from edgewise.seeds import SEEN_IN
from edgewise.sim.sites import simulation_of

Make = Callable[[], DispatchPolicy]  # the policy of one gateway

SEEN_EVERY = 4  # episodes

IMPROVEMENTS: dict[str, dict[str, Any]] = {
    "double": {"double": True},  # van Hasselt et al. 2016
    "dueling": {"dueling": True},  # Wang et al. 2016
    "n-step": {"n_step": 3},  # Sutton 1988
    "prioritised": {"priority": 0.6},  # Schaul et al. 2016
    "best": {"seen_in": SEEN_IN},  # early stopping (Prechelt 1998): some end on a policy that is worse
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
        seen_in: seeds of worlds in which the network is looked at every few episodes; the best is what is
            given. Algorithm 1 has none, and gives its last network.
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
    seen_in: tuple[int, ...] = SEEN_IN
    reward: Reward = field(default_factory=Reward)

    def improved(self, names: Sequence[str]) -> "DqnConfig":
        """With these of `IMPROVEMENTS` and no others; "none" names none of them.

        Raises:
            PolicyError: there is no such improvement.
        """
        chosen = dict[str, Any](double=False, dueling=False, n_step=1, priority=0.0, seen_in=())
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


class DqnTrainer(Trainer):
    """A training that can be stopped, saved, and resumed exactly.

    Attributes:
        network: Q.
        best_network, best_success: as it did best so far where it was looked at, and how well.
    """

    headline = "success"

    def __init__(self, config: DqnConfig, env: DispatchEnv | None = None) -> None:
        kept = (
            "network",
            "best_network",
            "best_success",
            "optimiser",
            "rng",
            *(f"replay.{name}" for name in Replay.KEPT),
        )
        super().__init__(config, config.episodes, kept)
        torch.manual_seed(config.seed)
        self.config = config
        self.env = env or DispatchEnv(
            config.scenario, config.actions, config.state, config.reward, bound=False
        )
        shape = self.env.observation_space.shape
        assert shape is not None
        self.network, self.target = (
            NETWORKS[config.state](shape, len(config.actions), config.dueling) for _ in range(2)
        )
        for each in (self.network, self.target):
            # Workers are channels, and convolutions over so many are a third faster with them last.
            each.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.best_network, self.best_success = copy.deepcopy(self.network), -1.0
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=config.learning_rate)
        self.replay = Replay(config.room, shape, config.gamma, config.n_step, config.priority)
        self.rng = np.random.default_rng(config.seed)

    def seeds(self, number: int) -> range:
        """Of an episode: one."""
        return range(self.config.seed + number, self.config.seed + number + 1)

    def round(self) -> Figures:
        """Play an episode, and learn and look once the warm-up is over."""
        config, episode = self.config, len(self.curve)
        epsilon = config.epsilon(episode)
        success = self.play(epsilon)
        if episode + 1 == config.warm_up:
            known = np.flatnonzero(self.replay.action >= 0)
            self.network.fit(torch.from_numpy(self.replay.states[known].astype(np.float32)))
        loss = self.learn() if episode + 1 >= config.warm_up else 0.0
        figures = {"success": success, "epsilon": epsilon, "loss": loss}
        if config.seen_in and episode + 1 > config.warm_up and (episode + 1) % SEEN_EVERY == 0:
            figures["seen"] = self.watch()
            if figures["seen"] >= self.best_success:
                self.best_success = figures["seen"]
                self.best_network.load_state_dict(self.network.state_dict())
        return figures

    def watch(self) -> float:
        """Mean success of the network without exploring; it leaves no trace in the training."""
        return float(np.mean([self._episode(seed, self.best)[-1] for seed in self.config.seen_in]))

    def play(self, epsilon: float) -> float:
        """One episode, ε-greedy; it is kept for replay. Returns its mean success."""

        def choose(state: Observation) -> int:
            explore = self.rng.random() < epsilon
            return int(self.rng.integers(len(self.config.actions))) if explore else self.best(state)

        seed = self.seeds(len(self.curve)).start
        states, actions, rewards, lost, success = self._episode(seed, choose)
        self.replay.add(states, actions, rewards, lost)
        return success

    def _episode(
        self, seed: int, choose: Callable[[Observation], int]
    ) -> tuple[list[Observation], list[int], list[float], bool, float]:
        """States, actions, rewards, whether it was lost, and mean success."""
        state, _ = self.env.reset(options={"episode": seed})
        states, actions, rewards, successes = [state], list[int](), list[float](), list[float]()
        lost = over = False
        while not (lost or over):
            actions.append(choose(state))
            state, reward, lost, over, info = self.env.step(np.int64(actions[-1]))
            states.append(state)
            rewards.append(reward)
            successes.append(info["success"])
        return states, actions, rewards, lost, float(np.mean(successes))

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
            losses.append(descend(self.optimiser, loss, list(self.network.parameters()), 10.0))
            self.replay.judge(batch.place, error.detach().numpy())
        return float(np.mean(losses))

    def _errors(self, batch: Transitions) -> Tensor:
        # torch widens half floats ten times as fast as numpy does
        state, following = torch.from_numpy(batch.state).float(), torch.from_numpy(batch.following).float()
        value = self.network(state).gather(1, torch.from_numpy(batch.action)[:, None])[:, 0]
        with torch.no_grad():
            ahead = self.target(following)
            chosen = (self.network(following) if self.config.double else ahead).argmax(1, keepdim=True)
            wanted = torch.from_numpy(batch.reward) + torch.from_numpy(batch.discount) * ahead.gather(
                1, chosen
            ).squeeze(1)
        return value - wanted

    def networks(self, stem: Path) -> dict[str, Any]:
        """The network, the best that was looked at if any was, and what it decides on the golden views."""
        config, world, pooled = self.config, self.env.world, self.config.state == "pooled"
        states = golden_states(config.state, GOLDEN_WORKERS if pooled else world.workers)
        free = {"state": {0: "B", 1: "W"} if pooled else {0: "B"}, "values": {0: "B"}}
        digest, (values,) = write_network(
            self.best_network if self.best_success >= 0.0 else self.network,
            stem.with_name(f"{stem.name}.onnx"),
            {"state": states},
            ["values"],
            free,
        )
        return {
            "state": config.state,
            "workers": 0 if pooled else world.workers,
            "actions": list(config.actions),
            "topology": fingerprint(world),
            "features_sha256": features_hash(config.state),
            "golden": values.argmax(axis=1).tolist(),
            "onnx_sha256": digest,
        }

    def rivals(self, card: Path) -> dict[str, Make]:
        """The network, and each of its actions alone; each is made anew for each gateway."""
        mine = {card.stem: partial(policies.load, "dispatch", str(card))}
        return mine | {action: partial(policies.load, "dispatch", action) for action in self.config.actions}

    def score(self, rival: Make, seeds: Sequence[int]) -> float:
        """Mean share of queries answered in time."""
        return mean_success(self.env.scenario, rival, seeds)

    def more_scores(self, rivals: Mapping[str, Make], seeds: Sequence[int]) -> dict[str, Any]:
        """The same in the other setting: gateways at sites, or one."""
        streams = self.env.scenario.streams
        other = "one" if streams.gateways == "per_site" else "per_site"
        scenario = replace(self.env.scenario, streams=replace(streams, gateways=other))
        scores = {who: mean_success(scenario, rival, seeds) for who, rival in rivals.items()}
        settings = [setting(each, "streams") for each in (self.env.scenario, scenario)]
        elsewhere = {"measured_in": settings[1], "scores": scores}
        return {"measured_in": settings[0], "other_setting": elsewhere}


def mean_success(scenario: Scenario, make: Make, seeds: Sequence[int]) -> float:
    """Mean share of queries answered in time.

    Args:
        make: makes the policy of one gateway.
    """
    world, shares = World.build(scenario.catalog, scenario.topology, scenario.sharing), list[float]()
    for seed in seeds:
        run = simulation_of(scenario, make, seed, world=world)
        run.run_until(np.inf)
        run.serve_rest()
        shares.append(run.tally.queries[0].sum() / max(run.tally.queries.sum(), 1))
    return round(float(np.mean(shares)), 5)
