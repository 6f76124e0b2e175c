"""Policies that look ahead: a safety layer for any score, and a rolling-horizon program.

They forecast left-over capacity, with quantiles, by a daily profile and what persists of a deviation:

    E[C_{t+k} | C_t] = m_{t+k} + ρ_k (C_t - m_t)

m is the mean of each slot over past days, ρ_k comes from least squares for each lag k. The spread is
that of the residuals of each lag, so no distribution is assumed. Fit on training worlds or on a log.

The schedule of greatest worth for jobs and capacity that are known, by mixed-integer programming.

Variables: x_js = 1 when job j starts in slot s of its window; v_tr the violation of resource r in slot t.

    max Σ x_js (r_j - ω1 (s - e_j)) - ω2 Σ share_r v_tr
    Σ_s x_js <= 1                                              each job at most once
    Σ_{j, s: s <= t < s + d_j} c_jr x_js - v_tr <= room_tr     capacity, or pay for it

`hindsight` gives it a whole world; the policy `horizon` what it knows and a forecast of the rest.
"""

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from edgewise.arrays import Bools, Floats, Ints
from edgewise.core.defer import CapacityView, Objective, Slots, Trajectories
from edgewise.core.keyed import Key
from edgewise.errors import PolicyError
from edgewise.policies.defer.rules import ScoreDeferral, turns

MOST_NODES = 10_000  # of a search: a limit in seconds would let a busy machine decide otherwise


class KnownJobs(NamedTuple):
    """Jobs and capacity as the program takes them; slots count from the first one of `room`.

    Attributes:
        demand: (J, R).
        duration, earliest, first, last: (J,) slots; a job may start in first … last, and delay counts
            from earliest, which may lie in the past.
        room: (H, R) capacity in each slot.
        share: (R,) cores that are the same share of the platform as one unit of each resource.
    """

    demand: Floats
    duration: Ints
    earliest: Ints
    first: Ints
    last: Ints
    room: Floats
    share: Floats


class Schedule(NamedTuple):
    """What the solver found.

    Attributes:
        start: (J,) slot, -1 for jobs that do not start. All -1 for a linear bound.
        value: of the schedule; for a linear bound the bound itself.
        bound: no schedule is worth more.
    """

    start: Ints
    value: float
    bound: float


def solve(
    known: KnownJobs,
    objective: Objective,
    *,
    whole: bool = True,
    most_nodes: int = MOST_NODES,
    gap: float = 1e-6,
) -> Schedule:
    """The best schedule, or with `whole=False` only the bound of the linear relaxation.

    Raises:
        PolicyError: the solver found nothing within `most_nodes` nodes of its search.
    """
    jobs, slots = _starts(known)
    starts, violations = jobs.size, known.room.size
    if starts == 0:
        return Schedule(np.full(known.duration.size, -1, dtype=np.int64), 0.0, 0.0)
    delay = slots - known.earliest[jobs]
    worth = known.demand[jobs, 0] * known.duration[jobs] - objective.delay * delay
    price = objective.violation * np.tile(known.share, known.room.shape[0])
    with quiet_library():
        found = milp(
            np.concatenate([-worth, price]),
            integrality=np.concatenate([np.full(starts, int(whole)), np.zeros(violations)]),
            bounds=Bounds(0.0, np.concatenate([np.ones(starts), np.full(violations, np.inf)])),
            constraints=[_once(jobs, known, violations), _capacity(jobs, slots, known)],
            options={"node_limit": most_nodes, "mip_rel_gap": gap},
        )
    if found.x is None:
        raise PolicyError(f"no schedule within {most_nodes} nodes: {found.message}; raise most_nodes")
    start = np.full(known.duration.size, -1, dtype=np.int64)
    if not whole:
        return Schedule(start, -float(found.fun), -float(found.fun))
    chosen = found.x[:starts] > 0.5
    start[jobs[chosen]] = slots[chosen]
    return Schedule(start, -float(found.fun), -float(found.mip_dual_bound))


@contextlib.contextmanager
def quiet_library() -> Iterator[None]:
    """Drop what compiled code prints meanwhile: HiGHS reports a repair on stdout, whatever its options."""
    flush = ctypes.CDLL(None).fflush if os.name == "posix" else lambda _: 0
    sys.stdout.flush()
    flush(None)
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        flush(None)
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def hindsight(
    worlds: Trajectories,
    world: int,
    objective: Objective = Objective(),  # noqa: B008
    *,
    whole: bool = True,
    most_nodes: int = MOST_NODES,
    gap: float = 1e-4,
) -> Schedule:
    """What somebody who knew every job and all capacity beforehand could have reached in one world.

    Args:
        whole: False takes the linear bound, for worlds too large to solve.
        gap: relative; `bound` stays valid.
    """
    jobs = slice(0, int(worlds.jobs[world]))
    first, last = worlds.earliest[world, jobs], np.minimum(worlds.latest[world, jobs], worlds.slots - 1)
    share = worlds.total[0] / worlds.total
    demand, duration = worlds.demand[world, jobs], worlds.duration[world, jobs]
    known = KnownJobs(demand, duration, first, first, last, worlds.left_over[world], share)
    return solve(known, objective, whole=whole, most_nodes=most_nodes, gap=gap)


