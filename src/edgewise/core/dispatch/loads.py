"""What a core of streams knows of workers and links: the load ledger, and what policies may see of it."""

import numpy as np

from edgewise.arrays import Floats
from edgewise.core.dispatch import events, state
from edgewise.core.dispatch.policy import candidates
from edgewise.core.dispatch.state import State, Weights
from edgewise.core.dispatch.views import (
    LEFT,
    UNSENT,
    Bound,
    Candidates,
    DispatchView,
    Item,
    frozen,
    read_only,
)
from edgewise.core.world import Links, World


class LoadLedger:
    """The load ledger, links as they are, and what was measured last.

    Args:
        world: static arrays.
        seed: of draws and ties.

    Attributes:
        state: the arrays; compiled code works on them, too.
        weights: room to weigh an item in.
    """

    state: State

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._links, self._shown_links = Links(*(array.copy() for array in world.links)), world.links
        zeros = np.zeros(world.workers)
        none = (zeros, zeros.astype(np.int64), world.at_first, zeros, zeros, zeros, zeros, -np.inf)
        self.keep_in(State.of(DispatchView(world, 0.0, seed, *none)))

    def keep_in(self, known: State) -> None:
        """Keep it in these arrays from now on."""
        found = self.weights = Weights.of(known.up.size)
        arrays = (known.real, known.whole[state.STREAMS], known.up, found.violation)
        real, streams, up, violation = map(read_only, arrays)
        ledger, shown = (real[state.LOAD], streams, up), found._replace(violation=violation)
        self._ready_s, self.state = real[state.READY], known
        self._seen = candidates(self._world, ledger, shown, real[state.TOLD], self._ready_s)[1:-2]

    def adopt(self, view: DispatchView, bound: Bound) -> None:
        """Take over what a view shows, and the load of streams that are bound, at time 0."""
        found = state.state_of(view, bound.items, bound.worker)
        self.keep_in(found._replace(measured_s=view.measured_s - view.now_s, seed=self.state.seed))
        self._links, self._shown_links = Links(*(array.copy() for array in view.links)), view.links

    def view(self, now_s: float, bound: Bound | None = None) -> DispatchView:
        """What a policy may see; its arrays are copies."""
        return self.state.view(self._world, now_s, self._shown_links, bound)

    def candidates(self, now_s: float) -> Candidates:
        """What a score sees of the item that was weighed last; its arrays change with the next one."""
        return Candidates(now_s, *self._seen, now_s - self.state.measured_s, self._ready_s)

    def weigh(self, item: Item) -> int:
        """Weigh an item for all workers; why none of them can have it, 0 where one can."""
        return int(state.weigh(self.state, item, self.weights))

    def bind(self, item: Item, worker: int) -> None:
        """Reserve what an item needs of a worker, and of the way there."""
        state.bind(self.state, item.site, worker, item.rate_qps, item.size_bytes)

    def release(self, item: Item, worker: int) -> None:
        """Give it back."""
        state.release(self.state, item.site, worker, item.rate_qps, item.size_bytes)

    def share_qps(self, worker: int, rate_qps: float, size_bytes: float) -> float:
        """Normalised load of a rate on a worker, η ρ."""
        return float(state.share_of(self.state.real, worker, rate_qps, size_bytes))

    @property
    def own_qps(self) -> Floats:
        """(W,) load of the streams that are bound here."""
        known = self.state.real
        return np.asarray(known[state.LOAD] - known[state.ELSEWHERE])

    def measured(self, event: events.Measured) -> None:
        """Take over what telemetry says."""
        t, told = event.telemetry, self.state.real[state.TOLD]
        told[0], told[1], told[2], told[3] = t.queue, t.throughput_qps, t.delay_mean_s, t.delay_p95_s
        self.is_measured(t.measured_s)
        if t.links is not None:
            self.state.link[LEFT], self.state.link[UNSENT] = t.links

    def is_measured(self, at_s: float) -> None:
        """What telemetry says is in the arrays, as of then."""
        self.state = self.state._replace(measured_s=float(at_s))

    def change_worker(self, event: events.WorkerChanged) -> None:
        """A worker is up, or down and ready at some time."""
        self.state.up[event.worker] = event.up
        self.state.real[state.READY, event.worker] = 0.0 if event.up else event.ready_s

    def change_link(self, event: events.LinkChanged) -> bool:
        """Whether the link is up with the change."""
        where = (event.site, event.cluster)
        for name, array in self._links._asdict().items():
            if (value := getattr(event, name)) is not None:
                array[where] = value
        self._shown_links = Links(*(frozen(array) for array in self._links))
        self.state.ways[:] = state.way_arrays(self._world, self._links)
        if event.bandwidth_bps is not None and self._world.link_bps.size:
            self.state.link[LEFT, self._world.path[where][0]] = event.bandwidth_bps  # it has no others
        return bool(self._links.delay_s[where] < np.inf)
