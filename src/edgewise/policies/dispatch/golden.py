"""Made-up views, the same on every machine: a trained policy's card says what it decides on them.

They catch a network file that was changed, features that were changed, and a runtime that
computes something else.
"""

import hashlib
from collections.abc import Sequence

import numpy as np

from edgewise.arrays import Floats, Floats32
from edgewise.core.dispatch.views import Bound, DispatchView, Rows
from edgewise.core.keyed import Purpose, uniform
from edgewise.core.world import World
from edgewise.policies.dispatch.states import History, pooled_state

COUNT = 16
SEED = 20_260_101
SITES, CLUSTERS = 2, 3


def golden_states(state: str, workers: int) -> Floats32:
    """(16, W, …) states of 16 made-up views, from an idle to a full world.

    Args:
        state: "pooled" or "history".
    """
    world = _world(workers)
    found = []
    for k in range(COUNT):
        history = History()
        for second in range(25):
            history.observe(_view(world, k, 25 * k + second))
        view = _view(world, k, 25 * k + 24)
        found.append(history.state(view) if state == "history" else pooled_state(view))
    return np.stack(found)


def features_hash(state: str) -> str:
    """Of the features of the golden views of a small world: the same features, the same hash."""
    return hashlib.sha256(np.round(golden_states(state, 8), 3).astype(np.float32).tobytes()).hexdigest()[:16]


def fingerprint(world: World) -> str:
    """Of a topology: its workers' variants, where they are, and how many sites there are."""
    text = repr((world.variant_names, world.cluster.tolist(), len(world.site_names)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _draw(what: int, shape: Sequence[int], low: float, high: float) -> Floats:
    size = int(np.prod(shape))
    draws = uniform(SEED, Purpose.POLICY, what, np.arange(size))
    return np.asarray(low + (high - low) * draws).reshape(shape)


def _world(workers: int) -> World:
    names = tuple(f"w{k}" for k in range(workers))
    zeros = np.zeros(workers, dtype=np.int64)
    cluster = np.arange(workers) % CLUSTERS
    capacity = _draw(1, (workers,), 20.0, 200.0)
    return World(
        worker_names=names,
        variant_names=names,
        cluster_names=tuple(f"c{k}" for k in range(CLUSTERS)),
        node_names=("n",),
        site_names=tuple(f"s{k}" for k in range(SITES)),
        task_names=("t",),
        task=zeros,
        accuracy=np.round(_draw(2, (workers,), 20.0, 60.0)),
        capacity_qps=capacity,
        largest_bytes=np.full(workers, 1e6),
        fixed_s=_draw(3, (workers,), 0.005, 0.1),
        per_byte_s=np.zeros(workers),
        batch_slope=np.ones(workers),
        deviation=np.zeros(workers),
        max_batch=zeros + 1,
        servers=zeros + 1,
        cluster=cluster,
        node=zeros,
        delay_s=_draw(4, (SITES, CLUSTERS), 0.002, 0.03),
        deviation_s=_draw(5, (SITES, CLUSTERS), 0.0, 0.002),
        bandwidth_bps=np.full((SITES, CLUSTERS), 1e9),
        access_delay_s=np.full(SITES, 0.001),
        uplink_bps=np.full(SITES, 1e8),
        distribution=zeros,
        batch_timeout_s=np.zeros(workers),
    )


def _view(world: World, k: int, second: int) -> DispatchView:
    workers = world.workers
    share = k / (COUNT - 1) * _draw(1000 + second, (workers,), 0.5, 1.0)
    load = share * world.capacity_qps
    count = 4 * workers * k // COUNT
    ids = np.arange(count, dtype=np.int64)
    zeros = np.zeros(count, dtype=np.int64)
    columns = [_draw(10 + j, (count,), *ends) for j, ends in enumerate(((2.0, 25.0), (0.02, 0.6)))]
    rows = Rows(
        ids, ids % SITES, zeros, columns[0], np.full(count, 4e4), columns[1], np.full(count, 10.0), zeros
    )
    opened = _draw(20, (count,), 25.0 * k - 60.0, 25.0 * k + 24.0)
    return DispatchView(
        world=world,
        now_s=float(second),
        seed=SEED,
        load_qps=load,
        streams=np.full(workers, 4 * k // COUNT, dtype=np.int64),
        up=np.ones(workers, dtype=np.bool_),
        queue=10.0 * share,
        throughput_qps=0.9 * load,
        delay_mean_s=world.fixed_s * (1.0 + share),
        delay_p95_s=world.fixed_s * (1.0 + 2.0 * share),
        measured_s=second - 0.5,
        bound=Bound(rows, ids % workers, opened),
    )
