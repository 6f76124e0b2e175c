"""What a scheduler of split queries keeps, in arrays: its ledger, what it has heard, and rates of late.

The rules are kernels on these, so that a simulation which decides in compiled code follows the very same.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from edgewise.arrays import Floats, Ints, Records, records
from edgewise.core.compiled import inner
from edgewise.core.split import Ledger

NOTHING_S = 1e-9  # less outstanding work than this is rounding
MEMORY_S = 60.0  # over which rates are averaged
DRIFT = 0.2  # of a rate, relative to it or to the mean rate if larger: the plan no longer fits
UPDATE_S = 1.0  # between looks at the rates
LEAST_QPS = 1e-6  # a class that nobody asks for keeps a plan

LOOK = np.dtype([("seen_s", "f8"), ("next_s", "f8"), ("planning", "i8")], align=True)
"""When the last query arrived (nan: none), when rates are compared next, and whether a plan is being made."""


class Rates(NamedTuple):
    """Rates of late, and those that the plan is for.

        rate_j ← rate_j exp(-Δ/T) + 1/T at each arrival        T: MEMORY_S

    Attributes:
        qps: (J,) of late.
        planned_qps: (J,) of the plan; of size 0 where the plan stays as it is.
        look: (1,) LOOK.
    """

    qps: Floats
    planned_qps: Floats
    look: Records


class SplitState(NamedTuple):
    """All that a scheduler keeps between two events.

    Attributes:
        ledger: what is outstanding.
        worked_s, served: (S,) what it last heard of each server: what that had done of the tasks which this
            scheduler gave it.
        rates: of the classes.
    """

    ledger: Ledger
    worked_s: Floats
    served: Ints
    rates: Rates


def new_state(power_ops: Floats, rates_qps: Floats, follows: bool) -> SplitState:
    """Of idle servers of these powers, with a plan for these rates that may follow them."""
    power, servers = np.array(power_ops, dtype=np.float64), len(power_ops)
    look = records((1,), LOOK)
    look.seen_s = np.nan
    rates = np.array(rates_qps, dtype=np.float64)
    return SplitState(
        Ledger(np.zeros(servers), np.zeros(servers, np.int64), power),
        np.zeros(servers),
        np.zeros(servers, np.int64),
        Rates(rates, rates.copy() if follows else np.zeros(0), look),
    )


@inner
def give(ledger: Ledger, server: int, work_ops: float) -> None:
    """A task is placed."""
    ledger.tasks[server] += 1
    ledger.work_s[server] += work_ops / ledger.power_ops[server]


@inner
def book(ledger: Ledger, servers: Ints, work_ops: Floats) -> None:
    """The tasks of a query are placed."""
    for task in range(work_ops.size):
        give(ledger, servers[task], work_ops[task])


@inner
def hear(state: SplitState, worked_s: Floats, served: Ints) -> None:
    """Take off the ledger what each server has worked off since it was heard of last.

    Args:
        worked_s, served: (S,) as in `core.split.core.ServersTold`.
    """
    ledger = state.ledger
    for s in range(served.size):
        left = ledger.work_s[s] - (worked_s[s] - state.worked_s[s])
        ledger.work_s[s] = left if left > NOTHING_S else 0.0
        ledger.tasks[s] -= served[s] - state.served[s]
        state.worked_s[s], state.served[s] = worked_s[s], served[s]


@inner
def count_arrival(rates: Rates, job: int, now_s: float) -> bool:
    """Note that a query arrived; whether a new plan is to be begun, for rates have drifted."""
    if rates.planned_qps.size == 0:
        return False
    look, qps, planned_qps = rates.look[0], rates.qps, rates.planned_qps
    fade = 1.0 if math.isnan(look.seen_s) else math.exp((look.seen_s - now_s) / MEMORY_S)
    usual_qps = 0.0
    for j in range(qps.size):
        qps[j] *= fade
        usual_qps += planned_qps[j] / qps.size  # rare classes drift by chance
    qps[job] += 1.0 / MEMORY_S
    look.seen_s = now_s
    if look.planning != 0 or now_s < look.next_s:
        return False
    look.next_s = now_s + UPDATE_S
    for j in range(qps.size):
        changed = abs(max(qps[j], LEAST_QPS) - planned_qps[j])
        if changed > DRIFT * max(planned_qps[j], usual_qps):
            look.planning = 1
    return bool(look.planning != 0)
