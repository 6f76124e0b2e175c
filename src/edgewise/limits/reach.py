"""Who can serve whom in time and accuracy, by the rules that gateways decide by.

    2(δ + d + 2σ) + ζ/u + D_v(ζ) <= D,  A_m >= A, the same task       (ASET, feasibility 1-3)

Workers of one variant in one cluster are a *group*: to a site they are alike.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from edgewise.arrays import Bools, Floats, Ints
from edgewise.core.world import World
from edgewise.model.scenario import Scenario


class Need(NamedTuple):
    """What an application or a source asks for at a site; its deadlines lie in a range."""

    site: int
    of: str
    task: str
    min_accuracy: float
    size_bytes: float
    answer_bytes: float
    deadline_s: tuple[float, float]


class WorkerGroup(NamedTuple):
    """Workers of one variant in one cluster.

    Attributes:
        workers: their names; of a pool of all that there may be.
        nodes: where they are, in order, each once.
        capacity_qps: of all that there may be at once, at the variant's largest payload.
        most: how many that are. pooled: they come and go.
    """

    variant: str
    cluster: str
    workers: tuple[str, ...]
    nodes: tuple[str, ...]
    capacity_qps: float
    most: int
    pooled: bool

    @property
    def name(self) -> str:
        """As people call them."""
        return f"{self.variant} at {self.cluster}"


@dataclass(frozen=True)  # without slots: what is found once is kept
class Reach:
    """Streams' needs and the groups that may serve them.

    Attributes:
        scenario: whose they are.
        world: its workers as arrays.
        needs: K.
        groups: G.
        group: (W,) of each worker.
        able: (K, G) of the same task, and accurate enough.
        delay_s: (K, G) of a query on the way there and back and at an idle worker.
        share: (K, G) part of a query's capacity that a payload takes.
    """

    scenario: Scenario
    world: World
    needs: tuple[Need, ...]
    groups: tuple[WorkerGroup, ...]
    group: Ints
    able: Bools
    delay_s: Floats
    share: Floats

    @cached_property
    def number(self) -> dict[tuple[str, str], int]:
        """Of each need, by the names of its site and application."""
        names = self.world.site_names
        return {(names[need.site], need.of): k for k, need in enumerate(self.needs)}

    @cached_property
    def of_worker(self) -> dict[str, int]:
        """The group of each worker."""
        return dict(zip(self.world.worker_names, self.group.tolist(), strict=True))

    def served(self, latest: bool = True) -> Bools:
        """(K, G) who answers within the latest, or else the earliest, of a need's deadlines."""
        ends = np.array([need.deadline_s[latest] for need in self.needs]).reshape(-1, 1)
        found: Bools = self.able & (self.delay_s <= ends)
        return found

    def nearest(self, need: int) -> int | None:
        """The able group of least delay."""
        if not self.able[need].any():
            return None
        return int(np.where(self.able[need], self.delay_s[need], np.inf).argmin())


def reach_of(scenario: Scenario) -> Reach:
    """Of a scenario with streams."""
    world = World.build(scenario.catalog, scenario.topology)
    needs = needs_of(scenario)
    keys = list(zip(world.variant_names, world.cluster.tolist(), strict=True))
    place = {key: g for g, key in enumerate(dict.fromkeys(keys))}
    group = np.array([place[key] for key in keys], dtype=np.int64)
    first = np.array([keys.index(key) for key in place], dtype=np.int64)
    groups = tuple(_group(scenario, world, np.flatnonzero(group == g)) for g in range(len(place)))
    site = np.array([need.site for need in needs], dtype=np.int64)
    size = np.array([need.size_bytes for need in needs]).reshape(-1, 1)
    least = np.array([need.min_accuracy for need in needs]).reshape(-1, 1)
    task = np.array([world.task_index(need.task) for need in needs]).reshape(-1, 1)
    works_s = world.fixed_s[first] + world.per_byte_s[first] * size
    largest_s = world.fixed_s[first] + world.per_byte_s[first] * world.largest_bytes[first]
    way = (site[:, None], world.cluster[first][None, :])
    out_s = world.access_delay_s[site][:, None] + world.delay_s[way] + 2.0 * world.deviation_s[way]
    bps = np.minimum(world.uplink_bps[site][:, None], world.bandwidth_bps[way])
    return Reach(
        scenario, world, needs, groups, group,
        able=(world.task[first] == task) & (world.accuracy[first] >= least),
        delay_s=2.0 * out_s + 8.0 * size / bps + works_s,
        share=np.minimum(works_s / largest_s, 1.0),
    )  # fmt: skip


def needs_of(scenario: Scenario) -> tuple[Need, ...]:
    """What each application, and each source, asks for at each of its sites."""
    clients = tuple(
        Need(
            site, each.name, each.task, each.min_accuracy, each.size_bytes, each.answer_bytes, each.deadline_s
        )
        for site in range(len(scenario.topology.sites))
        for each in scenario.streams.applications
        if each.weight > 0.0
    )
    return clients + tuple(
        Need(
            site, each.name, each.task, each.min_accuracy, each.size_bytes, each.answer_bytes,
            (each.deadline_s, each.deadline_s),
        )
        for each in scenario.streams.sources
        for site in each.sites
        if each.count
    )  # fmt: skip


def _group(scenario: Scenario, world: World, workers: Ints) -> WorkerGroup:
    topology = scenario.topology
    pools = Counter(topology.workers[w].pool for w in workers.tolist())
    most_of = {pool.name: pool.most for pool in topology.pools}
    most = sum(count if pool is None else min(most_of[pool], count) for pool, count in pools.items())
    nodes = dict.fromkeys(world.node_names[n] for n in world.node[workers].tolist())
    return WorkerGroup(
        world.variant_names[workers[0]],
        world.cluster_names[world.cluster[workers[0]]],
        tuple(world.worker_names[w] for w in workers.tolist()),
        tuple(nodes),
        float(most * world.capacity_qps[workers[0]]),
        most,
        any(pool is not None for pool in pools),
    )
