"""How many requests any dispatch and orchestration could have ended in time: a time-expanded flow program.

Hindsight: arrivals and service times are known. Work flows from requests through bins of time to two pools,
the cores of all nodes and those of the cloud; a request counts by the share of its work that is done.

    max Σ_r y_re + y_rc                     y: share of request r served by the edge e, the cloud c
    y_re + y_rc <= 1
    Σ_t z_rgt = work_r y_rg                 z: core-seconds in bin t, <= cores_r · (time of t in r's window)
    Σ_r z_rgt <= cores_g · length of t
    Σ_t d_rt  = y_re + y_rc                 d: dispatched in bin t, between its arrival and the last moment
    Σ_{r at site b} d_rt <= slots that begin in t
    Σ_t p_rt  = payload_r y_rc              p: bits over the WAN in bin t
    Σ_r p_rt <= rate · length of t

Relaxed, each in favour of the bound: requests are divisible; nodes are one pool, with every service on it, so
replicas, memory, disks, images and start delays do not count; dispatch, transfer and work of a request need
only lie in its window, in any order; the delay to the cloud is its mean, or 0 where it varies; time is in
bins.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

from edgewise.arrays import Floats, Ints
from edgewise.core.keyed import Purpose, normal
from edgewise.core.orchestrate import Requests
from edgewise.model.orchestration import System


def hindsight_bound(
    system: System, requests: Requests, world: int, slots: int, seed: int = 0, bin_s: float = 1.0
) -> float:
    """No policy ends more requests of a world in time within `slots` slots.

    Args:
        seed: of the world, which draws its service times.
        bin_s: length of a bin; shorter ones give a tighter bound and a larger program.
    """
    count = int(requests.count[world])
    if count == 0:
        return 0.0
    program = _Program(system, requests, world, slots, seed, bin_s)
    for group, cores in enumerate(program.cores):
        program.add_work(group, cores)
    program.add_dispatch()
    program.add_wan()
    return program.solve()


class _Program:
    """Columns and rows of the program; columns 0 … 2R - 1 are y_re, then y_rc."""

    def __init__(
        self, system: System, requests: Requests, world: int, slots: int, seed: int, bin_s: float
    ) -> None:
        self.system, self.count = system, int(requests.count[world])
        self.q = {
            name: getattr(requests, name)[world, : self.count] for name in Requests._fields if name != "count"
        }
        self.took_s = _actual_s(system, self.q["work_core_s"] / self.q["cpu_cores"], seed)
        first = system.first_machine[1]
        self.cores = (float(system.cpu_cores[first:].sum()), float(system.cpu_cores[:first].sum()))
        end_s = slots * system.slot_s
        self.edges = np.append(np.arange(0.0, end_s, bin_s), end_s)
        self.until_s = np.minimum(self.q["deadline_s"] + 1e-6, end_s)
        away_s = 0.0 if system.deviation_s[:, 0].any() else system.delay_s[:, 0].min()
        self.delay_s = (float(system.delay_s[:, 1:].min()), float(away_s))
        self.columns = 2 * self.count
        self.upper: list[Floats] = [np.ones(2 * self.count)]
        self.equal: list[tuple[Ints, Ints, Floats]] = []
        self.less: list[tuple[Ints, Ints, Floats]] = []
        self.less_than: list[Floats] = []
        self.rows = [0, 0]
        ids = np.arange(self.count)
        self._bound(np.tile(ids, 2), np.arange(2 * self.count), np.ones(2 * self.count), np.ones(self.count))
        for group in (0, 1):  # nothing is served whose window is too short
            short = self.until_s - self.q["arrival_s"] - self.delay_s[group] < self.took_s
            self.upper[0][group * self.count : (group + 1) * self.count][short] = 0.0

    def add_work(self, group: int, cores: float) -> None:
        """z of a pool."""
        r, t, overlap_s = self._cells(self.q["arrival_s"] + self.delay_s[group], self.until_s)
        columns = self._new(self.q["cpu_cores"][r] * overlap_s)
        self._balance(r, columns, group, self.took_s * self.q["cpu_cores"])
        self._bound(t, columns, np.ones(r.size), cores * np.diff(self.edges))

    def add_dispatch(self) -> None:
        """d: one request of a site per slot."""
        last_s = self.until_s - self.took_s - min(self.delay_s)
        r, t, _ = self._cells(self.q["arrival_s"], np.maximum(last_s, self.q["arrival_s"]) + 1e-6)
        columns, bins = self._new(np.ones(r.size)), self.edges.size - 1
        begins = np.arange(0.0, self.edges[-1] - 1e-9, self.system.slot_s)
        slots = np.histogram(begins + 1e-9, self.edges)[0].astype(np.float64)
        self._balance(r, columns, None, np.ones(self.count))
        self._bound(self.q["site"][r] * bins + t, columns, np.ones(r.size), np.tile(slots, self.system.sites))

    def add_wan(self) -> None:
        """p: payloads to the cloud share its link."""
        bits = 8.0 * self.q["payload_bytes"]
        r, t, overlap_s = self._cells(self.q["arrival_s"], self.until_s)
        columns = self._new(np.minimum(bits[r], self.system.rate_bps[0, 0] * overlap_s))
        self._balance(r, columns, 1, bits)
        self._bound(t, columns, np.ones(r.size), self.system.rate_bps[0, 0] * np.diff(self.edges))

    def solve(self) -> float:
        """The optimum, and never more than there are requests."""
        cost = np.zeros(self.columns)
        cost[: 2 * self.count] = -1.0
        found = linprog(
            cost,
            A_ub=self._matrix(self.less, self.rows[1]),
            b_ub=np.concatenate(self.less_than),
            A_eq=self._matrix(self.equal, self.rows[0]),
            b_eq=np.zeros(self.rows[0]),
            bounds=np.stack([np.zeros(self.columns), np.concatenate(self.upper)], axis=1),
            method="highs",
        )
        if found.x is None:
            raise RuntimeError(f"the hindsight program was not solved: {found.message}")
        return min(float(-found.fun), float(self.count))

    def _cells(self, begin_s: Floats, end_s: Floats) -> tuple[Ints, Ints, Floats]:
        """Requests and bins whose windows overlap, and for how long."""
        from_bin = np.clip(np.searchsorted(self.edges, begin_s, side="right") - 1, 0, self.edges.size - 2)
        to_bin = np.clip(np.searchsorted(self.edges, end_s, side="left") - 1, 0, self.edges.size - 2)
        number = np.where(end_s > begin_s, np.maximum(to_bin - from_bin + 1, 0), 0)
        r = np.repeat(np.arange(self.count), number)
        t = np.arange(number.sum()) - np.repeat(np.cumsum(number) - number, number) + from_bin[r]
        overlap_s = np.minimum(self.edges[t + 1], end_s[r]) - np.maximum(self.edges[t], begin_s[r])
        return r, t, np.maximum(overlap_s, 0.0)

    def _new(self, upper: Floats) -> Ints:
        self.upper.append(upper)
        self.columns += upper.size
        return np.arange(self.columns - upper.size, self.columns)

    def _balance(self, r: Ints, columns: Ints, group: int | None, amount: Floats) -> None:
        """Σ columns of request r = amount_r · (its share of a pool, or of both for None)."""
        ids = np.arange(self.count)
        shares = [g * self.count + ids for g in ((0, 1) if group is None else (group,))]
        rows = np.concatenate([r, *[ids] * len(shares)])
        values = np.concatenate([np.ones(r.size), *[-amount] * len(shares)])
        self.equal.append((rows + self.rows[0], np.concatenate([columns, *shares]), values))
        self.rows[0] += self.count

    def _bound(self, rows: Ints, columns: Ints, values: Floats, limit: Floats) -> None:
        self.less.append((rows + self.rows[1], columns, values))
        self.less_than.append(limit)
        self.rows[1] += limit.size

    def _matrix(self, parts: list[tuple[Ints, Ints, Floats]], rows: int) -> coo_matrix:
        row, column, value = (np.concatenate([part[i] for part in parts]) for i in range(3))
        return coo_matrix((value, (row, column)), shape=(rows, self.columns))


def _actual_s(system: System, expected_s: Floats, seed: int) -> Floats:
    """Service times as the engine draws them."""
    if system.service_deviation == 0.0:
        return expected_s
    variance = np.log(1.0 + system.service_deviation**2)
    noise = normal(seed, Purpose.SERVICE, np.arange(expected_s.size))
    return expected_s * np.exp(np.sqrt(variance) * noise - variance / 2.0)
