"""Whether a dispatcher of streams keeps its contract; small worlds to try policies on; a textbook queue."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgewise.arrays import Floats
from edgewise.config import load_scenario
from edgewise.core import keyed
from edgewise.core.dispatch.events import (
    Bind,
    Measured,
    Refuse,
    Release,
    StreamClosed,
    StreamOpened,
    Telemetry,
    Tick,
)
from edgewise.core.dispatch.policy import CLOSE, OPEN, Batch, DispatchPolicy, assess
from edgewise.core.dispatch.streams import DispatchCore
from edgewise.core.dispatch.views import REASONS, Decisions, DispatchView, Items, Rows, Violation
from edgewise.core.hooks import Ticks
from edgewise.core.keyed import Key
from edgewise.core.world import World
from edgewise.model.parsing import parse_scenario
from edgewise.model.scenario import Scenario
from edgewise.model.topology import (
    Cable,
    Catalog,
    Cluster,
    Model,
    Node,
    Profile,
    Resources,
    Site,
    Topology,
    Variant,
    Way,
    Worker,
)
from edgewise.model.work import Stream
from edgewise.policies.dispatch.chooser import Chooser, Trained

LAW: dict[str, Any] = {"distribution": "exponential", "deviation": 0.0, "batch_slope": 0.0}


def small_world(workers: int = 6, sites: int = 2, wan_bps: float | None = None) -> World:
    """A world for tests: `workers` workers of two tasks on three clusters, all different.

    Args:
        wan_bps: messages share links, a wide one of each site and one of this rate to all clusters but the
            first; None: they share none.
    """
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
    cables = (
        () if wan_bps is None else (Cable("wan", wan_bps), *(Cable(f"lan-{s}", 1e9) for s in range(sites)))
    )
    ways = tuple(
        Way(
            f"site-{s}",
            f"cluster-{c}",
            0.002 + 0.01 * c + 0.001 * s,
            0.001,
            min(1e9, wan_bps if wan_bps and c else 1e9),
            (f"lan-{s}", "wan")[: 1 + (c > 0)] if cables else (),
        )
        for s in range(sites)
        for c in range(3)
    )
    deployed = tuple(Worker(f"worker-{k}", f"variant-{k}", f"node-{k % 3}") for k in range(workers))
    site_list = tuple(Site(f"site-{s}", 0.001, 1e8) for s in range(sites))
    topology = Topology(site_list, clusters, ways, deployed, cables=cables)
    return World.build(Catalog(models, variants), topology, "fifo" if cables else "none")


def queue_scenario(
    rate_qps: float,
    service_s: float,
    seconds: float,
    *,
    servers: int = 1,
    max_batch: int = 1,
    batch_timeout_s: float = 0.0,
    poisson: bool = True,
    **law: Any,
) -> tuple[Scenario, list[Stream]]:
    """One stream on one worker with no network: a textbook queue that runs as any scenario does.

    Args:
        law: of service, fields of `Profile` where it is not exponential, without deviation and batch_slope.
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
                    "profile": {"fixed_s": service_s},
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
    profile = replace(variant.profile, **LAW | law)
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


def check(make: Callable[[], DispatchPolicy], budget_s: float) -> None:
    """As `edgewise.testing.check_policy`."""
    own = _own_world(make())
    smalls = small_world(), small_world(wan_bps=20e6), small_world(workers=1), small_world(workers=40)
    worlds = smalls if own is None else (own,)
    for world in worlds:
        _check_decisions(make, world)
        assert _run(make(), world) == _run(make(), world), "same key and events, other decisions"
        later = [
            replace(s, site=1 - s.site, rate_qps=1.0) if s.open_s > 20.0 else s for s in _streams(world, 60)
        ]
        seen, others = (
            _run(make(), world, until_s=20.0, streams=these) for these in (_streams(world, 60), later)
        )
        assert seen == others, "other decisions because of what comes later"
        assert _played(make(), world) == _run(make(), world, ticks=False), "compiled and plain score differ"
    _check_latency(make, own or small_world(workers=200), budget_s)


def _own_world(policy: DispatchPolicy) -> World | None:
    """The world that a policy was trained on, where its card is for no other; None where it takes any."""
    trained = policy.card if isinstance(policy, Chooser) else None
    if not isinstance(trained, Trained) or not trained.workers:
        return None
    card = trained.card
    scenario = load_scenario(card.about["config"]["scenario"])
    return World.build(scenario.catalog, scenario.topology)


def _streams(world: World, count: int) -> list[Stream]:
    """As `some_streams`, of tasks that a world knows, and one that it does not."""
    names = dict(zip(("classify", "detect"), (*world.task_names, *world.task_names), strict=False))
    if not set(world.task_names).isdisjoint(names):
        return some_streams(count)
    return [replace(each, task=names.get(each.task, each.task)) for each in some_streams(count)]


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
                link=np.stack([world.link_bps, load * world.link_bps, load * world.link_bps]),
            )
            for array in _arrays(view):
                array.setflags(write=False)
            yield view, Items.of(world, _streams(world, 12))
            yield view, Items(())


def _arrays(view: DispatchView) -> list[NDArray[np.generic]]:
    fields = ("load_qps", "streams", "up", "queue", "throughput_qps", "delay_mean_s", "delay_p95_s", "link")
    return [getattr(view, name) for name in fields]


def _check_decisions(make: Callable[[], DispatchPolicy], world: World) -> None:
    for view, items in _views(world):
        policy = make()
        policy.reset(world, Key(1))
        before = [array.copy() for array in _arrays(view)]
        if isinstance(policy, Ticks):
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
    core, streams = DispatchCore(world, policy, seed=3), _streams(world, 60)
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


def _run(
    policy: DispatchPolicy,
    world: World,
    ticks: bool = True,
    until_s: float = np.inf,
    streams: Sequence[Stream] = (),
) -> list[object]:
    """Drive a core over a small trace; every command until a time is returned, no fault is allowed.

    Args:
        ticks: with windows and measurements; otherwise only bindings and refusals are returned.
    """
    core, streams = DispatchCore(world, policy, seed=3), streams or _streams(world, 60)
    events: list[tuple[float, int, object]] = [(s.open_s, 2, s) for s in streams if s.open_s <= until_s]
    events += [(s.close_s, 0, s.id) for s in streams if s.close_s <= until_s]
    events += [(5.0 * k, 1, None) for k in range(10)] if ticks else []
    log: list[object] = []
    for at_s, kind, what in sorted(events, key=lambda e: (e[0], e[1])):
        if isinstance(what, Stream):
            log += core.handle(StreamOpened(at_s, what))
        elif kind == 0:
            log += core.handle(StreamClosed(at_s, int(what)))  # type: ignore[call-overload]
        else:
            figures = keyed.uniform(3, keyed.Purpose.SERVICE, np.arange(world.workers), int(at_s))
            links = np.stack([world.link_bps, 1e6 * (world.link_bps < 1e9)])
            core.handle(Measured(at_s, Telemetry(at_s, figures, figures, figures, figures, links)))
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
