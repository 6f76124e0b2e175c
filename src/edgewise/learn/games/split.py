"""A game about split models: each task of a query gets a server."""

from collections.abc import Sequence

import numpy as np

from edgewise.arrays import Bools, Floats, Floats32, Ints
from edgewise.config import load_scenario
from edgewise.core.keyed import Key
from edgewise.core.split import SplitView, SplitWork
from edgewise.core.split.core import SplitCore
from edgewise.learn.joint import Game
from edgewise.model.scenario import Scenario
from edgewise.sim.parts.graphs import SplitWorld
from edgewise.splitting import splitting


class ChosenServers:
    """Tasks of a query run on the servers that were chosen for them."""

    name = "chosen"
    servers: Ints

    def reset(self, program: SplitWork, key: Key) -> None:
        """There is nothing to begin."""

    def decide(self, view: SplitView) -> Ints:
        """(T,) server of each task."""
        return self.servers


class SplitGame(Game):
    """Every task of a query gets a server when the query arrives, in W worlds of as many queries each.

    The reward is -∫ N dt until the next query, N being queries under way: over a whole world they add up to
    less the sum of all completion times (Little's law).

    Features: what the task costs in s of a mean server, whether it is one of the query's tasks; the query's
    class (one-hot); work in s and tasks that are given to each server.

    Args:
        scenario: has split models; or its name.
        queries: of a world.
    """

    def __init__(self, scenario: Scenario | str = "split-inception", queries: int = 500) -> None:
        self.program = splitting(load_scenario(scenario) if isinstance(scenario, str) else scenario).program
        self.queries = queries
        self.begin([0])
        (world,) = self.worlds
        self.choices = world.servers
        self.features = 2 + len(self.program.classes) + 2 * self.choices
        self.agents = [f"task_{t}" for t in range(max(map(len, world.core.work_ops)))]

    def begin(self, seeds: Sequence[int]) -> None:
        """New worlds, up to their first query."""
        self._chosen = [ChosenServers() for _ in seeds]
        cores = [SplitCore(self.program, policy) for policy in self._chosen]
        self.worlds = [
            SplitWorld(self.program, self.queries, seed, core)
            for seed, core in zip(seeds, cores, strict=True)
        ]
        self._advance()

    def _advance(self) -> None:
        self._over = [world.advance() for world in self.worlds]

    @property
    def done(self) -> bool:
        """Whether all queries are placed and done."""
        return all(self._over)

    def observe(self) -> Floats32:
        """(W, tasks, features)."""
        seen = np.zeros((len(self.worlds), len(self.agents), self.features), dtype=np.float32)
        for row, world in zip(seen, self.worlds, strict=True):
            _, job, ledger, _ = world.view
            work = world.core.work_ops[job]
            row[: work.size, 0], row[: work.size, 1] = work / ledger.power_ops.mean(), 1.0
            row[:, 2 + job] = 1.0
            row[:, -2 * self.choices :] = np.concatenate([ledger.work_s, ledger.tasks])
        return seen

    def mask(self) -> Bools:
        """Any server; a task that the query has not can only be on server 0."""
        mask = np.zeros((len(self.worlds), len(self.agents), self.choices), dtype=np.bool_)
        mask[:, :, 0] = True
        for row, world in zip(mask, self.worlds, strict=True):
            row[: world.core.work_ops[world.view.job].size] = True
        return mask

    def act(self, choices: Ints) -> Floats:
        """Place the queries that wait; then all worlds go on to their next one."""
        before = np.array([world.waited_s for world in self.worlds])
        for servers, policy, world in zip(choices, self._chosen, self.worlds, strict=True):
            policy.servers = servers[: world.core.work_ops[world.view.job].size]
            world.place()
        self._advance()
        return before - [world.waited_s for world in self.worlds]
