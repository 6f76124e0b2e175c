"""A Gymnasium environment over the engine: one window of a run is one step.

Registered as `edgewise/Dispatch-v1`, so Gymnasium can make many of them at once, in processes of
their own: `gymnasium.make_vec(f"edgewise.learn.env:{NAME}", num_envs=8, vectorization_mode="async")`.

Forbidden here: torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from edgewise.arrays import Bools, Floats32
from edgewise.config import load_scenario
from edgewise.core.dispatch.views import DispatchView
from edgewise.core.world import World
from edgewise.learn.joint import bounded
from edgewise.model.left_out import SIMULATED, not_run
from edgewise.model.scenario import Scenario
from edgewise.policies.dispatch.chooser import FEATURES, POOLED, SECONDS, History, pooled_state
from edgewise.policies.dispatch.meta import PAPER, Chosen
from edgewise.seeds import TRAINING
from edgewise.sim.sites import simulation_of

Observation = Floats32
NAME = "edgewise/Dispatch-v1"


@dataclass(frozen=True, slots=True)
class Reward:
    """ASET's reward; it gives no figures, these were chosen on validation seeds.

        r_k = -(q^F + q^R) when q < phi, else psi_k = -c / k          (k = 1, 2, … windows)

    Attributes:
        phi: success from which on a window is good; c <= 1 - phi.
        theta: success at or below which the episode ends as lost.
        c: of the penalty psi.
    """

    phi: float = 0.99
    theta: float = 0.3
    c: float = 0.01

    def of(self, success: float, window: int) -> tuple[float, bool]:
        """Reward of the `window`-th window (from 1), and whether the episode is lost."""
        reward = success - 1.0 if success < self.phi else -self.c / window
        return reward, success <= self.theta


class _Recording(Chosen):
    """Chosen from outside, and keeps the history that an observation needs."""

    def __init__(self, actions: Sequence[str]) -> None:
        super().__init__(actions)
        self.history = History()

    def observe(self, view: DispatchView) -> None:
        self.history.observe(view)


class DispatchEnv(gymnasium.Env[Observation, np.int64]):
    """Choose the static policy of each window of a scenario.

    Action: index into `actions`; the policy decides all streams of the next window, at every gateway.

    Observation: what the policy of one gateway, another in each episode, sees when the window begins, in
    float32, each x as x / (1 + |x|), between -1 and 1; with `bound=False` as it is, for networks that
    normalise by themselves.
        state="history": (W, 3 + N_delta N_rho, T), see `states.History` index by index.
        state="pooled":  (W, features), see `states.pooled_state` index by index.

    Reward: see `Reward`. `info` has success, failed and rejected of the window, the seed, and
    the number of the gateway that observes.
    Terminated: success <= theta. Truncated: the scenario's end (8 minutes in ASET's).

    Args:
        scenario: a scenario, or its name.
        actions: names of static policies.
        state: which observation.
        reward: its constants.
        seeds: episodes draw theirs from these; never validation or test seeds.
        bound: whether observations are bounded.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  (as Gymnasium declares it)

    def __init__(
        self,
        scenario: Scenario | str = "full-edge",
        actions: Sequence[str] = PAPER,
        state: str = "pooled",
        reward: Reward | None = None,
        seeds: range = TRAINING,
        bound: bool = True,
    ) -> None:
        if state not in ("pooled", "history"):
            raise ValueError(f"state is {state!r}; use 'pooled' or 'history'")
        self.scenario = load_scenario(scenario) if isinstance(scenario, str) else scenario
        not_run(self.scenario, SIMULATED, type(self).__name__)
        self.world = World.build(self.scenario.catalog, self.scenario.topology, self.scenario.sharing)
        self.actions, self.reward, self.seeds, self.state = tuple(actions), reward or Reward(), seeds, state
        self.bound = bound
        shape = (FEATURES, SECONDS) if state == "history" else (POOLED,)
        shape = (self.world.workers, *shape)
        most = 1.0 if bound else 1e6
        self.observation_space = gymnasium.spaces.Box(-most, most, shape, np.float32)
        self.action_space = gymnasium.spaces.Discrete(len(self.actions))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; `options={"episode": n}` names the scenario's seed, else one is drawn."""
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(self.seeds.start, self.seeds.stop))
        self._episode = int((options or {}).get("episode", drawn))
        self._policies = list[_Recording]()
        self._run = simulation_of(self.scenario, self._make, self._episode, world=self.world)
        self._observer = self._episode % len(self._policies)
        trace = self._run.trace
        self._open_s = np.array([stream.open_s for stream in trace])
        self._close_s = np.array([stream.close_s for stream in trace])
        self._window = 0
        return self._observation(), self._info()

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Let the chosen policy decide for one window."""
        for policy in self._policies:
            policy.index = int(action)
        start = self._window * self.scenario.window_s
        end = min(start + self.scenario.window_s, self.scenario.duration_s)
        self._run.run_until(end)
        ok, failed, rejected = self._counts(start, end)
        total = max(ok + failed + rejected, 1.0)
        self._window += 1
        reward, lost = self.reward.of(ok / total, self._window)
        truncated = end >= self.scenario.duration_s
        shares = {"success": ok / total, "failed": failed / total, "rejected": rejected / total}
        return self._observation(), reward, lost, truncated, {**self._info(), **shares}

    def action_masks(self) -> Bools:
        """(actions,) all true, for libraries that ask."""
        return np.ones(len(self.actions), dtype=np.bool_)

    def _make(self) -> _Recording:
        """The policy of one gateway."""
        self._policies.append(_Recording(self.actions))
        return self._policies[-1]

    def _info(self) -> dict[str, Any]:
        return {"seed": self._episode, "gateway": self._observer}

    def _observation(self) -> Observation:
        view = self._run.cores[self._observer].view(with_bound=True)
        history = self._policies[self._observer].history
        seen = history.state(view) if self.state == "history" else pooled_state(view)
        return bounded(seen) if self.bound else seen

    def _counts(self, start: float, end: float) -> tuple[float, float, float]:
        """Queries sent in the window, answered by its end; refused streams' are expectations."""
        run = self._run
        run.serve_until(end)
        ok, failed, rejected = run.tally.queries[:, self._window].tolist()
        refused = (run.bound < 0) & (run.reason > 0) & (self._open_s < end) & (self._close_s > start)
        lasts = np.minimum(self._close_s[refused], end) - np.maximum(self._open_s[refused], start)
        return ok, failed, rejected + float(lasts @ run.truth.rate_qps[refused])


gymnasium.register(NAME, entry_point="edgewise.learn.env:DispatchEnv")
