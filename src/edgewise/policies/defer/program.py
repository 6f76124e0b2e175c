"""The schedule of greatest worth for jobs and capacity that are known, by mixed-integer programming.

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
from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from edgewise.arrays import Floats, Ints
from edgewise.core.defer import Objective, Trajectories
from edgewise.errors import PolicyError

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
