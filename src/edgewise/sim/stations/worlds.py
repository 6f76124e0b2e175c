"""Many worlds side by side, stepped together from barrier to barrier.

The worlds are stacked: every array has a leading axis of B worlds, so observations of all of them are
one slice (`worlds.world.stations.inside`, (B, S)). A world never reads another's rows, hence the
results do not depend on the number of threads.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from edgewise.arrays import Bools, Ints
from edgewise.errors import ScenarioError
from edgewise.kernels.compiled import kernel, numba
from edgewise.sim.stations import state as k
from edgewise.sim.stations.engine import GraphEngine, copied, enlarged, longer
from edgewise.sim.stations.loop import advance
from edgewise.sim.stations.state import GraphTables, StationWorld


@kernel
def world_of(batch: StationWorld, b: int) -> StationWorld:
    """World `b` of a stack, as views."""
    return StationWorld(
        batch.clock[b],
        batch.events[b],
        batch.items[b],
        batch.flights[b],
        batch.placement[b],
        batch.missing[b],
        batch.queries[b],
        batch.mapped[b],
        batch.stations[b],
        batch.slots[b],
        batch.changes[b],
        batch.log[b],
    )


@kernel(parallel=True)
def advance_all(plan: GraphTables, batch: StationWorld, until_s: float, status: Ints) -> None:
    """`advance` every world; (B,) `status` receives what each returned."""
    for b in numba.prange(status.size):
        status[b] = advance(plan, world_of(batch, b), until_s)


def stacked(worlds: Sequence[StationWorld]) -> StationWorld:
    """Stack worlds along a new leading axis; shorter arrays are padded with what never happens."""
    alike = [_padded(copied(world), worlds) for world in worlds]
    parts = zip(*alike, strict=True)
    return StationWorld(*(np.stack(part).view(type(part[0])) for part in parts))


def _padded(world: StationWorld, worlds: Sequence[StationWorld]) -> StationWorld:
    world = enlarged(world, {name: max(len(getattr(other, name)) for other in worlds) for name in k.GROWING})
    queries = longer(world.queries, max(other.queries.size for other in worlds))
    queries.sent_s[world.queries.size :] = np.inf
    changes = longer(world.changes, max(other.changes.size for other in worlds))
    changes.at_s[world.changes.size :] = np.inf
    mapped = longer(world.mapped, max(len(other.mapped) for other in worlds))
    return world._replace(queries=queries, changes=changes, mapped=mapped)


class Worlds:
    """B engines as one batch; the engines given are copied.

    Args:
        engines: same network and graphs; queries, seeds and changes may differ.
        threads: how many to use; None for all that numba has.

    Raises:
        ScenarioError: the engines do not have one network and one set of graphs.
    """

    def __init__(self, engines: Sequence[GraphEngine], threads: int | None = 1) -> None:
        self._first = engines[0]
        self.plan = engines[0].plan
        for b, engine in enumerate(engines):
            plans = self.plan._asdict(), engine.plan._asdict()
            if not all(np.array_equal(plans[0][name], plans[1][name]) for name in plans[0]):
                raise ScenarioError(
                    f"world {b} has another network or other graphs than world 0; use one batch each"
                )
        self.world = stacked([engine.world for engine in engines])
        self.threads = threads

    def __len__(self) -> int:
        return len(self.world.clock)

    def advance(self, until_s: float) -> Bools:
        """Run every world to the barrier; (B,) False where a query waits for `place`.

        Raises:
            ScenarioError: a placement cannot be carried out.
        """
        status = np.zeros(len(self), dtype=np.int64)
        if self.threads is not None:
            numba.set_num_threads(self.threads)
        while True:
            advance_all(self.plan, self.world, float(until_s), status)
            if np.any(status >= k.NO_ROUTE):
                b = int(np.flatnonzero(status >= k.NO_ROUTE)[0])
                raise ScenarioError(
                    f"world {b}: a placement names no station or needs a route that is missing"
                )
            if not np.any(status == k.GROW):
                return np.asarray(status == k.REACHED)
            self._grow(status == k.GROW)

    def _view(self, b: int) -> StationWorld:
        return StationWorld(*(part[b] for part in self.world))

    def _grow(self, which: Bools) -> None:
        worlds = [self._view(b) for b in range(len(self))]
        for b in np.flatnonzero(which).tolist():
            name = k.SHORT_OF[int(worlds[b].clock[0].short)]
            worlds[b] = enlarged(worlds[b], {name: 2 * len(getattr(worlds[b], name))})
        self.world = stacked(worlds)

    @property
    def pending(self) -> Ints:
        """(B,) the query that waits for a placement, or -1."""
        flight = self.world.clock.pending[:, 0]
        query = self.world.flights.query[np.arange(len(self)), np.maximum(flight, 0)]
        return np.where(flight < 0, -1, query).astype(np.int64)

    def place(self, stations: ArrayLike) -> None:
        """Place the pending queries: (B, tasks) station of every task; rows of other worlds are not read."""
        rows = np.asarray(stations, dtype=np.int64)
        flight = self.world.clock.pending[:, 0]
        waits = np.flatnonzero(flight >= 0)
        self.world.placement[waits, flight[waits], : rows.shape[1]] = rows[waits]

    def engine(self, b: int) -> GraphEngine:
        """World `b` as an engine of its own (a copy)."""
        out = self._first.copy()
        world = copied(self._view(b))
        out.world = world._replace(
            queries=world.queries[np.isfinite(world.queries.sent_s)],
            changes=world.changes[np.isfinite(world.changes.at_s)],
        )
        return out
