"""Min-cost flow: the heads of all sites are assigned together (Firmament's flow network, by HiGHS).

Each head is a unit of flow. It goes to a station over the station's idle replicas of its service (cost:
travel), over its queue (cost: travel and expected wait, one unit per slot), or it stays unscheduled (cost: a
slot, and nothing gained). An arc that misses the deadline costs extra. Cores bound what a station takes
without waiting. The matrix is totally unimodular but for the cores' rows, so solutions are rounded by taking
each head's largest share; a tie goes to the nearer station.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_matrix

from edgewise.core.orchestration import HOLD, ReplicaView, hosts
from edgewise.model.orchestration import Bools, Floats, Ints, System
from edgewise.policies.requests.base import request_policy

MISSED = 100.0  # cost in s of missing a deadline: above any wait


@request_policy("flow")
class MinCostFlow:
    """All heads of a slot assigned together at least cost (Firmament)."""

    name = "flow"

    def reset(self, system: System) -> None:
        """Remember the system."""
        self.system = system

    def dispatch(self, view: ReplicaView) -> Ints:
        """(W, B) the assignment of each world; where there are no heads nothing is solved."""
        stations = np.full(view.site.shape, HOLD, dtype=np.int64)
        allowed = hosts(view)
        for w in range(view.worlds):
            sites = np.flatnonzero(view.head[w] >= 0)
            if sites.size:
                stations[w, sites] = self._assign(view, w, sites, allowed[w])
        return stations

    def _assign(self, view: ReplicaView, w: int, sites: Ints, allowed: Bools) -> Ints:
        """(len(sites),) stations."""
        i, k = np.nonzero(allowed[sites])  # arcs from head i to station k
        b, s = sites[i], view.head_service[w, sites[i]]
        travel_s = self._travel_s(view, w, b, k)
        wait_s = view.waiting_s[w, k, s] + 0.5 * view.busy[w, k, s] * view.head_service_s[w, b]
        stays = np.maximum(view.ready[w, k, s] - view.removing[w, k, s], 1)
        wait_s = np.where(k == 0, 0.0, wait_s / stays)
        idle = np.where(k == 0, sites.size, view.ready[w, k, s] - view.busy[w, k, s] - view.waiting[w, k, s])
        cost = np.concatenate([travel_s, travel_s + np.maximum(wait_s, self.system.slot_s)])
        left_s = (view.head_deadline_s[w] - view.clock_s[w] - view.head_service_s[w])[b]
        cost += MISSED * (cost > np.tile(left_s, 2))
        heads, stations = np.tile(i, 2), np.tile(k, 2)
        rows, bound = self._capacity(view, w, sites, i, k, s, np.maximum(idle, 0))
        held = np.full(sites.size, 2 * MISSED)  # unscheduled
        one = csr_matrix((np.ones(heads.size), (heads, np.arange(heads.size))))
        unscheduled = csr_matrix((sites.size, sites.size))
        unscheduled.setdiag(1.0)
        found = linprog(
            np.concatenate([cost, held]),
            A_ub=np.concatenate([rows, np.zeros((rows.shape[0], sites.size))], axis=1),
            b_ub=bound,
            A_eq=np.concatenate([one.toarray(), unscheduled.toarray()], axis=1),
            b_eq=np.ones(sites.size),
            bounds=(0.0, 1.0),
            method="highs",
        )
        share = np.zeros((sites.size, self.system.stations))
        np.add.at(share, (heads, stations), found.x[: heads.size])
        chosen: Ints = np.where(share.max(axis=1) > 1e-6, share.argmax(axis=1), HOLD)
        return chosen

    def _travel_s(self, view: ReplicaView, w: int, b: Ints, k: Ints) -> Floats:
        bits = 8.0 * view.head_payload_bytes[w, b]
        lan_s = self.system.delay_s[b, k] + bits / self.system.lan_bps
        travel: Floats = np.where(k == 0, view.cloud_delay_s[w] + bits / self.system.wan_bps, lan_s)
        return travel

    def _capacity(
        self, view: ReplicaView, w: int, sites: Ints, i: Ints, k: Ints, s: Ints, idle: Ints
    ) -> tuple[Floats, Floats]:
        """Rows over (idle, queue) arcs: idle replicas per (station, service), free cores per node."""
        rows, bound, arcs = [], [], i.size
        for station, service in {(int(x), int(y)) for x, y in zip(k, s, strict=True)}:
            same = (k == station) & (s == service)
            rows.append(np.concatenate([same, np.zeros(arcs, dtype=bool)]).astype(float))
            bound.append(float(idle[same][0]))
            if station > 0:
                rows.append(np.concatenate([np.zeros(arcs, dtype=bool), same]).astype(float))
                bound.append(1.0)
        first = self.system.first_machine[1]
        for station in np.unique(k[k > 0]):
            cores = np.where(k == station, view.head_cpu_cores[w, sites[i]], 0.0)
            rows.append(np.concatenate([cores, np.zeros(arcs)]))
            bound.append(max(0.0, float(view.free_cpu_cores[w, first + station - 1])))
        return np.array(rows), np.array(bound)
