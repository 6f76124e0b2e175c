"""Public conformance kit: a policy that passes `check_policy` runs in simulation and live.

from edgewise.testing import check_policy
check_policy(lambda: MyPolicy())

`check_backend` does the same for what the live system runs its processes on, `check_testbed` for what
pipelines run on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgewise.arrays import Floats
from edgewise.core import keyed
from edgewise.core.choose import CLOSE, OPEN, Batch
from edgewise.core.dispatch import DispatchCore
from edgewise.core.events import Bind, Measured, Refuse, Release, StreamClosed, StreamOpened, Telemetry, Tick
from edgewise.core.feasibility import assess
from edgewise.core.keyed import Key
from edgewise.core.policy import DispatchPolicy
from edgewise.core.views import REASONS, Decisions, DispatchView, Items, Rows, Violation
from edgewise.core.world import World
from edgewise.model.catalog import Catalog, Model, Profile, Variant
from edgewise.model.resources import Resources
from edgewise.model.scenario import Scenario, parse_scenario
from edgewise.model.topology import Cluster, Node, Site, Topology, Way, Worker
from edgewise.model.work import Stream

if TYPE_CHECKING:
    from edgewise.model.network import Network
    from edgewise.runtime.backends.base import Backend
    from edgewise.runtime.testbeds.base import Testbed as Testbed

BUDGET_S = 0.05


class VirtualClock:
    """A clock that moves only when told to; hand it to whatever takes a `clock`."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        """The present time in seconds."""
        return self.now_s

    def advance(self, by_s: float) -> float:
        """Move forward and return the new time.

        Raises:
            ValueError: `by_s` is negative.
        """
        if by_s < 0:
            raise ValueError(f"time must not go back: by_s={by_s}")
        self.now_s += by_s
        return self.now_s


def check_backend(make_backend: Callable[[Path], Backend], folder: Path, limit_s: float = 60.0) -> None:
    """Start, watch, kill, start again and end a real worker through a backend (extra `live`).

    Args:
        make_backend: makes a backend that keeps its files in a folder.
        folder: an empty one.
        limit_s: for each step.
    Raises:
        AssertionError: says which part of the contract of `edgewise.runtime.backends.Backend` is broken.
    """
    from edgewise.runtime import conformance  # an extra

    conformance.check_backend(make_backend, folder, limit_s)


def check_testbed(make_testbed: Callable[[Network], Testbed], limit_s: float = 60.0) -> None:
    """Addresses, flows, real traffic, a link that fails and returns, and a clean end (extra `place`).

    Args:
        make_testbed: makes a test bed of a network; netns needs root.
        limit_s: for each transfer.
    Raises:
        AssertionError: says which part of the contract of `edgewise.runtime.testbeds.Testbed` is broken.
    """
    from edgewise.runtime import conformance  # an extra

    conformance.check_testbed(make_testbed, limit_s)


def small_world(workers: int = 6, sites: int = 2) -> World:
    """A world for tests: `workers` workers of two tasks on three clusters, all different."""
    models = tuple(Model(f"model-{k}", "detect" if k % 3 else "classify", 10.0 + 10.0 * k) for k in range(4))
    variants = tuple(
        Variant(
            name=f"variant-{k}",
            model=f"model-{k % 4}",
            resources=Resources(1.0),
            profile=Profile(0.01 * (k % 5 + 1), 1e-8),
            capacity_qps=20.0 + 5 * k,
            largest_bytes=1e6,
        )
        for k in range(workers)
    )
    clusters = tuple(
        Cluster(f"cluster-{c}", c, (Node(f"node-{c}", f"cluster-{c}", Resources(1000.0)),)) for c in range(3)
    )
    ways = tuple(
        Way(f"site-{s}", f"cluster-{c}", 0.002 + 0.01 * c + 0.001 * s, 0.001)
        for s in range(sites)
        for c in range(3)
    )
    deployed = tuple(Worker(f"worker-{k}", f"variant-{k}", f"node-{k % 3}") for k in range(workers))
    site_list = tuple(Site(f"site-{s}", 0.001, 1e8) for s in range(sites))
    return World.build(Catalog(models, variants), Topology(site_list, clusters, ways, deployed))


def queue_scenario(
    rate_qps: float,
    service_s: float,
    seconds: float,
    *,
    servers: int = 1,
    distribution: str = "exponential",
    deviation: float = 0.0,
    max_batch: int = 1,
    batch_slope: float = 0.0,
    batch_timeout_s: float = 0.0,
    poisson: bool = True,
) -> tuple[Scenario, list[Stream]]:
    """One stream on one worker with no network: a textbook queue that runs as any scenario does.

    Returns:
        The scenario, and its one stream; hand both to `Simulation`.
    """
    size_bytes = 1e-9  # next to nothing to carry
    data = {
        "name": "queue",
        "duration_s": seconds,
        "window_s": seconds,
        "telemetry": {"period_s": seconds},
        "catalog": {
            "models": [{"name": "m", "task": "t", "accuracy": 1}],
            "variants": [
                {
                    "name": "v",
                    "model": "m",
                    "profile": {"fixed_s": service_s, "deviation": deviation, "batch_slope": batch_slope},
                    "servers": servers,
                    "max_batch": max_batch,
                    "largest_bytes": 1,
                }
            ],
        },
        "clusters": [{"name": "c", "tier": 0, "nodes": [{"name": "n", "resources": {}}]}],
        "sites": [{"name": "s", "uplink_bps": 1e15}],
        "links": [{"site": "s", "cluster": "c", "delay_s": 0, "bandwidth_bps": 1e15}],
        "workers": [{"variant": "v", "node": "n"}],
        "streams": {
            "applications": [
                {"name": "a", "task": "t", "rate_qps": 1, "size_bytes": 1, "deadline_s": 1, "length_s": 1}
            ],
            "arrivals": {"clients_per_min": 1},
        },
    }
    scenario = parse_scenario(data, "queue")
    (variant,) = scenario.catalog.variants
    profile = replace(variant.profile, distribution=distribution)
    # Capacity without bound: the stream is admitted at any load.
    variant = replace(variant, profile=profile, capacity_qps=np.inf, batch_timeout_s=batch_timeout_s)
    scenario = replace(scenario, catalog=replace(scenario.catalog, variants=(variant,)))
    arrivals = "poisson" if poisson else "periodic"
    return scenario, [Stream(0, 0, "a", "t", 0.0, seconds, rate_qps, size_bytes, np.inf, 0.0, 0, arrivals)]


def some_streams(count: int, seed: int = 0, sites: int = 2) -> list[Stream]:
    """Streams of mixed needs, two per second, some of which nothing can serve."""
    draw = keyed.uniform(seed, keyed.Purpose.STREAM, np.arange(count)[:, None], np.arange(6)[None, :])
    return [
        Stream(
            id=i,
            site=int(u[0] * sites),
            application="test",
            task=("detect", "classify", "unknown")[min(int(u[1] * 2.2), 2)],
            open_s=0.5 * i,
            close_s=0.5 * i + 20.0 * u[2] + 0.1,
            rate_qps=1.0 + 9.0 * u[3],
            size_bytes=1e5,
            deadline_s=0.02 + 0.3 * u[4],
            min_accuracy=45.0 * u[5],
        )
        for i, u in enumerate(draw)
    ]


def check_policy(make: Callable[[], DispatchPolicy], *, budget_s: float = BUDGET_S) -> None:
    """Check a dispatch policy against its contract.

    Same key, same decisions; the view unmodified; answers of the right shape and range; only
    feasible workers; refusals only with a reason; empty, single-worker and nothing-feasible
    cases; a decision within `budget_s` (median); state saved and loaded.

    Args:
        make: makes a new policy; called several times.
    Raises:
        AssertionError: names what is broken.
    """
    for world in (small_world(), small_world(workers=1), small_world(workers=40)):
        _check_decisions(make, world)
        assert _run(make(), world) == _run(make(), world), "same key and events, other decisions"
        assert _played(make(), world) == _run(make(), world, ticks=False), "compiled and plain score differ"
    _check_latency(make, small_world(workers=200), budget_s)
    _check_state(make)


def _views(world: World) -> Iterator[tuple[DispatchView, Items]]:
    """Views with different ledgers and measurements, with the items to decide."""
    zeros: Floats = np.zeros(world.workers)
    for load in (0.0, 0.5, 1.0):
        for up in (True, False):
            view = DispatchView(
                world=world,
                now_s=30.0,
                seed=1,
                load_qps=load * world.capacity_qps,
                streams=np.full(world.workers, int(8 * load), dtype=np.int64),
                up=np.full(world.workers, up),
                queue=zeros + 3 * load,
                throughput_qps=load * world.capacity_qps,
                delay_mean_s=world.fixed_s * (1 + load),
                delay_p95_s=world.fixed_s * (1 + 2 * load),
                measured_s=29.5,
            )
            for array in _arrays(view):
                array.setflags(write=False)
            yield view, Items.of(world, some_streams(12))
            yield view, Items(())


def _arrays(view: DispatchView) -> list[NDArray[np.generic]]:
    fields = ("load_qps", "streams", "up", "queue", "throughput_qps", "delay_mean_s", "delay_p95_s")
    return [getattr(view, name) for name in fields]


def _check_decisions(make: Callable[[], DispatchPolicy], world: World) -> None:
    for view, items in _views(world):
        policy = make()
        policy.reset(world, Key(1))
        before = [array.copy() for array in _arrays(view)]
        policy.tick(view)
        decisions = policy.decide(view, items)
        for old, new in zip(before, _arrays(view), strict=True):
            assert np.array_equal(old, new), "the policy changed its view"
        _check_answer(view, items, decisions)


def _check_answer(view: DispatchView, items: Items, decisions: Decisions) -> None:
    worker = np.asarray(decisions.worker)
    assert worker.shape == (len(items),), f"worker has shape {worker.shape} for {len(items)} items"
    assert np.issubdtype(worker.dtype, np.integer), f"worker has dtype {worker.dtype}, need integers"
    assert ((worker >= -1) & (worker < view.world.workers)).all(), "a worker index is out of range"
    for i, item in enumerate(items):
        violation = assess(view, item).violation
        if worker[i] >= 0:
            assert violation[worker[i]] == Violation.NONE, f"item {i} bound to an infeasible worker"
        else:
            assert decisions.reason.shape == worker.shape, "refusals need a reason for each item"
            assert decisions.reason[i] != Violation.NONE, f"item {i} refused without a reason"


def _played(policy: DispatchPolicy, world: World) -> list[object]:
    """The bindings and refusals of a small trace, played at once (compiled where it can be)."""
    core, streams = DispatchCore(world, policy, seed=3), some_streams(60)
    times = np.array([s.open_s for s in streams] + [s.close_s for s in streams])
    kinds = np.repeat([OPEN, CLOSE], len(streams))
    order = np.lexsort((kinds, times))
    rows = np.tile(np.arange(len(streams)), 2)
    worker, reason = np.full(len(streams), -1), np.zeros(len(streams), dtype=np.int8)
    core.play(
        Batch(times[order], kinds[order], rows[order]), Rows.of(Items.of(world, streams).rows), worker, reason
    )
    core.validate()
    assert not core.faults, f"the fallback had to decide: {core.faults}"
    pairs = zip(range(len(streams)), worker.tolist(), reason.tolist(), strict=True)
    return [Bind(i, w) if w >= 0 else Refuse(i, REASONS[Violation(r)]) for i, w, r in pairs]


def _run(policy: DispatchPolicy, world: World, ticks: bool = True) -> list[object]:
    """Drive a core over a small trace; every command is returned, no fault is allowed.

    Args:
        ticks: with windows and measurements; otherwise only bindings and refusals are returned.
    """
    core = DispatchCore(world, policy, seed=3)
    events: list[tuple[float, int, object]] = [(s.open_s, 2, s) for s in some_streams(60)]
    events += [(s.close_s, 0, s.id) for s in some_streams(60)]
    events += [(5.0 * k, 1, None) for k in range(10)] if ticks else []
    log: list[object] = []
    for at_s, kind, what in sorted(events, key=lambda e: (e[0], e[1])):
        if isinstance(what, Stream):
            log += core.handle(StreamOpened(at_s, what))
        elif kind == 0:
            log += core.handle(StreamClosed(at_s, int(what)))  # type: ignore[call-overload]
        else:
            figures = keyed.uniform(3, keyed.Purpose.SERVICE, np.arange(world.workers), int(at_s))
            core.handle(Measured(at_s, Telemetry(at_s, figures, figures, figures, figures)))
            log += core.handle(Tick(at_s))
    core.validate()
    assert not core.faults, f"the fallback had to decide: {core.faults}"
    return log if ticks else [command for command in log if not isinstance(command, Release)]


def _check_latency(make: Callable[[], DispatchPolicy], world: World, budget_s: float) -> None:
    policy = make()
    policy.reset(world, Key(1))
    view, items = next(_views(world))
    taken = []
    for item in items:
        started = time.perf_counter()
        policy.decide(view, Items((item,)))
        taken.append(time.perf_counter() - started)
    median = float(np.median(taken))
    assert median <= budget_s, (
        f"a decision takes {median:.3f} s at {world.workers} workers, budget {budget_s} s"
    )


def _check_state(make: Callable[[], DispatchPolicy]) -> None:
    first, second = make(), make()
    dump, load = getattr(first, "state_dict", None), getattr(second, "load_state", None)
    assert (dump is None) == (load is None), "state_dict and load_state go together"
    if dump is None or load is None:
        return
    world = small_world()
    _run(first, world)
    load(dump())
    view, items = next(_views(world))
    same = np.array_equal(first.decide(view, items).worker, second.decide(view, items).worker)
    assert same, "a policy with loaded state decides differently"
