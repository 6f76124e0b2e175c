"""Forecast: as many workers of streams as the load will need by the time that they are up (ours).

The load d of a pool is what is bound to its workers and what waits or was refused, in workers' worth. A day
is learned cell by cell, so that the load a lead time L ahead, which a worker takes to start and two frames,
is

    d(t + L) = max(d(t), profile(t … t + L) · d(t) / profile(t))

and, before a day was seen, d(t) and its trend over the last frames. Streams come one by one, as a Poisson
process: with the mean load c of a stream the number of workers is

    ceil(d + safety · sqrt(d · c) + c)

the last c being room for one more, as streams are not divided. Fewer are wanted once that was so for
`keep_s`. Nodes are chosen as `autoscaler` does, and replicas of services follow it. (Packing new workers
onto few nodes, to leave whole ones to jobs, was tried: jobs did ten times as much twice on `commuters`.)
"""

from dataclasses import dataclass, field

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.keyed import Key
from edgewise.core.orchestrate import ReplicaView
from edgewise.model.orchestration import System
from edgewise.policies.orchestrate.autoscale import Autoscaler
from edgewise.policies.registry import policy

DAY_S, CELL_S = 86400.0, 900.0
CELLS = int(DAY_S / CELL_S)
MOST_RATIO = 2.0  # of today's load over that of the days before, as far as it is believed
TREND = 4  # frames


@policy("forecast")
@dataclass
class ForecastScaling(Autoscaler):
    """The day by the quarter of an hour, ahead by the time that workers take to start.

    Attributes:
        safety: standard deviations of the load of streams that come by chance.
        keep_s: so long fewer must be enough before one goes.
        new_day: weight of the last day in the profile.
    """

    safety: float = 1.5
    keep_s: float = 300.0
    new_day: float = 0.5
    name: str = "forecast"
    _recent: list[Floats] = field(default_factory=list)
    _wanted: list[Ints] = field(default_factory=list)

    def reset(self, world: System, key: Key) -> None:
        """Forget the days."""
        super().reset(world, key)
        self._recent, self._wanted = [], []
        self._profile = np.zeros((0, 0, CELLS))
        self._frame_s = world.slot_s * world.frame_slots
        self._sum, self._count = np.zeros(0), 0  # of the loads in this cell

    def desired(self, view: ReplicaView, current: Ints) -> Ints:
        """(W, S) replicas: of services as `autoscaler` says, of pools as the module."""
        want = super().desired(view, current)
        if view.pools.size:
            want[:, -view.pools.shape[1] :] = self._of_pools(view)
        return want

    def _of_pools(self, view: ReplicaView) -> Ints:
        pools, now_s = view.pools, float(view.clock_s[0])
        load = np.asarray(pools.load + pools.unserved)
        ahead = self._ahead(load, now_s, np.asarray(pools.start_s) + 2.0 * self._frame_s)
        share = np.where(pools.streams > 0, pools.load / np.maximum(pools.streams, 1), 0.0)
        need = np.ceil(ahead + self.safety * np.sqrt(ahead * share) + share - 1e-9)
        some = (pools.asked + pools.unserved > 0.0) | (load > 0.0)
        now = np.clip(np.maximum(need, some), pools.least, pools.most).astype(np.int64)
        frames = max(int(np.ceil(self.keep_s / self._frame_s)), 1)
        if not self._wanted:
            self._wanted = [np.maximum(now, self._there(view))]
        self._wanted = [*self._wanted, now][-frames:]
        return np.asarray(np.max(self._wanted, axis=0))

    def _there(self, view: ReplicaView) -> Ints:
        last = view.pools.shape[1]
        return np.asarray((view.ready + view.starting - view.removing)[:, 1:, -last:].sum(axis=1))

    def _ahead(self, load: Floats, now_s: float, lead_s: Floats) -> Floats:
        """(W, P) load by the end of the lead time."""
        if self._profile.shape[:2] != load.shape:
            self._profile = np.full((*load.shape, CELLS), np.nan)
        self._recent = [*self._recent, load][-TREND:]
        cell = int(now_s / CELL_S) % CELLS
        before = self._profile[:, :, cell].copy()
        steps = max(len(self._recent) - 1, 1) * self._frame_s
        trend = np.maximum(load - self._recent[0], 0.0) / steps * lead_s
        found = load + trend
        soon, last = before.copy(), np.floor((now_s + lead_s) / CELL_S) - np.floor(now_s / CELL_S)
        for k in range(1, int(last.max()) + 1):
            later = self._profile[:, :, (cell + k) % CELLS]
            soon = np.where(k <= last, np.maximum(soon, later), soon)
        known = ~np.isnan(soon) & (before > 0.0)
        ratio = np.clip(load / np.where(known, before, 1.0), 0.0, MOST_RATIO)
        found = np.where(known, np.maximum(load, np.where(known, soon, 0.0) * ratio), found)
        self._learn(load, cell, now_s)
        return np.asarray(found)

    def _learn(self, load: Floats, cell: int, now_s: float) -> None:
        """Take the mean of a cell, by frames, into the profile when it ends; days before fade."""
        frame = int((now_s % CELL_S) / self._frame_s)
        if frame == 0 or not self._count:
            self._sum, self._count = np.zeros_like(load), 0
        self._sum, self._count = self._sum + load, self._count + 1
        if (frame + 1) * self._frame_s >= CELL_S:
            old, mean = self._profile[:, :, cell], self._sum / self._count
            faded = self.new_day * mean + (1.0 - self.new_day) * old
            self._profile[:, :, cell] = np.where(np.isnan(old), mean, faded)
