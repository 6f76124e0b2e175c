"""The horizontal autoscaler of Kubernetes, and its scheduler's choice of a node ("Native", KaiS section V).

desired = ceil(current · metric / target), where the metric is what the replicas of a service hold, waiting
and worked on, per replica. Within the tolerance nothing changes. Scaling down waits: the largest number
desired in the last `stabilisation` frames counts. Scaling up is limited to twice the number, or 4 more, per
frame. These are the rules of the autoscaler's documentation; its defaults there: tolerance 0.1, down 300 s,
up 100 % or 4. A new replica goes to the node where no job has to go (Kubernetes preempts only where a pod
fits no node), that hosts the fewest of the service ("spread"), has the image ("image locality"), and has the
largest free share of memory ("least allocated"), in this order; one that goes leaves the node with most, an
idle one first.

Of streams' workers the metric is the load that is bound to them over their capacity, as Kubernetes scales on
use; where there is none and streams come, one starts.
"""

from dataclasses import dataclass, field

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.keyed import Key
from edgewise.core.orchestrate import AddReplica, RemoveReplica, ReplicaView, commands_of
from edgewise.model.orchestration import System
from edgewise.policies.orchestrate.base import Orchestration, alive, room
from edgewise.policies.registry import policy


@policy("autoscaler")
@dataclass
class Autoscaler(Orchestration):
    """The autoscaler of Kubernetes for each service over all nodes.

    Attributes:
        target: requests per replica that are aimed at.
        tolerance: relative distance from the target within which nothing changes.
        stabilisation: frames over which the largest desire counts before scaling down.
        least, most: replicas of each service; of streams' workers the scenario says them.
        load: of streams, as a share of their workers' capacity, that is aimed at.
    """

    target: float = 0.3
    tolerance: float = 0.1
    stabilisation: int = 12
    least: int = 1
    most: int = 1000
    load: float = 0.7
    name: str = "autoscaler"
    rests: bool = field(default=False, init=False)
    _past: list[Ints] = field(default_factory=list)

    def reset(self, world: System, key: Key) -> None:
        """Forget earlier desires."""
        self.system, self._past = world, []

    def decide(self, view: ReplicaView) -> Ints:
        """Commands towards the desired numbers, as far as cores and memory allow."""
        now = alive(view)
        current = now.sum(axis=1)
        want = self.desired(view, current)
        if not self._past and view.pools.size:  # as Kubernetes begins: with the workers that there are
            self._past = [np.maximum(want, current * (np.arange(want.shape[1]) >= view.pools.service[0, 0]))]
        self._past = [*self._past, want][-self.stabilisation :]
        same = len(self._past) == self.stabilisation and all((each == want).all() for each in self._past)
        want = np.where(want < current, np.minimum(current, np.max(self._past, axis=0)), want)
        self.rests = bool(same and (want == current).all())
        free = room(self.system, view)
        return commands_of(
            [
                self._commands(view, world, now[world].copy(), want[world], free[world])
                for world in range(view.worlds)
            ]
        )

    def desired(self, view: ReplicaView, current: Ints) -> Ints:
        """(W, S) replicas by the autoscaler's rule, before stabilisation."""
        held = (view.waiting + view.busy)[:, 1:].sum(axis=1) + view.busy[:, 0] + view.waiting[:, 0]
        ratio, pools = held / np.maximum(current, 1) / self.target, view.pools
        least, most = np.full_like(current, self.least), np.full_like(current, self.most)
        if pools.size:
            mine = slice(-pools.shape[1], None)
            ratio[:, mine] = pools.load / np.maximum(current[:, mine], 1) / self.load
            first_one = (current[:, mine] == 0) & (pools.asked + pools.unserved > 0.0)
            least[:, mine] = np.maximum(pools.least, first_one)
            most[:, mine] = pools.most
        want = np.ceil(np.maximum(current, 1) * ratio - 1e-9)
        want = np.where(np.abs(ratio - 1.0) <= self.tolerance, current, want)
        want = np.minimum(want, np.maximum(2 * current, current + 4))
        return np.clip(want, least, most).astype(np.int64)

    def _commands(
        self, view: ReplicaView, world: int, now: Ints, want: Ints, free: Floats
    ) -> list[AddReplica | RemoveReplica]:
        commands: list[AddReplica | RemoveReplica] = []
        held, nodes = self.system.replica_holds, slice(int(self.system.first_machine[1]), None)
        idle = view.machine.idle_cpu_cores[world, nodes].copy()
        for s in np.argsort(want - now.sum(axis=0)).tolist():  # what goes first makes room
            for _ in range(int(now[:, s].sum() - want[s])):
                at_rest = (view.ready - view.busy)[world, 1:, s]
                n = int(np.lexsort((-at_rest, -now[:, s]))[0])
                now[n, s] -= 1
                free[n] += held[s] * (at_rest[n] > 0)
                commands.append(RemoveReplica(n, s))
            for _ in range(int(want[s] - now[:, s].sum())):
                n = self._node_for(view, world, free, idle, now[:, s], s)
                if n < 0:
                    break
                now[n, s] += 1
                free[n] -= held[s]
                idle[n] -= held[s, 1]
                commands.append(AddReplica(n, s))
        return commands

    def _node_for(
        self, view: ReplicaView, world: int, free: Floats, idle: Floats, hosted: Ints, s: int
    ) -> int:
        """Nobody has to go, fewest replicas of s, image there, largest free share; -1 when none has room."""
        total = self.system.memory_bytes[self.system.first_machine[1] :]
        room = (free >= self.system.replica_holds[s]).all(axis=1)
        nodes = np.flatnonzero(room & (view.replicas["may"][world, 1:, s] > 0))
        if not nodes.size:
            return -1
        lacks = ~view.has_layer[world, 1:][nodes][:, self.system.needs_layer[s]].all(axis=1)
        takes = idle[nodes] < self.system.replica_cpu_cores[s] - 1e-9  # from jobs
        return int(nodes[np.lexsort((-free[nodes, 0] / total[nodes], lacks, hosted[nodes], takes))[0]])
