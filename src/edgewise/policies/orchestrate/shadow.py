"""GSP-SS: greedy service placement with shadow request scheduling (Farhadi et al.; a baseline of KaiS).

Arrival rates and service times are taken as known. Replicas are placed one by one, always where a shadow
schedule of the next frame serves the most further requests; a replica that is there already costs nothing
and wins ties, so that few images move. A replica serves one request at a time: it adds min(unmet work of its
service, cores left on the node / cores of a request) of work.
"""

import numpy as np

from edgewise.arrays import Bools, Floats, Ints
from edgewise.core.keyed import Key
from edgewise.core.orchestrate import AddReplica, RemoveReplica, ReplicaView, Requests, commands_of
from edgewise.model.orchestration import System
from edgewise.policies.orchestrate.base import Orchestration, alive
from edgewise.policies.registry import policy


def known_load(requests: Requests, system: System, horizon_s: float) -> Floats:
    """(W, S) replicas of each service that are busy in the mean: arrival rate times mean service time."""
    load = np.zeros((requests.worlds, system.services))
    real = np.arange(requests.arrival_s.shape[1]) < requests.count[:, None]
    took = np.where(real, requests.service_s(), 0.0)
    for world in range(requests.worlds):
        load[world] = np.bincount(requests.service[world], weights=took[world], minlength=system.services)
    return load / horizon_s


@policy("gsp-ss")
class GreedyShadow(Orchestration):
    """Greedy placement that serves most of a known load (GSP-SS).

    Args:
        load: (W, S) of `known_load`; None: estimated from the view, each frame anew.
        changes: most commands in a frame.
        headroom: replicas are placed for this many times the load.
    """

    def __init__(self, load: Floats | None = None, changes: int = 20, headroom: float = 1.3) -> None:
        self._load, self._changes, self._headroom = load, changes, headroom

    def know(self, requests: Requests, system: System, horizon_s: float) -> None:
        """Take the load of these requests as known, as the paper does."""
        self._load = known_load(requests, system, horizon_s)

    def reset(self, world: System, key: Key) -> None:
        """Remember the system; a known load stays."""
        self.system = world
        self._seen = np.zeros(0)

    def decide(self, view: ReplicaView) -> Ints:
        """Removals, then additions, towards the placement."""
        load, now = self._estimate(view), alive(view)
        may = view.replicas["may"][:, 1:] > 0
        return commands_of(
            [
                self._towards(now[world], self.place(load[world], now[world], may[world]))
                for world in range(view.worlds)
            ]
        )

    def _estimate(self, view: ReplicaView) -> Floats:
        if self._load is not None:
            return self._load
        held = (view.busy + view.waiting).sum(axis=1).astype(np.float64)
        self._seen = held if self._seen.shape != held.shape else 0.5 * self._seen + 0.5 * held
        return self._seen

    def place(self, load: Floats, now: Ints, may: Bools | None = None) -> Ints:
        """(N, S) replicas for a load.

        Args:
            load: (S,) busy replicas in the mean.
            now: (N, S) replicas that are there.
            may: (N, S) which nodes may have some; None: all.
        """
        system = self.system
        cores, left, size = system.node_has[:, 1], self._room(), system.replica_holds
        unmet, placed = load * self._headroom, np.zeros_like(now)
        need = system.service_cpu_cores
        while True:
            gain = np.minimum(np.minimum(unmet, 1.0), np.maximum(cores[:, None], 0.0) / need)
            gain = np.where((left[:, None] >= size).all(axis=2), gain, 0.0)
            gain = gain if may is None else np.where(may, gain, 0.0)
            score = gain + 0.05 * (placed < now) * (gain > 0)
            n, s = np.unravel_index(int(score.argmax()), score.shape)
            if not gain[n, s] > 1e-3:
                return placed
            placed[n, s] += 1
            unmet[s] -= gain[n, s]
            cores[n] -= gain[n, s] * need[s]
            left[n] -= size[s]

    def _room(self) -> Floats:
        """(N, 2) nine tenths of each node's memory, the rest being for what requests need, and its cores."""
        return self.system.node_has * (0.9, 1.0)

    def _towards(self, now: Ints, want: Ints) -> list[AddReplica | RemoveReplica]:
        """Additions, each with the removals on its node that make room; nothing else is removed."""
        commands: list[AddReplica | RemoveReplica] = []
        size = self.system.replica_holds
        left = self._room() - now @ size
        lack, spare = np.maximum(want - now, 0), np.maximum(now - want, 0)
        for n, s in np.argwhere(lack > 0).tolist():
            for _ in range(int(lack[n, s])):
                while (left[n] < size[s]).any() and spare[n].any():
                    other = int((spare[n] * size[:, 0]).argmax())
                    spare[n, other] -= 1
                    left[n] += size[other]
                    commands.append(RemoveReplica(n, other))
                if (left[n] >= size[s]).all() and len(commands) < self._changes:
                    left[n] -= size[s]
                    commands.append(AddReplica(n, s))
        return commands[: self._changes]
