"""The schedule of greatest worth for jobs and capacity that are known, by mixed-integer programming.

Variables: x_js = 1 when job j starts in slot s of its window; v_tr the violation of resource r in slot t.

    max Σ x_js (r_j - ω1 (s - e_j)) - ω2 Σ share_r v_tr
    Σ_s x_js <= 1                                              each job at most once
    Σ_{j, s: s <= t < s + d_j} c_jr x_js - v_tr <= room_tr     capacity, or pay for it

`hindsight` gives it a whole world; the policy `horizon` what it knows and a forecast of the rest.
"""

from typing import NamedTuple

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.defer import Objective, Trajectories
from edgewise.errors import PolicyError
from edgewise.policies.programs import Sparse, minimum

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
    most = np.concatenate([np.ones(known.duration.size), known.room.ravel()])
    found = minimum(
        np.concatenate([-worth, price]),
        Sparse(jobs, np.arange(starts), np.ones(starts)).below(
            _capacity(jobs, slots, known), known.duration.size
        ),
        np.full(most.size, -np.inf),
        most,
        upper=np.concatenate([np.ones(starts), np.full(violations, np.inf)]),
        whole=np.arange(starts + violations) < starts if whole else None,
        mip_max_nodes=most_nodes,
        mip_rel_gap=gap,
    )
    if found is None:
        raise PolicyError(f"no schedule within {most_nodes} nodes; raise most_nodes")
    start = np.full(known.duration.size, -1, dtype=np.int64)
    if whole:
        chosen = found.x[:starts] > 0.5
        start[jobs[chosen]] = slots[chosen]
    return Schedule(start, -found.cost, -found.bound)


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


def _capacity(jobs: Ints, slots: Ints, known: KnownJobs) -> Sparse:
    """What each start takes in each slot it runs in, less the violation there."""
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
    return Sparse(rows, columns, entries)
