"""Games over the simulators for `edgewise.learn.joint`, for each decision that several agents take at once.

| game | agents | a choice | a step | features of an agent |
|---|---|---|---|---|
| `RequestsGame` | sites | 0: the cloud, n + 1: node n | a slot | `features.local_state` |
| `OrchestrateGame` | nodes | l + S, l = -S … S: remove, nothing, add | a frame | `features.node_state` |
| `DeferGame` | places of the pool | 1: start the job there | a slot | `job_features`, `summary_features` |
| `SplitGame` | tasks of a query | its server | a query | see the class |
| `PlaceGame` | tasks of a pipeline | its node | a pipeline | see the class |

Forbidden here: torch.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from edgewise import policies
from edgewise.arrays import Bools, Floats, Floats32, Ints
from edgewise.config import load_scenario
from edgewise.core.defer import Objective
from edgewise.core.keyed import Key
from edgewise.core.orchestrate import HOLD, SlotResult, context_mask
from edgewise.core.place import NetworkView, PipelineArrays
from edgewise.core.place.core import PlaceCore
from edgewise.core.split import SplitView, SplitWork
from edgewise.core.split.core import SplitCore
from edgewise.learn.joint import Game, JointEnv
from edgewise.model.pipelines import network_of
from edgewise.model.scenario import Scenario
from edgewise.model.work import DeferralPattern
from edgewise.policies.defer.rules import (
    JOB_FEATURES,
    SUMMARY_FEATURES,
    choose,
    pool_rows,
)
from edgewise.policies.place.baselines import EqualShares
from edgewise.policies.place.flows import Assigned
from edgewise.policies.place.speeds import Speeds
from edgewise.policies.requests.features import changes_possible, local_state, node_state
from edgewise.sim.parts.graphs import SplitWorld
from edgewise.sim.parts.pipelines import PipelineWorld
from edgewise.sim.slots.defer import DeferralWorlds
from edgewise.sim.slots.replicas import ReplicaWorlds
from edgewise.splitting import splitting
from edgewise.workloads.deferrable import PAPER, generate
from edgewise.workloads.pipelines import pipelines_of
from edgewise.workloads.services import simulated_services


def shared_reward(result: SlotResult, balance: float = 1.0) -> Floats:
    """(W,) u = exp(-λ - ε ν)                                                        (KaiS, section III-A).

    λ is the share of requests ending in the slot that violate their deadline, 0 if none ends, and
    ν = 1 / (1 + exp(-ξ)).

    Args:
        balance: ε.
    """
    missed = result.violated / np.maximum(result.in_time + result.violated, 1)
    return np.exp(-missed - balance / (1.0 + np.exp(-result.imbalance)))


class ServiceGame(Game):
    """What games of requests and replicas share.

    Args:
        scenario: has services and requests; or its name.
    """

    def __init__(self, scenario: Scenario | str = "kais-demo") -> None:
        found = simulated_services(load_scenario(scenario) if isinstance(scenario, str) else scenario)
        self.system, self._slots = found.system, found.slots
        self._draw = found.draw
        self.begin([0])
        self.features = self.observe().shape[2]

    def begin(self, seeds: Sequence[int]) -> None:
        """New worlds."""
        self.worlds = ReplicaWorlds(self.system, self._draw(seeds), self._slots, seeds)


class RequestsGame(ServiceGame):
    """Every site sends its head somewhere; one with an empty queue can only choose 0, and sends nothing.

    Args:
        scenario: see `ServiceGame`.
        balance: ε of `shared_reward`.
    """

    def __init__(self, scenario: Scenario | str = "kais-demo", balance: float = 1.0) -> None:
        super().__init__(scenario)
        self.balance, self.choices = balance, self.system.stations
        self.agents = [f"site_{b}" for b in range(self.system.sites)]

    def observe(self) -> Floats32:
        """(W, sites, S + 5 + 5K)."""
        return local_state(self.system, self.worlds.view)

    def mask(self) -> Bools:
        """F of the paper."""
        return context_mask(self.worlds.view)

    def act(self, choices: Ints) -> Floats:
        """Send the heads; the reward of the slot."""
        sent = np.where(self.worlds.view.head >= 0, choices, HOLD)
        return shared_reward(self.worlds.step(sent), self.balance)


class OrchestrateGame(ServiceGame):
    """Every node adds or removes a replica, or does nothing; then requests are dispatched for a frame.

    Reward exp(-Σ|Q_n| / N): the paper's exp(-Σ|Q_n|) is 0 in floating point for long queues.

    Args:
        scenario: see `ServiceGame`.
        dispatch: name of a request policy.
    """

    def __init__(self, scenario: Scenario | str = "kais-demo", dispatch: str = "greedy") -> None:
        super().__init__(scenario)
        self.dispatch = policies.load("requests", dispatch)
        self.choices = 2 * self.system.services + 1
        self.agents = [f"node_{n}" for n in range(self.system.nodes)]

    def observe(self) -> Floats32:
        """(W, nodes, 5 + 2S)."""
        return node_state(self.system, self.worlds.view)

    def mask(self) -> Bools:
        """What would change something, and doing nothing."""
        return changes_possible(self.system, self.worlds.view)

    def act(self, choices: Ints) -> Floats:
        """Change replicas, dispatch for a frame."""
        if self.worlds.slot == 0:
            self.dispatch.reset(self.system, Key(0))
        nodes = np.broadcast_to(np.arange(self.system.nodes), choices.shape)
        self.worlds.scale(np.stack([nodes, choices - self.system.services], axis=2))
        for _ in range(self.system.frame_slots):
            self.worlds.step(self.dispatch.decide(self.worlds.view))
        return np.exp(-self.worlds.view.waiting[:, 1:].sum(axis=(1, 2)) / self.system.nodes)


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


class ChosenNodes(EqualShares):
    """Pipelines run on the nodes that were chosen for them."""

    name = "chosen"

    def __init__(self) -> None:
        super().__init__()
        self.chosen: dict[int, Ints] = {}

    def nodes(
        self,
        view: NetworkView,
        pipeline: PipelineArrays,
        free: Floats,
        pipelines: Sequence[Assigned],
        speeds: Speeds,
    ) -> Ints | None:
        """None where the memory does not suffice."""
        node = self.chosen[pipeline.id]
        need_bytes = np.bincount(node, weights=pipeline.memory_bytes, minlength=free.size)
        return node if (need_bytes <= free).all() else None


class PlaceGame(Game):
    """Every task of a pipeline gets a node when the pipeline comes, in W worlds of as many pipelines.

    A pipeline whose nodes lack the memory waits until they have it. Flows take shortest paths and share links
    equally, as under the policy `tp`. The reward is the frames that all pipelines did until the next one came
    or to the end, over their number.

    Features: work of the task in s of a mean node, memory as a share of the largest node's, whether it is one
    of the pipeline's tasks; whether each node is the source; free memory of each node as such a share.

    Args:
        scenario: has pipelines; or its name.
    """

    def __init__(self, scenario: Scenario | str = "recognition") -> None:
        self.scenario = load_scenario(scenario) if isinstance(scenario, str) else scenario
        self.network = network_of(self.scenario)
        self.choices = len(self.network.names)
        self.features = 3 + 2 * self.choices
        most = max(len(each.graph.tasks) for each in pipelines_of(self.scenario, 0))
        self.agents = [f"task_{t}" for t in range(most)]

    def begin(self, seeds: Sequence[int]) -> None:
        """New worlds, up to their first pipeline."""
        self.policies = [ChosenNodes() for _ in seeds]
        self.worlds = []
        for seed, policy in zip(seeds, self.policies, strict=True):
            core = PlaceCore(self.network, policy, seed)
            self.worlds.append(PipelineWorld(pipelines_of(self.scenario, seed), core))
        self._asked = 0
        self._advance()

    def _advance(self) -> None:
        """On to the pipeline that is asked about, or to the end."""
        for world in self.worlds:
            while (world.arrived <= self._asked) and world.advance():
                if world.arrived <= self._asked:
                    world.decide()

    @property
    def done(self) -> bool:
        """Whether all pipelines were placed, and ran."""
        return self._asked >= len(self.worlds[0].pipelines)

    def _pipeline(self, world: PipelineWorld) -> PipelineArrays:
        return world.arrays[world.arrivals[min(self._asked, len(world.pipelines) - 1)]]

    def observe(self) -> Floats32:
        """(W, tasks, features)."""
        nodes, largest = self.network, self.network.memory_bytes.max()
        seen = np.zeros((len(self.worlds), len(self.agents), self.features), dtype=np.float32)
        for row, world in zip(seen, self.worlds, strict=True):
            pipeline = self._pipeline(world)
            of_task = [
                pipeline.work_ops / nodes.speed_ops.mean(),
                pipeline.memory_bytes / largest,
                np.ones(pipeline.work_ops.size),
            ]
            row[: pipeline.work_ops.size, :3] = np.stack(of_task, axis=1)
            row[:, 3 + pipeline.source] = 1.0
            row[:, 3 + self.choices :] = world.core.free_memory_bytes() / largest
        return seen

    def mask(self) -> Bools:
        """Nodes that could ever hold the task; a task that the pipeline has not can only be on node 0."""
        mask = np.zeros((len(self.worlds), len(self.agents), self.choices), dtype=np.bool_)
        mask[:, :, 0] = True
        for row, world in zip(mask, self.worlds, strict=True):
            need_bytes = self._pipeline(world).memory_bytes
            row[: need_bytes.size] = need_bytes[:, None] <= self.network.memory_bytes
        return mask

    def act(self, choices: Ints) -> Floats:
        """Place the pipelines that came; then all worlds go on to the next one."""
        before = np.array([world.frames.sum() for world in self.worlds])
        for nodes, world, policy in zip(choices, self.worlds, self.policies, strict=True):
            pipeline = self._pipeline(world)
            policy.chosen[pipeline.id] = nodes[: pipeline.work_ops.size]
            if world.arrived == self._asked + 1:  # none came at the same time that is still to be asked about
                world.decide()
        self._asked += 1
        self._advance()
        gained: Floats = np.array([world.frames.sum() for world in self.worlds]) - before
        return gained / len(self.worlds[0].pipelines)


GAMES: Mapping[str, type[Game]] = {
    "Requests": RequestsGame,
    "Orchestrate": OrchestrateGame,
    "Defer": DeferGame,
    "Split": SplitGame,
    "Place": PlaceGame,
}


def make(game: str, penalty: float | None = 1.0, **options: Any) -> JointEnv:
    """One world of a game as Gymnasium makes it, `gymnasium.make("edgewise.learn.games:edgewise/Defer-v1")`.

    Args:
        game: its name, as in `edgewise/NAME-v1`.
        penalty: see `JointEnv`.
        options: of the game.
    """
    return JointEnv(GAMES[game](**options), penalty)


for _name in GAMES:
    gymnasium.register(
        f"edgewise/{_name}-v1", entry_point="edgewise.learn.games:make", kwargs={"game": _name}
    )
