"""`joint`: our own scheduler. Nodes, paths and bandwidth of all pipelines, running and new, in one search.

What it does differently from OTFA:

- It maximises the sum of throughputs, the quantity that the mean over pipelines is made of, instead of the
  smallest V / b over all flows; a floor keeps every pipeline going.
- The flows of one pipeline get bandwidth in step with its throughput, so no flow holds what cannot be used.
- New pipelines are placed by their effect on that sum, not by compute plus transfer time, task by task.
- Running pipelines move when the gain is worth the time they stand still.
"""

from collections.abc import Sequence

import numpy as np

from edgewise.arrays import Ints
from edgewise.core.keyed import Key
from edgewise.core.place import NetworkView, PipelineArrays, Placement
from edgewise.model.pipelines import Network
from edgewise.policies.place.baselines import allocate
from edgewise.policies.place.flows import flows_of, paths_of, placements_of
from edgewise.policies.place.paths import FAR, PathRows, PathTable
from edgewise.policies.place.plan import PlacementPlan, SearchInput, make_plan
from edgewise.policies.place.search import enter, improve
from edgewise.policies.place.speeds import Speeds
from edgewise.policies.registry import policy

SEEDING, LEAST_HOSTS = 5.0, 4
ROUND = 1.0 - 1e-9  # bandwidth stays below capacity by rounding


@policy("joint")
class Joint:
    """Local search over placements, paths and bandwidth with bounded effort.

    Args:
        candidates: paths of each pair of nodes.
        floor: part of its equal share that each pipeline is sure of, 0 to 1.
        effort: entries of the use of pipelines that a decision may look at; bounds its time.
        hosts: nodes considered for each decision beside those in use: nearest to a new pipeline, and fastest.
        migration_s: how long a pipeline stands still when it moves; 0 never hesitates.
        horizon_s: over how long a move must pay.
    """

    decision = "place"
    name = ""

    def __init__(
        self,
        candidates: int = 4,
        floor: float = 0.5,
        effort: int = 200_000,
        hosts: int = 24,
        migration_s: float = 2.0,
        horizon_s: float = 20.0,
    ) -> None:
        self.candidates, self.floor, self.effort, self.hosts = candidates, floor, effort, hosts
        self.penalty = min(migration_s / horizon_s, 1.0)

    def reset(self, network: Network, key: Key) -> None:
        """Forget everything; the paths of the new network are found as they are needed."""
        self.table = PathTable(network, self.candidates)
        self.key, self.calls = key, 0
        self.paths: dict[int, Ints] = {}

    def decide(self, view: NetworkView) -> Sequence[Placement]:
        """Placements of all pipelines that run from now on."""
        self.calls += 1
        pipelines = [*(p.pipeline for p in view.running), *view.waiting]
        if not pipelines:
            return []
        net, plan = view.network, make_plan(view, pipelines, self._chosen(view))
        shared_ops = net.shared_ops
        capacity = np.concatenate([net.bandwidth_bps, net.speed_ops if shared_ops is None else shared_ops])
        shares = shared_ops is not None
        limits = SearchInput(
            capacity, net.speed_ops, len(net.bandwidth_bps), shares, self.floor, self.penalty
        )
        hosts = self._hosts(view, plan)
        rows = self._rows(np.concatenate([hosts, plan.source, plan.node[plan.node >= 0]]))
        enter(plan, limits, rows, 0, len(view.running), hosts, hosts)
        speeds = Speeds(view)
        tried = hosts[: self._few(plan, len(view.running))]
        for j in range(len(view.running), len(pipelines)):
            given = allocate(pipelines[j], self.table, plan.free, view.free_bps, speeds.ops())
            if given is None:
                given = np.full(len(pipelines[j].work_ops), -1)
            else:
                speeds.take(pipelines[j], given)
            rows = self._rows(given[given >= 0])
            enter(plan, limits, rows, j, j + 1, tried, given)
        improve(plan, limits, rows, len(pipelines), hosts, np.uint64(self.key.seed), self.calls, self.effort)
        return self._decided(plan, pipelines)

    def _rows(self, nodes: Ints) -> PathRows:
        for node in np.unique(nodes).tolist():
            self.table.need(node)
        return self.table.rows()

    def _hosts(self, view: NetworkView, plan: PlacementPlan) -> Ints:
        """Nodes with memory to spare: the nearest to the new pipelines' sources, then the fastest."""
        room = view.free_memory_bytes >= plan.memory.min()
        distance = np.full(len(room), FAR)
        for pipeline in view.waiting:
            distance = np.minimum(distance, self.table.hops[pipeline.source])
        near = np.lexsort((-view.network.speed_ops, distance))
        fast = np.lexsort((distance, -view.network.speed_ops))
        both = np.stack([near[room[near]], fast[room[fast]]], axis=1).ravel()  # by turns
        _, first = np.unique(both, return_index=True)
        return both[np.sort(first)][: self.hosts].astype(np.int64)

    def _few(self, plan: PlacementPlan, running: int) -> int:
        """Hosts that a new pipeline may try, so that it looks at about SEEDING times `effort` entries."""
        entries = int(plan.uses[:running].sum()) + 4 * running + 1
        cuts = int(np.diff(plan.task_begin).max()) + 1
        return max(LEAST_HOSTS, int(SEEDING * self.effort / (entries * cuts)))

    def _chosen(self, view: NetworkView) -> list[Ints]:
        """(E,) candidate path of each edge of each running pipeline, as decided last time."""
        return [
            self.paths.get(p.pipeline.id, np.zeros(len(p.pipeline.head), dtype=np.int64))
            for p in view.running
        ]

    def _decided(self, plan: PlacementPlan, pipelines: Sequence[PipelineArrays]) -> Sequence[Placement]:
        rate = plan.kept_rate * ROUND
        placed = [j for j in range(len(pipelines)) if plan.cap[j] > 0.0]
        task = [slice(plan.task_begin[j], plan.task_begin[j + 1]) for j in placed]
        edge = [slice(plan.edge_begin[j], plan.edge_begin[j + 1]) for j in placed]
        self.paths = {pipelines[j].id: plan.path[e].copy() for j, e in zip(placed, edge, strict=True)}
        if not placed:
            return []
        flows = flows_of(
            [(pipelines[j], plan.node[t].copy()) for j, t in zip(placed, task, strict=True)], self.table
        )
        start, links = paths_of(flows, self.table, np.concatenate([plan.path[e] for e in edge]))
        x = np.repeat(rate[placed], [e.stop - e.start for e in edge])
        bandwidth = np.where(np.diff(start) > 0, x * flows.volume, np.inf)
        return placements_of(flows, start, links, bandwidth)
