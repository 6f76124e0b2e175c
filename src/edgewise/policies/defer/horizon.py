"""Rolling horizon: in each slot a new schedule of greatest worth, whose starts of now are carried out."""

import numpy as np

from edgewise.arrays import Bools
from edgewise.core.defer import CapacityView, Objective, Slots
from edgewise.core.keyed import Key
from edgewise.policies.defer.forecast import Forecast
from edgewise.policies.defer.schedule import KnownJobs, solve

AHEAD = 12  # slots that "horizon" plans


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
