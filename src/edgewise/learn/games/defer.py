"""A game about deferrable jobs: each starts now or waits."""

from collections.abc import Sequence

import numpy as np

from edgewise.arrays import Bools, Floats, Floats32, Ints
from edgewise.core.defer import Objective
from edgewise.learn.joint import Game
from edgewise.model.work import DeferralPattern
from edgewise.policies.defer.rules import JOB_FEATURES, SUMMARY_FEATURES, choose, pool_rows
from edgewise.sim.slots.defer import DeferralWorlds
from edgewise.workloads.deferrable import PAPER, generate


class DeferGame(Game):
    """Jobs start or wait; those to be started do so in order of submission, while they fit.

    The reward is that of OSDEC eq. 6.

    Args:
        pattern: of the worlds.
        places: of a pool.
        objective: weights of delay and violation.
    """

    choices, features = 2, len(JOB_FEATURES) + len(SUMMARY_FEATURES)

    def __init__(
        self,
        pattern: DeferralPattern = PAPER,
        places: int = 128,
        objective: Objective = Objective(),  # noqa: B008
    ) -> None:
        self.pattern, self.objective = pattern, objective
        self.agents = [f"place_{p}" for p in range(places)]

    def begin(self, seeds: Sequence[int]) -> None:
        """New worlds.

        Raises:
            ValueError: a pool of theirs needs more places.
        """
        self.worlds = DeferralWorlds(generate(self.pattern, seeds), self.objective)
        needed = self.worlds.view().state.shape[1]
        if needed > len(self.agents):
            raise ValueError(
                f"places is {len(self.agents)}, and a pool of these worlds has up to {needed} jobs"
            )

    def observe(self) -> Floats32:
        """(W, places, features): of the job, 0 where there is none, and of the slot; 0 at the end."""
        if self.done:
            return np.zeros((self.worlds.worlds.worlds, len(self.agents), self.features), np.float32)
        return pool_rows(self.worlds.view(), len(self.agents))

    def mask(self) -> Bools:
        """Jobs whose time has come may start."""
        mask = np.zeros((self.worlds.worlds.worlds, len(self.agents), 2), dtype=np.bool_)
        mask[:, :, 0] = True
        if not self.done:
            startable = self.worlds.view().startable
            mask[:, : startable.shape[1], 1] = startable
        return mask

    def act(self, choices: Ints) -> Floats:
        """Start what fits, let the slot pass."""
        view = self.worlds.view()
        wanted = choices[:, : view.state.shape[1]] == 1
        return self.worlds.step(choose(view, wanted.astype(np.float64), skip=True) & wanted)
