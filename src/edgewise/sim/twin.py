"""A simulation started from a view: what would happen if this policy decided from now on.

A twin knows what the view knows (ledger and measurements) and an *estimated* future, never the
truth of the run that the view came from. It works live for the same reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from edgewise.arrays import Floats
from edgewise.core.dispatch.policy import DispatchPolicy
from edgewise.core.dispatch.views import Bound, DispatchView, Rows
from edgewise.errors import RunError
from edgewise.model.grammar.scenario import TelemetrySpec
from edgewise.model.work import Stream
from edgewise.sim.simulate import RunInputs, Simulation


@dataclass(frozen=True, slots=True)
class Future:
    """An estimate of what comes; times count from the view's now.

    Attributes:
        remaining_s: (N,) how long each stream of `view.bound` will last.
        streams: those that will open.
    """

    remaining_s: Floats
    streams: Sequence[Stream]


class TwinShares(NamedTuple):
    """What became of a twin's queries."""

    queries: int
    ok: float
    failed: float
    rejected: float


class Twin:
    """Rolls policies forward from one view over one future.

    Args:
        view: as `tick` gets it, with the bound streams.
        future: estimated; every policy meets the same.
        horizon_s: how far to look.
        telemetry_period_s: how often the twin measures.
    Raises:
        RunError: the view does not list its bound streams, or `remaining_s` does not fit them.
    """

    def __init__(
        self, view: DispatchView, future: Future, horizon_s: float, telemetry_period_s: float = 5.0
    ) -> None:
        if view.bound is None:
            raise RunError("twin: the view lists no bound streams; use the view that `tick` gets")
        if future.remaining_s.shape != view.bound.worker.shape:
            raise RunError(
                f"twin: remaining_s has {future.remaining_s.size} values for "
                f"{view.bound.worker.size} bound streams"
            )
        self._view, self._bound = view, view.bound
        self._setting = RunInputs(horizon_s, horizon_s, TelemetrySpec(period_s=telemetry_period_s))
        old = _streams(view.bound, view.world.task_names, future.remaining_s, horizon_s)
        new = [
            replace(stream, id=len(old) + k, close_s=min(stream.close_s, horizon_s))
            for k, stream in enumerate(s for s in future.streams if s.open_s < horizon_s)
        ]
        self._streams = [*old, *new]

    def run(self, policy: DispatchPolicy, seed: int) -> TwinShares:
        """Shares of the queries sent within the horizon if `policy` decided.

        Args:
            policy: reset here; use a policy of the twin's own.
            seed: keys the noise; not the run's.
        """
        view = self._view
        twin = Simulation(self._setting, policy, seed, self._streams, view.world)
        twin.start_from(view, self._bound)
        twin.run_until(np.inf)
        twin.serve_rest()
        ok, failed, rejected = twin.tally.queries.sum(axis=1).tolist()
        total = ok + failed + rejected
        return TwinShares(total, *(count / max(total, 1) for count in (ok, failed, rejected)))


def _streams(bound: Bound, tasks: tuple[str, ...], remaining_s: Floats, horizon_s: float) -> list[Stream]:
    """The bound streams as they go on from now."""
    rows: Rows = bound.items
    return [
        Stream(k, site, "", tasks[task], 0.0, min(rest, horizon_s), rate, size, deadline, accuracy, priority)
        for k, (site, task, rate, size, deadline, accuracy, priority, rest) in enumerate(
            zip(*(column.tolist() for column in rows[1:]), remaining_s.tolist(), strict=True)
        )
    ]
