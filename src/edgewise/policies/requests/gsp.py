"""GSP-SS's dispatch: shares of a shadow schedule (Farhadi et al.; a baseline of KaiS).

Once a frame, rates y of services to stations are chosen for the replicas that are there, as if requests came
evenly:

    max Σ_sn y_sn + 0.9 Σ_s y_s0
    Σ_k y_sk <= arrivals of s
    y_sn · time_s <= replicas of s on n
    Σ_s y_sn · time_s · cores_s <= cores of n
    Σ_s y_s0 · payload bits <= rate of the way to the cloud

Each request is sent by a draw from its service's shares; a service that the schedule serves nowhere goes to
the cloud. Queues are not looked at, as in the paper: arrival rates and times are taken as known.
"""

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.keyed import Key
from edgewise.core.orchestrate import HOLD, ReplicaView, Requests, hosts
from edgewise.model.orchestration import System
from edgewise.policies.registry import policy
from edgewise.policies.requests.features import draws
from edgewise.policies.requests.rules import RequestDispatch

CLOUD_WORTH = 0.9  # of a request in the cloud, so that nodes are filled first


@policy("gsp-ss", live=False)  # the rates of the whole system; a gateway sees its own requests
class ShadowDispatch(RequestDispatch):
    """Draws from the shares of a shadow schedule (GSP-SS); what is not told is estimated."""

    def __init__(self) -> None:
        self.known: tuple[Floats, Floats, float] | None = None

    def know(self, requests: Requests, system: System, horizon_s: float) -> None:
        """Take rates, times and payloads of these requests as known, as the paper does."""
        real = np.arange(requests.arrival_s.shape[1]) < requests.count[:, None]
        shape = (requests.worlds, system.services)
        rate, time_s = np.zeros(shape), np.ones(shape)
        took = np.where(real, requests.service_s(), 0.0)
        for world in range(requests.worlds):
            number = np.bincount(requests.service[world][real[world]], minlength=system.services)
            total_s = np.bincount(requests.service[world], weights=took[world], minlength=system.services)
            rate[world] = number / horizon_s
            time_s[world] = np.where(number > 0, total_s / np.maximum(number, 1), 1.0)
        self.known = (rate, time_s, float(requests.payload_bytes[real].mean()))

    def reset(self, world: System, key: Key) -> None:
        """Forget the schedule."""
        self.system = world
        self.shares: Floats = np.zeros((0, 0, 0))
        self._from = -1

    def decide(self, view: ReplicaView) -> Ints:
        """(W, B) a draw from the shares of each head's service, among stations that host it now."""
        frame = int(view.clock_s[0] / (self.system.slot_s * self.system.frame_slots) + 1e-6)
        if frame != self._from or self.shares.shape[0] != view.worlds:
            self._from, self.shares = (
                frame,
                np.stack([self._schedule(view, world) for world in range(view.worlds)]),
            )
        service = np.maximum(view.head_service, 0)
        shares = np.take_along_axis(self.shares, service[:, :, None], axis=1) * hosts(view)
        shares[:, :, 0] += shares.sum(axis=2) <= 0.0
        total = shares.cumsum(axis=2)
        drawn = draws(view, 1) * total[:, :, -1:]
        return np.where(view.head >= 0, (drawn > total).sum(axis=2), HOLD)

    def _schedule(self, view: ReplicaView, world: int) -> Floats:
        """(S, N + 1) shares of a world."""
        from edgewise.policies.programs import (  # slow to import, and few processes decide with it
            Sparse,
            minimum,
        )

        system = self.system
        rate, time_s, payload_bytes = self._told(view, world)
        replicas = np.maximum(view.ready + view.starting - view.removing, 0)[world].T.astype(np.float64)
        replicas[:, 0] = 1.0
        s, k = np.nonzero((replicas > 0) & (rate > 0)[:, None])
        if not s.size:
            return np.zeros(replicas.shape)
        cores = np.append(np.inf, system.cpu_cores[system.first_machine[1] :])
        edge = np.flatnonzero(k > 0)
        rows = np.concatenate([s, system.services + k[edge], np.full((k == 0).sum(), system.services)])
        columns = np.concatenate([np.arange(s.size), edge, np.flatnonzero(k == 0)])
        work = (time_s * system.service_cpu_cores)[s[edge]]
        values = np.concatenate([np.ones(s.size), work, np.full((k == 0).sum(), 8.0 * payload_bytes)])
        limit = np.concatenate([rate, [system.rate_bps[:, 0].min()], cores[1:]])
        found = minimum(
            -np.where(k == 0, CLOUD_WORTH, 1.0),
            Sparse(rows, columns, values),
            np.full(limit.size, -np.inf),
            limit,
            upper=np.where(k == 0, np.inf, replicas[s, k] / time_s[s]),
        )
        shares = np.zeros(replicas.shape)
        if found is not None:
            shares[s, k] = np.maximum(found.x, 0.0)
        return shares

    def _told(self, view: ReplicaView, world: int) -> tuple[Floats, Floats, float]:
        if self.known is not None:
            rate, time_s, payload_bytes = self.known
            return rate[world], time_s[world], payload_bytes
        seen = view.arrived[world] / (self.system.slot_s * self.system.frame_slots)
        return seen, np.ones(seen.size), float(view.head_payload_bytes[world].max(initial=0.0))
