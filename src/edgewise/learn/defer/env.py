"""Gymnasium environment: one slot of one world is a step.

| observation | shape | meaning |
|---|---|---|
| jobs | (places, 11) | features of each job, see `JOB_FEATURES`; rows without a job are 0 |
| summary | (6,) | features of the slot, see `SUMMARY_FEATURES` |
| startable | (places,) | 1 where an action counts |

The action is a confidence score for each place; startable jobs start by falling score while they fit.
The reward is that of OSDEC eq. 6. `PPO` steps many worlds at once with the same features instead.
"""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from edgewise.arrays import Floats32
from edgewise.core.deferral import Objective
from edgewise.model.deferrable import DeferralPattern
from edgewise.policies.defer.choose import choose
from edgewise.policies.defer.features import JOB_FEATURES, SUMMARY_FEATURES, job_features, summary_features
from edgewise.sim.slots.defer import DeferralWorlds
from edgewise.workloads.deferrable import PAPER, generate

Observation = dict[str, NDArray[Any]]


class DeferralEnv(gymnasium.Env[Observation, Floats32]):
    """Start deferrable jobs in left-over capacity.

    Args:
        pattern: of the worlds; each reset draws a new one from the seed of `reset`.
        places: rows of an observation.
        objective: weights of delay and violation.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  (Gymnasium's own form)

    def __init__(
        self,
        pattern: DeferralPattern = PAPER,
        places: int = 128,
        objective: Objective = Objective(),  # noqa: B008
    ) -> None:
        self._pattern, self._places, self._objective = pattern, places, objective
        jobs = spaces.Box(-np.inf, np.inf, (places, len(JOB_FEATURES)), np.float32)
        summary = spaces.Box(-np.inf, np.inf, (len(SUMMARY_FEATURES),), np.float32)
        self.observation_space = spaces.Dict(  # type: ignore[assignment]
            {"jobs": jobs, "summary": summary, "startable": spaces.MultiBinary(places)}
        )
        self.action_space = spaces.Box(-1.0, 1.0, (places,), np.float32)
        self._loop: DeferralWorlds | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """A new world; the same seed gives the same one.

        Raises:
            ValueError: a pool of this world needs more places.
        """
        super().reset(seed=seed)
        world = int(self.np_random.integers(500_000))  # training seeds
        self._loop = DeferralWorlds(generate(self._pattern, [world]), self._objective)
        needed = self._loop.view().state.shape[1]
        if needed > self._places:
            raise ValueError(f"places is {self._places}, and a pool of this world has up to {needed} jobs")
        return self._observe(), {}

    def step(self, action: Floats32) -> tuple[Observation, SupportsFloat, bool, bool, dict[str, Any]]:
        """Rank by score, start what fits, let the slot pass."""
        assert self._loop is not None, "call reset() first"
        view = self._loop.view()
        jobs = view.state.shape[1]
        reward = self._loop.step(choose(view, np.asarray(action[None, :jobs], np.float64)))
        done = self._loop.done
        info = self._loop.outcome()._asdict() if done else {}
        return self._observe(), float(reward[0]), done, False, info

    def _observe(self) -> Observation:
        assert self._loop is not None
        jobs = np.zeros((self._places, len(JOB_FEATURES)), np.float32)
        summary, startable = np.zeros(len(SUMMARY_FEATURES), np.float32), np.zeros(self._places, np.int8)
        if not self._loop.done:
            view = self._loop.view()
            count = view.state.shape[1]
            jobs[:count], summary = job_features(view)[0], summary_features(view)[0]
            startable[:count] = view.startable[0]
        return {"jobs": jobs, "summary": summary, "startable": startable}
