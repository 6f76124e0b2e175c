"""A game about pipelines: each task gets a node."""

from collections.abc import Sequence

import numpy as np

from edgewise.arrays import Bools, Floats, Floats32, Ints
from edgewise.config import load_scenario
from edgewise.core.place import NetworkView, PipelineArrays
from edgewise.core.place.core import PlaceCore
from edgewise.learn.joint import Game
from edgewise.model.pipelines import network_of
from edgewise.model.scenario import Scenario
from edgewise.policies.place.baselines import EqualShares
from edgewise.policies.place.flows import Assigned
from edgewise.policies.place.speeds import Speeds
from edgewise.sim.parts.pipelines import PipelineWorld
from edgewise.workloads.pipelines import pipelines_of


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
        self.asked = 0
        self._advance()

    def _advance(self) -> None:
        """On to the pipeline that is asked about, or to the end."""
        for world in self.worlds:
            while (world.arrived <= self.asked) and world.advance():
                if world.arrived <= self.asked:
                    world.decide()

    @property
    def done(self) -> bool:
        """Whether all pipelines were placed, and ran."""
        return self.asked >= len(self.worlds[0].pipelines)

    def _pipeline(self, world: PipelineWorld) -> PipelineArrays:
        return world.arrays[world.arrivals[min(self.asked, len(world.pipelines) - 1)]]

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
            if world.arrived == self.asked + 1:  # none came at the same time that is still to be asked about
                world.decide()
        self.asked += 1
        self._advance()
        gained: Floats = np.array([world.frames.sum() for world in self.worlds]) - before
        return gained / len(self.worlds[0].pipelines)
