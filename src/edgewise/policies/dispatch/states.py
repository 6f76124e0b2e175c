"""What learned dispatch sees: ASET's state, and one that fits any number of workers.

Both read views only, so they are the same in simulation and live. A network normalises by
itself; nothing here depends on training.
"""

from collections import deque

import numpy as np

from edgewise.arrays import Floats, Floats32, Ints
from edgewise.core.dispatch.views import Bound, DispatchView
from edgewise.core.world import LARGEST

SECONDS = 25  # T: seconds of history in ASET's state
DEADLINES_S = (0.06, 0.2)  # N_delta = 3 intervals of tolerated delay: frames, interaction, the rest
RATES_QPS = (8.0, 18.0)  # N_rho = 3 intervals of data rate
GROUPS = (len(DEADLINES_S) + 1) * (len(RATES_QPS) + 1)
FEATURES = 3 + GROUPS
POOLED = 9 + GROUPS


def group_of(bound: Bound) -> Ints:
    """(N,) group of each stream: delay interval · N_rho + rate interval."""
    deadline = np.digitize(bound.items.deadline_s, DEADLINES_S)
    rate = np.digitize(bound.items.rate_qps, RATES_QPS)
    return np.asarray(deadline * (len(RATES_QPS) + 1) + rate, dtype=np.int64)


class History:
    """ASET's state, (3 + N_delta · N_rho) × |W| × T, as (W, features, T).

    Index [w, f, t]; t = T - 1 is the newest second. Seconds before the first are 0.

        f = 0        number of streams of worker w
        f = 1        throughput, responses/s
        f = 2        load L_w / C_w, 0 … 1
        f = 3 + g    queries/s bound to w in group g = 3 · (delay interval) + (rate interval);
                     delays 0-60-200 ms and more, rates 0-8-18 queries/s and more

    A view lists the streams that are bound when the window begins: those that closed before
    are missing from f >= 3 in the seconds that they lasted.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Floats, Floats, Floats]] = deque(maxlen=SECONDS)

    def observe(self, view: DispatchView) -> None:
        """Keep one second; the core calls this at each measurement."""
        load = view.load_qps / view.world.capacity_qps
        self._samples.append((view.now_s, view.streams.astype(np.float64), view.throughput_qps, load))

    def state(self, view: DispatchView) -> Floats32:
        """(W, features, T) at the beginning of a window."""
        state = np.zeros((view.world.workers, FEATURES, SECONDS), dtype=np.float32)
        if not self._samples:
            return state
        first = SECONDS - len(self._samples)
        for k, (_, *columns) in enumerate(self._samples, first):
            state[:, :3, k] = np.array(columns).T
        if view.bound is not None and view.bound.worker.size:
            times = np.array([sample[0] for sample in self._samples])
            column = first + np.searchsorted(times, view.bound.opened_s)
            seen = column < SECONDS
            where = (view.bound.worker[seen], 3 + group_of(view.bound)[seen], column[seen])
            np.add.at(state, where, view.bound.items.rate_qps[seen].astype(np.float32))
            state[:, 3:] = np.cumsum(state[:, 3:], axis=2)
        return state


def pooled_state(view: DispatchView) -> Floats32:
    """(W, features) of each worker now; a network pools over workers, so any number of them fits.

    0        accuracy / 100
    1        log10 of the capacity in queries/s
    2        processing delay of one query at the largest input, in units of 10 ms
    3        least one-way network delay d + 2σ from any site, in units of 10 ms
    4        load L_w / C_w
    5        measured throughput / C_w
    6        measured mean delay at the worker, in units of 10 ms, at most 10
    7        1 when up
    8        share of all capacity for its accuracy or better that is free
    9 + g    queries/s of group g (see `History`) / C_w
    """
    world = view.world
    capacity = world.capacity_qps
    way = (view.links.delay_s + 2.0 * view.links.deviation_s).min(axis=0)
    state = np.zeros((world.workers, POOLED), dtype=np.float32)
    state[:, 0] = world.accuracy / 100.0
    state[:, 1] = np.log10(np.maximum(capacity, 1e-3))
    state[:, 2] = np.minimum(world.real[LARGEST] / 0.01, 100.0)
    state[:, 3] = np.minimum(way[world.cluster] / 0.01, 100.0)
    state[:, 4] = view.load_qps / capacity
    state[:, 5] = view.throughput_qps / capacity
    state[:, 6] = np.minimum(view.delay_mean_s / 0.01, 10.0)
    state[:, 7] = view.up
    order = np.argsort(-world.accuracy, kind="stable")
    free, whole = np.cumsum((capacity - view.load_qps)[order]), np.cumsum(capacity[order])
    state[order, 8] = free / whole
    if view.bound is not None and view.bound.worker.size:
        where = (view.bound.worker, 9 + group_of(view.bound))
        np.add.at(state, where, (view.bound.items.rate_qps / capacity[view.bound.worker]).astype(np.float32))
    return state