def _starts(known: KnownJobs) -> tuple[Ints, Ints]:
    """Job and slot of every variable x."""
    last = np.minimum(known.last, known.room.shape[0] - 1)
    count = np.maximum(last - known.first + 1, 0)
    jobs = np.repeat(np.arange(count.size), count)
    slots = np.arange(jobs.size) - np.repeat(np.cumsum(count) - count, count) + known.first[jobs]
    return jobs, slots


def _once(jobs: Ints, known: KnownJobs, violations: int) -> LinearConstraint:
    columns = np.arange(jobs.size)
    shape = (known.duration.size, jobs.size + violations)
    return LinearConstraint(csr_array((np.ones(jobs.size), (jobs, columns)), shape=shape), ub=1.0)


def _capacity(jobs: Ints, slots: Ints, known: KnownJobs) -> LinearConstraint:
    horizon, kinds = known.room.shape
    runs = np.minimum(known.duration[jobs], horizon - slots)  # slots of each variable inside the horizon
    column = np.repeat(np.arange(jobs.size), runs)
    slot = np.arange(column.size) - np.repeat(np.cumsum(runs) - runs, runs) + slots[column]
    row = (slot[:, None] * kinds + np.arange(kinds)).ravel()
    values = known.demand[jobs[column]].ravel()
    size = horizon * kinds
    entries = np.concatenate([values, np.full(size, -1.0)])
    rows = np.concatenate([row, np.arange(size)])
    columns = np.concatenate([np.repeat(column, kinds), jobs.size + np.arange(size)])
    matrix = csr_array((entries, (rows, columns)), shape=(size, jobs.size + size))
    return LinearConstraint(matrix, ub=known.room.ravel())


AHEAD = 12  # slots that "horizon" plans


@dataclass(frozen=True, slots=True)
class Forecast:
    """A fitted forecast.

    Attributes:
        profile: (T, R) mean of each slot; it repeats beyond T.
        persistence: (K, R) ρ of each lag; lag 0 is 1.
        residuals: (K, R, S) sorted residuals of each lag; lag 0 has none but zeros.
    """

    profile: Floats
    persistence: Floats
    residuals: Floats

    @classmethod
    def fit(cls, left_over: Floats, ahead: int) -> "Forecast":
        """Fit on days that are over.

        Args:
            left_over: (W, T, R) series of W days or worlds, W >= 2.
            ahead: K, the number of slots a forecast covers, the present one included; K <= T.
        Raises:
            ValueError: fewer than two series, or `ahead` is not in 1 … T.
        """
        worlds, slots, kinds = left_over.shape
        if worlds < 2 or not 1 <= ahead <= slots:
            raise ValueError(f"needs 2 series or more and ahead in 1 … {slots}, got {worlds} and {ahead}")
        profile: Floats = left_over.mean(axis=0)
        off = left_over - profile
        persistence = np.ones((ahead, kinds))
        residuals = np.zeros((ahead, kinds, worlds * (slots - ahead + 1)))
        for lag in range(1, ahead):
            now, later = off[:, : slots - ahead + 1], off[:, lag : slots - ahead + 1 + lag]
            power = np.maximum((now * now).sum(axis=(0, 1)), 1e-12)
            persistence[lag] = (now * later).sum(axis=(0, 1)) / power
            rest = (later - persistence[lag] * now).reshape(-1, kinds)
            residuals[lag] = np.sort(rest, axis=0).T
        return cls(profile, persistence, residuals)

    @classmethod
    def steady(cls, ahead: int, kinds: int = 1) -> "Forecast":
        """Capacity stays as it is: for a system that has no past to fit on."""
        return cls(np.zeros((1, kinds)), np.ones((ahead, kinds)), np.zeros((ahead, kinds, 1)))

    @property
    def ahead(self) -> int:
        """K: slots covered, the present one included."""
        return int(self.persistence.shape[0])

    def expected(self, view: CapacityView) -> Floats:
        """(W, K, R) expected left-over capacity of this slot and the next ones."""
        slots = (view.now + np.arange(self.ahead)) % self.profile.shape[0]
        off = view.left_over - self.profile[slots[0]]
        return np.asarray(np.maximum(self.profile[slots] + self.persistence * off[:, None], 0.0))

    def surely(self, view: CapacityView, chance: float) -> Floats:
        """(W, K, R) what is left over in each slot but for a chance of at most `chance`.

        Conformal: the ⌊chance (S + 1)⌋-th smallest residual is added, so the bound holds for any
        distribution if residuals are exchangeable; with none small enough it is the smallest.
        """
        rank = max(0, int(np.floor(chance * (self.residuals.shape[2] + 1))) - 1)
        low: Floats = np.maximum(self.expected(view) + self.residuals[:, :, rank], 0.0)
        low[:, 0] = view.left_over
        return low


class Safe:
    """A safety layer: a job starts only if it fits, but for a chance of `chance`, in each slot it runs in.

    The bound is per slot and resource: when this policy decides, the running jobs exceed the capacity of
    a later slot with at most this probability, as far as the forecast's residuals are exchangeable with
    those it was fitted on. Jobs longer than the forecast are checked over its length.

    Args:
        policy: whose order is kept.
        forecast: fitted on other worlds.
        chance: in (0, 1).
    """

    decision, batched = "defer", True

    def __init__(self, policy: ScoreDeferral, forecast: Forecast, chance: float = 0.05) -> None:
        if not 0.0 < chance < 1.0:
            raise ValueError(f"chance is {chance}; it must be between 0 and 1, for example 0.05")
        self.name = f"safe-{policy.name}"
        self._policy, self._forecast, self._chance = policy, forecast, chance

    def reset(self, world: Slots, key: Key) -> None:
        """Start the inner policy anew."""
        self._policy.reset(world, key)

    def decide(self, view: CapacityView) -> Ints:
        """Jobs to start now, in turns."""
        room = self._forecast.surely(view, self._chance) - view.used(self._forecast.ahead)
        return turns(view, self._policy.score(view), room=room, skip=self._policy.skip)


class Horizon:
    """Rolling horizon: in each slot solve the program over the known jobs and forecast capacity.

    Only what starts now is carried out. Jobs not yet submitted are not foreseen.

    Args:
        forecast: of left-over capacity; its length is the horizon.
        objective: what is maximised.
        chance: plan with capacity that is there but for this chance; None plans with the mean.
        most_nodes, gap: of each program. Nodes of the search, not seconds: a busy machine decides the same.
        most_jobs: that a program plans, those submitted first; running ones count in any case.
    """

    decision, batched = "defer", True
    name = "horizon"

    def __init__(
        self,
        forecast: Forecast,
        objective: Objective = Objective(),  # noqa: B008
        chance: float | None = None,
        most_nodes: int = 1_000,
        gap: float = 1e-3,
        most_jobs: int = 10_000,
    ) -> None:
        self._forecast, self._objective, self._chance = forecast, objective, chance
        self._most_nodes, self._gap, self._most_jobs = most_nodes, gap, most_jobs

    def reset(self, world: Slots, key: Key) -> None:
        """Nothing to forget."""

    def decide(self, view: CapacityView) -> Bools:
        """Jobs to start now; each world is a program of its own."""
        ahead = self._forecast.ahead
        chance = self._chance
        capacity = self._forecast.expected(view) if chance is None else self._forecast.surely(view, chance)
        capacity[:, 0] = view.left_over
        room = np.maximum(capacity - view.used(ahead), 0.0)
        out = np.zeros(view.state.shape, dtype=np.bool_)
        for world in np.flatnonzero(view.startable.any(axis=1)):
            soon = (
                (view.state[world] > 0) & (view.ends[world] < 0) & (view.earliest[world] < view.now + ahead)
            )
            jobs = np.flatnonzero(soon)[: self._most_jobs]
            earliest = view.earliest[world, jobs] - view.now
            known = KnownJobs(
                view.demand[world, jobs],
                view.duration[world, jobs],
                earliest,
                np.maximum(earliest, 0),
                view.latest[world, jobs] - view.now,
                room[world],
                view.total[0] / view.total,
            )
            plan = solve(known, self._objective, most_nodes=self._most_nodes, gap=self._gap)
            out[world, jobs[plan.start == 0]] = True
        return out


class SteadyHorizon(Horizon):
    """Plans the next slots with a solver: capacity stays as it is, waiting is cheap, little time.

    With OSDEC's price of delay a job that waited for half its duration on one core is worth nothing and
    would never start.
    """

    def __init__(self) -> None:
        forecast, objective = Forecast.steady(AHEAD), Objective(delay=0.01)
        super().__init__(forecast, objective, most_nodes=10, gap=1e-2, most_jobs=100)
